// Calls of the CPU engine written down instead of run: a whole step of a model becomes one list that another thread
// works through, once or many times.
import { cText } from '../../driver/ffi.js';
import type { RunRow } from '../../ops/op.js';
import type { Memory, View } from '../backend.js';
import type { PlacedCalls } from './engine.js';
import { type Pool, poolOf } from './memory.js';

/** Slots before the first call: their number, the one that failed, and a message; native/engine/engine.cpp. */
const MESSAGE = 2;
const MESSAGE_SLOTS = 64;
const FIRST = MESSAGE + MESSAGE_SLOTS;

export class Recording {
  readonly pool: Pool;
  /** Memory of other pools that was freed meanwhile: the calls still need it. */
  readonly freed: Memory[] = [];
  readonly #rows: RunRow[] = [];
  /** Blocks that calls point into: the collector must not take them. */
  readonly #held = new Set<Memory>();
  #slots = new Float64Array(1 << 12);
  #end = FIRST;

  constructor(pool: Pool) {
    this.pool = pool;
  }
  add(row: RunRow, block: Float64Array, length: number, inputs: readonly View[], outputs: readonly View[]): void {
    if (this.#end + 1 + length > this.#slots.length) {
      const larger = new Float64Array(2 * this.#slots.length);
      larger.set(this.#slots);
      this.#slots = larger;
    }
    this.#slots[this.#end] = length;
    this.#slots.set(block.subarray(0, length), this.#end + 1);
    this.#end += 1 + length;
    this.#rows.push(row);
    for (const { memory } of inputs) this.#held.add(memory);
    for (const { memory } of outputs) this.#held.add(memory);
  }
  finish(place: (slots: Float64Array<ArrayBuffer>) => PlacedCalls): RecordedCalls {
    const slots = this.#slots.slice(0, this.#end);
    slots[0] = this.#rows.length;
    return new RecordedCalls(place(slots), this.#rows, this.#held, this.freed);
  }
  /** Gives back what was freed, where nothing will run. */
  release(): void {
    for (const memory of this.freed.splice(0)) poolOf(memory).free(memory);
  }
}

export class RecordedCalls {
  readonly #calls: PlacedCalls;
  readonly #rows: readonly RunRow[];
  readonly #held: Set<Memory>;
  readonly #freed: Memory[];
  /** Milliseconds that the last two runs took, the later one first. */
  #took: readonly [number, number] = [Infinity, Infinity];
  constructor(calls: PlacedCalls, rows: readonly RunRow[], held: Set<Memory>, freed: Memory[]) {
    this.#calls = calls;
    this.#rows = rows;
    this.#held = held;
    this.#freed = freed;
  }
  /** The row whose call failed last, and what the engine said. */
  get failedRow(): RunRow {
    return this.#rows[this.#calls.slots[1]];
  }
  get message(): string {
    const { buffer, byteOffset } = this.#calls.slots;
    return cText(new Uint8Array(buffer, byteOffset + MESSAGE * 8, MESSAGE_SLOTS * 8));
  }
  /** Milliseconds of a run, as far as is known: other programs may have held one up. */
  get milliseconds(): number {
    return Math.min(...this.#took);
  }
  async run(): Promise<number> {
    const from = performance.now();
    const status = await this.#calls.run();
    this.#note(from);
    return status;
  }
  /** On the thread that asks. */
  runHere(): number {
    const from = performance.now();
    const status = this.#calls.runHere();
    this.#note(from);
    return status;
  }
  #note(from: number): void {
    this.#took = [performance.now() - from, this.#took[0]];
  }
  /** After the last run. */
  release(): void {
    this.#calls.release();
    for (const memory of this.#freed.splice(0)) poolOf(memory).free(memory);
    this.#held.clear();
  }
}
