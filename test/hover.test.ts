// What an editor shows: every public method, option and class of tensors has a documentation comment in the compiled
// declarations, and parts of ops are not offered.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { DECLARATIONS, isPublic, methodDoc, withDocs } from '../scripts/method-docs.js';
import { packageRoot } from '../src/base/paths.js';
import { DTypeError, tensor } from '../src/index.js';
import { opList } from '../src/ops/table.js';

const dist = join(packageRoot, 'dist', 'src');
const declarations = (room: string): string[] =>
  readdirSync(join(dist, room))
    .filter((f) => f.endsWith('.d.ts'))
    .map((f) => join(room, f));

/** Members of classes and interfaces, and the declarations themselves, that no comment stands before. */
function undocumented(file: string, wanted: RegExp): string[] {
  const found: string[] = [];
  let depth = 0;
  let owner: string | undefined;
  let before = '';
  for (const line of readFileSync(join(dist, file), 'utf8').split('\n')) {
    const text = line.trim();
    const documented = before.endsWith('*/');
    const head = /^export (?:declare )?(?:class|interface) (\w+)/.exec(text)?.[1];
    const member = /^(?:readonly |static |get |set )*(\[?[\w.]+\]?)[?(<:]/.exec(text)?.[1];
    if (depth === 0 && text.startsWith('export')) {
      owner = head && wanted.test(head) ? head : undefined;
      if (owner && !owner.endsWith('Options') && !documented) found.push(`${file}: ${owner}`);
    } else if (depth === 1 && owner && member && !/^(private|constructor)/.test(text)) {
      // A setter or an overload stands behind its getter or first form, which has the comment.
      const again = new RegExp(`^(?:readonly |static |get |set )*${member.replace(/[[\].]/g, '\\$&')}[?(<:]`).test(
        before,
      );
      if (!documented && !again) found.push(`${file}: ${owner}.${member}`);
    }
    depth += (line.match(/\{/g)?.length ?? 0) - (line.match(/\}/g)?.length ?? 0);
    if (text) before = text;
  }
  return found;
}

test('every class of tensors and every option has a comment', () => {
  const missing = [...declarations('tensor'), ...declarations('ops')].flatMap((f) =>
    undocumented(f, /^(Tensor|Device|QTensor|Gradients|Generator|HostOperand|\w+Options)$/),
  );
  const errors = undocumented('base/errors.d.ts', /Error$/).filter((m) => !m.includes('.d.ts: ') || !/\.\w+$/.test(m));
  assert.deepEqual([...missing, ...undocumented('base/layout.d.ts', /^Layout$/), ...errors], []);
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
});

test('types: parts of ops are not offered, and data(dtype) is typed', () => {
  const dir = mkdtempSync(join(tmpdir(), 'wick-hover-'));
  const compiled = readFileSync(DECLARATIONS, 'utf8');
  try {
    writeFileSync(DECLARATIONS, withDocs(compiled));
    writeFileSync(
      join(dir, 'user.ts'),
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
       void [floats, whole, wrong];`,
    );
    const flags = [
      '--noEmit',
      '--ignoreConfig',
      '--strict',
      '--target',
      'es2022',
      '--module',
      'nodenext',
      '--skipLibCheck',
    ];
    const types = ['--typeRoots', join(packageRoot, 'node_modules', '@types'), '--types', 'node'];
    const tsc = join(packageRoot, 'node_modules', 'typescript', 'bin', 'tsc');
    const { status, stdout } = spawnSync(process.execPath, [tsc, ...flags, ...types, join(dir, 'user.ts')], {
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
