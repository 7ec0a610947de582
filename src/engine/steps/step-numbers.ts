// Numbers of a step, gathered first and sent to the device in one upload.
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import type { Tensor } from '../../tensor/tensor.js';

export class StepNumbers {
  readonly #device: Device;
  readonly #parts: Int32Array[] = [];
  #size = 0;
  #sent: Tensor | undefined;
  constructor(device: Device) {
    this.#device = device;
  }
  /** Words for the upload; what it answers gives them as a tensor of the device once they are sent. */
  put(words: Int32Array, shape: readonly number[]): () => Tensor {
    const at = this.#size;
    this.#parts.push(words);
    this.#size += words.length;
    return () => (this.#sent as Tensor).narrow(0, at, words.length).reshape(shape);
  }
  send(): void {
    const all = new Int32Array(this.#size);
    let at = 0;
    for (const words of this.#parts) {
      all.set(words, at);
      at += words.length;
    }
    this.#sent = tensor(all, { device: this.#device });
  }
}
