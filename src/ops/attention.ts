// Scaled-dot-product attention: one call for every mask, window and layout, packed and paged sequences, with a gradient
// of any order.
import { type DType, isFloat, REALS } from '../base/dtype.js';
import { ArgumentError, DTypeError, GradError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape, type Shape } from '../base/shape.js';
import type { Tensor } from '../tensor/tensor.js';
import {
  checkCall,
  EXTRAS,
  type Extra,
  extent,
  extrasOf,
  referenceBackward,
  referenceDelta,
  referenceForward,
  type SdpaParams,
  shapeOf,
  sizesOf,
} from './attention-reference.js';
import { composite, type Kernel, kernel, requireOptions } from './kernel-row.js';
import {
  rows,
  type Call,
  type CompositeErrorSample,
  type CompositeSample,
  type ErrorSample,
  type GradContext,
  type Grads,
  type InputSpec,
  type RefTensor,
  type Sample,
  type Sig,
  ulps,
} from './op.js';

declare module './op.js' {
  interface KernelFacts {
    /** The pass a row makes over the keys; `delta` is what the backward pass needs of the result. */
    attention: { readonly pass: 'forward' | 'backward' | 'delta' };
  }
}

/** What attention takes. */
export interface SdpaOptions {
  /** Queries see no later key. With fewer queries than keys, the last query stands at the last key. */
  readonly causal?: boolean;
  /** u8 (nonzero: seen) or a float that is added; broadcast to (batch, heads, queries, keys). */
  readonly mask?: Tensor;
  /** Default 1 / sqrt(dim). */
  readonly scale?: number;
  /** Logits become softcap * tanh(logit / softcap). */
  readonly softcap?: number;
  /** A query sees this many keys before (and, unless causal, after) its own, or [before, after]; -1 sets no bound. */
  readonly window?: number | readonly [before: number, after: number];
  /** Slopes by head: slope * distance is taken off the logit. */
  readonly alibi?: Tensor;
  /** A logit by head that takes part in the sum but has no value. */
  readonly sinks?: Tensor;
  /** Default 'bhtd'. */
  readonly layout?: 'bhtd' | 'bthd';
  /** Keys in use by batch entry (i32), when fewer than there is room for. No gradient. */
  readonly lengths?: Tensor;
}
/** Packed sequences: row numbers where each begins, and the end (i32, batch + 1). */
export interface VarlenOptions extends Omit<SdpaOptions, 'layout' | 'lengths' | 'mask'> {
  /** The longest sequence of queries. */
  readonly maxQueries: number;
  /** The longest sequence of keys. */
  readonly maxKeys: number;
}
/** What attention over pages takes. */
export interface PagedOptions extends Omit<SdpaOptions, 'mask'> {
  /** Keys of each sequence. */
  readonly lengths: Tensor;
}

const OPTIONS = ['causal', 'mask', 'scale', 'softcap', 'window', 'alibi', 'sinks', 'layout', 'lengths'];
const WITHOUT = 'attention is defined for floats of 16 bits and more; cast first';

/** What keys and values may be kept in besides the queries' dtype; u8 are blocks of Q8_0. */
const KEPT_IN_8_BITS: readonly DType[] = ['f8e4m3', 'u8'];

/** Rows whose method answers all results. */
type Many<A extends readonly unknown[]> = Kernel<A, SdpaParams> & { readonly many: true };
const many = <A extends readonly unknown[]>(row: Kernel<A, SdpaParams>): Many<A> => ({ ...row, many: true });

/** What sums are kept in. */
const wideOf = (d: DType): DType => (d === 'f64' ? 'f64' : 'f32');

function bounds(o: Pick<SdpaOptions, 'causal' | 'window'>): { left: number; right: number } {
  const [left, right] =
    o.window === undefined ? [-1, -1] : typeof o.window === 'number' ? [o.window, o.window] : o.window;
  for (const n of [left, right])
    if (!Number.isInteger(n) || n < -1)
      throw new ArgumentError(`sdpa: window ${n} is not a whole number of at least -1`);
  return { left, right: o.causal ? 0 : right };
}

function paramsOf(
  [q, k, v]: readonly Tensor[],
  o: SdpaOptions,
  extras: readonly Extra[],
  longest: readonly [number, number] = [0, 0],
): SdpaParams {
  const scale = o.scale ?? 1 / Math.sqrt(q.shape[q.rank - 1]);
  const trained = [q, k, v].some((t) => t?.requiresGrad);
  return { layout: o.layout ?? 'bhtd', scale, softcap: o.softcap ?? 0, ...bounds(o), extras, longest, trained };
}

/** Sorts given extras into their order. */
function gather(given: { readonly [K in Extra]?: Tensor }): { extras: Extra[]; tensors: Tensor[] } {
  const extras = EXTRAS.filter((name) => given[name] !== undefined);
  return { extras, tensors: extras.map((name) => given[name] as Tensor) };
}

function infer(
  op: string,
  inputs: readonly Sig[],
  p: SdpaParams,
  rest: readonly Sig[],
): { out: Sig; lse: Sig; k: Sig } {
  const [q, k, v] = inputs;
  if (v.dtype !== k.dtype || (k.dtype !== q.dtype && !(op === 'sdpa' && KEPT_IN_8_BITS.includes(k.dtype))))
    throw new DTypeError(
      `${op}: operands are ${q.dtype}, ${k.dtype}, ${v.dtype}; they must have one dtype` +
        (op === 'sdpa' ? `, or keys and values both be ${KEPT_IN_8_BITS.join(' or ')} (blocks of Q8_0)` : ''),
    );
  const { q: qs } = checkCall(op, inputs, rest, p);
  if (!Number.isFinite(p.scale) || !(p.softcap >= 0))
    throw new ArgumentError(`${op}: scale ${p.scale} must be finite and softcap ${p.softcap} not negative`);
  const extra = extrasOf(rest, p.extras);
  const { batch, tq, tk } = extent(q, k, p, extra);
  const want = (name: Extra, shape: readonly number[], dtypes: readonly DType[]): void => {
    const t = extra[name];
    if (t && !sameShape(t.shape, shape))
      throw new ShapeError(`${op}: ${name} ${formatShape(t.shape)} must be ${formatShape(shape)}`);
    if (t && !dtypes.includes(t.dtype))
      throw new DTypeError(`${op}: ${name} is ${t.dtype}; it must be ${dtypes.join(' or ')}`);
  };
  want('mask', [batch, qs.heads, tq, tk], ['bool', 'u8', q.dtype]);
  want('slopes', [qs.heads], ['f32']);
  want('sinks', [qs.heads], ['f32']);
  if ((extra.qStarts && extra.qStarts.shape.length !== 1) || batch < 0)
    throw new ShapeError(`${op}: qStarts ${formatShape(extra.qStarts?.shape ?? [])} must be (batch + 1)`);
  want('qStarts', [batch + 1], ['i32']);
  want('kStarts', [batch + 1], ['i32']);
  want('lengths', [batch], ['i32']);
  want('out', shapeOf(qs, p.layout), [q.dtype]);
  if (extra.pages) want('pages', [batch, extra.pages.shape[1] ?? 0], ['i32']);
  const lse: Sig = { shape: [qs.batch, qs.heads, qs.rows], dtype: wideOf(q.dtype) };
  return { out: { shape: shapeOf(qs, p.layout), dtype: q.dtype }, lse, k };
}

// ---- the same in tensor operations, for gradients of gradients and of masks and slopes ----

const turned = (t: Tensor, p: SdpaParams): Tensor => (p.layout === 'bhtd' ? t : t.permute([0, 2, 1, 3]));
/** Key heads repeated for their query heads, and summed back. */
const spread = (t: Tensor, heads: number): Tensor => {
  const [b, h, n, d] = t.shape;
  return h === heads
    ? t
    : t
        .unsqueeze(2)
        .broadcastTo([b, h, heads / h, n, d])
        .reshape([b, heads, n, d]);
};
const gathered = (t: Tensor, heads: number): Tensor => {
  const [b, h, n, d] = t.shape;
  return h === heads ? t : t.reshape([b, heads, h / heads, n, d]).sum([2], false);
};

interface Composed {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
  /** Weights, the logit's derivative by the product, and its derivative again; all (b, h, tq, tk). */
  readonly weights: Tensor;
  readonly slope: Tensor | number;
  readonly bend: Tensor | undefined;
  readonly distance: Tensor;
}
function composed(
  inputs: readonly Tensor[],
  lse: Tensor,
  extra: { readonly [K in Extra]?: Tensor },
  p: SdpaParams,
): Composed {
  const wide = wideOf(inputs[0].dtype);
  const q = turned(inputs[0], p).cast(wide);
  const heads = q.shape[1];
  const [k, v] = [inputs[1], inputs[2]].map((t) => spread(turned(t, p).cast(wide), heads));
  const { distance, together } = places(q, k, extra);
  let z = q.matmul(k.t()).affine(p.scale, 0);
  let slope: Tensor | number = p.scale;
  let bend: Tensor | undefined;
  if (p.softcap !== 0) {
    const t = z.affine(1 / p.softcap, 0).tanh();
    z = t.affine(p.softcap, 0);
    const flat = t.sqr().affine(-1, 1);
    slope = flat.affine(p.scale, 0);
    bend = t.mul(flat).affine((-2 * p.scale * p.scale) / p.softcap, 0);
  }
  if (extra.slopes) z = z.sub(extra.slopes.cast(wide).reshape([heads, 1, 1]).mul(distance.abs().cast(wide)));
  const seen: Tensor[] = together ? [together] : [];
  if (p.right >= 0) seen.push(distance.ge(-p.right));
  if (p.left >= 0) seen.push(distance.le(p.left));
  if (extra.mask && !isFloat(extra.mask.dtype)) seen.push(extra.mask.ne(0));
  else if (extra.mask) z = z.add(extra.mask.cast(wide));
  // Unseen keys leave before the exponential, which could overflow for them; a query that sees none has no sum, and
  // weights of 0.
  const visible = seen.reduce((l, m) => m.broadcastTo(l.shape).where(l, l.constant(-Infinity)), z);
  const level = lse.eq(-Infinity).where(lse.zerosLike(), lse).unsqueeze(3);
  return { q, k, v, weights: visible.sub(level).exp(), slope, bend, distance };
}

/**
 * How far each query lies behind each key, (tq, tk), and where sequences are packed whether both lie in the same one.
 */
function places(
  q: Tensor,
  k: Tensor,
  { qStarts, kStarts }: { readonly [K in Extra]?: Tensor },
): { distance: Tensor; together?: Tensor } {
  const [tq, tk] = [q.shape[2], k.shape[2]];
  const [query, key] = [q.newArange(tq, 'i32'), q.newArange(tk, 'i32')];
  if (!qStarts || !kStarts)
    return {
      distance: query
        .affine(1, tk - tq)
        .unsqueeze(1)
        .sub(key),
    };
  const count = qStarts.size - 1;
  if (count === 0) return { distance: query.unsqueeze(1).sub(key), together: query.newFull([tq, tk], 0, 'bool') };
  const within = (row: Tensor, starts: Tensor): { id: Tensor; at: Tensor; length: Tensor } => {
    // The last sequence that begins at or before the row.
    const id = row.unsqueeze(1).ge(starts).sum(1).cast('i32').affine(1, -1);
    const known = id.clamp(0, count - 1);
    const begin = starts.indexSelect(0, known);
    return { id, at: row.sub(begin), length: starts.indexSelect(0, known.affine(1, 1)).sub(begin) };
  };
  const [mine, theirs] = [within(query, qStarts), within(key, kStarts)];
  const keys = kStarts.narrow(0, 1, count).sub(kStarts.narrow(0, 0, count)); // how many each sequence has
  const offset = keys.indexSelect(0, mine.id.clamp(0, count - 1)).sub(mine.length);
  const packed = mine.id.ge(0).logicalAnd(mine.id.lt(count)); // rows outside all sequences see nothing
  return {
    distance: mine.at.add(offset).unsqueeze(1).sub(theirs.at),
    together: mine.id.unsqueeze(1).eq(theirs.id).logicalAnd(packed.unsqueeze(1)),
  };
}

const scaled = (t: Tensor, by: Tensor | number): Tensor => (typeof by === 'number' ? t.affine(by, 0) : t.mul(by));

/** A slope takes its distance from every logit of its head. */
const bySlope = (dlogits: Tensor, distance: Tensor): Tensor =>
  dlogits.mul(distance.abs().cast(dlogits.dtype)).sum([0, 2, 3], false).neg().cast('f32');

function gradForward(ctx: GradContext<SdpaParams>): Grads {
  const {
    inputs,
    outputs: [out, lse],
    grads,
    params: p,
    needs,
  } = ctx;
  const [q, k, v, ...rest] = inputs;
  const extra = extrasOf(rest, p.extras);
  if (k.dtype !== q.dtype)
    throw new GradError('sdpa: keys and values in 8 bits are for inference; there is no gradient through them');
  if (extra.lengths || extra.pages)
    throw new GradError('sdpa: caches with lengths or pages are for inference; there is no gradient through them');
  const dout = grads[0] ?? out.zerosLike();
  const flow = out.sdpaDelta(dout, p.layout);
  const delta = grads[1] ? flow.sub(grads[1]) : flow; // d lse / d logit is the weight, as in delta with the other sign
  // Libraries that serve the plain case make delta of out by themselves.
  const plain = p.extras.length === 0 && p.softcap === 0 && !grads[1];
  const [given, how] = plain ? [[out], { ...p, extras: ['out' as const] }] : [rest, p];
  const [dq, dk, dv] = needs(0) || needs(1) || needs(2) ? q.sdpaBackward(k, v, dout, lse, delta, how, given) : [];
  const c = p.extras.some((name, i) => (name === 'mask' || name === 'slopes') && needs(3 + i))
    ? composed(inputs, lse, extra, p)
    : undefined;
  const dlogits = c?.weights.mul(turned(dout, p).cast(c.q.dtype).matmul(c.v.t()).sub(delta.unsqueeze(3)));
  const ofExtra = (name: Extra, i: number): Tensor | undefined => {
    if (!needs(3 + i)) return undefined;
    if (name === 'sinks')
      return extra.sinks
        ?.cast(lse.dtype)
        .reshape([1, -1, 1])
        .sub(lse)
        .exp()
        .mul(delta)
        .sum([0, 2], false)
        .neg()
        .cast('f32');
    if (name === 'mask') return dlogits?.cast(q.dtype);
    return name === 'slopes' && c && dlogits ? bySlope(dlogits, c.distance) : undefined;
  };
  return [dq, dk, dv, ...p.extras.map(ofExtra)];
}

/** Of dq = H k, dk = H' q, dv = P' g with H = P (g v' - delta) f'(z), for upstream a, b, c. */
function gradBackward({ inputs, grads, params: p }: GradContext<SdpaParams>): Grads {
  const [q0, k0, v0, g0, lse, delta, ...rest] = inputs;
  const extra = extrasOf(rest, p.extras);
  const { q, k, v, weights: w, slope, bend, distance } = composed([q0, k0, v0], lse, extra, p);
  const heads = q.shape[1];
  const of = (t: Tensor | undefined, like: Tensor): Tensor =>
    spread(turned(t ?? like.zerosLike(), p).cast(q.dtype), heads);
  const [a, b, c, g] = [of(grads[0], q0), of(grads[1], k0), of(grads[2], v0), of(g0, g0)];
  const inner = g.matmul(v.t()).sub(delta.unsqueeze(3));
  const flow = w.mul(inner);
  const h = scaled(flow, slope);
  const dh = a.matmul(k.t()).add(q.matmul(b.t()));
  const dflow = scaled(dh, slope);
  const dinner = dflow.mul(w);
  const dlogit = g.matmul(c.t()).add(dflow.mul(inner)).mul(w);
  const dz = bend ? scaled(dlogit, slope).add(dh.mul(flow).mul(bend)) : scaled(dlogit, slope);
  const back = (t: Tensor, like: Tensor): Tensor =>
    turned(gathered(t, sizesOf(like.shape, p.layout).heads), p).cast(like.dtype);
  return [
    back(dz.matmul(k).add(h.matmul(b)), q0),
    back(dz.t().matmul(q).add(h.t().matmul(a)), k0),
    back(dinner.t().matmul(g), v0),
    back(w.matmul(c).add(dinner.matmul(v)), g0),
    dlogit.sum([3], false).neg(),
    dinner.sum([3], false).neg(),
    ...p.extras.map((name) =>
      name === 'mask' && extra.mask && isFloat(extra.mask.dtype)
        ? dlogit.cast(q0.dtype)
        : name === 'slopes'
          ? bySlope(dlogit, distance)
          : undefined,
    ),
  ];
}

const base: SdpaParams = { layout: 'bhtd', scale: 0.5, softcap: 0, left: -1, right: -1, extras: [], longest: [0, 0] };
const of = (more: Partial<SdpaParams> = {}): SdpaParams => ({ ...base, ...more });
const s = (...shape: number[]): InputSpec => ({ shape });
const perHead = (n: number): InputSpec => ({ shape: [n], dtype: 'f32', domain: [0.1, 1] });

const whole = (shape: Shape, values: readonly number[]): InputSpec => ({ shape, dtype: 'i32', values });
const starts = (...values: number[]): InputSpec => whole([values.length], values);
const lengths = starts;
const pageTable = (batch: number, each: number, ...values: number[]): InputSpec => whole([batch, each], values);
const packed = [1, 2, 3, 4].map((input) => ({ input }));
const paged = [...[1, 2, 3].map((input) => ({ input })), { causal: true, lengths: { input: 4 } }];

const samples = (): readonly Sample<SdpaParams>[] => [
  { inputs: [s(1, 2, 3, 4), s(1, 2, 3, 4), s(1, 2, 3, 4)], params: of({ right: 0 }) },
  { inputs: [s(2, 4, 2, 3), s(2, 2, 5, 3), s(2, 2, 5, 3)], params: of({ right: 0 }) },
  { inputs: [s(1, 3, 2, 4), s(1, 5, 1, 4), s(1, 5, 1, 4)], params: of({ layout: 'bthd', softcap: 2 }) },
  { inputs: [s(1, 2, 4, 2), s(1, 2, 4, 2), s(1, 2, 4, 2)], params: of({ left: 1, right: 1 }) },
  { inputs: [s(1, 2, 2, 3), s(1, 2, 3, 3), s(1, 2, 3, 3), s(1, 2, 2, 3)], params: of({ extras: ['mask'] }) },
  {
    inputs: [s(1, 2, 3, 2), s(1, 2, 3, 2), s(1, 2, 3, 2), perHead(2), perHead(2)],
    params: of({ extras: ['slopes', 'sinks'], right: 0 }),
  },
  { inputs: [s(2, 2, 37, 16), s(2, 1, 70, 16), s(2, 1, 70, 16)], params: of({ right: 0, scale: 0.25 }) },
  {
    inputs: [s(1, 2, 1, 40), s(1, 1, 130, 40), s(1, 1, 130, 40), { shape: [1], dtype: 'i32', ints: [90, 90] }],
    params: of({ right: 0, extras: ['lengths'] }),
  },
  {
    inputs: [s(1, 4, 1, 72), s(1, 2, 9, 72), s(1, 2, 9, 72), { shape: [1, 4, 1, 9], dtype: 'u8', ints: [0, 1] }],
    params: of({ extras: ['mask'], scale: 0.1 }),
  },
  {
    inputs: [s(1, 3, 2, 160), s(1, 4, 2, 160), s(1, 4, 2, 160)],
    params: of({ layout: 'bthd', scale: 0.05, left: 2, right: 0 }),
  },
  { inputs: [s(1, 1, 3, 33), s(1, 1, 3, 33), s(1, 1, 3, 33)], params: of() }, // one number beyond a stage of 32
];
/** Keys and values in 8 bits: few queries, many, and in pages. */
const kept = (...shape: number[]): readonly InputSpec[] => {
  const blocks: InputSpec = { shape: [...shape.slice(0, 3), (shape[3] / 32) * 34], dtype: 'u8', blocks: 'Q8_0' };
  return [{ shape, dtype: 'f8e4m3', domain: [-1, 1] }, blocks];
};
const keptSamples = (): readonly Sample<SdpaParams>[] =>
  [0, 1].flatMap((i): Sample<SdpaParams>[] => {
    const like = (...shape: number[]): InputSpec[] => [kept(...shape)[i], kept(...shape)[i]];
    // Many queries read blocks in their own dtype, which rounds them if it is one of 16 bits.
    const many = (...shape: number[]): InputSpec => (i === 0 ? s(...shape) : { shape, dtype: 'f32' });
    return [
      { inputs: [s(2, 4, 1, 64), ...like(2, 2, 37, 64)], params: of({ right: 0, scale: 0.1 }) },
      { inputs: [many(1, 2, 9, 32), ...like(1, 1, 12, 32)], params: of({ right: 0, scale: 0.2, softcap: 2 }) },
      {
        inputs: [s(2, 1, 4, 32), ...like(5, 8, 2, 32), lengths(20, 9), pageTable(2, 3, 4, 0, 2, 1, 3, 0)],
        params: of({ layout: 'bthd', right: 0, scale: 0.2, extras: ['lengths', 'pages'] }),
      },
      {
        inputs: [many(2, 2, 6, 96), ...like(5, 1, 8, 96), lengths(20, 9), pageTable(2, 3, 4, 0, 2, 1, 3, 0)],
        params: of({ right: 0, scale: 0.1, extras: ['lengths', 'pages'] }),
      },
    ];
  });
const backwardSamples = (): readonly Sample<SdpaParams>[] =>
  samples()
    .filter(({ params }) => !params.extras.includes('lengths'))
    .map(({ inputs: [q, k, v, ...rest], params }) => {
      const { batch, heads, rows: n } = sizesOf(q.shape, params.layout);
      const wide: InputSpec = { shape: [batch, heads, n], domain: [0.5, 1.5] };
      return { inputs: [q, k, v, q, wide, wide, ...rest], params };
    });

export const attention = rows({
  sdpaRun: many({
    family: 'attention',
    mixed: true,
    kernel: { pass: 'forward' },
    serves: 'sdpa',
    formula: "softmax(f(scale q k') + bias) v over the keys a query sees, and the log of the sum of exponentials",
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(64, 4),
    candle: { none: 'Candle has attention for Metal, for the CPU and in a separate crate for CUDA' },
    infer: (inputs: readonly Sig[], p: SdpaParams): readonly Sig[] => {
      if (p.extras.includes('out')) throw new ArgumentError('sdpa: out is what the forward pass makes');
      const { out, lse } = infer('sdpa', inputs, p, inputs.slice(3));
      return [out, lse];
    },
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: SdpaParams): void =>
      referenceForward(inputs, outputs, p),
    grad: gradForward,
    args: (q: Tensor, k: Tensor, v: Tensor, p: SdpaParams, extras: readonly Tensor[]): Call<SdpaParams> => ({
      inputs: [q, k, v, ...extras],
      params: p,
    }),
    samples: () => [...samples(), ...keptSamples()],
    errors: (): readonly ErrorSample<SdpaParams>[] => [
      {
        inputs: [s(1, 3, 2, 4), s(1, 2, 2, 4), s(1, 2, 2, 4)],
        params: of(),
        code: 'E_SHAPE',
        says: /3 query heads do not divide into groups over 2 key heads/,
      },
      {
        inputs: [s(1, 2, 2, 4), s(1, 2, 2, 3), s(1, 2, 2, 3)],
        params: of(),
        code: 'E_SHAPE',
        says: /must have one head dimension/,
      },
      {
        inputs: [s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 3, 4)],
        params: of(),
        code: 'E_SHAPE',
        says: /keys \[1, 2, 2, 4\] and values \[1, 2, 3, 4\] must have one shape/,
      },
      {
        inputs: [s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 2, 3)],
        params: of({ extras: ['mask'] }),
        code: 'E_SHAPE',
        says: /mask \[1, 2, 2, 3\] must be \[1, 2, 2, 2\]/,
      },
      {
        inputs: [s(1, 2, 2, 32), kept(1, 2, 2, 32)[1], kept(1, 2, 2, 32)[0]],
        params: of(),
        code: 'E_DTYPE',
        says: /keys and values both be f8e4m3 or u8/,
      },
    ],
  }),

  sdpaBackward: many({
    family: 'attention',
    mixed: true,
    kernel: { pass: 'backward' },
    serves: 'sdpa',
    formula: "dq = H k, dk = H' q, dv = P' dout with P = exp(logit - lse) and H = P (dout v' - delta) f'",
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(24, 4),
    candle: { none: "Candle's attention has no gradient" },
    infer: (inputs: readonly Sig[], p: SdpaParams): readonly Sig[] => {
      const { out, lse, k } = infer('sdpaBackward', inputs, p, inputs.slice(6));
      for (const [i, want] of [
        [3, out],
        [4, lse],
        [5, lse],
      ] as const) {
        if (!sameShape(inputs[i].shape, want.shape))
          throw new ShapeError(
            `sdpaBackward: input ${i} ${formatShape(inputs[i].shape)} must be ${formatShape(want.shape)}`,
          );
        if (inputs[i].dtype !== want.dtype && inputs[i].dtype !== out.dtype)
          throw new DTypeError(`sdpaBackward: input ${i} is ${inputs[i].dtype}; it must be ${want.dtype}`);
      }
      return [out, k, k];
    },
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: SdpaParams): void =>
      referenceBackward(inputs, outputs, p),
    grad: gradBackward,
    args: (
      q: Tensor,
      k: Tensor,
      v: Tensor,
      dout: Tensor,
      lse: Tensor,
      delta: Tensor,
      p: SdpaParams,
      extras: readonly Tensor[],
    ): Call<SdpaParams> => ({ inputs: [q, k, v, dout, lse, delta, ...extras], params: p }),
    samples: backwardSamples,
    errors: (): readonly ErrorSample<SdpaParams>[] => [
      {
        inputs: [s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 2, 4), s(1, 2, 3, 4), s(1, 2, 2), s(1, 2, 2)],
        params: of(),
        code: 'E_SHAPE',
        says: /input 3 \[1, 2, 3, 4\] must be \[1, 2, 2, 4\]/,
      },
    ],
  }),

  sdpaDelta: kernel({
    family: 'attention',
    kernel: { pass: 'delta' },
    serves: 'sdpa',
    formula: 'sum of out * dout over the head dimension, as (batch, heads, time)',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(10, 4),
    candle: { none: 'part of a gradient Candle does not have' },
    infer: ([out, dout]: readonly Sig[], p: { layout: 'bhtd' | 'bthd' }): readonly Sig[] => {
      if (!sameShape(out.shape, dout.shape))
        throw new ShapeError(`sdpaDelta: ${formatShape(out.shape)} and ${formatShape(dout.shape)} must have one shape`);
      const { batch, heads, rows: n } = sizesOf(out.shape, p.layout);
      return [{ shape: [batch, heads, n], dtype: wideOf(out.dtype) }];
    },
    reference: (inputs: readonly RefTensor[], outputs: readonly RefTensor[], p: { layout: 'bhtd' | 'bthd' }): void =>
      referenceDelta(inputs, outputs, p.layout),
    grad: ({ x, y, grad, params: p, needs }: GradContext<{ layout: 'bhtd' | 'bthd' }>): Grads => {
      const g = p.layout === 'bhtd' ? grad.unsqueeze(3) : grad.permute([0, 2, 1]).unsqueeze(3);
      const times = (t: Tensor): Tensor => t.cast(g.dtype).mul(g).cast(t.dtype);
      return [needs(0) ? times(y) : undefined, needs(1) ? times(x) : undefined];
    },
    args: (out: Tensor, dout: Tensor, layout: 'bhtd' | 'bthd'): Call<{ layout: 'bhtd' | 'bthd' }> => ({
      inputs: [out, dout],
      params: { layout },
    }),
    samples: (): readonly Sample<{ layout: 'bhtd' | 'bthd' }>[] => [
      { inputs: [s(1, 2, 3, 5), s(1, 2, 3, 5)], params: { layout: 'bhtd' } },
      { inputs: [s(2, 4, 3, 40), s(2, 4, 3, 40)], params: { layout: 'bthd' } },
    ],
    errors: (): readonly ErrorSample<{ layout: 'bhtd' | 'bthd' }>[] => [
      {
        inputs: [s(2, 3, 4, 5), s(2, 3, 4, 4)],
        params: { layout: 'bhtd' },
        code: 'E_SHAPE',
        says: /must have one shape/,
      },
    ],
  }),

  sdpa: composite({
    formula: 'scaled-dot-product attention of queries over keys and values',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(12),
    candle: { none: 'candle_nn::ops::sdpa is for Metal' },
    compose: (q: Tensor, k: Tensor, v: Tensor, options: SdpaOptions = {}): Tensor => {
      requireOptions('sdpa', options, OPTIONS);
      if (q.rank === 3) return q.unsqueeze(0).sdpa(k.unsqueeze(0), v.unsqueeze(0), options).squeeze([0]);
      const layout = options.layout ?? 'bhtd';
      let mask = options.mask;
      if (mask && q.rank === 4 && k.rank === 4) {
        const [qs, ks] = [sizesOf(q.shape, layout), sizesOf(k.shape, layout)];
        mask = mask.broadcastTo([qs.batch, qs.heads, qs.rows, ks.rows]);
      }
      const { extras, tensors } = gather({
        mask,
        slopes: options.alibi?.cast('f32'),
        sinks: options.sinks?.cast('f32'),
        lengths: options.lengths,
      });
      return q.sdpaRun(k, v, paramsOf([q, k, v], options, extras), tensors)[0];
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: [s(1, 2, 3, 4), s(1, 2, 3, 4), s(1, 2, 3, 4)], args: [{ input: 1 }, { input: 2 }, { causal: true }] },
      {
        inputs: [s(1, 2, 3, 2), s(1, 1, 4, 2), s(1, 1, 4, 2), perHead(2), perHead(2), { shape: [1, 1, 3, 4] }],
        args: [
          { input: 1 },
          { input: 2 },
          { alibi: { input: 3 }, sinks: { input: 4 }, mask: { input: 5 }, softcap: 2 },
        ],
      },
      { inputs: [s(2, 3, 4), s(2, 5, 4), s(2, 5, 4)], args: [{ input: 1 }, { input: 2 }, { window: 1, softcap: 3 }] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      {
        inputs: [s(1, 2, 3, 4), s(1, 2, 3, 4), s(1, 2, 3, 4)],
        args: [{ input: 1 }, { input: 2 }, { casual: true }],
        code: 'E_ARGUMENT',
        says: /unknown option "casual"/,
      },
      {
        inputs: [s(1, 2, 3, 4), s(1, 2, 3, 4), s(1, 2, 3, 4)],
        args: [{ input: 1 }, { input: 2 }, { window: -2 }],
        code: 'E_ARGUMENT',
        says: /window -2/,
      },
    ],
  }),

  sdpaVarlen: composite({
    formula: 'attention within packed sequences: q (total, heads, dim); starts are row numbers, batch + 1 of them',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(20, 4),
    candle: { none: 'candle_flash_attn::flash_attn_varlen is a separate crate' },
    compose: (q: Tensor, k: Tensor, v: Tensor, qStarts: Tensor, kStarts: Tensor, options: VarlenOptions): Tensor => {
      requireOptions('sdpaVarlen', options, [
        ...OPTIONS.filter((n) => n !== 'layout' && n !== 'lengths' && n !== 'mask'),
        'maxQueries',
        'maxKeys',
      ]);
      const { extras, tensors } = gather({
        slopes: options.alibi?.cast('f32'),
        sinks: options.sinks?.cast('f32'),
        qStarts,
        kStarts,
      });
      const p = {
        ...paramsOf([q, k, v], options, extras, [options.maxQueries, options.maxKeys]),
        layout: 'bthd' as const,
      };
      return q.unsqueeze(0).sdpaRun(k.unsqueeze(0), v.unsqueeze(0), p, tensors)[0].squeeze([0]);
    },
    samples: (): readonly CompositeSample[] => [
      {
        inputs: [s(6, 2, 4), s(9, 1, 4), s(9, 1, 4), starts(0, 2, 3, 6), starts(0, 4, 4, 9)],
        args: [...packed, { causal: true, maxQueries: 3, maxKeys: 5 }],
      },
      {
        inputs: [s(5, 2, 2), s(6, 2, 2), s(6, 2, 2), starts(0, 2, 5), starts(0, 3, 6), perHead(2), perHead(2)],
        args: [...packed, { alibi: { input: 5 }, sinks: { input: 6 }, window: 1, maxQueries: 3, maxKeys: 3 }],
      },
      {
        inputs: [s(40, 2, 16), s(70, 2, 16), s(70, 2, 16), starts(0, 37, 40), starts(0, 5, 70)],
        args: [...packed, { window: 20, maxQueries: 37, maxKeys: 65 }],
      },
    ],
    errors: () => [],
  }),

  sdpaPaged: composite({
    formula:
      'attention over keys and values in pages: k (pages, heads, rows, dim), page numbers by batch entry in ' +
      '`pages` (batch, n)',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(16),
    noGrad: 'a cache is for inference',
    candle: { none: 'candle_flash_attn::flash_attn_varlen_paged_windowed is a separate crate' },
    compose: (q: Tensor, k: Tensor, v: Tensor, pages: Tensor, options: PagedOptions): Tensor => {
      requireOptions(
        'sdpaPaged',
        options,
        OPTIONS.filter((n) => n !== 'mask'),
      );
      const { extras, tensors } = gather({
        slopes: options.alibi?.cast('f32'),
        sinks: options.sinks?.cast('f32'),
        lengths: options.lengths,
        pages,
      });
      return q.sdpaRun(k, v, paramsOf([q, k, v], options, extras), tensors)[0];
    },
    samples: (): readonly CompositeSample[] => [
      {
        inputs: [s(2, 2, 1, 4), s(5, 1, 3, 4), s(5, 1, 3, 4), pageTable(2, 3, 4, 0, 2, 1, 3, 0), lengths(8, 4)],
        args: paged,
      },
      {
        inputs: [s(1, 4, 3, 16), s(3, 2, 16, 16), s(3, 2, 16, 16), pageTable(1, 3, 2, 0, 1), lengths(40)],
        args: paged,
      },
    ],
    errors: () => [],
  }),
});
