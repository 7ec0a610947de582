// Losses of class numbers, sums of squares and Adam's step, each one pass: kernels/training.hip.
import { CTYPE, KernelModule, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { type AdamParams, type ClassParams, type LossParams, SQUARE_SUMS } from '../../ops/training.js';
import type { View } from '../backend.js';
import { inType } from './movement.js';
import {
  aligned16,
  at,
  ceilDiv,
  clamp,
  type FamilyPlan,
  FAULT,
  type Launch,
  type Launches,
  launch,
  packOf,
  places,
  single,
  strideGrid,
} from './plan.js';

export const TRAINING = new KernelModule('training');
const SMALL = ['f32', 'f16', 'bf16'] as const;
type Small = (typeof SMALL)[number];
const ACCESS = ['single', 'packed'] as const;
/** Elements of parameters that a thread steps at once. */
const RUN = 8;
const LOSS_BLOCK = 512;
/** Threads that add losses, and rows that one block of them adds quickly. */
const SUMS_BLOCK = 512;
const SUMS_ROWS = 16384;
/** Rows one below another, as far as a grid goes; blocks side by side over a row. */
const MOST_ROWS = 65535;
/** Vectors of a thread (SLOPE_GROUPS). */
const SLOPE_GROUPS = 4;
const BLOCK = 256;

const losses = TRAINING.declare({
  each: { grad: [false, true], access: ACCESS, dtype: SMALL },
  symbol: ({ grad, access, dtype }) => `class_losses_${grad ? 'grad_' : ''}${dtype}_${access}`,
  body: ({ grad, access, dtype }) => ({
    threads: LOSS_BLOCK,
    params: {
      x: `${CTYPE[dtype]}*`,
      ids: 'const i64*',
      ...typed('float*', 'losses', 'lses'),
      fault: 'u32*',
      ...typed('i64', 'rows', 'cols', 'ignore'),
      smoothing: 'float',
    },
    call: `class_losses<${grad}, ${CTYPE[dtype]}, ${access === 'packed' ? packOf(dtype) : 1}>`,
  }),
});
const slopes = TRAINING.declare({
  each: { access: ACCESS, dtype: SMALL },
  symbol: ({ access, dtype }) => `class_slopes_${dtype}_${access}`,
  body: ({ access, dtype }) => ({
    threads: BLOCK,
    params: {
      x: `const ${CTYPE[dtype]}*`,
      ids: 'const i64*',
      ...typed('const float*', 'lses', 'total', 'grad', 'weight'),
      out: `${CTYPE[dtype]}*`,
      ...typed('i64', 'rows', 'cols', 'ignore'),
      smoothing: 'float',
      each: 'u32',
    },
    call: `class_slopes<${CTYPE[dtype]}, ${access === 'packed' ? packOf(dtype) : 1}>`,
  }),
});
const sums = TRAINING.declare({
  each: { from: ['losses', 'logs'], dtype: SMALL },
  symbol: ({ from, dtype }) => `loss_sums_of_${from}_${dtype}`,
  body: ({ from, dtype }) => ({
    threads: SUMS_BLOCK,
    params: {
      x: `const ${CTYPE[dtype]}*`,
      ids: 'const i64*',
      weight: 'const float*',
      ...typed('float*', 'pairs', 'out', 'total'),
      fault: 'u32*',
      ...typed('i64', 'rows', 'cols', 'ignore'),
      mean: 'u32',
    },
    call: `loss_sums<${from === 'logs'}, ${CTYPE[dtype]}>`,
  }),
});
const end = TRAINING.declare({
  each: {},
  symbol: () => 'loss_end',
  body: () => ({
    threads: SUMS_BLOCK,
    params: { pairs: 'const float*', ...typed('float*', 'out', 'total'), ...typed('u32', 'count', 'mean') },
    call: 'join_loss_sums',
  }),
});
const swiglu = TRAINING.declare({
  each: { access: ACCESS, dtype: SMALL },
  symbol: ({ access, dtype }) => `swiglu_grad_${dtype}_${access}`,
  body: ({ access, dtype }) => {
    const S = CTYPE[dtype];
    return {
      threads: BLOCK,
      params: { x: `const ${S}*`, grad: `const ${S}*`, out: `${S}*`, rows: 'u32', n: 'u32' },
      call: `swiglu_grad<${S}, ${access === 'packed' ? packOf(dtype) : 1}>`,
    };
  },
});
const squares = TRAINING.declare({
  each: { access: ACCESS, dtype: SMALL },
  symbol: ({ access, dtype }) => `square_sums_${dtype}_${access}`,
  body: ({ access, dtype }) => ({
    threads: BLOCK,
    params: { x: `const ${CTYPE[dtype]}*`, out: 'float*', n: 'u64' },
    call: `square_sums<${CTYPE[dtype]}, ${access === 'packed' ? packOf(dtype) : 1}>`,
  }),
});
const adam = TRAINING.declare({
  each: { access: ACCESS, dtype: SMALL, copy: ['none', 'f16', 'bf16'] },
  symbol: ({ access, dtype, copy }) => `adam_step_${dtype}_${copy}_${access}`,
  body: ({ access, dtype, copy }) => {
    const C = copy === 'none' ? 'float' : CTYPE[copy];
    return {
      threads: BLOCK,
      params: {
        ...typed('float*', 'p', 'm', 'v'),
        grad: `const ${CTYPE[dtype]}*`,
        scale: 'const float*',
        copy: `${C}*`,
        fed: 'const float*',
        n: 'u64',
        ...typed('float', 'decay1', 'rest1', 'decay2', 'rest2', 'shrink', 'rate', 'eps'),
      },
      call: `adam_step<${copy !== 'none'}, ${access === 'packed' ? RUN : 1}, ${CTYPE[dtype]}, ${C}>`,
    };
  },
});

type Plan = FamilyPlan<RowOf<'training'>, any>;
const accessOf = (...views: readonly View[]): (typeof ACCESS)[number] => (aligned16(...views) ? 'packed' : 'single');

type Counting = Pick<ClassParams, 'ignore' | 'smoothing'>;
const lossLaunch = (x: View, packed: boolean, grad: boolean, { ignore, smoothing }: Counting): Launch => {
  const [rows, cols] = x.layout.shape;
  const access = packed && cols % packOf(x.dtype) === 0 ? 'packed' : 'single';
  const args = { ...places('x', 'ids', 'losses', 'lses', 'fault'), rows, cols, ignore, smoothing };
  const block = cols >= LOSS_BLOCK ? LOSS_BLOCK : BLOCK;
  return launch(losses, { grad, access, dtype: x.dtype as Small }, clamp(rows, 1, 2 ** 16), block, args);
};
const planLosses: Plan = (p, _row, [x, ids], [out], params: LossParams) => {
  const logits = params.grad ? x : p.dense(x); // whose gradient takes their place are dense: who asks sees to that
  p.run(single(lossLaunch(logits, aligned16(logits), params.grad, params)), {
    x: logits,
    ids: inType(p, ids, 'i64'),
    losses: out,
    lses: undefined,
    fault: FAULT,
  });
};
/** The sum of losses by weight, or their mean, and the sum of the weights; many rows by many blocks. */
function sumLaunches(
  from: 'losses' | 'logs',
  dtype: Small,
  [rows, cols]: readonly number[],
  ignore: number,
  mean: boolean,
): Launches {
  const grid = rows <= SUMS_ROWS ? 1 : clamp(ceilDiv(rows, 4 * SUMS_BLOCK), 1, 1024);
  const args = { ...places('x', 'ids', 'weight', 'out', 'total', 'fault'), rows, cols, ignore, mean: Number(mean) };
  const pairs = grid === 1 ? 0 : at('scratch');
  const first = launch(sums, { from, dtype }, grid, SUMS_BLOCK, { ...args, pairs });
  if (grid === 1) return single(first);
  const last = { ...places('out', 'total'), pairs: at('scratch'), count: grid, mean: Number(mean) };
  return { launches: [first, launch(end, {}, 1, SUMS_BLOCK, last)], scratch: 8 * grid };
}
const weightOf = (p: Parameters<Plan>[0], weight: View | undefined): View | undefined =>
  weight && p.dense(inType(p, weight, 'f32'));
const planCrossEntropy: Plan = (p, _row, [x, given, weight], [out, total, lses], params: ClassParams) => {
  const [logits, ids] = [p.dense(x), inType(p, given, 'i64')];
  const { reduction, ignore } = params;
  const each = reduction === 'none' ? out : p.make(lses.layout.shape, 'f32');
  const common = { ids, fault: FAULT };
  p.run(single(lossLaunch(logits, aligned16(logits), false, params)), { ...common, x: logits, losses: each, lses });
  if (reduction === 'none') return p.fill(total, 1);
  const sizes = logits.layout.shape;
  p.run(sumLaunches('losses', 'f32', sizes, ignore, reduction === 'mean'), {
    ...{ ...common, x: each, weight: weightOf(p, weight), out, total },
  });
};
const planSlopes: Plan = (p, _row, [x, ids, lses, total, grad, weight], [out], params: ClassParams) => {
  const [rows, cols] = x.layout.shape;
  const logits = p.dense(x);
  const dtype = x.dtype as Small;
  const access = cols % packOf(dtype) === 0 ? accessOf(logits, out) : 'single';
  const { ignore, smoothing, reduction } = params;
  const wide = ceilDiv(cols, BLOCK * SLOPE_GROUPS * (access === 'packed' ? packOf(dtype) : 1));
  const args = {
    ...places('x', 'ids', 'lses', 'grad', 'weight', 'out'),
    total: reduction === 'mean' ? at('total') : 0,
    ...{ rows, cols, ignore, smoothing, each: Number(reduction === 'none') },
  };
  p.run(single(launch(slopes, { access, dtype }, [wide, clamp(rows, 1, MOST_ROWS)], BLOCK, args)), {
    ...{ x: logits, ids: inType(p, ids, 'i64'), lses, total, grad: p.dense(grad), weight: weightOf(p, weight), out },
  });
};
const planNll: Plan = (p, _row, [x, ids, weight], [out, total], { ignore, reduction }: ClassParams) => {
  p.run(sumLaunches('logs', x.dtype as Small, x.layout.shape, ignore, reduction === 'mean'), {
    ...{ x: p.dense(x), ids: inType(p, ids, 'i64'), weight: weightOf(p, weight), out, total, fault: FAULT },
  });
};
const planSwiglu: Plan = (p, _row, [given, g], [out]) => {
  const [x, grad] = [p.dense(given), p.dense(g)];
  const [rows, n] = grad.layout.shape;
  const dtype = x.dtype as Small;
  const access = n % packOf(dtype) === 0 ? accessOf(x, grad, out) : 'single';
  const wide = ceilDiv(n, BLOCK * (access === 'packed' ? packOf(dtype) : 1));
  const grid = [wide, clamp(rows, 1, MOST_ROWS), 1] as const;
  const args = { ...places('x', 'grad', 'out'), rows, n };
  p.run(single(launch(swiglu, { access, dtype }, grid, BLOCK, args)), { x, grad, out });
};
const planSquares: Plan = (p, _row, [x], [out]) => {
  const from = p.dense(x);
  const n = x.layout.size;
  const dtype = x.dtype as Small;
  const grid = clamp(ceilDiv(n, BLOCK), 1, SQUARE_SUMS);
  if (grid < SQUARE_SUMS) p.fill(out, 0);
  p.run(single(launch(squares, { access: accessOf(from), dtype }, grid, BLOCK, { ...places('x', 'out'), n })), {
    x: from,
    out,
  });
};
const planAdam: Plan = (p, _row, inputs, outputs, o: AdamParams) => {
  const [, , , given] = inputs;
  const [weights, m, v, copy] = outputs;
  const grad = p.dense(given);
  const n = weights.layout.size;
  const access = accessOf(weights, m, v, grad, ...(copy ? [copy] : []));
  const rates = { decay1: o.beta1, rest1: 1 - o.beta1, decay2: o.beta2, rest2: 1 - o.beta2 };
  const buffers = places('p', 'm', 'v', 'grad', 'scale', 'copy', 'fed');
  const args = { ...buffers, n, ...rates, shrink: o.shrink, rate: o.rate, eps: o.eps };
  const variant = {
    access,
    dtype: given.dtype as Small,
    copy: copy ? (copy.dtype as 'f16' | 'bf16') : 'none',
  } as const;
  p.run(single(launch(adam, variant, strideGrid(ceilDiv(n, access === 'packed' ? RUN : 1), BLOCK), BLOCK, args)), {
    ...{ p: weights, m, v, grad, copy },
    scale: o.scaled ? inputs[4] : undefined,
    fed: o.fed ? inputs[o.scaled ? 5 : 4] : undefined,
  });
};

const KINDS: Readonly<Record<RowOf<'training'>['kernel']['kind'], Plan>> = {
  losses: planLosses,
  crossEntropy: planCrossEntropy,
  slopes: planSlopes,
  nll: planNll,
  swiglu: planSwiglu,
  squares: planSquares,
  adam: planAdam,
};
export const planTraining: Plan = (p, row, inputs, outputs, params) =>
  KINDS[row.kernel.kind](p, row, inputs, outputs, params);
