// Calls of attention that every device and the gradient checks run: masks, windows, layouts, packed and paged
// sequences.
import type { Shape } from '../base/shape.js';
import { type SdpaParams, sizesOf } from './attention-reference.js';
import type { InputSpec, Sample } from './op.js';

const base: SdpaParams = { layout: 'bhtd', scale: 0.5, softcap: 0, left: -1, right: -1, extras: [], longest: [0, 0] };
export const of = (more: Partial<SdpaParams> = {}): SdpaParams => ({ ...base, ...more });
export const s = (...shape: number[]): InputSpec => ({ shape });
export const perHead = (n: number): InputSpec => ({ shape: [n], dtype: 'f32', domain: [0.1, 1] });

const whole = (shape: Shape, values: readonly number[]): InputSpec => ({ shape, dtype: 'i32', values });
export const starts = (...values: number[]): InputSpec => whole([values.length], values);
export const lengths = starts;
export const pageTable = (batch: number, each: number, ...values: number[]): InputSpec => whole([batch, each], values);
export const packed = [1, 2, 3, 4].map((input) => ({ input }));
export const paged = [...[1, 2, 3].map((input) => ({ input })), { causal: true, lengths: { input: 4 } }];

export const samples = (): readonly Sample<SdpaParams>[] => [
  { inputs: [s(1, 2, 3, 4), s(1, 2, 3, 4), s(1, 2, 3, 4)], params: of({ right: 0 }) },
  { inputs: [s(2, 4, 2, 3), s(2, 2, 5, 3), s(2, 2, 5, 3)], params: of({ right: 0 }) },
  { inputs: [s(1, 3, 2, 4), s(1, 5, 1, 4), s(1, 5, 1, 4)], params: of({ layout: 'bthd', softcap: 2 }) },
  { inputs: [s(1, 2, 4, 2), s(1, 2, 4, 2), s(1, 2, 4, 2)], params: of({ left: 1, right: 1 }) },
  { inputs: [s(1, 2, 2, 3), s(1, 2, 3, 3), s(1, 2, 3, 3), s(1, 2, 2, 3)], params: of({ extras: ['mask'] }) },
  {
    inputs: [s(1, 2, 3, 2), s(1, 2, 3, 2), s(1, 2, 3, 2), perHead(2), perHead(2)],
    params: of({ extras: ['slopes', 'sinks'], right: 0 }),
  },
  { inputs: [s(2, 2, 37, 16), s(2, 1, 70, 16), s(2, 1, 70, 16)], params: of({ right: 0, scale: 0.25 }) },
  {
    inputs: [s(1, 2, 1, 40), s(1, 1, 130, 40), s(1, 1, 130, 40), { shape: [1], dtype: 'i32', ints: [90, 90] }],
    params: of({ right: 0, extras: ['lengths'] }),
  },
  {
    inputs: [s(1, 4, 1, 72), s(1, 2, 9, 72), s(1, 2, 9, 72), { shape: [1, 4, 1, 9], dtype: 'u8', ints: [0, 1] }],
    params: of({ extras: ['mask'], scale: 0.1 }),
  },
  {
    inputs: [s(1, 3, 2, 160), s(1, 4, 2, 160), s(1, 4, 2, 160)],
    params: of({ layout: 'bthd', scale: 0.05, left: 2, right: 0 }),
  },
  { inputs: [s(1, 1, 3, 33), s(1, 1, 3, 33), s(1, 1, 3, 33)], params: of() }, // one number beyond a stage of 32
];
/** Keys and values in 8 bits: few queries, many, and in pages. */
export const kept = (...shape: number[]): readonly InputSpec[] => {
  const blocks: InputSpec = { shape: [...shape.slice(0, 3), (shape[3] / 32) * 34], dtype: 'u8', blocks: 'Q8_0' };
  return [{ shape, dtype: 'f8e4m3', domain: [-1, 1] }, blocks];
};
export const keptSamples = (): readonly Sample<SdpaParams>[] =>
  [0, 1].flatMap((i): Sample<SdpaParams>[] => {
    const like = (...shape: number[]): InputSpec[] => [kept(...shape)[i], kept(...shape)[i]];
    // Many queries read blocks in their own dtype, which rounds them if it is one of 16 bits.
    const many = (...shape: number[]): InputSpec => (i === 0 ? s(...shape) : { shape, dtype: 'f32' });
    return [
      { inputs: [s(2, 4, 1, 64), ...like(2, 2, 37, 64)], params: of({ right: 0, scale: 0.1 }) },
      { inputs: [many(1, 2, 9, 32), ...like(1, 1, 12, 32)], params: of({ right: 0, scale: 0.2, softcap: 2 }) },
      {
        inputs: [s(2, 1, 4, 32), ...like(5, 8, 2, 32), lengths(20, 9), pageTable(2, 3, 4, 0, 2, 1, 3, 0)],
        params: of({ layout: 'bthd', right: 0, scale: 0.2, extras: ['lengths', 'pages'] }),
      },
      {
        inputs: [many(2, 2, 6, 96), ...like(5, 1, 8, 96), lengths(20, 9), pageTable(2, 3, 4, 0, 2, 1, 3, 0)],
        params: of({ right: 0, scale: 0.1, extras: ['lengths', 'pages'] }),
      },
    ];
  });
/** Each with delta, and where scores are plain with a result in its place. */
export const backwardSamples = (): readonly Sample<SdpaParams>[] =>
  samples()
    .filter(({ params }) => !params.extras.includes('lengths'))
    .flatMap(({ inputs: [q, k, v, ...rest], params }) => {
      const { batch, heads, rows: n } = sizesOf(q.shape, params.layout);
      const wide: InputSpec = { shape: [batch, heads, n], domain: [0.5, 1.5] };
      const given = rest.length === 0 && params.softcap === 0 ? [wide, q] : [wide];
      return given.map((x) => ({ inputs: [q, k, v, q, wide, x, ...rest], params }));
    });
