// Rows times the matrix of the expert each belongs to.
import { gradEnabled } from '../tensor/autograd.js';
import { expertRows } from '../tensor/dispatch.js';
import { QTensor, type Weight } from '../tensor/qtensor.js';
import type { Tensor } from '../tensor/tensor.js';
import { tensor } from '../tensor/create.js';

/**
 * Up to this many rows on a GPU, each reads its expert's matrix in one launch for all: nothing waits for the host. More
 * are sorted by expert first.
 */
export const LONE_ROWS = 64;

/** x (rows, in), weights (experts, out, in), ids (rows): row r times weights[ids[r]]; biases (experts, out). */
export function expertProduct(x: Tensor, weights: Weight, ids: Tensor, bias?: Tensor): Tensor {
  const y = weights instanceof QTensor ? quantized(x, weights, ids) : floats(x, weights, ids);
  return bias ? y.add(bias.indexSelect(0, ids)) : y;
}

const quantized = (x: Tensor, weights: QTensor, ids: Tensor): Tensor =>
  weights.matmulExperts(x.unsqueeze(1), ids.unsqueeze(1)).squeeze([1]);

function floats(x: Tensor, weights: Tensor, ids: Tensor): Tensor {
  // Where nothing is trained the CPU needs no look at the choice, so that a whole step can be recorded.
  if (x.device.backend.elsewhere && !(gradEnabled() && (x.requiresGrad || weights.requiresGrad)))
    return expertRows(x, weights, ids);
  return onHost(x) || x.shape[0] > LONE_ROWS ? byExpert(x, weights, ids) : alone(x, weights, ids);
}

const onHost = (x: Tensor): boolean => x.device.name === 'cpu' || x.device.name === 'reference';

const alone = (x: Tensor, weights: Tensor, ids: Tensor): Tensor =>
  x.unsqueeze(1).matmulExperts(weights, ids.unsqueeze(1)).squeeze([1]);

/** One product an expert over the rows that chose it; experts that nobody chose are not touched. */
function byExpert(x: Tensor, weights: Tensor, ids: Tensor): Tensor {
  const chosen = Array.from(ids.dataSync() as Iterable<number | bigint>, Number);
  const order = chosen.map((_, row) => row).sort((a, b) => chosen[a] - chosen[b] || a - b);
  const back = new Uint32Array(order.length);
  order.forEach((row, at) => (back[row] = at));
  const index = (numbers: readonly number[] | Uint32Array): Tensor =>
    tensor(Uint32Array.from(numbers), { device: x.device });
  const sorted = x.indexSelect(0, index(order));
  const parts: Tensor[] = [];
  for (let from = 0; from < order.length; ) {
    const expert = chosen[order[from]];
    let to = from;
    while (to < order.length && chosen[order[to]] === expert) to++;
    const matrix = weights.narrow(0, expert, 1).squeeze([0]);
    parts.push(sorted.narrow(0, from, to - from).matmul(matrix.t()));
    from = to;
  }
  return parts[0].cat(parts.slice(1), 0).indexSelect(0, index(back));
}

interface Routed {
  /** (rows, in), (rows), (rows, 1) */
  readonly rows: Tensor;
  readonly ids: Tensor;
  readonly by: Tensor;
}
/**
 * Rows whose expert is one of those held here go through it, all others become zeros: another rank has theirs. `through`
 * takes numbers of held experts.
 */
export function amongHeld(
  { first, count }: { readonly first: number; readonly count: number },
  { rows, ids, by }: Routed,
  through: (rows: Tensor, ids: Tensor, by: Tensor) => Tensor,
): Tensor {
  const local = ids.cast('i64').affine(1, -first);
  if (onHost(rows)) {
    // Nobody computes what is not asked for.
    const chosen = Array.from(local.dataSync() as Iterable<number | bigint>, Number);
    const mine = Uint32Array.from(chosen.flatMap((e, row) => (e >= 0 && e < count ? [row] : [])));
    if (mine.length === 0) return rows.zerosLike();
    const at = tensor(mine, { device: rows.device });
    const [own, numbers, weights] = [rows, local, by].map((x) => x.indexSelect(0, at));
    return rows.zerosLike().indexAdd(0, at, through(own, numbers.cast(ids.dtype), weights));
  }
  // A step that is recorded does the same for every choice: the first expert's answers to others' rows are dropped.
  const mine = local.ge(0).cast('i64').mul(local.lt(count).cast('i64'));
  const out = through(rows, local.mul(mine).cast(ids.dtype), by);
  return mine.ne(0).unsqueeze(1).broadcastTo(out.shape).where(out, out.constant(0));
}
