// Draws on a GPU: what each row of a step asks for, as the numbers that kernels/sample.hip reads; and what sequences
// keep there between steps: their tokens for penalties, allowed tokens, biases.
import type { GpuBackend } from '../../backends/gpu/gpu.js';
import type { BatchDraws } from '../../backends/gpu/sample.js';
import { DRAW_ROW, type DrawSizes, MOST_CHANGES, MOST_LIKELY } from '../../backends/generation.js';
import { ArgumentError } from '../../base/errors.js';
import type { DrawRule } from '../choose.js';
import { origin } from '../sampler.js';
import type { Sequence } from '../sequence.js';

/** What a sequence keeps on the device. */
interface Kept {
  readonly slot: number;
  /** Tokens of its history that are there. */
  known: number;
}
/** A token to draw. */
export interface Draw {
  readonly rule: DrawRule;
  readonly sequence: Pick<Sequence, 'tokens' | 'promptLength' | 'state'>;
  /** Tokens before it. */
  readonly length: number;
}
const ROW_DOUBLES = DRAW_ROW.bytes / 8;
const ROW_INTS = DRAW_ROW.bytes / 4;
const { doubles: D, ints: I } = DRAW_ROW;
const needsTokens = (r: DrawRule): boolean =>
  r.repetitionPenalty !== 1 || r.presencePenalty !== 0 || r.frequencyPenalty !== 0;
const needsSlot = (r: DrawRule): boolean =>
  needsTokens(r) || r.allowedTokens !== undefined || r.logitBias.size > 0 || (r.minTokens > 0 && r.ends.length > 0);

/** The rows of a step in memory of the host. */
export class DrawRows {
  readonly #doubles: Float64Array;
  readonly #longs: BigUint64Array;
  readonly #ints: Int32Array;
  constructor(buffer: ArrayBufferLike, byteOffset: number, rows: number) {
    this.#doubles = new Float64Array(buffer, byteOffset, rows * ROW_DOUBLES);
    this.#longs = new BigUint64Array(buffer, byteOffset, rows * ROW_DOUBLES);
    this.#ints = new Int32Array(buffer, byteOffset, rows * ROW_INTS);
  }
  /** A row that nobody looks at: the largest logit. */
  clear(i: number): void {
    this.#doubles.fill(0, i * ROW_DOUBLES, (i + 1) * ROW_DOUBLES);
    const at = i * ROW_INTS;
    for (const field of [I.history, I.mask, I.likely, I.from]) this.#ints[at + field] = -1;
  }
  /** The token that row i begins with: given, or the one that was drawn for a row of the step before. */
  begin(i: number, token: number, from = -1): void {
    this.#ints[i * ROW_INTS + I.token] = token;
    this.#ints[i * ROW_INTS + I.from] = from;
  }
  set(i: number, { rule: r, sequence, length }: Draw, slot: number, origin: bigint): void {
    const [d, n] = [i * ROW_DOUBLES, i * ROW_INTS];
    const written = length - sequence.promptLength;
    this.#doubles[d + D.temperature] = r.temperature;
    this.#doubles[d + D.topP] = r.topP;
    this.#doubles[d + D.minP] = r.minP;
    this.#doubles[d + D.typicalP] = r.typicalP;
    this.#doubles[d + D.repetition] = r.repetitionPenalty;
    this.#doubles[d + D.presence] = r.presencePenalty;
    this.#doubles[d + D.frequency] = r.frequencyPenalty;
    this.#longs[d + D.origin] = origin;
    this.#ints[n + I.index] = written;
    this.#ints[n + I.topK] = Math.min(r.topK, 2 ** 31 - 1);
    this.#ints[n + I.history] = needsTokens(r) ? slot : -1;
    this.#ints[n + I.length] = length;
    this.#ints[n + I.prompt] = sequence.promptLength;
    this.#ints[n + I.first] = Math.max(0, length - r.repetitionWindow);
    this.#ints[n + I.mask] = r.allowedTokens ? slot : -1;
    this.#ints[n + I.changes] = Math.max(0, slot);
    this.#ints[n + I.biases] = r.logitBias.size;
    this.#ints[n + I.ends] = written < r.minTokens ? r.ends.length : 0;
    this.#ints[n + I.likely] = r.logprobs ?? -1;
  }
}

export class DeviceDraws {
  readonly device: BatchDraws;
  readonly #vocabSize: number;
  readonly #kept = new Map<Draw['sequence'], Kept>();
  readonly #free: number[];
  readonly #origins = new WeakMap<DrawRule, bigint>();

  constructor(gpu: GpuBackend, sizes: DrawSizes) {
    this.device = gpu.batchDraws(sizes);
    this.#vocabSize = sizes.vocabSize;
    this.#free = Array.from({ length: sizes.slots }, (_, i) => sizes.slots - 1 - i);
  }
  /** Whether the device draws so; else the host does. */
  static serves(rule: DrawRule): boolean {
    return (rule.logprobs ?? 0) <= MOST_LIKELY && rule.logitBias.size + rule.ends.length <= MOST_CHANGES;
  }
  /** Writes row i of a step, which will draw; what the sequence keeps on the device is there when it does. */
  place(rows: DrawRows, i: number, draw: Draw): void {
    const { rule } = draw;
    let from = this.#origins.get(rule);
    if (from === undefined) this.#origins.set(rule, (from = origin(rule.seed)));
    rows.set(i, draw, needsSlot(rule) ? this.#keep(draw) : -1, from);
  }
  #keep({ rule, sequence, length }: Draw): number {
    let kept = this.#kept.get(sequence);
    if (!kept) {
      const slot = this.#slot();
      this.#kept.set(sequence, (kept = { slot, known: 0 }));
      if (rule.allowedTokens) {
        const words = new Int32Array(Math.ceil(this.#vocabSize / 32));
        for (const token of rule.allowedTokens) words[token >> 5] |= 1 << (token & 31);
        this.device.writeMask(slot, words);
      }
      this.device.writeChanges(slot, rule.logitBias, rule.ends);
    }
    if (needsTokens(rule) && kept.known < length)
      this.device.writeHistory(kept.slot, kept.known, sequence.tokens.slice(kept.known, length));
    // The draw adds its own.
    kept.known = length + 1;
    return kept.slot;
  }
  /** A free slot; those that wait for their turn again leave theirs. */
  #slot(): number {
    for (const sequence of this.#kept.keys())
      if (this.#free.length === 0 && sequence.state !== 'running') this.forget(sequence);
    const slot = this.#free.pop();
    if (slot === undefined) throw new ArgumentError('draws: more sequences run than there are places for');
    return slot;
  }
  forget(sequence: Draw['sequence']): void {
    const kept = this.#kept.get(sequence);
    if (!kept) return;
    this.#kept.delete(sequence);
    this.#free.push(kept.slot);
  }
  dispose(): void {
    this.device.dispose();
  }
}
