// Errors at the user's line: stacks begin where wick was called, messages with the op that was called.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { einsum, ones, randint, randn, scope, Tensor, WickError, zeros } from '../src/index.js';
import {
  Conv2d,
  Dropout,
  EMA,
  GRUCell,
  Linear,
  Sequential,
  SGD,
  TransformerEncoder,
  TransformerEncoderLayer,
} from '../src/nn/index.js';
import { detectAnomaly } from '../src/train/index.js';

function caught(f: () => unknown): WickError {
  try {
    f();
  } catch (e) {
    assert.ok(e instanceof WickError, String(e));
    return e;
  }
  return assert.fail('nothing was thrown');
}
const firstFrame = (e: Error): string => e.stack?.split('\n').find((l) => l.startsWith('    at ')) ?? '';
const ids = (...list: number[]): Tensor => Tensor.from(list, { dtype: 'i64' });
const t = randn([2, 3], { seed: 1 });

/** A tensor as someone sees it who knows another library. */
const asked = (x: Tensor): Record<string, (...args: unknown[]) => unknown> => x as never;
const CALLS: readonly (readonly [says: RegExp, call: () => unknown])[] = [
  [/^get: index 5 is out of range for dimension 0 of \[2, 3\] \(allowed: -2 to 1\)$/, () => t.get(5)],
  [/^zeros: shape \[-1\]/, () => zeros([-1])],
  [/^ones: shape \[2, 1.5\]/, () => ones([2, 1.5])],
  [/^randint: shape \[-2\]/, () => randint(0, 5, [-2])],
  [/^crossEntropy: gather: index 7 at position 1 is out of range/, () => t.crossEntropy(ids(0, 7))],
  [/^crossEntropy: targets \[3\] must be \[2\]/, () => t.crossEntropy(ids(0, 1, 2))],
  [/^sort: dimension 5/, () => t.sort(5)],
  [/^rmsNorm: 0.5 stands where options do/, () => t.rmsNorm(ones([3]), 0.5 as never)],
  [
    /^new Tensor: .*Tensor.from\(\[\[1, 2\], \[3, 4\]\]\)/,
    () => new (Tensor as never as new (x: number[]) => Tensor)([1]),
  ],
  [/^from: element \[0\] is undefined, not a number; it takes numbers/, () => Tensor.from([undefined] as never)],
  [/^einsum: /, () => einsum('ij,jk->ik', t, t)],
  [
    /^indexSelect: operand 1 is a list \(tensor\(list\) makes one of it\), not a tensor/,
    () => t.indexSelect(0, [1] as never),
  ],
  [/^x\.clone: here it is x\.copy\(\)$/, () => asked(t).clone()],
  [/^x\.grad: here it is .*grads\.of\(x\)/, () => asked(t).grad],
  [/^x\.masked_fill: here it is x\.maskedFill\(\.\.\.\)$/, () => asked(t).masked_fill()],
  [/^x\.isnan: here it is x\.isNan\(\.\.\.\)$/, () => asked(t).isnan()],
  [/^Dropout: true stands where a Generator does/, () => new Dropout(0.5, true as never)],
  [/^EMA: 0\.99 stands where options do/, () => new EMA(new Linear(1, 1), 0.99 as never)],
  [/^GRUCell: a state is \{ h \}/, () => new GRUCell(3, 2).forward(t, zeros([2, 2]) as never)],
  [/^Linear: takes a tensor, not a list$/, () => new Linear(2, 1).forward([1, 2] as never)],
  [
    /^optimizer\.zeroGrad: here it is nothing: there is nothing to set to zero/,
    () => asked(new SGD([zeros([1])]) as never).zeroGrad(),
  ],
  [/^dim: which one\? .*x\.rank is how many/, () => asked(t).dim()],
  [/^dim: dimension 2 is out of range/, () => t.dim(2)],
  [/^dims: \[2, 3\] has 2 dimensions, not 3$/, () => t.dims(3)],
  [/^x\.add_: here it is x\.assign\(x\.add\(\.\.\.\)\)/, () => asked(t).add_(1)],
  [
    /^Conv2d: kernel sizes are a number or a list of 2, not object$/,
    () => new Conv2d(1, 2, { kernelSize: 3 } as never),
  ],
  [
    /^TransformerEncoder: takes width, heads and the number of layers, .* undefined is no number of layers$/,
    () => new TransformerEncoder(new TransformerEncoderLayer(4, 2) as never, 2, undefined as never),
  ],
  [/^Linear: the last dimension of \[2, 3\] is not 5/, () => new Sequential(new Linear(5, 4)).forward(t)],
];
for (const [says, call] of CALLS)
  test(`${String(call).slice(6)}: named and at the caller's line`, () => {
    const e = caught(call);
    assert.match(e.message, says);
    assert.match(firstFrame(e), /error-lines\.test/, e.stack);
    assert.ok(e.stack?.startsWith(`${e.name} [${e.code}]: ${e.message}`), e.stack);
  });

test('frames of wick stay where they are asked for', () => {
  const script =
    `import('${new URL('../src/index.js', import.meta.url).href}').then((w) => { try { ` +
    'w.zeros([-1]); } catch (e) { console.log(e.stack); } });';
  const run = (stack: string): string =>
    spawnSync(process.execPath, ['-e', script], { encoding: 'utf8', env: { ...process.env, WICK_STACK: stack } })
      .stdout;
  assert.match(run('full'), /checkShape/);
  assert.doesNotMatch(run(''), /checkShape/);
});

test('a second backward pass is told of retainGraph', () => {
  const x = randn([2], { requiresGrad: true });
  const loss = x.mul(x).sum();
  loss.backward({ retainGraph: true });
  loss.backward();
  const e = caught(() => loss.backward());
  assert.match(e.message, /an earlier backward pass has let go of this graph; give that call \{ retainGraph: true \}/);
});

test('a scope refuses async functions', () => {
  const e = caught(() => scope((async () => t) as never));
  assert.match(e.message, /^scope: the function is async/);
});

test('anomalies are found where they begin, with the line that called the op', () => {
  const x = Tensor.from([-1, 4]).requireGrad();
  const forward = caught(() => detectAnomaly(() => x.sqrt().sum()));
  assert.match(forward.message, /^sqrt gave NaN; it was called\n.*error-lines\.test/);
  const y = Tensor.from([0, 4]).requireGrad();
  const loss = (): Tensor =>
    y
      .sqrt()
      .mul(Tensor.from([0, 1]))
      .sum();
  assert.ok(Number.isNaN(loss().backward().of(y).toArray() as never) === false);
  const backward = caught(() => detectAnomaly(() => loss().backward()));
  assert.match(backward.message, /^backward: the gradient of sqrt gave NaN; it was called\n.*error-lines\.test/);
  detectAnomaly(() => y.mul(2).sum().backward());
});
