// Models that read pictures and write text: what a vision tower sees stands in for tokens of a decoder.
import { ArgumentError } from '../../base/errors.js';
import { Module } from '../../nn/module.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { CrossLayers, Watch } from './cross-layers.js';
import type { CausalLM } from '../decoder/decoder.js';
import type { Eye, Places, Seen } from './eye.js';
import { GroupedStep, type Groups, PlacedStep, type Position } from './picture-steps.js';
import { BatchStep, type DecoderCache } from '../decoder/step.js';

export interface WriteOptions {
  /** The longest answer; default 64 tokens. */
  readonly maxTokens?: number;
  /** Tokens that end an answer; default none. */
  readonly end?: readonly number[];
}
/** Rows of tokens from their first ones on; `next` answers what follows the last ones. */
export function writeRows(
  first: readonly number[],
  { maxTokens = 64, end = [] }: WriteOptions,
  next: (tokens: readonly number[]) => readonly number[],
): number[][] {
  const rows = first.map((): number[] => []);
  const done = first.map(() => false);
  for (let step = 0, tokens = first; step < maxTokens && done.includes(false); step++) {
    if (step > 0) tokens = next(tokens);
    tokens = tokens.map((token, i) => (done[i] ? end[0] : token));
    tokens.forEach((token, i) => {
      rows[i].push(token);
      done[i] ||= end.includes(token);
    });
  }
  return rows;
}

/** What tells the families apart. */
export interface Reading {
  readonly eye: Eye;
  readonly imageToken: number;
  /** Which tokens see each other: all of a prompt, or those of one picture. */
  readonly bothWays?: 'prompt' | 'picture';
  /** By which of time, row and column each pair of a head turns, and the patches of a token's side (Qwen). */
  readonly places?: { readonly axes: readonly number[]; readonly merge: number };
  /** Layers that look at pictures (Llama 3.2). */
  readonly cross?: CrossLayers;
}

/** Pictures and text in, text out. */
export class PictureLanguage extends Module {
  /** The network that writes. */
  readonly text: CausalLM;
  /** The network that sees. */
  readonly eye: Eye;
  /** The text's layers that look at pictures, where it has such. */
  readonly cross: CrossLayers | undefined;
  readonly #reading: Reading;
  constructor(text: CausalLM, reading: Reading) {
    super();
    this.text = text;
    this.eye = reading.eye;
    this.cross = reading.cross;
    this.#reading = reading;
  }
  /** The token that stands for a place of a picture. */
  get imageToken(): number {
    return this.#reading.imageToken;
  }
  #groups(rows: readonly (readonly number[])[]): Groups | undefined {
    const { bothWays, imageToken } = this.#reading;
    if (bothWays === undefined) return undefined;
    if (bothWays === 'prompt') return rows.map((row) => row.map(() => 0));
    // Tokens of a picture stand side by side; between two pictures stands something else.
    return rows.map((row) => {
      let at = -1;
      return row.map((id, i) => {
        if (id !== imageToken) return -1;
        if (row[i - 1] !== imageToken) at++;
        return at;
      });
    });
  }
  /** Words stand one behind the other; a picture takes as many positions as its longer side has tokens. */
  #positions(rows: readonly (readonly number[])[], grids: Places, merge: number): Position[][] {
    let picture = 0;
    return rows.map((row) => {
      const out: Position[] = [];
      let next = 0;
      while (out.length < row.length) {
        if (row[out.length] !== this.imageToken) {
          out.push([next, next, next]);
          next++;
          continue;
        }
        const [frames, h, w] = grids[picture++] ?? [1, merge, merge];
        const [down, across] = [h / merge, w / merge];
        for (let i = 0; i < frames * down * across; i++) {
          const within = i % (down * across);
          out.push([
            next + Math.floor(i / (down * across)),
            next + Math.floor(within / across),
            next + (within % across),
          ]);
        }
        next += Math.max(down, across);
      }
      return out;
    });
  }
  /** Numbers of tokens for pictures, one by one; all others are 0. */
  #countedTokens(rows: readonly (readonly number[])[], seen: Seen | undefined): Uint32Array {
    let next = 0;
    const order = Uint32Array.from(rows.flat(), (id) => (id === this.imageToken ? ++next : 0));
    const given = seen?.tokens.shape[0] ?? 0;
    if (next !== given)
      throw new ArgumentError(
        `pictures: the text has ${next} tokens for pictures (number ${this.imageToken}); ${given} were given`,
      );
    return order;
  }
  /** What layers of their own look at. */
  #watch(rows: readonly (readonly number[])[], { watched }: Partial<Seen>): Watch | undefined {
    if (!watched || !this.cross) return undefined;
    const counts = rows.map((row) => row.filter((id) => id === this.imageToken).length);
    if (counts.some((n) => n !== counts[0]))
      throw new ArgumentError(`pictures: texts have ${counts.join(', ')} pictures; each must have as many`);
    return this.cross.watch(rows, this.imageToken, watched.pictures, watched.tiles);
  }
  #read(ids: Tensor, pixels: Tensor | undefined, places: Places, cache: DecoderCache | undefined): Read {
    if (ids.rank !== 2)
      throw new ArgumentError(
        `pictures: token numbers have shape [${ids.shape.join(', ')}]; they must be (batch, time)`,
      );
    const rows = ids.toArray() as number[][];
    const { places: how, bothWays } = this.#reading;
    const seen = pixels && this.eye.forward(pixels, places);
    const order = this.#countedTokens(rows, seen);
    const groups = this.#groups(rows);
    const positions = how && this.#positions(rows, places, how.merge);
    const step = groups
      ? new GroupedStep(ids, cache, groups, bothWays === 'prompt')
      : how && positions
        ? new PlacedStep(ids.device, cache, positions, how.axes)
        : new BatchStep(ids.device, ids.shape[1], cache, undefined);
    // A token for pictures may lie beyond the words' table.
    const known = tensor(Int32Array.from(rows.flat().map((id) => (id === this.imageToken ? 0 : id))), {
      shape: ids.shape,
      device: ids.device,
    });
    /** What `tokens` have at the places of pictures, and `others` elsewhere. */
    const joined = (others: Tensor, tokens: Tensor): Tensor => {
      const [b, t, width] = others.shape;
      const all = others.reshape([b * t, width]).cat([tokens.cast(others.dtype)], 0);
      const at = tensor(
        order.map((n, i) => (n > 0 ? b * t + n - 1 : i)),
        { device: ids.device },
      );
      return all.indexSelect(0, at).reshape([b, t, width]);
    };
    const { tokens, deep = [] } = seen ?? {};
    const watch = this.#watch(rows, seen ?? {});
    const hidden = this.text.hidden(known, step, {
      ...(tokens && { join: (words: Tensor) => joined(words, tokens) }),
      ...(deep.length > 0 && {
        behind: (x: Tensor, layer: number) => (deep[layer] ? x.add(joined(x.zerosLike(), deep[layer])) : x),
      }),
      ...(watch && { behind: (x: Tensor, layer: number) => watch.behind(x, layer) }),
    });
    if (cache) cache.length += ids.shape[1];
    return { hidden, next: positions?.map((row) => 1 + Math.max(...row.flat())), watch };
  }
  /**
   * Logits (b, t, vocabulary) of token numbers (b, t) and the pictures they name, in order: (n, channels, h, w), or
   * what the family's processor makes, with what it says of each picture.
   */
  forward(ids: Tensor, pixels?: Tensor, places: Places = []): Tensor {
    return this.text.logits(this.#read(ids, pixels, places, undefined).hidden);
  }
  #next(tokens: readonly number[], cache: DecoderCache, { next, watch }: Going, device: Device): Tensor {
    const last = tensor(Int32Array.from(tokens), { shape: [tokens.length, 1], device });
    const { places } = this.#reading;
    if (watch) {
      const step = new BatchStep(device, 1, cache, undefined);
      const hidden = this.text.hidden(last, step, { behind: (x, layer) => watch.behind(x, layer) });
      cache.length++;
      return this.text.logits(hidden);
    }
    if (!next || !places) return this.text.forward(last, cache);
    const positions = next.map((at, i): Position[] => {
      next[i]++;
      return [[at, at, at]];
    });
    const hidden = this.text.hidden(last, new PlacedStep(device, cache, positions, places.axes));
    cache.length++;
    return this.text.logits(hidden);
  }
  /** The likeliest tokens behind prompts of one length; a row that has ended goes on with its end token. */
  answer(
    ids: Tensor,
    pixels: Tensor | undefined,
    { places = [], ...options }: WriteOptions & { readonly places?: Places } = {},
  ): number[][] {
    const likeliest = (logits: Tensor): number[] => logits.squeeze(1).argmax(-1).toArray() as number[];
    return noGrad(() => {
      const cache = this.text.newCache(undefined, true);
      let going: Going = {};
      try {
        const first = scope(() => {
          const read = this.#read(ids, pixels, places, cache);
          going = { next: read.next, watch: read.watch?.goOn() };
          return likeliest(this.text.logits(read.hidden.narrow(1, ids.shape[1] - 1, 1)));
        });
        return writeRows(first, options, (tokens) =>
          scope(() => likeliest(this.#next(tokens, cache, going, ids.device))),
        );
      } finally {
        going.watch?.dispose();
        cache.dispose();
      }
    });
  }
}
/** What a prompt leaves to what follows it. */
interface Going {
  /** The position behind it of each row, where the model counts these. */
  readonly next?: number[] | undefined;
  /** The pictures that layers of their own look at. */
  readonly watch?: Watch | undefined;
}
interface Read extends Going {
  readonly hidden: Tensor;
}
