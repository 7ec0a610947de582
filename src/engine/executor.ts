// Who runs a step's tokens through the model. Two of them: over pages, everything in one batch; and, for models whose
// keys cannot stand in pages, one sequence at a time over a cache of its own.
import { bytesOf } from '../base/dtype.js';
import type { CausalLM, DecoderCache } from '../models/index.js';
import { cacheDType, cacheWidth } from '../nn/kv-cache.js';
import { keyed, keyKeeper, WIDEST_HEAD } from '../models/decoder/features.js';
import { ropeRegime } from '../models/decoder/rope.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import type { DrawRule, RawLogprob } from './choose.js';
import { LateForgetting } from './late-forgetting.js';
import { offThread } from './off-thread.js';
import type { Item } from './scheduler.js';
import type { Sequence } from './sequence.js';

/** A run of tokens, and how many of its last positions' logits are wanted. */
export interface Work extends Pick<Item, 'sequence' | 'start' | 'tokens'> {
  readonly rows: number;
  /** How the token after it is drawn, where the device may do so. */
  readonly draw?: DrawRule;
}
/** A token that the device drew, with its log-probability and those of likely ones, where they were asked for. */
export interface DrawnToken {
  readonly token: number;
  readonly told: readonly RawLogprob[];
}
/** Rows of logits in the order of the work; where only the largest were asked for, those. */
export interface Rows {
  readonly best?: Int32Array;
  readonly logits?: Float32Array;
  readonly drawn?: DrawnToken;
}
/** A step that is enqueued: what comes of each item's row. */
export interface Flight {
  /** Whether the device drew all tokens, so that the next step can begin before they are read. */
  readonly closed: boolean;
  read(): Promise<readonly Rows[]>;
}
export interface Executor {
  /** Whether pages that others filled can be used again, and guesses be taken back. */
  readonly shares: boolean;
  /** Whether a prompt may come in pieces. */
  readonly cuts: boolean;
  /** Tokens of prompts in a step are computed by so many at a time. */
  readonly grain?: number;
  /** `bestOnly`: the numbers of the largest logits will do. */
  run(work: readonly Work[], bestOnly: boolean): Promise<Rows>;
  /**
   * Enqueues a step that wants one row of an item at most; tokens that are not read yet are those that the step before
   * drew. Absent where only the host draws.
   */
  begin?(work: readonly Work[]): Promise<Flight>;
  /** Whether a step can begin before the tokens of the one before are read. */
  readonly follows?: boolean;
  /** Whether weights were replaced or written to since it was asked last: what was computed with them is of no use. */
  changed(): boolean;
  /** Forgets what it holds for a sequence beside pages. */
  forget(sequence: Sequence): void;
  dispose(): void;
}

/** A step's rows as they are read: f32, or, where they are given, the numbers of the largest. */
export async function readRows(logits: Tensor, best: Tensor | undefined): Promise<Rows> {
  return best
    ? { best: Int32Array.from((await best.data()) as ArrayLike<number | bigint>, Number) }
    : { logits: (await logits.data()) as Float32Array };
}

/** Whether a model's keys stay as they were written, whatever comes after them, and can be read by page. */
export function pageable(model: CausalLM, contextTokens: number): boolean {
  return model.config.layers.every(({ mixer }) => {
    const m = keyed(mixer);
    if (!m) return true;
    if (m.kind === 'attention' && m.chunk !== undefined && m.chunk < contextTokens) return false;
    if (m.kind === 'attention' && m.headDim > WIDEST_HEAD) return false;
    const { rope } = m;
    if (!rope) return true;
    if (rope.type === 'dynamic' && rope.alpha === undefined) return false;
    return rope.type !== 'longrope' || ropeRegime(rope, 1) === ropeRegime(rope, contextTokens);
  });
}

/** One sequence after another, each over its own cache. */
export class SoloExecutor implements Executor {
  readonly shares = false;
  readonly cuts = false;
  readonly #model: CausalLM;
  readonly #caches = new Map<Sequence, DecoderCache>();
  readonly #forgetting = new LateForgetting((sequence) => {
    this.#caches.get(sequence)?.dispose();
    this.#caches.delete(sequence);
  });
  constructor(model: CausalLM) {
    this.#model = model;
  }
  run(work: readonly Work[], bestOnly: boolean): Promise<Rows> {
    return this.#forgetting.during(() => this.#all(work, bestOnly));
  }
  async #all(work: readonly Work[], bestOnly: boolean): Promise<Rows> {
    const parts: Rows[] = [];
    for (const item of work) parts.push(await this.#one(item, bestOnly));
    if (bestOnly) return { best: Int32Array.from(parts.flatMap((p) => [...(p.best ?? [])])) };
    const all = new Float32Array(parts.reduce((n, p) => n + (p.logits?.length ?? 0), 0));
    let at = 0;
    for (const { logits } of parts) {
      if (logits) all.set(logits, at);
      at += logits?.length ?? 0;
    }
    return { logits: all };
  }
  async #one({ sequence, start, tokens, rows }: Work, bestOnly: boolean): Promise<Rows> {
    const { device, config } = this.#model;
    let cache = this.#caches.get(sequence);
    if (!cache) this.#caches.set(sequence, (cache = this.#model.newCache()));
    if (cache.length !== start) cache.reset(); // its pages were taken away: everything is computed again
    const held = cache;
    const made = await offThread(this.#model, () =>
      scope(() =>
        noGrad(() => {
          const ids = tensor(Int32Array.from(tokens), { shape: [1, tokens.length], device });
          const y = this.#model.forward(ids, held, { last: rows <= 1 });
          if (rows === 0) return undefined;
          const n = y.shape[1];
          const logits = y
            .narrow(1, n - rows, rows)
            .reshape([rows, config.vocabSize])
            .cast('f32')
            .contiguous();
          return { logits, best: logits.argmax(1) };
        }),
      ),
    );
    if (!made) return {};
    const result = await readRows(made.logits, bestOnly ? made.best : undefined);
    made.logits.dispose();
    made.best.dispose();
    return result;
  }
  changed(): boolean {
    return false; // nothing is shared, nothing recorded
  }
  forget(sequence: Sequence): void {
    this.#forgetting.forget(sequence);
  }
  dispose(): void {
    for (const cache of this.#caches.values()) cache.dispose();
    this.#caches.clear();
  }
}

/** Bytes that a token's keys and values take in all layers. */
export function tokenBytes(model: CausalLM): number {
  const bytes = bytesOf(cacheDType(model.dtype, model.cacheType));
  const own = model.config.layers.filter((_, i) => model.stage?.holds(i) ?? true);
  const width = (m: Mixer): number => rowWidths(m, model.cacheType).reduce((a, b) => a + b, 0);
  return own.reduce((n, { mixer }) => n + bytes * width(mixer), 0);
}
type Mixer = CausalLM['config']['layers'][number]['mixer'];
/** Widths of the two rows that a layer keeps of a token. */
export function rowWidths(mixer: Mixer, type: CausalLM['cacheType']): readonly number[] {
  const m = keyKeeper(mixer);
  if (!m) return [];
  if (m.kind === 'latent') return [m.rank, m.ropeDim];
  const width = m.kvHeads * cacheWidth(m.headDim, type);
  return [width, width];
}
