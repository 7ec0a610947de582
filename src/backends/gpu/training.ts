// Losses of class numbers, sums of squares and Adam's step, each one pass: kernels/training.hip.
import { CTYPE, KernelModule, typed } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { type AdamParams, type LossParams, SQUARE_SUMS } from '../../ops/training.js';
import type { View } from '../backend.js';
import { inType } from './movement.js';
import {
  aligned16,
  ceilDiv,
  clamp,
  type FamilyPlan,
  FAULT,
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
const BLOCK = 256;

const losses = TRAINING.declare({
  each: { grad: [false, true], access: ACCESS, dtype: SMALL },
  symbol: ({ grad, access, dtype }) => `class_losses_${grad ? 'grad_' : ''}${dtype}_${access}`,
  body: ({ grad, access, dtype }) => ({
    threads: LOSS_BLOCK,
    params: {
      x: `${CTYPE[dtype]}*`,
      ids: 'const i64*',
      losses: 'float*',
      fault: 'u32*',
      ...typed('i64', 'rows', 'cols', 'ignore'),
      smoothing: 'float',
    },
    call: `class_losses<${grad}, ${CTYPE[dtype]}, ${access === 'packed' ? packOf(dtype) : 1}>`,
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

const planLosses: Plan = (p, _row, [x, ids], [out], { ignore, smoothing, grad }: LossParams) => {
  const [rows, cols] = x.layout.shape;
  const dtype = x.dtype as Small;
  const logits = grad ? x : p.dense(x); // whose gradient takes their place are dense: who asks for it sees to that
  const access = cols % packOf(dtype) === 0 ? accessOf(logits) : 'single';
  const args = { ...places('x', 'ids', 'losses', 'fault'), rows, cols, ignore, smoothing };
  const grid = clamp(rows, 1, 2 ** 16);
  const block = cols >= LOSS_BLOCK ? LOSS_BLOCK : BLOCK;
  p.run(single(launch(losses, { grad, access, dtype }, grid, block, args)), {
    x: logits,
    ids: inType(p, ids, 'i64'),
    losses: out,
    fault: FAULT,
  });
};
/** Blocks side by side over a row, and rows one below another as far as a grid goes. */
const MOST_ROWS = 65535;
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
  swiglu: planSwiglu,
  squares: planSquares,
  adam: planAdam,
};
export const planTraining: Plan = (p, row, inputs, outputs, params) =>
  KINDS[row.kernel.kind](p, row, inputs, outputs, params);
