// Storage: one block of device memory shared by the tensors that view it, freed when the last handle goes or nothing
// reaches it.
import type { Backend, Memory } from '../backends/backend.js';
import { collectGarbage, finalizeNow } from '../base/collect.js';
import { DisposedError, OutOfMemoryError } from '../base/errors.js';

interface Block {
  backend: Backend;
  /** Undefined while nobody uses the watch. */
  memory: Memory | undefined;
}

// The held value must not reach what is watched, or it would never be unreachable.
const unreachable = new FinalizationRegistry<Block>(({ backend, memory }) => {
  if (memory === undefined) return;
  backend.free(memory);
  if (isUnseen(memory)) unseen -= memory.bytes;
});

/** Goes with the storage that holds it. Registering costs more than a small op: watches are used again. */
class Watch {
  readonly block: Block;
  constructor(block: Block) {
    this.block = block;
    unreachable.register(this, block);
  }
}
const WATCHES_KEPT = 1 << 16;
const spare: Watch[] = [];
function watchOver(backend: Backend, memory: Memory): Watch {
  const known = spare.pop();
  if (!known) return new Watch({ backend, memory });
  known.block.backend = backend;
  known.block.memory = memory;
  return known;
}

/** Frees the memory of unreachable tensors, as far as the collector has found them already. */
export const settle = (): void => finalizeNow(unreachable);

/**
 * Device memory costs V8 nothing, so it sees no reason to collect the small objects that hold it: we look after that.
 */
let unseen = 0;
let watermark = 2 ** 30;
const isUnseen = (memory: Memory): boolean => memory.token === undefined && memory.address !== 0;

function watch(bytes: number): void {
  unseen += bytes;
  if (unseen < watermark) return;
  collectGarbage();
  settle();
  watermark = Math.max(2 ** 30, 1.5 * unseen);
}

/** Memory of a device; when there is none left, what garbage holds is given back first. */
function take(backend: Backend, bytes: number): Memory {
  try {
    return backend.alloc(bytes);
  } catch (e) {
    if (!(e instanceof OutOfMemoryError)) throw e;
    collectGarbage();
    settle();
    return backend.alloc(bytes);
  }
}

export class Storage {
  readonly backend: Backend;
  /** Raised by every write in place, so that a recorded graph notices that what it saved has changed. */
  version = 0;
  #memory: Memory | undefined;
  #handles = 0;
  #watch: Watch | undefined;
  /** Bytes to take again, while the block is given back and handles stay. */
  #away: number | undefined;
  /** Bytes that nobody has asked for yet, and what fills them then. */
  #later: { readonly bytes: number; readonly fill: (memory: Memory) => void } | undefined;

  /** With `fill`, memory is taken and filled when it is first asked for. */
  constructor(backend: Backend, bytes: number, fill?: (memory: Memory) => void) {
    this.backend = backend;
    if (fill) this.#later = { bytes, fill };
    else this.#memory = this.#taken(bytes);
  }
  /** What the block holds or will hold. */
  get bytes(): number {
    return this.#later?.bytes ?? this.memory.bytes;
  }
  #taken(bytes: number): Memory {
    const { backend } = this;
    const memory = take(backend, bytes);
    const { token } = memory;
    if (token === undefined) {
      if (isUnseen(memory)) watch(bytes);
      this.#watch = watchOver(backend, memory);
    } else if (!token.watched) {
      // Once for a block, however many tensors use it in turn.
      token.watched = true;
      unreachable.register(memory, { backend, memory: token });
    }
    return memory;
  }

  get memory(): Memory {
    const later = this.#later;
    if (later) {
      this.#later = undefined;
      this.#memory = this.#taken(later.bytes);
      try {
        later.fill(this.#memory);
      } catch (e) {
        this.#give();
        this.#later = later;
        throw e;
      }
    }
    if (this.#memory === undefined)
      throw new DisposedError(
        this.#away === undefined
          ? 'this tensor was disposed of; its memory is gone'
          : 'this tensor is divided among ranks, and its parts are not together at the moment',
      );
    return this.#memory;
  }
  /** Gives the block back while handles stay; `comeBack` takes another, with nothing in it. */
  goAway(): void {
    if (this.#memory === undefined) return;
    this.#away = this.#memory.bytes;
    this.#give();
  }
  comeBack(): void {
    if (this.#away === undefined) return;
    this.#memory = this.#taken(this.#away);
    this.#away = undefined;
  }

  get freed(): boolean {
    return this.#memory === undefined && this.#later === undefined;
  }

  retain(): this {
    this.#handles++;
    return this;
  }

  release(): void {
    if (--this.#handles > 0) return;
    this.#away = undefined;
    this.#later = undefined;
    this.#give();
  }
  #give(): void {
    const memory = this.#memory;
    if (memory === undefined) return;
    this.#memory = undefined;
    const watch = this.#watch;
    if (watch) {
      this.#watch = undefined;
      watch.block.memory = undefined;
      if (spare.length < WATCHES_KEPT) spare.push(watch);
    }
    if (isUnseen(memory)) unseen -= memory.bytes;
    this.backend.free(memory);
  }
}
