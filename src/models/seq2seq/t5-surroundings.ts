// LongT5's encoder: tokens see those near them and, where a config says so, the sums of all whole blocks of tokens.
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';

/** 0 for two tokens at most `radius` apart, a large negative number for others, (1, 1, t, t). */
export function nearBias(t: number, radius: number, like: Tensor): Tensor {
  const data = Float32Array.from({ length: t * t }, (_, i) =>
    Math.abs((i % t) - Math.floor(i / t)) <= radius ? 0 : -1e9,
  );
  return tensor(data, { shape: [1, 1, t, t], device: like.device }).cast(like.dtype);
}

/** How a batch of texts falls into blocks. */
export interface BlockSums {
  readonly batch: number;
  readonly time: number;
  /** Sums of each text. */
  readonly count: number;
  /** Which sum each token is part of, 1 there and 0 elsewhere, (batch, count, time). */
  readonly parts: Float32Array;
  /** From a token's block to each, in blocks, (batch, time, count). */
  readonly distances: number[];
  /** 0 where a token sees a sum, a large negative number elsewhere, (batch, time, count). */
  readonly hidden: Float32Array;
}

/** The block of each real token of a text; a last one that is not whole belongs to the one before, or to none (-1). */
function blocksOf(real: readonly boolean[], size: number): number[] {
  // Places are shares of a block summed up in f32, as transformers has them: a border moves with the rounding.
  const f = Math.fround;
  const share = f(1 / size);
  let sum = 0;
  const blocks = real.map((is) => {
    sum += share;
    return is ? Math.floor(f(f(1 + f(f(sum) - share)) - 1)) : -1;
  });
  const last = blocks.filter((block, i) => block >= 0 && i % size === size - 1).length - 1;
  return blocks.map((block) => Math.min(block, last));
}

export function blockSums(batch: number, time: number, size: number, mask: Tensor | undefined): BlockSums {
  const count = Math.floor(time / size);
  const rows =
    (mask?.cast('f32').toArray() as number[][] | undefined) ??
    Array.from({ length: batch }, () => Array<number>(time).fill(1));
  const parts = new Float32Array(batch * count * time);
  const hidden = new Float32Array(batch * time * count);
  const distances = Array<number>(batch * time * count).fill(0);
  rows.forEach((row, b) => {
    const blocks = blocksOf(
      row.map((x) => x !== 0),
      size,
    );
    const most = Math.max(...blocks);
    blocks.forEach((block, t) => {
      if (block >= 0) parts[(b * count + block) * time + t] = 1;
      for (let g = 0; g < count; g++) {
        const at = (b * time + t) * count + g;
        distances[at] = g - block;
        hidden[at] = g <= most ? 0 : -1e9;
      }
    });
  });
  return { batch, time, count, parts, distances, hidden };
}
/** The sums themselves, (b, count, width), of x (b, t, width). */
export function sumsOf(x: Tensor, { batch, count, time, parts }: BlockSums): Tensor {
  return tensor(parts, { shape: [batch, count, time], device: x.device })
    .cast(x.dtype)
    .matmul(x);
}
