// What the families of GPU ops work with: the device, its stream, packed arguments, kernels and scratch memory.
import { IndexError } from '../../base/errors.js';
import { ArgBuffer } from '../../driver/args.js';
import type { Address, Device, DeviceLibraries, Fn, Stream, Triple } from '../../driver/driver.js';
import type { Memory, View } from '../backend.js';
import { Allocator, type GpuMemory, Pool } from './allocator.js';
import { type CodeSource, Functions } from './functions.js';
import { Libraries } from './libraries.js';
import type { Touched } from './touched.js';
import { inTurn, Turn } from './turn.js';

/** Recorded work that must end before something it uses does. */
export interface Dependent {
  /** It cannot be launched any more; its memory stays until its owner disposes of it. Waits for nothing. */
  stop(why: string): void;
}

/** More than there are ops that read indices. */
const FAULT_WORDS = 32;

export class GpuContext {
  /** Its calls keep to the turn. */
  readonly device: Device;
  /** The same device, whose calls are made at once. */
  readonly bare: Device;
  /** Work that waits for kernels; what is enqueued by other means than `device` must take its turn, too. */
  readonly turn = new Turn((f) => this.#withPoolOfItsOwn(f));
  readonly #own: Stream;
  #side: Stream | undefined;
  readonly allocator: Allocator;
  readonly functions: Functions;
  /** One buffer serves every launch: the driver takes the arguments before it returns. */
  readonly args = new ArgBuffer();
  /**
   * There while what is enqueued is written down and not run: nothing can be measured, nothing read. What the recording
   * must not outlive puts the list here that wants to know of it.
   */
  recording: Set<Set<Dependent>> | undefined;
  /** Memory that the recorded work uses and that is not its own, where somebody wants it to stay. */
  touched: Touched | undefined;
  /** The vendor's matrix products, convolutions and attention. */
  readonly libraries: Libraries;
  /** Functions launched since someone asked to be told: evidence names the kernels it speaks of. */
  launched: Set<Fn> | undefined;
  /** A word for each op that reads indices, in the order they first ran. */
  #faults: GpuMemory | undefined;
  readonly #indexing: string[] = [];
  #unseen = false;
  #looks = 0;
  /** Ops, with the look that found them out: results of theirs from before it are void. */
  readonly #poisoned = new Set<string>();

  /** `libraries` and `code` in the place of the device's own. */
  constructor(device: Device, libraries?: DeviceLibraries, code?: CodeSource) {
    this.bare = device;
    this.device = inTurn(device, this.turn);
    this.libraries = new Libraries(() => libraries ?? device.libraries);
    this.#own = device.createStream();
    this.allocator = new Allocator(this.device, this.#own);
    this.functions = new Functions(device, code);
  }
  /** Blocks that came free after work began to wait may be used by what waits behind it. */
  #withPoolOfItsOwn(f: () => void): void {
    const pool = new Pool();
    try {
      this.allocator.withPool(pool, f);
    } finally {
      if (pool.bytes > 0) this.allocator.release(pool);
    }
  }

  /** Memory that the last launch writes, where nobody can have enqueued anything since. */
  written: readonly Memory[] | undefined;
  /** Where work goes: the device's own stream, or the one whose work is being enqueued. */
  get stream(): Stream {
    this.written = undefined;
    return this.#side ?? this.#own;
  }
  get onSide(): boolean {
    return this.#side !== undefined;
  }
  /** Runs f with what it enqueues going to another stream. */
  withStream(stream: Stream, f: () => void): void {
    this.#side = stream;
    try {
      f();
    } finally {
      this.#side = undefined;
    }
  }

  /** Enqueues a kernel whose arguments are packed in `args`. */
  launch(fn: Fn, grid: Triple, block: Triple, shared = 0, early = false): void {
    this.launched?.add(fn);
    const { stream, args, turn, functions } = this;
    if (!turn.taken && (functions.ready(fn) || this.recording))
      return this.bare.launch(functions.settled(fn), grid, block, shared, stream, args, early);
    const kept = args.bytes();
    turn.wait(
      () => this.bare.launch(functions.settled(fn), grid, block, shared, stream, args.refill(kept), early),
      () => functions.ready(fn),
    );
  }
  /** Allows launches of a function with so many bytes of dynamic shared memory; `shared` says when it has happened. */
  allowShared(r: { readonly fn: Fn; shared: number }, bytes: number): void {
    const { turn, functions } = this;
    const allow = (): void => {
      if (bytes <= r.shared) return; // a launch that waited behind one that needs more must not take it back
      this.bare.setMaxDynamicShared(functions.settled(r.fn), bytes);
      r.shared = bytes;
    };
    if (functions.ready(r.fn) || this.recording) turn.take(allow);
    else turn.wait(allow, () => functions.ready(r.fn));
  }

  /** Memory for the time of one op: reused by whatever comes later on the stream. */
  scratch<T>(bytes: number, use: (address: Address) => T): T {
    const memory = this.allocator.alloc(bytes);
    try {
      return use(memory.address);
    } finally {
      this.allocator.free(memory);
    }
  }

  /**
   * A word, the op's own, that kernels set when an index is out of range; looked at when results are read. `outputs`
   * remember that it speaks for them, so that whoever reads one of them later is told again.
   */
  fault(op: string, outputs: readonly View[]): Address {
    const words = this.faultWords();
    let at = this.#indexing.indexOf(op);
    if (at < 0) at = this.#indexing.push(op) - 1;
    this.#unseen = true;
    for (const { memory } of outputs) (memory as GpuMemory).suspect = { op, look: this.#looks };
    return words.address + 4 * at;
  }
  /** There before anything is recorded: a recording would clear them whenever it runs, and take them with it. */
  faultWords(): GpuMemory {
    if (!this.#faults) {
      this.#faults = this.allocator.alloc(4 * FAULT_WORDS);
      this.device.memset(this.#faults.address, 0, 4 * FAULT_WORDS, this.stream);
    }
    return this.#faults;
  }

  /** Whether ops that read indices ran since the last look; a recording sets it again whenever it is launched. */
  get unseen(): boolean {
    return this.#unseen;
  }
  set unseen(on: boolean) {
    this.#unseen = on;
  }

  /** Throws if an index was out of range in an op since the last look, or in the op that made `memory`. */
  checkFaults(memory?: Memory): void {
    const suspect = (memory as GpuMemory | undefined)?.suspect;
    if (this.#faults && this.#unseen) {
      this.#unseen = false;
      const look = this.#looks++;
      const words = new Uint32Array(FAULT_WORDS);
      this.device.copyOut(new Uint8Array(words.buffer), this.#faults.address, this.stream);
      const found = this.#indexing.filter((_, i) => words[i] !== 0);
      if (found.length > 0) {
        this.device.memset(this.#faults.address, 0, 4 * FAULT_WORDS, this.stream);
        for (const op of found) this.#poisoned.add(`${op} ${look}`);
        if (!suspect || !found.includes(suspect.op)) throw this.#outOfRange(found.join(' or '));
      }
    }
    if (suspect && this.#poisoned.has(`${suspect.op} ${suspect.look}`)) throw this.#outOfRange(suspect.op);
  }
  #outOfRange(op: string): IndexError {
    return new IndexError(
      `${op}: an index was out of range for its dimension, and what was made with it is void (found when results ` +
        `were read on ${this.device.info.name})`,
    );
  }
}
