// C++ and HIP in one style (.clang-format): `--check` only tells. Another release than 14 lays some lines out
// differently, so that is the one that decides; where it is missing a sentence says so.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

const RELEASE = 14;
const root = join(import.meta.dirname, '../..');
const program = ['clang-format-14', 'clang-format'].find((name) => {
  const told = spawnSync(name, ['--version'], { encoding: 'utf8' });
  return told.status === 0 && told.stdout.includes(`version ${RELEASE}.`);
});
const files = ['kernels', 'native'].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(hip|h|cpp)$/.test(name))
    .map((name) => join(folder, name)),
);
if (!program)
  console.log(`clang-format ${RELEASE} is not installed: the layout of ${files.length} files of C++ stays unchecked`);
else {
  const how = process.argv.includes('--check') ? ['--dry-run', '-Werror'] : ['-i'];
  const done = spawnSync(program, [...how, ...files], { cwd: root, stdio: 'inherit' });
  if (done.status !== 0) console.error('npm run format lays these files out');
  process.exitCode = done.status ?? 1;
}
