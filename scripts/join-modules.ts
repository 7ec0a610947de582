// A release's modules, joined into a few files: resolving and reading some three hundred takes twice as long as
// compiling what is in them. Entries keep their names, so that workers and what is read late are found; the code that
// they share lies in parts/.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { type GetModuleInfo, type OutputChunk, type Plugin, rollup } from 'rollup';

/**
 * Whoever begins one of these begins with little else: a part holds what a head reads and none before it does, so that
 * parts never need each other in a circle.
 */
const HEADS = [
  // What a command's help needs of rooms whose other modules are large.
  ...['cli/main.js', 'io/byte-source.js', 'engine/builtin-model.js', 'engine/request.js'],
  ...['models/decoder/expert-divisions.js'],
  ...['driver/head-start.js', 'index.js', 'io/index.js', 'nn/index.js', 'tokenizers/index.js'],
  ...['engine/language-model.js', 'models/load.js', 'models/index.js', 'engine/index.js'],
  ...['driver/cuda.js', 'backends/gpu/gpu.js'],
];
/** It acts when it is read, so that it is part of nothing. */
const [COMMAND] = HEADS;
/** Read by its address from a process of its own. */
const BY_ADDRESS = 'backends/native-build.js';

/** Files that others name by their path: what is required late, and workers. */
const named = (from: string): string[] =>
  readdirSync(from, { recursive: true, encoding: 'utf8' })
    .filter((f) => f.endsWith('.js'))
    .flatMap((f) =>
      [...readFileSync(join(from, f), 'utf8').matchAll(/(?:\brequire|new URL)\(\s*'(\.[^']*\.js)'/g)].map(([, path]) =>
        join(dirname(f), path),
      ),
    );

/** Modules as compiled, with the maps to their sources; each goes on as if it lay where it did. */
const asCompiled = (from: string): Plugin => ({
  name: 'as compiled',
  load: (id) => ({
    code: readFileSync(id, 'utf8'),
    map: existsSync(`${id}.map`) ? readFileSync(`${id}.map`, 'utf8') : null,
  }),
  resolveImportMeta: (property, { moduleId, chunkId }) =>
    property === 'url'
      ? `new URL(${JSON.stringify(relative(dirname(join(from, chunkId)), moduleId))}, import.meta.url).href`
      : null,
});

/** The part of every module that a head reads. */
function partsOf(from: string, infoOf: GetModuleInfo): ReadonlyMap<string, string> {
  const parts = new Map<string, string>();
  for (const head of HEADS) {
    const left = [join(from, head)];
    for (let id = left.pop(); id !== undefined; id = left.pop()) {
      const info = infoOf(id);
      if (parts.has(id) || !info || info.isExternal) continue;
      parts.set(id, head.replace(/\.js$/, '').replaceAll('/', '-'));
      left.push(...info.importedIds);
    }
  }
  parts.delete(join(from, COMMAND));
  return parts;
}

/** Joins what the entries of the folder `from` need into the folder `to`. */
export async function joinModules(from: string, to: string, entries: readonly string[]): Promise<void> {
  const inputs = [...new Set([...entries, COMMAND, BY_ADDRESS, ...named(from)])];
  const joined = await rollup({
    input: Object.fromEntries(inputs.map((file) => [file.replace(/\.js$/, ''), join(from, file)])),
    external: (id) => !/^[./]/.test(id),
    treeshake: false,
    preserveEntrySignatures: 'strict',
    plugins: [asCompiled(from)],
    onLog: (_, { code, message }) => {
      if (code !== 'THIS_IS_UNDEFINED') throw new Error(`joining modules: ${message}`); // what `using` is compiled to
    },
  });
  let parts: ReadonlyMap<string, string> | undefined;
  const { output } = await joined.write({
    dir: to,
    format: 'es',
    sourcemap: true,
    // Sources are named as they lie in the package, wherever it is made.
    sourcemapPathTransform: (source, map) =>
      relative(dirname(map), join(to, '../..', relative(join(from, '../..'), resolve(dirname(map), source)))),
    hoistTransitiveImports: false,
    minifyInternalExports: false,
    chunkFileNames: 'parts/[name].js',
    manualChunks: (id, { getModuleInfo }) => (parts ??= partsOf(from, getModuleInfo)).get(id),
  });
  const renamed = output
    .filter((file): file is OutputChunk => file.type === 'chunk')
    .flatMap(({ code }) => code.match(/\bclass \w+\$\d+/g) ?? []);
  if (renamed.length > 0) throw new Error(`joining modules: two classes have one name: ${renamed.join(', ')}`);
}
