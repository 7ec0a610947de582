// Attention that keeps one matrix instead of all keys: S = decay * S + k v', y = q S, and the delta rule, which writes
// not the value itself but what it differs in from what S answers to the key. Computed in f32.
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';

/** Tokens whose answers are computed together. */
const CHUNK = 32;

export interface ScanInput {
  /** (b, t, heads, key), (b, t, heads, key), (b, t, heads, value) */
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
  /** Logarithms of the decay before each token, (b, t, heads). */
  readonly decay: Tensor;
  /** How much of the difference is written, (b, t, heads): the delta rule. Without it the value itself is added. */
  readonly rate?: Tensor;
}
/** Answers (b, t, heads, value) and the matrix after the last token, (b, heads, key, value). */
export interface Scanned {
  readonly y: Tensor;
  readonly state: Tensor;
}

export function scan(input: ScanInput, state?: Tensor): Scanned {
  const { q, v } = input;
  const [b, t, heads, keyDim] = q.shape;
  const before = state ?? q.newZeros([b, heads, keyDim, v.shape[3]], 'f32');
  return t === 1 ? one(input, before) : inChunks(input, before);
}

/** A single token. */
function one({ q, k, v, decay, rate }: ScanInput, before: Tensor): Scanned {
  const byHead = (x: Tensor): Tensor => x.permute([0, 2, 1, 3]); // (b, heads, 1, width)
  const column = (x: Tensor): Tensor => x.permute([0, 2, 1]).unsqueeze(3); // (b, heads, 1, 1)
  const [query, key, value] = [q, k, v].map(byHead);
  const faded = before.mul(column(decay).exp());
  const written = rate ? value.sub(key.matmul(faded)).mul(column(rate)) : value;
  const state = faded.add(key.t().matmul(written));
  return { y: byHead(query.matmul(state)), state };
}

function inChunks(input: ScanInput, before: Tensor): Scanned {
  const [b, t, heads] = input.q.shape;
  const size = Math.min(CHUNK, t);
  const chunks = Math.ceil(t / size);
  // Tokens added at the end have no key, no value and no decay: they change nothing.
  const chunked = (x: Tensor): Tensor => {
    const wide = x.rank === 4 ? x : x.unsqueeze(3);
    const more = chunks * size - t;
    const full = more === 0 ? wide : wide.cat([wide.newZeros([b, more, heads, wide.shape[3]], wide.dtype)], 1);
    // (chunks, b, heads, size, width)
    return full.reshape([b, chunks, size, heads, wide.shape[3]]).permute([1, 0, 3, 2, 4]);
  };
  const [q, k, v] = [input.q, input.k, input.v].map(chunked);
  const sums = chunked(input.decay).cumsum(3); // (chunks, b, heads, size, 1)
  const lower = tensor(
    Uint8Array.from({ length: size * size }, (_, i) => (i % size <= Math.floor(i / size) ? 1 : 0)),
    { shape: [size, size], device: q.device },
  ).ne(0);
  const apart = sums.sub(sums.t()); // what lies between two tokens
  const fading = lower.broadcastTo(apart.shape).where(apart, apart.constant(-Infinity)).exp();
  const within = q.matmul(k.t()).mul(fading);
  const start = sums.exp();
  const last = sums.narrow(3, size - 1, 1);
  const end = last.sub(sums).exp();
  const rate = input.rate && chunked(input.rate);
  const solved = rate && inverse(k.matmul(k.t()).mul(fading).mul(rate), size);
  const [fromStart, keysAtEnd, fade] = [k.mul(start), k.mul(end).t(), last.exp()];
  const answered = q.mul(start);
  let state = before;
  const parts: Tensor[] = [];
  for (let c = 0; c < chunks; c++) {
    const at = (x: Tensor): Tensor => x.narrow(0, c, 1).squeeze([0]);
    const written = solved && rate ? at(solved).matmul(at(v).sub(at(fromStart).matmul(state)).mul(at(rate))) : at(v);
    parts.push(at(answered).matmul(state).add(at(within).matmul(written)));
    state = state.mul(at(fade)).add(at(keysAtEnd).matmul(written));
  }
  const all = parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 2); // (b, heads, chunks * size, value)
  return { y: all.narrow(2, 0, t).permute([0, 2, 1, 3]), state };
}

/**
 * What heads fade to within a block of tokens, as a file has it: what logarithms fall by per token (heads, 1, 1); from
 * a block's start to its tokens and from these to its end, (heads, block, 1) each; between two, (1, heads, block,
 * block).
 */
export type FadeTables = readonly [rate: Tensor, query: Tensor, key: Tensor, pair: Tensor];
/** A text from its beginning, block by block, faded by tables. */
export function scanByTables({ q, k, v }: Omit<ScanInput, 'decay'>, [rate, query, key, pair]: FadeTables): Scanned {
  const [b, t, heads, keyDim] = q.shape;
  const block = pair.shape[3];
  let state = q.newZeros([b, heads, keyDim, v.shape[3]], 'f32');
  const parts: Tensor[] = [];
  for (let from = 0; from < t; from += block) {
    const size = Math.min(block, t - from);
    const [own, keys, values] = [q, k, v].map((x) => x.narrow(1, from, size).permute([0, 2, 1, 3]));
    const fading = pair.narrow(2, 0, size).narrow(3, 0, size);
    const within = own.matmul(keys.t()).mul(fading).matmul(values);
    parts.push(
      own
        .mul(query.narrow(1, 0, size))
        .matmul(state)
        .add(within),
    );
    const added = keys
      .mul(key.narrow(1, block - size, size))
      .t()
      .matmul(values);
    state = state.mul(rate.affine(-size, 0).exp()).add(added);
  }
  const all = parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 2);
  return { y: all.permute([0, 2, 1, 3]), state };
}

/** Tokens of a chunk whose rows decay apart: all their pairs meet channel by channel. */
const CHANNEL_CHUNK = 16;

/** The delta rule with a decay for every row of the matrix, (b, t, heads, key). */
export function scanChannels(input: Required<ScanInput>, state?: Tensor): Scanned {
  const { q, v } = input;
  const [b, t, heads, keyDim] = q.shape;
  let now = state ?? q.newZeros([b, heads, keyDim, v.shape[3]], 'f32');
  const parts: Tensor[] = [];
  for (let from = 0; from < t; from += CHANNEL_CHUNK) {
    const size = Math.min(CHANNEL_CHUNK, t - from);
    const at = (x: Tensor): Tensor => x.narrow(1, from, size).permute(x.rank === 4 ? [0, 2, 1, 3] : [0, 2, 1]);
    const part = channelChunk(
      { q: at(q), k: at(input.k), v: at(v), decay: at(input.decay), rate: at(input.rate) },
      now,
    );
    parts.push(part.y);
    now = part.state;
  }
  const all = parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 2);
  return { y: all.permute([0, 2, 1, 3]), state: now };
}
/** A few tokens, (b, heads, size, width). */
function channelChunk({ q, k, v, decay, rate }: Required<ScanInput>, before: Tensor): Scanned {
  const size = q.shape[2];
  const sums = decay.cumsum(2);
  const lower = tensor(
    Uint8Array.from({ length: size * size }, (_, i) => (i % size <= Math.floor(i / size) ? 1 : 0)),
    { shape: [size, size, 1], device: q.device },
  ).ne(0);
  const apart = sums.unsqueeze(3).sub(sums.unsqueeze(2)); // (b, heads, size, size, key)
  const fading = lower.broadcastTo(apart.shape).where(apart, apart.constant(-Infinity)).exp();
  const pairs = (x: Tensor): Tensor => x.unsqueeze(3).mul(k.unsqueeze(2)).mul(fading).sum([4], false);
  const column = rate.unsqueeze(3);
  const start = sums.exp();
  const last = sums.narrow(2, size - 1, 1);
  const solved = inverse(pairs(k).mul(column), size);
  const written = solved.matmul(v.sub(k.mul(start).matmul(before)).mul(column));
  const y = q.mul(start).matmul(before).add(pairs(q).matmul(written));
  return { y, state: before.mul(last.exp().t()).add(k.mul(last.sub(sums).exp()).t().matmul(written)) };
}

/** The inverse of I + the part of x below its diagonal, row after row; x is (..., size, size). */
function inverse(x: Tensor, size: number): Tensor {
  const rows = x.rank - 2;
  const unit = tensor(
    Float32Array.from({ length: size * size }, (_, i) => (i % (size + 1) === 0 ? 1 : 0)),
    { shape: [size, size], device: x.device },
  ).broadcastTo(x.shape);
  let done = unit.narrow(rows, 0, 1);
  for (let i = 1; i < size; i++) {
    const row = x.narrow(rows, i, 1).narrow(rows + 1, 0, i);
    done = done.cat([unit.narrow(rows, i, 1).sub(row.matmul(done))], rows);
  }
  return done;
}
