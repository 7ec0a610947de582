// Attention as it is called: one method for every mask, window and layout, one for packed sequences, one for pages.
import { REALS } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { Tensor } from '../tensor/tensor.js';
import { EXTRAS, type Extra, type SdpaParams, sizesOf, WITHOUT } from './attention-reference.js';
import { lengths, packed, paged, pageTable, perHead, s, starts } from './attention-samples.js';
import { composite, requireOptions } from './kernel-row.js';
import { type CompositeErrorSample, type CompositeSample, rows, ulps } from './op.js';

/** What attention takes. */
export interface SdpaOptions {
  /** Queries see no later key. With fewer queries than keys, the last query stands at the last key. */
  readonly causal?: boolean;
  /** u8 (nonzero: seen) or a float that is added; broadcast to (batch, heads, queries, keys). */
  readonly mask?: Tensor;
  /** Default 1 / sqrt(dim). */
  readonly scale?: number;
  /** Logits become softcap * tanh(logit / softcap). */
  readonly softcap?: number;
  /** A query sees this many keys before (and, unless causal, after) its own, or [before, after]; -1 sets no bound. */
  readonly window?: number | readonly [before: number, after: number];
  /** Slopes by head: slope * distance is taken off the logit. */
  readonly alibi?: Tensor;
  /** A logit by head that takes part in the sum but has no value. */
  readonly sinks?: Tensor;
  /** Default 'bhtd'. */
  readonly layout?: 'bhtd' | 'bthd';
  /** Keys in use by batch entry (i32), when fewer than there is room for. No gradient. */
  readonly lengths?: Tensor;
}
/** Packed sequences: row numbers where each begins, and the end (i32, batch + 1). */
export interface VarlenOptions extends Omit<SdpaOptions, 'layout' | 'lengths' | 'mask'> {
  /** The longest sequence of queries. */
  readonly maxQueries: number;
  /** The longest sequence of keys. */
  readonly maxKeys: number;
}
/** What attention over pages takes. */
export interface PagedOptions extends Omit<SdpaOptions, 'mask'> {
  /** Keys of each sequence. */
  readonly lengths: Tensor;
}

const OPTIONS = ['causal', 'mask', 'scale', 'softcap', 'window', 'alibi', 'sinks', 'layout', 'lengths'];

function bounds(o: Pick<SdpaOptions, 'causal' | 'window'>): { left: number; right: number } {
  const [left, right] =
    o.window === undefined ? [-1, -1] : typeof o.window === 'number' ? [o.window, o.window] : o.window;
  for (const n of [left, right])
    if (!Number.isInteger(n) || n < -1)
      throw new ArgumentError(`sdpa: window ${n} is not a whole number of at least -1`);
  return { left, right: o.causal ? 0 : right };
}

function paramsOf(
  [q, k, v]: readonly Tensor[],
  o: SdpaOptions,
  extras: readonly Extra[],
  longest: readonly [number, number] = [0, 0],
): SdpaParams {
  const scale = o.scale ?? 1 / Math.sqrt(q.shape[q.rank - 1]);
  const trained = [q, k, v].some((t) => t?.requiresGrad);
  return { layout: o.layout ?? 'bhtd', scale, softcap: o.softcap ?? 0, ...bounds(o), extras, longest, trained };
}

/** Sorts given extras into their order. */
function gather(given: { readonly [K in Extra]?: Tensor }): { extras: Extra[]; tensors: Tensor[] } {
  const extras = EXTRAS.filter((name) => given[name] !== undefined);
  return { extras, tensors: extras.map((name) => given[name] as Tensor) };
}

export const attentionCalls = rows({
  sdpa: composite({
    formula: 'scaled-dot-product attention of queries over keys and values',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(9),
    candle: { none: 'candle_nn::ops::sdpa is for Metal' },
    compose: (q: Tensor, k: Tensor, v: Tensor, options: SdpaOptions = {}): Tensor => {
      requireOptions('sdpa', options, OPTIONS);
      if (q.rank === 3) return q.unsqueeze(0).sdpa(k.unsqueeze(0), v.unsqueeze(0), options).squeeze([0]);
      const layout = options.layout ?? 'bhtd';
      let mask = options.mask;
      if (mask && q.rank === 4 && k.rank === 4) {
        const [qs, ks] = [sizesOf(q.shape, layout), sizesOf(k.shape, layout)];
        mask = mask.broadcastTo([qs.batch, qs.heads, qs.rows, ks.rows]);
      }
      const { extras, tensors } = gather({
        mask,
        slopes: options.alibi?.cast('f32'),
        sinks: options.sinks?.cast('f32'),
        lengths: options.lengths,
      });
      return q.sdpaRun(k, v, paramsOf([q, k, v], options, extras), tensors)[0];
    },
    samples: (): readonly CompositeSample[] => [
      { inputs: [s(1, 2, 3, 4), s(1, 2, 3, 4), s(1, 2, 3, 4)], args: [{ input: 1 }, { input: 2 }, { causal: true }] },
      {
        inputs: [s(1, 2, 3, 2), s(1, 1, 4, 2), s(1, 1, 4, 2), perHead(2), perHead(2), { shape: [1, 1, 3, 4] }],
        args: [
          { input: 1 },
          { input: 2 },
          { alibi: { input: 3 }, sinks: { input: 4 }, mask: { input: 5 }, softcap: 2 },
        ],
      },
      { inputs: [s(2, 3, 4), s(2, 5, 4), s(2, 5, 4)], args: [{ input: 1 }, { input: 2 }, { window: 1, softcap: 3 }] },
    ],
    errors: (): readonly CompositeErrorSample[] => [
      {
        inputs: [s(1, 2, 3, 4), s(1, 2, 3, 4), s(1, 2, 3, 4)],
        args: [{ input: 1 }, { input: 2 }, { casual: true }],
        code: 'E_ARGUMENT',
        says: /unknown option "casual"/,
      },
      {
        inputs: [s(1, 2, 3, 4), s(1, 2, 3, 4), s(1, 2, 3, 4)],
        args: [{ input: 1 }, { input: 2 }, { window: -2 }],
        code: 'E_ARGUMENT',
        says: /window -2/,
      },
    ],
  }),

  sdpaVarlen: composite({
    formula: 'attention within packed sequences: q (total, heads, dim); starts are row numbers, batch + 1 of them',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(20, 4),
    candle: { none: 'candle_flash_attn::flash_attn_varlen is a separate crate' },
    compose: (q: Tensor, k: Tensor, v: Tensor, qStarts: Tensor, kStarts: Tensor, options: VarlenOptions): Tensor => {
      requireOptions('sdpaVarlen', options, [
        ...OPTIONS.filter((n) => n !== 'layout' && n !== 'lengths' && n !== 'mask'),
        'maxQueries',
        'maxKeys',
      ]);
      const { extras, tensors } = gather({
        slopes: options.alibi?.cast('f32'),
        sinks: options.sinks?.cast('f32'),
        qStarts,
        kStarts,
      });
      const p = {
        ...paramsOf([q, k, v], options, extras, [options.maxQueries, options.maxKeys]),
        layout: 'bthd' as const,
      };
      return q.unsqueeze(0).sdpaRun(k.unsqueeze(0), v.unsqueeze(0), p, tensors)[0].squeeze([0]);
    },
    samples: (): readonly CompositeSample[] => [
      {
        inputs: [s(6, 2, 4), s(9, 1, 4), s(9, 1, 4), starts(0, 2, 3, 6), starts(0, 4, 4, 9)],
        args: [...packed, { causal: true, maxQueries: 3, maxKeys: 5 }],
      },
      {
        inputs: [s(5, 2, 2), s(6, 2, 2), s(6, 2, 2), starts(0, 2, 5), starts(0, 3, 6), perHead(2), perHead(2)],
        args: [...packed, { alibi: { input: 5 }, sinks: { input: 6 }, window: 1, maxQueries: 3, maxKeys: 3 }],
      },
      {
        inputs: [s(40, 2, 16), s(70, 2, 16), s(70, 2, 16), starts(0, 37, 40), starts(0, 5, 70)],
        args: [...packed, { window: 20, maxQueries: 37, maxKeys: 65 }],
      },
    ],
    errors: () => [],
  }),

  sdpaPaged: composite({
    formula:
      'attention over keys and values in pages: k (pages, heads, rows, dim), page numbers by batch entry in ' +
      '`pages` (batch, n)',
    dtypes: REALS,
    without: WITHOUT,
    domain: [-1, 1],
    ulp: ulps(16),
    loose: 'five units were seen on a CPU with sixteen threads, three on one with two',
    noGrad: 'a cache is for inference',
    candle: { none: 'candle_flash_attn::flash_attn_varlen_paged_windowed is a separate crate' },
    compose: (q: Tensor, k: Tensor, v: Tensor, pages: Tensor, options: PagedOptions): Tensor => {
      requireOptions(
        'sdpaPaged',
        options,
        OPTIONS.filter((n) => n !== 'mask'),
      );
      const { extras, tensors } = gather({
        slopes: options.alibi?.cast('f32'),
        sinks: options.sinks?.cast('f32'),
        lengths: options.lengths,
        pages,
      });
      return q.sdpaRun(k, v, paramsOf([q, k, v], options, extras), tensors)[0];
    },
    samples: (): readonly CompositeSample[] => [
      {
        inputs: [s(2, 2, 1, 4), s(5, 1, 3, 4), s(5, 1, 3, 4), pageTable(2, 3, 4, 0, 2, 1, 3, 0), lengths(8, 4)],
        args: paged,
      },
      {
        inputs: [s(1, 4, 3, 16), s(3, 2, 16, 16), s(3, 2, 16, 16), pageTable(1, 3, 2, 0, 1), lengths(40)],
        args: paged,
      },
    ],
    errors: () => [],
  }),
});
