// `npm run release:package -- --repository URL`: what is published, in release/: wick itself, and wick-golden with the
// numbers of other programs that `wick certify` compares with. The engines (release:engine) go first.
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { hostFiles } from '../src/parity/provenance.js';
import { joinModules } from './join-modules.js';
import { packageRoot } from '../src/base/paths.js';
import { enginePackage } from '../src/backends/native-build.js';
import { GOLDEN_PACKAGE } from '../src/parity/golden.js';

const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'release' },
    /** Where the sources are to be found; links of the README lead there. */
    repository: { type: 'string' },
    /** Architectures whose engine was published under this version. */
    engines: { type: 'string', default: 'x64,arm64' },
  },
});
const { out, repository, engines } = values as { out: string; repository?: string; engines: string };
const manifest = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as Record<string, unknown> & {
  files: string[];
  version: string;
  bin: Record<string, string>;
  exports: Record<string, string | { readonly types: string; readonly default: string }>;
};

/** Relative links lead nowhere on a registry's page: into the repository where it is known, else they become words. */
const absolute = (markdown: string): string =>
  markdown.replace(/(!?)\[([^\]]*)\]\((?!https?:|#)([^)]*)\)/g, (_, picture: string, text: string, path: string) =>
    repository ? `${picture}[${text}](${repository}/${picture ? 'raw' : 'blob'}/main/${path})` : text,
  );

function fresh(name: string): string {
  const folder = resolve(out, name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}
const write = (folder: string, content: object): void =>
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(content, null, 2)}\n`);
const from = repository && {
  repository: { type: 'git', url: `git+${repository}.git` },
  homepage: `${repository}#readme`,
};
const bugs = repository && { bugs: { url: `${repository}/issues` } };

/** Modules as they are compiled, and joined. */
const [COMPILED, JOINED] = ['dist/src', 'dist/joined'];
const inJoined = (path: string): string => path.replace(`./${COMPILED}/`, `./${JOINED}/`);
/** The modules behind the exports. */
const doors = Object.entries(manifest.exports).flatMap(([, door]) => (typeof door === 'string' ? [] : [door.default]));
/** Of compiled modules there are the types, and those whose texts evidence is told by. */
const hashed = new Set([...hostFiles('cpu'), ...hostFiles('gpu')].map((file) => join(packageRoot, COMPILED, file)));
const isKept = (path: string): boolean => !/\.js(\.map)?$/.test(path) || hashed.has(path);

const main = fresh('wick');
for (const name of manifest.files) {
  const path = join(packageRoot, name);
  if (existsSync(path))
    cpSync(path, join(main, name), { recursive: true, ...(name === COMPILED && { filter: isKept }) });
}
await joinModules(
  join(packageRoot, COMPILED),
  join(main, JOINED),
  doors.map((path) => path.slice(`./${COMPILED}/`.length)),
);
writeFileSync(join(main, 'README.md'), absolute(readFileSync(join(packageRoot, 'README.md'), 'utf8')));
const { devDependencies: _dev, scripts: _scripts, ...kept } = manifest;
const optionalDependencies = Object.fromEntries(
  engines
    .split(',')
    .filter((a) => a === 'x64' || a === 'arm64')
    .map((a) => [enginePackage(a), manifest.version]),
);
write(main, {
  ...kept,
  ...from,
  ...bugs,
  bin: Object.fromEntries(Object.entries(manifest.bin).map(([name, path]) => [name, inJoined(path)])),
  exports: Object.fromEntries(
    Object.entries(manifest.exports).map(([name, door]) => [
      name,
      typeof door === 'string' ? door : { ...door, default: inJoined(door.default) },
    ]),
  ),
  files: manifest.files.flatMap((name) => (name === COMPILED ? [COMPILED, JOINED] : [name])),
  // The front door and what it shares with others, which gives tensors their methods.
  sideEffects: [`./${JOINED}/index.js`, `./${JOINED}/parts/index.js`],
  optionalDependencies,
});

const golden = fresh(GOLDEN_PACKAGE);
const numbers = join(packageRoot, 'test', 'golden');
for (const name of readdirSync(numbers).filter((n) => n.endsWith('.br') || n === 'hf' || n === 'README.md'))
  cpSync(join(numbers, name), join(golden, name), { recursive: true });
write(golden, {
  name: GOLDEN_PACKAGE,
  version: manifest.version,
  description: 'Numbers computed by Candle, PyTorch and transformers, which `wick certify` compares with.',
  license: manifest.license,
  ...from,
});
console.log(`${main} and ${golden}: publish wick-golden, then wick.`);
if (!repository) console.log('Without --repository the packages name none, and links of the README became words.');
