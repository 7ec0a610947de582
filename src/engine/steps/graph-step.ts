// A step whose token stands where device memory says: every layer's ops can be recorded once and replayed at any
// position.
import { UnsupportedError } from '../../base/errors.js';
import type { DecodeSteps } from '../../backends/gpu/decode.js';
import type { AttendOptions, DecoderCache, LatentRun, Step } from '../../models/index.js';
import { cacheTypeOf, inCache } from '../../nn/kv-cache.js';
import { storeRows } from '../../tensor/dispatch.js';
import type { Device } from '../../tensor/device.js';
import type { Tensor } from '../../tensor/tensor.js';

export class GraphStep implements Step {
  /** The most that the cache holds: tables are made for all of it. */
  readonly length: number;
  readonly slots: number;
  readonly padded = false;
  readonly open = true;
  readonly #steps: DecodeSteps;
  readonly #cache: DecoderCache;
  readonly #state: Tensor;
  readonly #places: Tensor;

  /** `state` is { token, position, length }, `places` the numbers of all places in the cache. */
  constructor(steps: DecodeSteps, cache: DecoderCache, state: Tensor, places: Tensor, length: number) {
    this.#steps = steps;
    this.#cache = cache;
    this.#state = state;
    this.#places = places;
    this.length = this.slots = length;
  }
  get token(): Tensor {
    return this.#state.narrow(0, 0, 1).reshape([1, 1]);
  }
  get #position(): Tensor {
    return this.#state.narrow(0, 1, 1).reshape([1, 1]);
  }
  withoutPads(x: Tensor): Tensor {
    return x;
  }
  rows(table: Tensor): Tensor {
    return table.embedding(this.#position); // (1, 1, width)
  }
  /** Keys and values of the token go to their place; the op reads as many as the length in state says. */
  attend(layer: number, q: Tensor, k: Tensor | undefined, v: Tensor | undefined, how: AttendOptions): Tensor {
    const { window, chunk, alibi, sinks, scale, softcap } = how;
    const [keys, values] = this.#cache.kv(layer).buffers();
    if (k && v) {
      this.#store(k, keys);
      this.#store(v, values);
    }
    if (chunk !== undefined) throw new UnsupportedError('decoding by graph: chunks are not recorded');
    const lengths = this.#state.narrow(0, 2, 1);
    return q
      .permute([0, 2, 1, 3])
      .sdpa(keys, values, {
        causal: true,
        lengths,
        scale,
        ...(softcap && { softcap }),
        ...(sinks && { sinks }),
        ...(alibi && { alibi }),
        ...(window !== undefined && { window: [window - 1, 0] as [number, number] }),
      })
      .permute([0, 2, 1, 3]);
  }
  #store(x: Tensor, cache: Tensor): void {
    const type = cacheTypeOf(cache, x);
    if (type === undefined) return this.#steps.store(x.contiguous(), this.#state, cache);
    const [, heads, room, width] = cache.shape;
    const places = x
      .newArange(heads, 'i32')
      .affine(room, 0)
      .add(this.#state.narrow(0, 1, 1));
    storeRows(cache.reshape([heads * room, width]), places, inCache(x, type).reshape([heads, width]));
  }
  keepLatent(layer: number, latent: Tensor, key: Tensor): readonly LatentRun[] {
    const [latents, keys] = this.#cache.kv(layer).buffers();
    this.#store(latent, latents);
    this.#store(key, keys);
    return [{ from: 0, count: 1, latents, keys }];
  }
  mask(_time: number, keys: number, _device: Device): Tensor {
    return this.#places
      .narrow(0, 0, keys)
      .le(this.#state.narrow(0, 1, 1))
      .reshape([1, 1, 1, keys]);
  }
  overColumns(): Tensor {
    throw new UnsupportedError('decoding by graph: convolutions are not recorded');
  }
  overState(): Tensor {
    throw new UnsupportedError('decoding by graph: states are not recorded');
  }
}
