// What gradients of norms are made of.
import type { Tensor } from '../tensor/tensor.js';

export const plain = (x: Tensor, eps: number, centre: boolean): Tensor =>
  centre ? x.layerNorm(undefined, undefined, { eps }) : x.rmsNorm(undefined, { eps });
export const backward = (x: Tensor, g: Tensor, eps: number, centre: boolean, w?: Tensor): Tensor =>
  centre ? x.layerNormBackward(g, w, { eps }) : x.rmsNormBackward(g, w, { eps });

/**
 * d/dx of <h, J(x) a> for rows x, where the norm's Jacobian J = r (I - 11'/n - yy'/n) is symmetric:
 * -r^2 C y / n - r / n J(h (a.y) + a (h.y)), C = h.a - sum(h) sum(a) / n - (h.y)(a.y) / n.
 */
export function bentRows(x: Tensor, a: Tensor, h: Tensor, eps: number, centre: boolean): Tensor {
  const n = x.shape[x.shape.length - 1];
  const dot = (p: Tensor, q: Tensor): Tensor => p.mul(q).sum([-1], true);
  const y = plain(x, eps, centre);
  const centred = centre ? x.sub(x.mean([-1], true)) : x;
  const r = centred.sqr().mean([-1], true).affine(1, eps).rsqrt();
  const [hy, ay] = [dot(h, y), dot(a, y)];
  const both = centre ? hy.mul(ay).add(h.sum([-1], true).mul(a.sum([-1], true))) : hy.mul(ay);
  const c = dot(h, a).sub(both.affine(1 / n, 0));
  const bent = backward(x, h.mul(ay).add(a.mul(hy)), eps, centre);
  return y
    .mul(c.mul(r.sqr()))
    .add(bent.mul(r))
    .affine(-1 / n, 0);
}
