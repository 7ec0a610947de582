// vmap over every op of the table: the same numbers as a loop over examples, from as many calls whatever their number.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { isFloat } from '../src/base/dtype.js';
import { packageRoot } from '../src/base/paths.js';
import {
  cat,
  defineOp,
  Device,
  grad,
  gradAndValue,
  hessian,
  jacobian,
  jvp,
  randn,
  scope,
  stack,
  Tensor,
  tensor,
  vjp,
  vmap,
  zeros,
} from '../src/index.js';
import { opList } from '../src/ops/table.js';
import { buildInputs, type Case, casesOf, runCase } from '../src/testing/cases.js';

const cpu = Device.cpu();
/** Rows that GPUs alone have. */
const OF_GPUS = new Set([
  'gridSampled',
  'gridSampledInput',
  'gridSampledMoved',
  'maxPool2dBackward',
  'planeNorm',
  'planeNormBackward',
  'resampled',
  'convFilter',
  'deviations',
  'spread',
]);
const deviceOf = ({ row }: Case): Device => (OF_GPUS.has(row.name) ? Device.get('sim:32') : cpu);

/** Ops that must read an example's numbers to know what to do: how many results, how many rounds. */
const READERS = new Set(['bincount', 'histc', 'lstsq', 'matrixExp', 'unique', 'uniqueConsecutive']);
const READS = /vmap: the function asks for the numbers of one example/;
/** Families and calls without a rule, which go through them example by example. */
const LOOPED =
  /vmap: (sdpa|dequantize|q8Blocks|qrows|qmatmul\w*|f8matmul|matmulExperts|nonzero|maskedSelect|unique) has no rule for batches/;

/** Calls of the backend while f runs. */
function callsOf({ backend }: Device, f: () => unknown): number {
  const run = backend.run.bind(backend);
  let count = 0;
  backend.run = (...args) => {
    count++;
    run(...args);
  };
  try {
    f();
  } finally {
    backend.run = run;
  }
  return count;
}

/** How far two tensors are apart, as a share of the largest number. */
function far(a: Tensor, b: Tensor): number {
  assert.deepEqual(a.shape, b.shape);
  assert.equal(a.dtype, b.dtype);
  const [x, y] = [a.dataSync(), b.dataSync()];
  let [worst, top] = [0, 1];
  for (let i = 0; i < x.length; i++) {
    const [p, q] = [Number(x[i]), Number(y[i])];
    if (Object.is(p, q) || p === q) continue;
    if (!Number.isFinite(p) || !Number.isFinite(q)) return Infinity;
    worst = Math.max(worst, Math.abs(p - q));
    top = Math.max(top, Math.abs(q));
  }
  return worst / top;
}

const examples = (c: Case, n: number): Tensor[][] =>
  Array.from({ length: n }, (_, k) => buildInputs({ ...c, name: `${c.name}#${k}` }, deviceOf(c)).tensors);

/** A case with some of its inputs mapped, as functions of these, beside its loop. */
function mappedCase(c: Case, mapped: readonly boolean[], n: number) {
  const each = examples(c, n);
  const own = (k: number): Tensor[] => each[k].map((t, i) => (mapped[i] ? t : each[0][i]));
  const f = (...chosen: Tensor[]): Tensor[] => runCase(c, chosen, deviceOf(c));
  const inDims = mapped.map((on) => (on ? 0 : null));
  const inputs = mapped.map((on, i) => (on ? stack(each.map((tensors) => tensors[i])) : each[0][i]));
  return { f, inDims, inputs, own };
}
const casesFor = (row: (typeof opList)[number]): Case[] => {
  const dtype = row.dtypes.includes('f32') ? 'f32' : row.dtypes[0];
  return [...casesOf([row], dtype)].filter(
    (c) =>
      !c.values &&
      c.layout === 'contiguous' &&
      c.sample.inputs.length > 0 &&
      c.sample.inputs.every((s) => s.shape.reduce((a, b) => a * b, 1) < 200),
  );
};
const patterns = (n: number): boolean[][] => {
  const all = Array.from({ length: n }, () => true);
  return n === 1 ? [all] : [all, all.map((_, i) => i === 0), all.map((_, i) => i > 0)];
};

/** What vmap answers, or why an op is among those that have no rule. */
function answerOf(row: (typeof opList)[number], f: () => Tensor[]): Tensor[] | undefined {
  try {
    return f();
  } catch (e) {
    const { message } = e as Error;
    const known = READERS.has(row.name) ? READS : LOOPED;
    assert.match(message, known);
    return undefined;
  }
}
const floats = (tensors: readonly Tensor[]): Tensor[] => tensors.filter((t) => isFloat(t.dtype));
const total = (tensors: readonly Tensor[]): Tensor =>
  floats(tensors)
    .map((t) => t.mul(t.detach().affine(0.5, 1)).sum())
    .reduce((a, b) => a.add(b));

function sameAsLoop(c: Case, mapped: readonly boolean[]): void {
  const what = `${c.name} with inputs ${mapped.join()} mapped`;
  const { f, inDims, inputs, own } = mappedCase(c, mapped, 3);
  const got = answerOf(c.row, () => vmap(f, { inDims, fallback: 'error' })(...inputs));
  if (!got) return;
  const want = [0, 1, 2].map((k) => f(...own(k)));
  got.forEach((t, i) => assert.ok(far(t, stack(want.map((outs) => outs[i]))) < 1e-5, `${what}: result ${i}`));
  const more = mappedCase(c, mapped, 5);
  assert.equal(
    callsOf(deviceOf(c), () => vmap(more.f, { inDims })(...more.inputs)),
    callsOf(deviceOf(c), () => vmap(f, { inDims })(...inputs)),
    `${what}: calls for 5 examples and for 3`,
  );
  const wrt = inputs.flatMap((t, i) => (isFloat(t.dtype) && !('noGrad' in c.row) ? [i] : []));
  if (wrt.length === 0 || floats(got).length === 0) return;
  if (c.row.family === 'attention' && inputs.some((t) => t.dtype === 'f8e4m3' || t.dtype === 'u8')) return;
  const slope = grad((...xs: Tensor[]) => total(f(...xs)), { argnums: wrt });
  const each = [0, 1, 2].map((k) => slope(...own(k)));
  const perExample = vmap(slope, { inDims, fallback: 'error' })(...inputs);
  perExample.forEach((g, i) =>
    assert.ok(far(g, stack(each.map((gs) => gs[i]))) < 1e-4, `${what}: gradient ${i} within vmap`),
  );
  const whole = grad((...xs: Tensor[]) => total(vmap(f, { inDims })(...xs)), { argnums: wrt })(...inputs);
  whole.forEach((g, i) => {
    const all = stack(each.map((gs) => gs[i]));
    // Gradients of 16 bits are rounded for each example there, and once here.
    const most = g.dtype === 'f16' || g.dtype === 'bf16' ? 2 ** -7 : 1e-4;
    assert.ok(far(g, mapped[wrt[i]] ? all : all.sum(0)) < most, `${what}: gradient ${i} through vmap`);
  });
}

for (const row of opList) {
  const cases = casesFor(row);
  if (cases.length === 0) continue;
  test(`vmap: ${row.name} is one call for all examples, with the numbers and gradients of a loop`, () => {
    for (const c of cases) for (const mapped of patterns(c.sample.inputs.length)) scope(() => sameAsLoop(c, mapped));
  });
}

/** The numbers of scripts/golden-vmap.py. */
function numbers(shape: number[], at = 0): Tensor {
  const count = shape.reduce((a, b) => a * b, 1);
  const values = Array.from({ length: count }, (_, i) => (((7 * (i + at)) % 11) - 5) / 4);
  return tensor(values, { dtype: 'f64' }).reshape(shape);
}
const [A, B, W] = [numbers([4, 3]), numbers([4, 3], 5), numbers([3, 2], 2)];
const loss = (w: Tensor, x: Tensor, y: Tensor): Tensor =>
  x.matmul(w).tanh().unsqueeze(0).crossEntropy(y.unsqueeze(0)) as Tensor;
const cubes = (x: Tensor): Tensor => x.mul(x).mul(x).sum();
const waves = (x: Tensor): Tensor => x.sin().mul(x.sum());
const ids = tensor([[0, 4], [1, 1], [3, 2], [2, 0]], { dtype: 'i64' }); // biome-ignore format: one line

/** The functions that scripts/golden-vmap.py has for torch.func, under the same names. */
const FUNCTIONS: { readonly [name: string]: () => Tensor } = {
  distance: () => vmap((a, b) => a.sub(b).norm())(A, B),
  'in dims': () => vmap((a, b) => a.mul(b), { inDims: [1, null] })(A, numbers([4])),
  'out dims': () => vmap((a) => a.outer(a), { outDims: 2 })(A),
  'two results': () => cat(vmap((a) => [a.sum(), a.exp()], { outDims: [0, 1] })(A).map((t) => t.flatten())),
  pairs: () =>
    vmap(
      vmap((a, b) => a.dot(b), { inDims: [null, 0] }),
      { inDims: [0, null] },
    )(A, B),
  'shared matrix': () => vmap((a) => a.matmul(W))(A),
  'own rows': () => vmap((t, i) => t.at(i))(numbers([4, 5, 2]), ids),
  softmax: () => vmap((a) => a.softmax(0).cumsum(0).flip(0))(A),
  'no mapped result': () => vmap(() => W)(A),
  'gradients by example': () =>
    vmap(grad(loss as never), { inDims: [null, 0, 0] })(W, A, tensor([0, 1, 1, 0], { dtype: 'i64' })),
  'gradient of gradients': () => grad((a) => vmap(grad(cubes))(a).sqr().sum())(A),
  hessians: () => vmap((x) => hessian((at) => at.prod().mul(at.sum()), x))(A),
  jacobian: () => jacobian((x) => x.matmul(W).sin(), A),
  jvp: () => vmap((a, b) => jvp(waves, [a], [b])[1])(A, B),
  vjp: () => vmap((a, b) => vjp(waves, a)[1](b)[0])(A, B),
  'own kernels': () => vmap((x, w) => x.conv1d(w, { padding: 1 }))(numbers([4, 2, 2, 5]), numbers([4, 3, 2, 3], 4)),
  'layer norm weights': () =>
    vmap(
      grad((w, x) => cubes(x.layerNorm(w))),
      { inDims: [null, 0] },
    )(numbers([3], 3), A),
};
const GOLDEN = JSON.parse(readFileSync(join(packageRoot, 'test/golden/vmap.json'), 'utf8')) as {
  readonly cases: { readonly [name: string]: never };
};
test('functions of functions answer as those of torch.func', () => {
  assert.deepEqual(Object.keys(GOLDEN.cases), Object.keys(FUNCTIONS));
  for (const [name, f] of Object.entries(FUNCTIONS))
    assert.ok(far(f(), tensor(GOLDEN.cases[name], { dtype: 'f64' })) < 1e-12, name);
});

test('an op without a rule is called for each example, unless that is refused', () => {
  const double = defineOp({
    name: 'doubled',
    inputs: 1,
    dtypes: ['f32'],
    infer: ([x]) => [x],
    cpu: ([x], [out]) => {
      for (let i = 0; i < out.data.length; i++) out.data[i] = (2 * Number(x.data[i])) as never;
    },
  });
  const x = randn([4, 3], { seed: 1 });
  assert.ok(far(vmap((a) => double(a)[0])(x), x.affine(2, 0)) === 0);
  assert.throws(
    () => vmap((a) => double(a)[0], { fallback: 'error' })(x),
    /doubled has no rule for batches and would be called 4/,
  );
});

test('what vmap cannot do is refused with a sentence', () => {
  const x = zeros([3, 2]);
  let kept: Tensor | undefined;
  const refused: [() => unknown, RegExp][] = [
    [() => vmap((a) => a.affine(a.max().item(), 0))(x), /asks for the numbers of one example \[\]/],
    [() => vmap((a) => a.add(randn([2])))(x), /draws random numbers; say \{ randomness: 'same' \}/],
    [() => vmap((a) => (x.at(0).assign(a), a))(x), /assign would write values of every example/],
    [() => vmap((a) => ((kept = a), a))(x) && kept?.add(1), /used after its vmap has ended/],
    [() => vmap((a) => a, { outDim: 1 } as never), /unknown option "outDim"/],
    [() => vmap((a) => a, { fallback: 'none' } as never), /fallback none is none of 'loop', 'error'/],
    [() => vmap((a) => a.matmul(zeros([3, 3])))(x), /lhs \[1, 2\] has 2, rhs \[3, 3\] has 3/],
    [() => vmap(() => 5 as never)(x), /the answer is a number, not a tensor/],
    [() => grad((a) => a)(x), /grad: the function must answer one number, not \[3, 2\]/],
    [() => grad((a) => a.sum(), { argnums: 1 })(x), /argnums 1 names none of 1 arguments/],
  ];
  for (const [f, says] of refused) assert.throws(f, says);
});

test('random numbers in vmap are shared or not, as asked', () => {
  const drawn = (randomness: 'same' | 'different'): number[][] =>
    vmap((a) => a.add(randn([2])), { randomness })(zeros([3, 2])).toArray();
  const [same, apart] = [drawn('same'), drawn('different')];
  assert.deepEqual(same[0], same[2]);
  assert.notDeepEqual(apart[0], apart[2]);
});

test('gradients of records, and of a net that a vmap maps, by example', () => {
  const params = { w: numbers([3, 2]), b: numbers([2]) };
  const f = (p: typeof params, x: Tensor): Tensor => cubes(x.matmul(p.w).add(p.b));
  const [grads, values] = vmap(gradAndValue(f), { inDims: [null, 0] })(params, A);
  A.toArray<number[][]>().forEach((row, k) => {
    const one = grad(f)(params, tensor(row, { dtype: 'f64' }));
    assert.ok(far(grads.w.get(k), one.w) < 1e-12 && far(grads.b.get(k), one.b) < 1e-12);
  });
  assert.deepEqual(values.shape, [4]);
});
