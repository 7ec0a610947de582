// Places of a grid as tensors: how gridSample is made of other ops, and the gradient of its gradient.
import type { Tensor } from '../tensor/tensor.js';
import type { GridParams } from './grid.js';

/** Places mirrored into a dimension of n, at the centers of its outer pixels or at their edges. */
export function mirrored(at: Tensor, n: number, align: boolean): Tensor {
  const [low, span] = align ? [0, n - 1] : [-0.5, n];
  if (span === 0) return at.zerosLike();
  const away = at.affine(1, -low).abs();
  const extra = away.fmod(span);
  const odd = away.div(span).floor().remainder(2).eq(1);
  return odd.where(extra.affine(-1, span + low), extra.affine(1, low));
}

/** Gives the numbers at whole places (n, count) by dimension, 0 outside, times their weight: (n, c, count). */
export type ReadAt = (places: readonly Tensor[], weight?: Tensor) => Tensor;
export function readerOf(x: Tensor): ReadAt {
  const [n, c, ...sizes] = x.shape;
  const flat = x.reshape([n, c, -1]);
  // Corners share their places along each dimension: what is asked of one is kept.
  const known = new Map<Tensor, { readonly inside: Tensor; readonly index: Tensor }>();
  const along = (t: Tensor, i: number): { readonly inside: Tensor; readonly index: Tensor } => {
    const last = sizes[i] - 1;
    const made = known.get(t) ?? {
      inside: t.ge(0).logicalAnd(t.le(last)),
      index: t.detach().clamp(0, last).cast('i64'), // NaN, which is not inside, becomes 0
    };
    known.set(t, made);
    return made;
  };
  return (places, weight) => {
    const all = places.map(along);
    const inside = all.map((p) => p.inside).reduce((a, b) => a.logicalAnd(b));
    const index = all.map((p) => p.index).reduce((sum, t, i) => sum.affine(sizes[i], 0).add(t));
    const taken = flat.gather(2, index.unsqueeze(1).broadcastTo([n, c, index.shape[1]]));
    const kept = inside.unsqueeze(1).where(taken, x.constant(0));
    return weight ? kept.mul(weight.unsqueeze(1)) : kept;
  };
}

/**
 * A place along n pixels: the pixel before it, how far it is from there, and how it moves with the number in the grid.
 */
interface Along {
  readonly low: Tensor;
  readonly share: Tensor;
  readonly slope: Tensor;
}
function along(told: Tensor, n: number, { padding, align }: GridParams): Along {
  const half = (align ? n - 1 : n) / 2;
  const plain = told.affine(half, (n - 1) / 2);
  const bounced = padding === 'reflection' ? mirrored(plain, n, align) : plain;
  const at = padding === 'zeros' ? bounced : bounced.clamp(0, n - 1);
  let slope = plain.detach().zerosLike().affine(0, half);
  if (padding === 'reflection') {
    const [low, span] = align ? [0, n - 1] : [-0.5, n];
    const away = plain.detach().affine(1, -low);
    const back = span === 0 ? away.zerosLike() : away.abs().div(span).floor().remainder(2);
    slope = span === 0 ? away.zerosLike() : slope.mul(away.sign()).mul(back.affine(-2, 1));
  }
  if (padding !== 'zeros') {
    const held = bounced.detach();
    slope = held
      .ge(0)
      .logicalAnd(held.le(n - 1))
      .where(slope, 0);
  }
  const low = at.detach().floor();
  return { low, share: at.sub(low), slope };
}

/**
 * Gradients of what flows back to a grid from pictures x by `flow`: v is the gradient of that. By other ops alone, so
 * that they have gradients in turn.
 */
export function movedGrads(x: Tensor, grid: Tensor, flow: Tensor, v: Tensor, p: GridParams): [Tensor, Tensor, Tensor] {
  const [n, c, h, w] = x.shape;
  const count = grid.shape[1] * grid.shape[2];
  const read = readerOf(x.cast('f32'));
  const by = flow.cast('f32').reshape([n, c, count]);
  const of = (t: Tensor, i: number): Tensor => t.get(i, -1).reshape([n, count]);
  const [column, row] = [w, h].map((size, i) => along(of(grid, i), size, p));
  const [vx, vy] = [of(v, 0).mul(column.slope), of(v, 1).mul(row.slope)];
  const corners = [0, 1, 2, 3].map((k) => {
    const [below, right] = [(k & 1) === 1, (k & 2) === 2];
    const side = (a: Along, high: boolean): { place: Tensor; weight: Tensor; sign: number } => ({
      place: high ? a.low.affine(1, 1) : a.low,
      weight: high ? a.share : a.share.affine(-1, 1),
      sign: high ? 1 : -1,
    });
    const [y, z] = [side(row, below), side(column, right)];
    const places = [y.place, z.place];
    // How the corner's share moves along v, and how that moves with the other number.
    const moves = vy.mul(z.weight).affine(y.sign, 0).add(vx.mul(y.weight).affine(z.sign, 0));
    return { places, moves, sign: y.sign * z.sign };
  });
  const sum = (parts: readonly Tensor[]): Tensor => parts.reduce((a, b) => a.add(b));
  const dflow = sum(corners.map(({ places, moves }) => read(places, moves)));
  const dx = sum(
    corners.map(({ places: [y, z], moves }) => {
      const inside = [y.ge(0), y.le(h - 1), z.ge(0), z.le(w - 1)].reduce((a, b) => a.logicalAnd(b));
      const index = y
        .clamp(0, h - 1)
        .cast('i64')
        .affine(w, 0)
        .add(z.clamp(0, w - 1).cast('i64'));
      const part = inside.unsqueeze(1).where(by.mul(moves.unsqueeze(1)), 0);
      return x.newZeros([n, c, h * w], 'f32').scatterAdd(2, index.unsqueeze(1).broadcastTo([n, c, count]), part);
    }),
  );
  const twisted = sum(corners.map(({ places, sign }) => read(places).affine(sign, 0)))
    .mul(by)
    .sum([1], false);
  const dgrid = [vy.mul(column.slope), vx.mul(row.slope)].map((t) => t.mul(twisted).reshape(grid.shape.slice(0, -1)));
  return [
    dx.reshape(x.shape).cast(x.dtype),
    dgrid[0].stack([dgrid[1]], -1),
    dflow.reshape(flow.shape).cast(flow.dtype),
  ];
}
