// The house plan as a test: which room may import from which.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { VARIABLES } from '../src/base/environment.js';
import { packageRoot } from '../src/base/paths.js';

/** Rooms each room may import besides itself; base is open to all. */
const MAY: Readonly<Record<string, readonly string[]>> = {
  base: [],
  driver: [],
  ops: [],
  emulator: ['driver'], // its devices stand behind the seam; code objects are disassembled by the vendor's library
  'stand-ins': ['driver'],
  kernels: ['ops', 'driver'],
  backends: ['ops', 'driver', 'stand-ins', 'kernels', 'emulator'],
  tensor: ['ops', 'backends'],
  io: ['tensor'],
  hub: [],
  media: [],
  tokenizers: ['io'],
  nn: ['tensor', 'ops', 'io'],
  distributed: ['tensor', 'nn', 'driver'],
  models: ['nn', 'io', 'tensor', 'ops', 'tokenizers', 'hub', 'media'],
  engine: ['hub', 'tokenizers', 'models', 'nn', 'tensor', 'backends'], // decoding by graph is made of a backend's steps
  data: ['ops', 'tensor', 'media'],
  train: ['ops', 'tensor', 'io', 'nn', 'data'],
  server: ['engine'],
  testing: ['ops', 'tensor', 'backends'],
  parity: ['tensor', 'ops', 'backends', 'kernels', 'io', 'nn', 'models', 'testing'],
};
/** Rooms whose types a room may name besides: what they describe is handed through. Nothing of them runs there. */
const MAY_NAME: Readonly<Record<string, readonly string[]>> = {
  ops: ['tensor'], // a row's gradient is written in calls of tensors
  tensor: ['driver'],
  distributed: ['backends'],
  engine: ['driver'],
  server: ['tokenizers'],
  testing: ['driver', 'kernels'],
};
/** Rooms that may import everything: commands are thin, and the front door opens all. */
const FREE = ['cli', ''];

const src = join(packageRoot, 'src');
const files = readdirSync(src, { recursive: true, encoding: 'utf8' })
  .filter((f) => f.endsWith('.ts'))
  .map((f) => f.replaceAll('\\', '/'));
const roomOf = (file: string): string => (file.includes('/') ? file.slice(0, file.indexOf('/')) : '');
const IMPORT = /(?:^|\n)\s*(import|export)\s+(type\s+)?([^'";]*?)from\s+'([^']+)'|import\('([^']+)'\)/g;

interface Import {
  readonly target: string;
  readonly typeOnly: boolean;
  /** Read only when it is asked for. */
  readonly late: boolean;
}
/** What a file imports when it runs: `import type` and lists of nothing but types fall away. */
function importsOf(file: string): Import[] {
  const text = readFileSync(join(src, file), 'utf8');
  return [...text.matchAll(IMPORT)].map((m) => {
    const names =
      /\{([^}]*)\}/
        .exec(m[3] ?? '')?.[1]
        .split(',')
        .map((n) => n.trim())
        .filter(Boolean) ?? [];
    return {
      target: m[4] ?? m[5],
      late: m[5] !== undefined,
      typeOnly: m[2] !== undefined || (names.length > 0 && names.every((n) => n.startsWith('type '))),
    };
  });
}
const resolve = (file: string, target: string): string =>
  relative(src, join(src, file, '..', target))
    .replaceAll('\\', '/')
    .replace(/\.js$/, '.ts');

test('every room is in the table', () => {
  const unknown = [...new Set(files.map(roomOf))].filter((r) => !FREE.includes(r) && !Object.hasOwn(MAY, r));
  assert.deepEqual(unknown, [], `rooms without a line in the table: ${unknown.join(', ')}`);
});

test('the house plan has no circle', () => {
  const above = (room: string, path: readonly string[]): string[] =>
    path.includes(room) ? [[...path, room].join(' -> ')] : (MAY[room] ?? []).flatMap((r) => above(r, [...path, room]));
  assert.deepEqual(
    Object.keys(MAY).flatMap((r) => above(r, [])),
    [],
  );
});

/** Imports from one room to another, base left out. */
const between = files.flatMap((file) =>
  importsOf(file)
    .filter(({ target }) => target.startsWith('.'))
    .map(({ target, typeOnly }) => ({ file, room: roomOf(file), other: roomOf(resolve(file, target)), typeOnly }))
    .filter(({ room, other }) => !FREE.includes(room) && other !== room && other !== 'base'),
);

test('rooms import only what the house plan allows', () => {
  const wrong = between
    .filter(
      ({ room, other, typeOnly }) => !MAY[room]?.includes(other) && !(typeOnly && MAY_NAME[room]?.includes(other)),
    )
    .map(
      ({ file, room, other, typeOnly }) =>
        `${file}: ${room}/ may not ${typeOnly ? 'name types of' : 'import'} ${other || 'the front door'}/`,
    );
  assert.deepEqual(wrong, [], `\n  ${wrong.join('\n  ')}`);
});

test('the house plan allows no more than is used', () => {
  const unused = (plan: typeof MAY, uses: (i: (typeof between)[number]) => boolean): string[] =>
    Object.entries(plan).flatMap(([room, may]) =>
      may
        .filter((other) => !between.some((i) => i.room === room && i.other === other && uses(i)))
        .map((other) => `${room} -> ${other}`),
    );
  assert.deepEqual(
    unused(MAY, (i) => !i.typeOnly),
    [],
    'nothing of these is imported but, perhaps, types (MAY_NAME)',
  );
  assert.deepEqual(
    unused(MAY_NAME, (i) => i.typeOnly),
    [],
    'no type of these is named',
  );
});

test('engines and tensors ask backend.gpu, and import nothing of the GPU backend but types', () => {
  // What compiles kernels ahead of time and judges them, with or without a device.
  const tools = /^(cli|parity|backends\/gpu)\//;
  const wrong = files
    .filter((f) => !tools.test(f))
    .filter((f) => importsOf(f).some((i) => !i.typeOnly && resolve(f, i.target).startsWith('backends/gpu/')));
  // The registry names the GPU backend's type in a `typeof import(...)`, and reads it when a GPU is opened.
  assert.deepEqual(wrong, ['backends/registry.ts']);
});

/** Rooms whose interfaces name each other: a row's gradient takes tensors, a backend runs rows. */
const SEAMS = ['ops', 'tensor', 'kernels', 'backends', 'driver'];

test('files do not import each other in a circle, nor name each other in one outside of the seams', () => {
  const known = new Map(
    files.map((f) => [
      f,
      importsOf(f)
        .filter((i) => i.target.startsWith('.') && !(i.typeOnly && SEAMS.includes(roomOf(f))))
        .map((i) => resolve(f, i.target)),
    ]),
  );
  const done = new Set<string>();
  const circles: string[] = [];
  const walk = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(' -> '));
    if (path.includes(file) || done.has(file)) return;
    for (const next of known.get(file) ?? []) walk(next, [...path, file]);
    done.add(file);
  };
  for (const file of files) walk(file, []);
  assert.deepEqual(circles, [], `\n  ${circles.join('\n  ')}`);
});

test('a language model is opened without the files of models that see, hear or sort', () => {
  const read = new Set<string>();
  const walk = (file: string): void => {
    if (read.has(file)) return;
    read.add(file);
    for (const i of importsOf(file))
      if (!i.typeOnly && !i.late && i.target.startsWith('.')) walk(resolve(file, i.target));
  };
  walk('engine/language-model.ts');
  assert.ok(read.has('models/families/llama.ts'), 'decoders are read');
  const others = [...read].filter((f) => /^(media|models\/(vision|scenes|sound|pictures))\//.test(f));
  assert.deepEqual(others, []);
});

test('CONTRIBUTING shows the house plan as it is', () => {
  const page = readFileSync(join(packageRoot, 'CONTRIBUTING.md'), 'utf8');
  const rows = [...page.matchAll(/^\| src\/([\w-]+)\/ \|.*\| ([\w -]+) \|$/gm)];
  const shown = Object.fromEntries(rows.map(([, room, may]) => [room, may]));
  const wanted = Object.entries(MAY).map(([room, may]) => [
    room,
    room === 'base' ? 'nothing' : ['base', ...may].join(' '),
  ]);
  assert.deepEqual(shown, { ...Object.fromEntries(wanted), cli: 'any' });
});

test('only driver/ffi.ts imports the FFI library', () => {
  const wrong = files.filter(
    (f) => f !== 'driver/ffi.ts' && importsOf(f).some((i) => i.target === 'koffi' && !i.typeOnly),
  );
  assert.deepEqual(wrong, [], `${wrong.join(', ')}: the FFI library is imported by driver/ffi.ts alone`);
});

test('the environment is read in one place, and every variable is declared there', () => {
  // Giving the whole of it to a child process, and setting what a child or a library reads, does not count as reading.
  const wrong = files
    .filter((f) => f !== 'base/environment.ts')
    .filter((f) => /(?<!\.\.\.)process\.env\b(?!\.\w+ = )/.test(readFileSync(join(src, f), 'utf8')));
  assert.deepEqual(wrong, [], `${wrong.join(', ')}: src/base/environment.ts alone reads the environment`);
  const foreign = ['RESULT', 'NODE_TEST_CONTEXT']; // of a test's own children, and of Node
  const undeclared: string[] = [];
  for (const folder of ['scripts', 'bench', 'test', '.ci'])
    for (const file of readdirSync(join(packageRoot, folder), { recursive: true, encoding: 'utf8' })) {
      if (!/\.ts$|^run$/.test(file)) continue;
      const text = readFileSync(join(packageRoot, folder, file), 'utf8');
      for (const [, a, b] of text.matchAll(/process\.env\.(\w+)|\b(WICK_\w+)(?==|: (?!string))/g))
        if (!Object.hasOwn(VARIABLES, a ?? b) && !foreign.includes(a ?? b))
          undeclared.push(`${folder}/${file}: ${a ?? b}`);
    }
  assert.deepEqual(undeclared, [], 'declare it in src/base/environment.ts');
});

test('imports exist and carry their suffix', () => {
  const known = new Set(files);
  const wrong: string[] = [];
  for (const file of files) {
    for (const { target } of importsOf(file))
      if (target.startsWith('.') && !known.has(resolve(file, target))) wrong.push(`${file}: ${target}`);
  }
  assert.deepEqual(wrong, []);
});

test('files open with a sentence, have no default export and kebab-case names', () => {
  const wrong: string[] = [];
  for (const file of files) {
    const text = readFileSync(join(src, file), 'utf8').replace(/^#!.*\n/, '');
    if (!/^\/\/ \S.*|^\/\*\*? \S/.test(text)) wrong.push(`${file}: does not open with a sentence that says what it is`);
    if (/^export default /m.test(text)) wrong.push(`${file}: default export`);
    if (!/^([a-z0-9-]+\/)*[a-z0-9-]+(\.d)?\.ts$/.test(file)) wrong.push(`${file}: its name is not kebab-case`);
  }
  assert.deepEqual(wrong, [], `\n  ${wrong.join('\n  ')}`);
});
