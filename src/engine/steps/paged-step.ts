// A step over tokens of many sequences at once, laid out one after another: each layer's products see one batch, keys
// and values go to their pages by one store, attention reads pages by table.
import { gpuOf } from '../../backends/generation.js';
import { UnsupportedError } from '../../base/errors.js';
import type { AttendOptions, LatentRun, Scan, Step, WholeAttend } from '../../models/index.js';
import { seen } from '../../models/decoder/step.js';
import { cacheTypeOf, cacheWidth, inCache } from '../../nn/kv-cache.js';
import { type AnyLinear, productWeight } from '../../nn/layers.js';
import type { Device } from '../../tensor/device.js';
import { storeRows } from '../../tensor/dispatch.js';
import { keeper } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';

/** Keys and values (or latents and turned keys) of a layer, a row a token: (pages * pageTokens, width). */
export type LayerPages = readonly [keys: Tensor, values: Tensor];

/** New tokens of one sequence, of several with one token each, or of several that `starts` divides. */
export interface Run {
  /** Where its tokens begin in the step. */
  readonly from: number;
  readonly sequences: number;
  /** Tokens of each sequence; with `starts`, of all of them. */
  readonly count: number;
  /** Where each sequence begins among the run's tokens, then where the last one ends, i32 (sequences + 1). */
  readonly starts?: Tensor;
  /** Page numbers, i32 (sequences, width), and tokens with these, i32 (sequences). */
  readonly tables: Tensor;
  readonly lengths: Tensor;
  /** For layers that are not attended by table: places of all tokens, i32 (length), of a single sequence. */
  readonly places?: Tensor;
  /** A convolution's last columns and a layer's state, which the step replaces. */
  readonly columns?: Map<string, Tensor>;
}
export interface PagedLayout {
  /** Where tokens stand in their sequences, i32 (1, tokens). */
  readonly positions: Tensor;
  /** Rows of the pages that their keys go to, i32 (tokens). */
  readonly slots: Tensor;
  readonly runs: readonly Run[];
}

export class PagedStep implements Step {
  /** Tables are made for the whole context once. */
  readonly length: number;
  readonly slots: number;
  readonly padded = false;
  readonly open = false;
  readonly brief = true;
  readonly #layers: readonly (LayerPages | undefined)[];
  readonly #layout: PagedLayout;
  readonly #pageTokens: number;
  /** Rows of tables that several layers share. */
  readonly #rows = new Map<Tensor, Tensor>();
  readonly #shared = keeper();
  /** Keeps a tensor beyond the step and gives the one before back. */
  readonly #keep: (columns: Map<string, Tensor>, key: string, last: Tensor) => void;
  readonly attendWhole?: WholeAttend;

  constructor(
    layers: readonly (LayerPages | undefined)[],
    layout: PagedLayout,
    pageTokens: number,
    contextTokens: number,
    keepColumns: (columns: Map<string, Tensor>, key: string, last: Tensor) => void,
    attendWhole?: WholeAttend,
  ) {
    if (attendWhole) this.attendWhole = attendWhole;
    this.#layers = layers;
    this.#layout = layout;
    this.#pageTokens = pageTokens;
    this.length = this.slots = contextTokens;
    this.#keep = keepColumns;
  }
  /** Nobody needs a layer's input again, so that a library may add its product to it. */
  addTo(sum: Tensor, x: Tensor, layer: AnyLinear): Tensor | undefined {
    const weight = productWeight(layer);
    if (!weight || weight.dtype !== sum.dtype || ![weight, sum].every((t) => t.layout.isContiguous)) return undefined;
    const rows = (t: Tensor): Tensor => t.contiguous().reshape([-1, t.shape[t.rank - 1]]);
    return sum.device.backend.gpu?.addProduct(rows(sum), rows(x), weight) ? sum : undefined;
  }
  withoutPads(x: Tensor): Tensor {
    return x;
  }
  rows(table: Tensor): Tensor {
    const known = this.#rows.get(table);
    if (known) return known;
    const made = this.#shared(table.embedding(this.#layout.positions));
    this.#rows.set(table, made);
    return made;
  }
  #pages(layer: number): LayerPages {
    const pages = this.#layers[layer];
    if (!pages) throw new UnsupportedError(`pages: layer ${layer} keeps no keys`);
    return pages;
  }
  attend(layer: number, q: Tensor, k: Tensor | undefined, v: Tensor | undefined, how: AttendOptions): Tensor {
    const { window, chunk, alibi, sinks, scale, softcap, into } = how;
    if (chunk !== undefined && chunk < this.length)
      throw new UnsupportedError('pages: attention in chunks reads no pages');
    const [, tokens, heads, dim] = q.shape;
    const { slots, runs } = this.#layout;
    if (into && !(runs.length === 1 && runs[0].starts))
      throw new UnsupportedError('pages: only prompts that are attended together have a place for their answers');
    const pages = this.#pages(layer);
    const type = cacheTypeOf(pages[0], q);
    const kvHeads = pages[0].shape[1] / cacheWidth(dim, type);
    if (k && v) [k, v].forEach((x, i) => storeRows(pages[i], slots, inCache(x, type).reshape([tokens, -1])));
    const [keys, values] = pages.map((x) => x.reshape([-1, this.#pageTokens, kvHeads, cacheWidth(dim, type)]));
    const options = {
      causal: true,
      layout: 'bthd' as const,
      scale,
      ...(softcap && { softcap }),
      ...(sinks && { sinks }),
      ...(alibi && { alibi }),
      ...(window !== undefined && { window: [window - 1, 0] as [number, number] }),
    };
    const parts = runs.map(({ from, sequences, count, starts, tables, lengths }) => {
      const n = starts ? count : sequences * count;
      const mine = n === tokens ? q : q.narrow(1, from, n);
      if (starts) {
        const out = into?.reshape([1, n, heads, dim]) ?? Tensor.empty([1, n, heads, dim], q.dtype, q.device);
        const rows = (x: Tensor): Tensor => x.contiguous().reshape([n, heads, dim]);
        gpuOf(q.device.backend, 'attendPrompts').attendPrompts({
          ...{ q: rows(mine), out: out.reshape([n, heads, dim]), keys, values, starts, lengths, tables },
          ...{ scale, window, softcap, sinks, slopes: alibi },
        });
        return out;
      }
      const queries = mine.reshape([sequences, count, heads, dim]);
      return queries.sdpaPaged(keys, values, tables, { ...options, lengths }).reshape([1, n, heads, dim]);
    });
    return parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 1);
  }
  keepLatent(layer: number, latent: Tensor, key: Tensor): readonly LatentRun[] {
    const { slots, runs } = this.#layout;
    const pages = this.#pages(layer);
    [latent, key].forEach((x, i) => storeRows(pages[i], slots, x.reshape([x.shape[2], x.shape[3]])));
    return runs.map(({ from, count, places }) => {
      if (!places) throw new UnsupportedError('pages: latents are read by the places of one sequence');
      const [latents, keys] = pages.map((x) => x.indexSelect(0, places).reshape([1, 1, -1, x.shape[1]]));
      return { from, count, latents, keys };
    });
  }
  mask(time: number, keys: number, device: Device): Tensor {
    return seen({ time, keys, first: 0 }, [0], device);
  }
  overColumns(layer: number, x: Tensor, count: number, convolve: (columns: Tensor) => Tensor): Tensor {
    const parts = this.#layout.runs.map((run) => {
      if (!run.columns) throw new UnsupportedError('pages: columns belong to one sequence');
      const mine = x.narrow(2, run.from, run.count);
      const before = run.columns.get(`columns ${layer}`) ?? x.newZeros([1, x.shape[1], count], x.dtype);
      const all = before.cat([mine], 2);
      this.#keep(run.columns, `columns ${layer}`, all.narrow(2, run.count, count).copy());
      return convolve(all);
    });
    return parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 2);
  }
  overState(layer: number, xs: readonly Tensor[], scan: Scan): Tensor {
    const parts = this.#layout.runs.map((run) => {
      if (!run.columns) throw new UnsupportedError('pages: a state belongs to one sequence');
      const mine = xs.map((x) => x.narrow(1, run.from, run.count));
      const { y, state } = scan(mine, run.columns.get(`state ${layer}`));
      this.#keep(run.columns, `state ${layer}`, state.copy());
      return y;
    });
    return parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), 1);
  }
}
