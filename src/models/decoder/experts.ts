// Rows times the matrix of the expert each belongs to.
import { gradEnabled } from '../../tensor/autograd.js';
import { expertRows } from '../../tensor/dispatch.js';
import { QTensor, type Weight } from '../../tensor/qtensor.js';
import type { Tensor } from '../../tensor/tensor.js';
import { tensor } from '../../tensor/create.js';

/** Up to this many rows that are trained on a GPU, each reads its expert's matrix; more take a product an expert. */
const LONE_ROWS = 64;

/**
 * x (tokens, 1 or chosen, in), weights (experts, out, in), ids (tokens, chosen): token t, choice j times
 * weights[ids[t, j]]; biases (experts, out).
 */
export function expertProduct(x: Tensor, weights: Weight, ids: Tensor, bias?: Tensor): Tensor {
  const [tokens, chosen] = ids.shape;
  const flat = ids.reshape([tokens * chosen]);
  const rows = (): Tensor => x.broadcastTo([tokens, chosen, x.shape[2]]).reshape([tokens * chosen, x.shape[2]]);
  const whole = (y: Tensor): Tensor => y.reshape([tokens, chosen, y.shape[1]]);
  const y =
    weights instanceof QTensor
      ? whole(quantized(rows(), weights, flat))
      : inOneLaunch(x, weights, tokens * chosen)
        ? x.matmulExperts(weights, ids)
        : whole(oneByOne(rows(), weights, flat));
  return bias ? y.add(whole(bias.indexSelect(0, flat))) : y;
}

const quantized = (x: Tensor, weights: QTensor, ids: Tensor): Tensor =>
  weights.matmulExperts(x.unsqueeze(1), ids.unsqueeze(1)).squeeze([1]);

const trained = (x: Tensor, weights: Tensor): boolean => gradEnabled() && (x.requiresGrad || weights.requiresGrad);

/** GPUs sort rows by expert themselves: nothing waits for the host. The gradient of many rows would gather matrices. */
const inOneLaunch = (x: Tensor, weights: Tensor, rows: number): boolean =>
  !onHost(x) && (rows <= LONE_ROWS || !trained(x, weights));

const onHost = (x: Tensor): boolean => x.device.name === 'cpu' || x.device.name === 'reference';

/** Where nothing is trained the CPU needs no look at the choice, so that a whole step can be recorded. */
const oneByOne = (x: Tensor, weights: Tensor, ids: Tensor): Tensor =>
  x.device.backend.elsewhere && !trained(x, weights) ? expertRows(x, weights, ids) : byExpert(x, weights, ids);

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
 * Rows whose expert is one of those held here go through it, all others become zeros: another rank has theirs.
 * `through` takes numbers of held experts.
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
