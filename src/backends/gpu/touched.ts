// Memory from outside that recorded work uses: a recording knows addresses alone, so what lies there must stay.
import type { View } from '../backend.js';
import { type Allocator, type GpuMemory, type Pool } from './allocator.js';

export class Touched {
  readonly #allocator: Allocator;
  /** Blocks of the recording's own, which it keeps anyway. */
  readonly #own: Pool;
  readonly #held = new Set<GpuMemory>();
  readonly #read = new Set<GpuMemory>();

  constructor(allocator: Allocator, own: Pool) {
    this.#allocator = allocator;
    this.#own = own;
  }
  /** Operands of an op that is recorded. */
  note(inputs: readonly View[], outputs: readonly View[]): void {
    for (const { memory } of inputs) if (this.#hold(memory as GpuMemory)) this.#read.add(memory as GpuMemory);
    for (const { memory } of outputs) this.#hold(memory as GpuMemory);
  }
  #hold(memory: GpuMemory): boolean {
    if (memory.pool === this.#own) return false;
    if (this.#held.has(memory)) return true;
    this.#held.add(memory);
    this.#allocator.hold(memory);
    return true;
  }
  /** Blocks that were read and that their owners have given back: every run would read what they hold now. */
  get replaced(): readonly GpuMemory[] {
    return [...this.#read].filter((m) => m.returned);
  }
  release(): void {
    for (const memory of this.#held) this.#allocator.unhold(memory);
    this.#held.clear();
    this.#read.clear();
  }
}
