// Runs of a decoder through prompts with pictures: tokens that see each other both ways, or that stand in rows and
// columns.
import { UnsupportedError } from '../../base/errors.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type AttendOptions, BatchStep, type DecoderCache } from '../decoder/step.js';

/** Tokens of one group see each other both ways; those of none (-1) look back. */
export type Groups = readonly (readonly number[])[];

/** A run in which some tokens see those of their group behind them, too. */
export class GroupedStep extends BatchStep {
  readonly #groups: Groups;
  readonly #keys: DecoderCache | undefined;
  readonly #windowless: boolean;
  /** By the layers' windows: a prompt's mask is large, and layers share it. */
  readonly #masks = new Map<number | undefined, Tensor>();
  /** `windowless`: groups see past the windows of layers. */
  constructor(ids: Tensor, cache: DecoderCache | undefined, groups: Groups, windowless: boolean) {
    super(ids.device, ids.shape[1], cache, undefined);
    this.#groups = groups;
    this.#keys = cache;
    this.#windowless = windowless;
  }
  #seen(window: number | undefined, like: Tensor): Tensor {
    const known = this.#masks.get(window);
    if (known) return known;
    const t = this.#groups[0].length;
    const data = new Uint8Array(this.#groups.length * t * t);
    this.#groups.forEach((row, b) => {
      for (let from = 0; from < t; from++)
        for (let to = 0; to < t; to++) {
          const near = this.#windowless || window === undefined || to > from - window;
          data[(b * t + from) * t + to] = Number(near && (to <= from || (row[from] >= 0 && row[from] === row[to])));
        }
    });
    const mask = tensor(data, { shape: [this.#groups.length, 1, t, t], device: like.device });
    this.#masks.set(window, mask);
    return mask;
  }
  override attend(layer: number, q: Tensor, k: Tensor | undefined, v: Tensor | undefined, how: AttendOptions): Tensor {
    const { window, chunk, alibi, sinks, scale, softcap } = how;
    if (!k || !v || chunk !== undefined || alibi || sinks)
      throw new UnsupportedError('attention: chunks, sinks, alibi and lent keys are not served both ways');
    const turned = (x: Tensor): Tensor => x.permute([0, 2, 1, 3]);
    const cache = this.#keys?.kv(layer);
    const [keys, values] = cache ? cache.append(turned(k), turned(v)) : [turned(k), turned(v)];
    return turned(turned(q).sdpa(keys, values, { scale, mask: this.#seen(window, q), ...(softcap && { softcap }) }));
  }
}

/** Where a token stands: at one position, or in a picture at one by time, row and column. */
export type Position = readonly [time: number, row: number, column: number];
/** A run whose tokens stand where they are told, some pairs of a head turning by time, some by row or column. */
export class PlacedStep extends BatchStep {
  readonly #positions: readonly (readonly Position[])[];
  readonly #axes: readonly number[];
  #at: Tensor | undefined;
  constructor(
    device: Device,
    cache: DecoderCache | undefined,
    positions: readonly (readonly Position[])[],
    axes: readonly number[],
  ) {
    super(device, positions[0].length, cache, undefined);
    this.#positions = positions;
    this.#axes = axes;
  }
  override rows(table: Tensor): Tensor {
    const pairs = table.shape[1];
    this.#at ??= tensor(
      Uint32Array.from(
        this.#positions.flatMap((row) => row.flatMap((at) => this.#axes.map((axis, i) => at[axis] * pairs + i))),
      ),
      { device: table.device },
    );
    return table.reshape([-1]).indexSelect(0, this.#at).reshape([this.#positions.length, -1, pairs]);
  }
}
