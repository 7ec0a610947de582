// Gradients of parts of a tensor, put together at once: a product that is taken apart into queries, keys and values
// gets one copy back, and no tensors of zeros that are added up.
import { sameShape, type Shape } from '../base/shape.js';
import type { Span } from '../ops/op.js';
import type { Tensor } from './tensor.js';

export interface GradPiece extends Span {
  readonly grad: Tensor;
}

/** The gradient of a tensor of this shape, given those of its parts. */
export function joined(shape: Shape, pieces: readonly GradPiece[]): Tensor {
  const [{ dim }] = pieces;
  const inOrder = [...pieces].sort((a, b) => a.start - b.start);
  const apart = inOrder.every(
    (p, i) => p.dim === dim && (i === 0 || inOrder[i - 1].start + inOrder[i - 1].length <= p.start),
  );
  if (!apart) return pieces.map((p) => placed(shape, p)).reduce((a, b) => a.add(b));
  const list: Tensor[] = [];
  let at = 0;
  const zeros = (length: number): void => {
    if (length > 0) {
      const { grad } = pieces[0];
      list.push(
        grad.newZeros(
          shape.map((n, i) => (i === dim ? length : n)),
          grad.dtype,
        ),
      );
    }
  };
  for (const { start, length, grad } of inOrder) {
    zeros(start - at);
    list.push(grad);
    at = start + length;
  }
  zeros(shape[dim] - at);
  const [first, ...rest] = list;
  return rest.length === 0 && sameShape(first.shape, shape) ? first : first.cat(rest, dim);
}
const placed = (shape: Shape, { dim, start, grad }: GradPiece): Tensor =>
  grad.place(
    shape,
    shape.map((_, i) => (i === dim ? start : 0)),
  );
