// A part of a tensor that is there as a whole.
import { type Part, runsOf } from '../io/part-record.js';
import type { Tensor } from '../tensor/tensor.js';

export function partOf(whole: Tensor, part: Part, name: string): Tensor {
  const { dim } = part;
  const { runs, zeros } = runsOf(part, whole.shape, name);
  const pieces = runs.map(({ from, length }) => whole.narrow(dim, from, length));
  if (zeros > 0)
    pieces.push(
      whole.newZeros(
        whole.shape.map((n, i) => (i === dim ? zeros : n)),
        whole.dtype,
      ),
    );
  return pieces.length === 1 ? pieces[0] : pieces[0].cat(pieces.slice(1), dim);
}
