// Storage: one block of device memory shared by the tensors that view it, freed when the last handle goes or nothing reaches it.
import type { Backend, Memory } from '../backends/backend.js';
import { DisposedError } from '../base/errors.js';

interface Block {
  readonly backend: Backend;
  readonly memory: Memory;
}

// The held value must not reach the storage itself, or it would never be unreachable.
const unreachable = new FinalizationRegistry<Block>(({ backend, memory }) => backend.free(memory));

export class Storage {
  readonly backend: Backend;
  /** Raised by every write in place, so that a recorded graph notices that what it saved has changed. */
  version = 0;
  #memory: Memory | undefined;
  #handles = 0;

  constructor(backend: Backend, bytes: number) {
    this.backend = backend;
    this.#memory = backend.alloc(bytes);
    unreachable.register(this, { backend, memory: this.#memory.token ?? this.#memory }, this);
  }

  get memory(): Memory {
    if (this.#memory === undefined) throw new DisposedError('this tensor was disposed of; its memory is gone');
    return this.#memory;
  }

  get freed(): boolean {
    return this.#memory === undefined;
  }

  retain(): this {
    this.#handles++;
    return this;
  }

  release(): void {
    if (--this.#handles > 0 || this.#memory === undefined) return;
    const memory = this.#memory;
    this.#memory = undefined;
    unreachable.unregister(this);
    this.backend.free(memory);
  }
}
