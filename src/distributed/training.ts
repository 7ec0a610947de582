// What a training program over several ranks needs besides gradients: its share of the data, random streams of its own,
// checkpoints that are written once.
import { ArgumentError } from '../base/errors.js';
import { type Checkpoint, type CheckpointParts, saveCheckpoint } from '../nn/train.js';
import { Generator } from '../tensor/random.js';
import type { Group } from './group.js';

type Ranked = Pick<Group, 'rank' | 'size'>;

/** This rank's part of `count` things that divide evenly: the first, and how many. */
export function shareOf(count: number, { rank, size }: Ranked, what = 'a batch'): { from: number; count: number } {
  if (count % size !== 0)
    throw new ArgumentError(`${what} of ${count} does not divide among ${size} ranks: all must have the same share`);
  return { from: (count / size) * rank, count: count / size };
}

/** How samples are divided among ranks. */
export interface ShardIndicesOptions {
  /** Another order in every epoch; the same on all ranks. */
  readonly seed?: number;
  /** Each epoch has its own order; default 0. */
  readonly epoch?: number;
  /** Default true. */
  readonly shuffle?: boolean;
  /** Leaves out what does not divide; otherwise the first are taken twice. Default true. */
  readonly dropLast?: boolean;
}
/** Which of n examples this rank sees in an epoch: every rank others, all the same number. */
export function shardIndices(n: number, { rank, size }: Ranked, options: ShardIndicesOptions = {}): number[] {
  const order = Array.from({ length: n }, (_, i) => i);
  if (options.shuffle ?? true) {
    // Numerical Recipes' 64-bit generator: the order must be the same on every machine.
    let state = BigInt.asUintN(64, BigInt(options.seed ?? 0) * 1000003n + BigInt(options.epoch ?? 0));
    const random = (below: number): number => {
      state = BigInt.asUintN(64, state * 6364136223846793005n + 1442695040888963407n);
      return Number((state >> 33n) % BigInt(below));
    };
    random(1);
    for (let i = n - 1; i > 0; i--) {
      const j = random(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
  }
  const each = (options.dropLast ?? true) ? Math.floor(n / size) : Math.ceil(n / size);
  return Array.from({ length: each }, (_, i) => order[(i * size + rank) % n]);
}

/** Odd and without a pattern: 2^64 divided by the golden ratio. */
const APART = 0x9e3779b97f4a7c15n;
/**
 * Turns a stream that is alike on all ranks into one of this rank's own, for dropout and the like. Rank 0 keeps its
 * seed, so a checkpoint of it serves any number of ranks: load it, then call this again.
 */
export function ownStream(generator: Generator, { rank }: Ranked): Generator {
  generator.seed = BigInt.asUintN(64, generator.seed + BigInt(rank) * APART);
  return generator;
}

/** saveCheckpoint for several ranks: all call it, rank 0 writes, and nobody goes on before the file is there. */
export function saveCheckpointOnce(group: Group, path: string, parts: CheckpointParts, checkpoint: Checkpoint): void {
  const state = parts.optimizer.stateDict();
  if (group.first) {
    const { steps, learningRate } = parts.optimizer;
    const optimizer = { stateDict: () => state, steps, learningRate } as unknown as CheckpointParts['optimizer'];
    saveCheckpoint(path, { ...parts, optimizer }, checkpoint);
  }
  group.barrier();
}
