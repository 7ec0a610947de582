// Gradients of attention: the backward kernels called, and attention written in tensor operations for gradients of
// gradients and of masks and slopes.
import { isFloat } from '../base/dtype.js';
import { GradError } from '../base/errors.js';
import type { Tensor } from '../tensor/tensor.js';
import { type Extra, extrasOf, isResult, type SdpaParams, sizesOf, wideOf } from './attention-reference.js';
import type { GradContext, Grads } from './op.js';

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

export function gradForward(ctx: GradContext<SdpaParams>): Grads {
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
  // Where scores are plain, delta is left to whoever serves: libraries make it of the result by themselves.
  const plain = p.extras.length === 0 && p.softcap === 0 && !grads[1];
  const flow = plain ? out : out.sdpaDelta(dout, p.layout);
  const delta = grads[1] ? flow.sub(grads[1]) : flow; // d lse / d logit is the weight, as in delta with the other sign
  const [dq, dk, dv] = needs(0) || needs(1) || needs(2) ? q.sdpaBackward(k, v, dout, lse, delta, p, rest) : [];
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
export function gradBackward({ inputs, grads, params: p }: GradContext<SdpaParams>): Grads {
  const [q0, k0, v0, g0, lse, given, ...rest] = inputs;
  const delta = isResult(given) ? given.sdpaDelta(g0, p.layout) : given;
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
  const ddelta = dinner.sum([3], true).neg();
  const dg = w.matmul(c).add(dinner.matmul(v));
  return [
    back(dz.matmul(k).add(h.matmul(b)), q0),
    back(dz.t().matmul(q).add(h.t().matmul(a)), k0),
    back(dinner.t().matmul(g), v0),
    back(isResult(given) ? dg.add(of(given, given).mul(ddelta)) : dg, g0),
    dlogit.sum([3], false).neg(),
    isResult(given) ? back(g.mul(ddelta), given) : ddelta.squeeze(3),
    ...p.extras.map((name) =>
      name === 'mask' && extra.mask && isFloat(extra.mask.dtype)
        ? dlogit.cast(q0.dtype)
        : name === 'slopes'
          ? bySlope(dlogit, distance)
          : undefined,
    ),
  ];
}
