// What a user gets from the registry, tried as one would: the package is packed, installed into an empty folder and
// used from ES modules, CommonJS, TypeScript with every declaration checked, a bundler, Bun and Deno.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { packageRoot } from '../src/base/paths.js';

const LIMIT = 15e6;
const work = mkdtempSync(join(tmpdir(), 'wick-package-'));
process.on('exit', () => rmSync(work, { recursive: true, force: true }));
const user = join(work, 'user');
mkdirSync(user);

const run = (command: string, args: readonly string[], cwd: string): { ok: boolean; out: string } => {
  const done = spawnSync(command, args, { cwd, encoding: 'utf8', maxBuffer: 1 << 26 });
  return { ok: done.status === 0, out: `${done.stdout ?? ''}${done.stderr ?? ''}` };
};
let failures = 0;
function say(what: string, ok: boolean, told: string): void {
  console.log(`${ok ? 'ok  ' : 'NOT '} ${what}${told ? `: ${told}` : ''}`);
  if (!ok) failures++;
}
const must = (what: string, command: string, args: readonly string[], cwd = user): string => {
  const { ok, out } = run(command, args, cwd);
  say(what, ok, ok ? (out.trim().split('\n').at(-1) ?? '') : out.slice(-2000));
  return out;
};

const made = run(
  'node',
  [join(packageRoot, 'dist/scripts/release-package.js'), '--out', work, '--engines', ''],
  packageRoot,
);
if (!made.ok) throw new Error(made.out);
const packed = JSON.parse(
  spawnSync('npm', ['pack', '--json', '--loglevel', 'error'], { cwd: join(work, 'wick'), encoding: 'utf8' }).stdout,
) as { filename: string; files: { path: string }[] }[];
const tarball = resolve(work, 'wick', packed[0].filename);
const { size } = statSync(tarball);
say('size', size < LIMIT, `${(size / 1e6).toFixed(1)} MB of at most ${LIMIT / 1e6}`);
const paths = packed[0].files.map((f) => f.path);
const odd = paths.filter((p) => /^(test|bench|scripts|docs|\.)|\.log$|dist\/(test|bench|scripts)/.test(p));
say('contents', odd.length === 0, odd.length ? odd.slice(0, 5).join(', ') : `${paths.length} files`);
const map = JSON.parse(readFileSync(join(work, 'wick/dist/joined/parts/index.js.map'), 'utf8')) as {
  sources: string[];
  sourcesContent?: string[];
};
const strange = map.sources.filter((source) => !source.startsWith('../../../src/'));
say(
  'source maps hold their sources',
  map.sourcesContent?.[0] !== undefined && strange.length === 0,
  strange.join(', '),
);

writeFileSync(join(user, 'package.json'), '{ "name": "user", "private": true }\n');
must('npm install', 'npm', [
  'install',
  '--ignore-scripts',
  '--prefer-offline',
  '--no-audit',
  '--loglevel',
  'error',
  tarball,
]);
const LINES = `const y = Tensor.from([[1, 2], [3, 4]]).matmul(Tensor.from([[1], [1]])).toArray();
if (JSON.stringify(y) !== '[[3],[7]]') throw new Error(JSON.stringify(y));
console.log('computed, and nn has ' + Object.keys(nn).length + ' names');`;
const write = (name: string, text: string): void => writeFileSync(join(user, name), text);
const IMPORTS = `import { Tensor } from 'wick';\nimport * as nn from 'wick/nn';\n`;
write('esm.mjs', `${IMPORTS}${LINES}\n`);
write('cjs.cjs', `const { Tensor } = require('wick');\nconst nn = require('wick/nn');\n${LINES}\n`);
const exported = Object.keys(
  (JSON.parse(readFileSync(join(user, 'node_modules/wick/package.json'), 'utf8')) as { exports: object }).exports,
).filter((e) => !e.endsWith('.json'));
write(
  'types.ts',
  `${exported.map((e, i) => `import * as part${i} from 'wick${e.slice(1)}';`).join('\n')}
export const parts: object[] = [${exported.map((_, i) => `part${i}`).join(', ')}];
import { Tensor } from 'wick';
export const doubled: Tensor = Tensor.from([1, 2]).mul(2);
`,
);
must('ES modules', 'node', ['esm.mjs']);
must('CommonJS', 'node', ['cjs.cjs']);
// Kernels of a GPU are found and compiled by the joined modules, too; where no compiler is, that is all it says.
write(
  'gpu.mjs',
  `import { Device, zeros } from 'wick';
try {
  console.log('computed ' + zeros([4], { device: Device.get('emu:gfx1030') }).add(1).toArray());
} catch (e) {
  if (typeof e.code !== 'string' || !e.code.startsWith('E_')) throw e;
  console.log(e.message);
}
`,
);
must('a kernel of an emulated GPU', 'node', ['gpu.mjs']);
const MODULES = `import { register } from 'node:module';
register('data:text/javascript,' + encodeURIComponent(\`import { appendFileSync } from 'node:fs';
export const load = (url, context, next) => (appendFileSync('read.txt', url + '\\\\n'), next(url, context));\`));
`;
write('modules.mjs', MODULES);
/** Joined modules make a start short: how many files of wick a program reads. */
function mustRead(what: string, most: number, args: readonly string[]): void {
  write('read.txt', '');
  const { ok, out } = run('node', ['--import', './modules.mjs', ...args], user);
  const files = new Set(readFileSync(join(user, 'read.txt'), 'utf8').match(/node_modules\/wick\/.*/g) ?? []);
  say(`${what} reads at most ${most} files`, ok && files.size > 1 && files.size <= most, ok ? `${files.size}` : out);
}
mustRead('a program of tensors and layers', 8, ['esm.mjs']);
mustRead('wick generate', 20, ['node_modules/.bin/wick', 'generate', '--device', 'cpu', '--max-tokens', '2', 'Once']);
mustRead('wick serve --help', 16, ['node_modules/.bin/wick', 'serve', '--help']);
must('wick --help', 'node', ['node_modules/.bin/wick', '--help']);
const tsc = join(packageRoot, 'node_modules/typescript/bin/tsc');
// The server's types name hono's, and these name the browser's.
const TYPES = [
  '--noEmit',
  '--strict',
  '--skipLibCheck',
  'false',
  '--target',
  'es2022',
  '--lib',
  'es2023,dom,esnext.disposable',
];
const NODE_TYPES = ['--types', 'node', '--typeRoots', join(packageRoot, 'node_modules/@types')];
must('types, every declaration checked', 'node', [tsc, ...TYPES, ...NODE_TYPES, '--module', 'nodenext', 'types.ts']);

/** Tools that may be missing: fetched from the registry where it has them. */
const fetched = (name: string): boolean =>
  run(
    'npm',
    ['install', '--prefix', join(work, name), '--no-save', '--ignore-scripts', '--prefer-offline', `${name}@latest`],
    work,
  ).ok;
interface Tool {
  readonly name: string;
  /** The program in node_modules, as the package's install script, which we do not run, would have placed it. */
  readonly program: string;
  readonly commands: (program: string) => (readonly [string, readonly string[]])[];
}
const BUNDLE = '--bundle --platform=node --format=esm --packages=external --outfile=bundled.mjs'.split(' ');
const cpu = process.arch === 'arm64' ? 'aarch64' : process.arch;
const TOOLS: readonly Tool[] = [
  {
    name: 'esbuild',
    program: `@esbuild/linux-${process.arch}/bin/esbuild`,
    commands: (esbuild) => [
      [esbuild, ['esm.mjs', ...BUNDLE]],
      ['node', ['bundled.mjs']],
    ],
  },
  { name: 'bun', program: `@oven/bun-linux-${cpu}/bin/bun`, commands: (bun) => [[bun, ['esm.mjs']]] },
  {
    name: 'deno',
    program: `@deno/linux-${process.arch}-glibc/deno`,
    commands: (deno) => [[deno, ['run', '-A', 'esm.mjs']]],
  },
];
for (const { name, program, commands } of TOOLS) {
  const path = join(work, name, 'node_modules', program);
  if (!fetched(name) || !run(path, ['--version'], user).ok) console.log(`skip ${name}: it cannot be installed here`);
  else for (const [command, args] of commands(path)) must(name, command, args);
}
process.exitCode = failures > 0 ? 1 : 0;
