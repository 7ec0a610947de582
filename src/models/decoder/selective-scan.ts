// The first Mamba's scan: every channel keeps a row of numbers h = exp(step * rate) * h + step * value * key, each
// number with a rate of its own, and answers h . query. Computed in f32.
import type { Tensor } from '../../tensor/tensor.js';

/**
 * Tokens whose states are computed together: their decays and additions are joined by pairs, pairs of pairs and so
 * on.
 */
const CHUNK = 32;

export interface SelectiveInput {
  /** (b, t, channels) */
  readonly value: Tensor;
  readonly steps: Tensor;
  /** (b, t, state) */
  readonly k: Tensor;
  readonly q: Tensor;
  /** (channels, state), all negative. */
  readonly rates: Tensor;
}

/** h = fade * h + added for each of n tokens, (b, n, ...), from the state (b, ...) before them on: every h. */
function fadingSums(fade: Tensor, added: Tensor, state: Tensor): Tensor {
  const n = fade.shape[1];
  let [faded, sums] = [fade, added];
  for (let far = 1; far < n; far *= 2) {
    const early = (x: Tensor): Tensor => x.narrow(1, 0, n - far);
    const late = (x: Tensor): Tensor => x.narrow(1, far, n - far);
    const first = (x: Tensor): Tensor => x.narrow(1, 0, far);
    sums = first(sums).cat([late(sums).add(late(faded).mul(early(sums)))], 1);
    faded = first(faded).cat([late(faded).mul(early(faded))], 1);
  }
  return sums.add(faded.mul(state.unsqueeze(1)));
}

/** The same over any number of tokens: every h (b, t, channels) and the last one. */
export function recurrence(
  fade: Tensor,
  added: Tensor,
  before?: Tensor,
): { readonly y: Tensor; readonly state: Tensor } {
  const [b, t, channels] = fade.shape;
  let state = before ?? fade.newZeros([b, channels], 'f32');
  const parts: Tensor[] = [];
  for (let from = 0; from < t; from += CHUNK) {
    const n = Math.min(CHUNK, t - from);
    const all = fadingSums(fade.narrow(1, from, n), added.narrow(1, from, n), state);
    parts.push(all);
    state = all.narrow(1, n - 1, 1).squeeze([1]);
  }
  return { y: parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 1), state };
}

/** Answers (b, t, channels) and the state after the last token, (b, channels, state). */
export function selectiveScan(
  { value, steps, k, q, rates }: SelectiveInput,
  before?: Tensor,
): { readonly y: Tensor; readonly state: Tensor } {
  const [b, t, channels] = value.shape;
  const states = rates.shape[1];
  let state = before ?? value.newZeros([b, channels, states], 'f32');
  const parts: Tensor[] = [];
  for (let from = 0; from < t; from += CHUNK) {
    const n = Math.min(CHUNK, t - from);
    const at = (x: Tensor): Tensor => x.narrow(1, from, n);
    const fade = at(steps).unsqueeze(3).mul(rates).exp(); // (b, n, channels, state)
    const added = at(steps)
      .mul(at(value))
      .unsqueeze(3)
      .mul(k.rank === 4 ? at(k) : at(k).unsqueeze(2));
    const all = fadingSums(fade, added, state);
    parts.push(q.rank === 4 ? all.mul(at(q)).sum([3]) : all.matmul(at(q).unsqueeze(3)).squeeze([3]));
    state = all.narrow(1, n - 1, 1).squeeze([1]);
  }
  return { y: parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 1), state };
}
