// What an editor shows: every public method, option and class of tensors has a documentation comment in the compiled
// declarations, and parts of ops are not offered.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type FunctionDeclaration, type Node, SyntaxKind, type TypeLiteralNode } from 'typescript/unstable/ast';
import { API, type Symbol, SymbolFlags } from 'typescript/unstable/sync';
import { DECLARATIONS, isPublic, methodDoc, withDocs } from '../scripts/method-docs.js';
import { packageRoot } from '../src/base/paths.js';
import { DTypeError, tensor } from '../src/index.js';
import { OPS, opList } from '../src/ops/table.js';

const dist = join(packageRoot, 'dist', 'src');
const root = (path: string): string => join(packageRoot, path);
/** Names of union members and of what functions answer are told by the comment of the whole. */
const UNTOLD = [SyntaxKind.UnionType, SyntaxKind.FunctionType];
const { FunctionDeclaration: F, MethodDeclaration, MethodSignature, GetAccessor } = SyntaxKind;
const CALLED = [F, MethodDeclaration, MethodSignature, GetAccessor];

/** All public names as an editor finds them, each with what it shows on hover. */
function* hovers(): Generator<readonly [name: string, shown: string]> {
  const { exports } = JSON.parse(readFileSync(root('package.json'), 'utf8')) as {
    exports: Record<string, { types?: string }>;
  };
  const entries = Object.values(exports).flatMap(({ types }) => (types ? [root(types)] : []));
  const config = root('dist/hover.tsconfig.json');
  const compilerOptions = {
    noEmit: true,
    strict: true,
    skipLibCheck: true,
    target: 'es2022',
    module: 'nodenext',
    lib: ['es2023', 'dom', 'esnext.disposable'],
    types: ['node'],
    typeRoots: [root('node_modules/@types')],
  };
  // The op methods' comments are written into their declarations after tsc: here only as they are read.
  const files: Readonly<Record<string, () => string>> = {
    [config]: () => JSON.stringify({ compilerOptions, files: entries }),
    [DECLARATIONS]: () => withDocs(readFileSync(DECLARATIONS, 'utf8')),
  };
  const api = new API({
    cwd: packageRoot,
    fs: { readFile: (f) => files[f]?.(), fileExists: (f) => (f in files ? true : undefined) },
  });
  try {
    const [project] = api.updateSnapshot({ openProject: config }).getProjects();
    const { checker, program } = project;
    const seen = new Set<string>();
    const place = (s: Symbol): string => s.declarations.map((d) => `${d.path}:${d.index}`).join();
    const nodes = (s: Symbol): Node[] =>
      s.declarations.flatMap((d) => (String(d.path).startsWith(dist) ? (d.resolve(project) ?? []) : []));
    const isOpen = (s: Symbol): boolean =>
      !/#|^__@/.test(s.name) && // private fields, and what `using` and `for of` call
      nodes(s).some((n) => !/^\s*(private|protected) |@internal/.test(n.getSourceFile().text.slice(n.pos, n.end)));
    /** Options that stand in a declaration itself: `options: { readonly bias?: boolean }`. */
    function* inside(name: string, node: Node): Generator<readonly [string, string]> {
      if (UNTOLD.includes(node.kind)) return;
      if (node.kind === SyntaxKind.TypeLiteral)
        for (const { name: key } of (node as TypeLiteralNode).members as Iterable<{ name?: Node }>) {
          const s = key && checker.getSymbolAtLocation(key);
          if (s && s.flags & SymbolFlags.Property) yield [`${name}{${s.name}}`, s.getDocumentationComment(checker)];
        }
      const answer = CALLED.includes(node.kind) ? (node as FunctionDeclaration).type : undefined;
      const parts: Node[] = [];
      node.forEachChild((child) => void parts.push(child));
      for (const part of parts) if (part !== answer) yield* inside(name, part);
    }
    function* of(module: Symbol, prefix: string): Generator<readonly [string, string]> {
      for (const given of checker.getExportsOfModule(module)) {
        const s = given.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(given) : given;
        if (seen.has(place(s))) continue;
        seen.add(place(s));
        const name = prefix + given.name;
        if (s.flags & SymbolFlags.ValueModule) yield* of(s, `${name}.`);
        if (nodes(s).length === 0 || s.flags & SymbolFlags.ValueModule) continue;
        yield [name, s.getDocumentationComment(checker)];
        if (!(s.flags & (SymbolFlags.Class | SymbolFlags.Interface))) {
          for (const node of nodes(s)) yield* inside(name, node);
          continue;
        }
        const statics = s.flags & SymbolFlags.Class ? [...s.getExports().values()] : [];
        const construct = [...s.getMembers().values()].find((m) => m.flags & SymbolFlags.Constructor);
        const members = [...checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(s)), ...statics];
        for (const m of [...members, ...(construct ? [construct] : [])]) {
          if (seen.has(place(m)) || m.flags & SymbolFlags.Prototype || !isOpen(m)) continue;
          seen.add(place(m));
          if (m !== construct) yield [`${name}.${m.name}`, m.getDocumentationComment(checker)];
          for (const node of nodes(m)) yield* inside(`${name}.${m.name}`, node);
        }
      }
    }
    for (const entry of entries) {
      const file = program.getSourceFile(entry);
      const module = file && checker.getSymbolAtLocation(file);
      assert.ok(module, entry);
      yield* of(module, entry.slice(dist.length + 1).replace(/\/?index\.d\.ts$/, ' '));
    }
  } finally {
    api.close();
  }
}

test('every public class, method, option and function has a comment', () => {
  const all = [...hovers()];
  const names = all.map(([name]) => name);
  // Among them: an op's method, a layer's field, an option of a constructor, a loss.
  for (const known of [' Tensor.matmul', 'nn Linear.weight', 'nn GELU.__constructor{approximate}', 'nn losses.huber'])
    assert.ok(names.includes(known), `${known} is counted`);
  const bare = all.filter(([, shown]) => shown.trim() === '').map(([name]) => name);
  assert.deepEqual(bare, [], `${bare.length} of ${all.length} public names show nothing`);
  console.log(`hover: ${all.length} public names, every one with a comment`);
});

test('every public op has formula, dtypes, gradient and an example; parts of ops are left out', () => {
  const text = withDocs(readFileSync(DECLARATIONS, 'utf8'));
  for (const row of opList) {
    const at = text.indexOf(`\n  ${row.name}: Methods['${row.name}'];`);
    assert.equal(at >= 0, isPublic(row), row.name);
    if (!isPublic(row)) continue;
    assert.ok(text.slice(0, at).endsWith('*/'), `${row.name} has a comment`);
    const doc = methodDoc(row).join('\n');
    assert.ok(doc.startsWith(row.formula.slice(0, 8).replace(/\*\//g, '* /')) && row.formula.length > 0, row.name);
    assert.match(doc, /\nDtypes: .*\nGradient: .*\n@example\nconst out = x\.\w+\(.*\);$/, row.name);
    assert.doesNotMatch(doc, /undefined|\[object/, row.name);
  }
  assert.equal(withDocs(text), text, 'a second time changes nothing');
  const older = text.replace(methodDoc(OPS.matmul)[0], 'an older sentence');
  assert.notEqual(older, text);
  assert.equal(withDocs(older), text, 'what a build left as it was gets what rows say now');
});

test('types: parts of ops are not offered, data(dtype) is typed, batches have the names of their samples', () => {
  const dir = mkdtempSync(join(tmpdir(), 'wick-hover-'));
  const compiled = readFileSync(DECLARATIONS, 'utf8');
  try {
    writeFileSync(DECLARATIONS, withDocs(compiled));
    writeFileSync(
      join(dir, 'user.mts'),
      `import { tensor, type Tensor } from ${JSON.stringify(join(dist, 'index.js'))};
       const x: Tensor = tensor([1, 2]).add(1).matmul(tensor([3, 4]));
       const floats: Float32Array = x.dataSync('f32');
       const whole: Promise<BigInt64Array> = x.data('i64');
       // @ts-expect-error: a part of attention
       x.sdpaBackward;
       // @ts-expect-error: a part of an optimizer
       x.adamStep;
       // @ts-expect-error: f64 is no Float32Array
       const wrong: Float32Array = x.dataSync('f64');
       void [floats, whole, wrong];
       import { DataLoader, Dataset } from ${JSON.stringify(join(dist, 'data/index.js'))};
       import { Linear, losses, SGD } from ${JSON.stringify(join(dist, 'nn/index.js'))};
       import { fit } from ${JSON.stringify(join(dist, 'train/index.js'))};
       import { arange, customGrad } from ${JSON.stringify(join(dist, 'index.js'))};
       const data = new DataLoader(Dataset.fromTensors({ x, y: arange(2, { dtype: 'i64' }) }), { batch: 2 });
       for await (const { x, y } of data) void [x.shape, y.dtype];
       const words = { length: 1, get: (i: number) => ({ at: i, word: 'a' }) };
       for await (const { at, word } of new DataLoader(words)) void [at.shape, word.join()];
       const model = new Linear(1, 1);
       void fit(model, {
         data,
         epochs: 1,
         optimizer: new SGD(model.parameters()),
         loss: (out, { y }) => losses.mse(out, y),
         metrics: { first: (out, { y }) => out.sub(y).mean() },
       });
       const sizes: number = x.dims(2)[1] + x.dim(-1);
       // @ts-expect-error: a matrix has no third dimension
       x.dims(2)[2];
       const any: Dataset = Dataset.fromTensors({ x });
       const through = customGrad((x: Tensor) => ({ value: x.round(), grad: (g) => g }));
       void [any, sizes, through(x).shape];
       // @ts-expect-error: no such name among the samples
       for await (const { z } of data) void z;`,
    );
    const flags = [
      '--noEmit',
      '--ignoreConfig',
      '--strict',
      '--noUncheckedIndexedAccess',
      '--exactOptionalPropertyTypes',
      '--target',
      'es2022',
      '--module',
      'nodenext',
      '--skipLibCheck',
    ];
    const types = ['--typeRoots', join(packageRoot, 'node_modules', '@types'), '--types', 'node'];
    const tsc = join(packageRoot, 'node_modules', 'typescript', 'bin', 'tsc');
    const { status, stdout } = spawnSync(process.execPath, [tsc, ...flags, ...types, join(dir, 'user.mts')], {
      encoding: 'utf8',
    });
    assert.equal(status, 0, stdout);
  } finally {
    writeFileSync(DECLARATIONS, compiled);
    rmSync(dir, { recursive: true, force: true });
  }
});

test('data of another dtype than expected is refused', async () => {
  const x = tensor([1, 2]);
  assert.deepEqual([...x.dataSync('f32')], [1, 2]);
  assert.throws(() => x.dataSync('i64'), /dataSync: i64 is expected, this tensor is f32; cast it first/);
  await assert.rejects(x.data('f64'), DTypeError);
});
