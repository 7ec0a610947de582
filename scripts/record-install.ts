// `npm run build && node dist/scripts/record-install.js [--out FILE]`: install to first training on a machine without a
// compiler, run for real and written down: the package as it is published, in an empty folder, with an empty cache and
// a PATH that has node, npm and a shell alone. The engine as WebAssembly must have been made (npm run release:wasm).
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { packageRoot } from '../src/base/paths.js';

const { values } = parseArgs({ options: { out: { type: 'string', default: 'docs/guide/install-session.txt' } } });
if (!existsSync(join(packageRoot, 'native/prebuilt')))
  throw new Error('native/prebuilt is not there: npm run release:wasm makes it');
const work = mkdtempSync(join(tmpdir(), 'wick-session-'));
process.on('exit', () => rmSync(work, { recursive: true, force: true }));
const [bin, home] = ['bin', 'home'].map((name) => join(work, name));
for (const dir of [bin, home]) mkdirSync(dir);

const run = (command: string, args: readonly string[], cwd: string): string => {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stdout}${stderr}`);
  return stdout;
};
run('node', [join(packageRoot, 'dist/scripts/release-package.js'), '--out', work, '--engines', ''], packageRoot);
const tarball = run('npm', ['pack', '--loglevel', 'error', '--pack-destination', home], join(work, 'wick')).trim();

const node = dirname(process.execPath);
for (const name of ['node', 'npm', 'npx'])
  if (existsSync(join(node, name))) symlinkSync(join(node, name), join(bin, name));
symlinkSync('/bin/sh', join(bin, 'sh'));

// The program of the README under Training.
const readme = readFileSync(join(packageRoot, 'README.md'), 'utf8');
const program = /## Training\n```ts\n([^]*?)```/.exec(readme)?.[1];
if (!program) throw new Error('the README has no program under Training');
writeFileSync(join(home, 'train.mjs'), program);

const env = {
  ...process.env,
  PATH: bin,
  WICK_CACHE_DIR: join(work, 'cache'),
  npm_config_loglevel: 'error',
  npm_config_fund: 'false',
  npm_config_audit: 'false',
};
const COMMANDS = [
  'c++ --version || g++ --version || clang++ --version',
  'node --version',
  `npm install ./${tarball}`,
  'npx wick devices',
  'node train.mjs',
  'npx wick generate --max-tokens 60 --seed 7 ROMEO:',
];
const lines = [
  `# ${process.platform} ${process.arch}, ${new Date().toISOString().slice(0, 10)}; PATH holds ` +
    `${readdirSync(bin).join(', ')}`,
];
for (const command of COMMANDS) {
  const { stdout, stderr, status } = spawnSync('/bin/sh', ['-c', command], { cwd: home, env, encoding: 'utf8' });
  const said = `${stderr}${stdout}`.replaceAll(work, '').trimEnd();
  lines.push(`$ ${command}`, said);
  // Only the first is to fail: it shows that there is no compiler.
  if ((status === 0) === (command === COMMANDS[0])) throw new Error(`${command} ended with ${status}:\n${said}`);
}
writeFileSync(resolve(packageRoot, values.out as string), `${lines.join('\n')}\n`);
console.log(lines.join('\n'));
