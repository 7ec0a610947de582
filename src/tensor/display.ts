// PyTorch-like printing: aligned columns, long dimensions cut in the middle, shape and dtype at the end.
import { isFloat } from '../base/dtype.js';
import { formatShape } from '../base/shape.js';
import type { Tensor } from './tensor.js';

/** How tensors are printed. */
export interface PrintOptions {
  /** Digits after the point. */
  precision: number;
  /** From this many elements on, only edges are shown. */
  threshold: number;
  /** Elements shown at each edge of a large dimension. */
  edgeItems: number;
  /** Columns of a line. */
  lineWidth: number;
}
/** Set its fields to change how tensors are printed. */
export const printOptions: PrintOptions = { precision: 4, threshold: 1000, edgeItems: 3, lineWidth: 80 };

/** Picks one way of writing all numbers: whole, fixed or scientific. */
function formatter(values: readonly number[], float: boolean): (v: number) => string {
  const { precision } = printOptions;
  const special = (v: number): string | undefined =>
    v !== v ? 'nan' : v === Infinity ? 'inf' : v === -Infinity ? '-inf' : undefined;
  const sign = (v: number, s: string): string => (Object.is(v, -0) && !s.startsWith('-') ? `-${s}` : s);
  if (!float) return String;
  const finite = values.filter(Number.isFinite).map(Math.abs);
  const nonzero = finite.filter((v) => v > 0);
  const max = Math.max(0, ...nonzero);
  const min = nonzero.length ? Math.min(...nonzero) : 1;
  if (finite.every(Number.isInteger)) {
    return max >= 1e8 ? (v) => special(v) ?? v.toExponential(precision) : (v) => special(v) ?? sign(v, `${v}.`);
  }
  if (max >= 1e8 || min < 1e-4 || max / min > 1000) return (v) => special(v) ?? v.toExponential(precision);
  return (v) => special(v) ?? sign(v, v.toFixed(precision));
}

/** Which indices of a dimension are shown; -1 stands for the gap. */
function shown(n: number, cut: boolean): number[] {
  const { edgeItems: e } = printOptions;
  if (!cut || n <= 2 * e) return Array.from({ length: n }, (_, i) => i);
  return [...Array.from({ length: e }, (_, i) => i), -1, ...Array.from({ length: e }, (_, i) => n - e + i)];
}

export function display(t: Tensor): string {
  const cut = t.size >= printOptions.threshold;
  // Only what is shown is read: a large tensor on a device prints without travelling.
  let view = t.requiresGrad ? t.detach() : t;
  const picks = t.shape.map((n) => shown(n, cut));
  t.shape.forEach((n, d) => {
    if (picks[d].length === n) return;
    const e = printOptions.edgeItems;
    view = view.narrow(d, 0, e).cat([view.narrow(d, n - e, e)], d);
  });
  const values = Array.from(view.dataSync() as ArrayLike<number | bigint>);
  const exact = values.length > 0 && typeof values[0] === 'bigint';
  const truth = (v: number): string => (v ? 'true' : 'false');
  const write = exact ? String : t.dtype === 'bool' ? truth : formatter(values as number[], isFloat(t.dtype));
  const texts = values.map((v) => write(v as number));
  const width = Math.max(0, ...texts.map((s) => s.length));
  let at = 0;
  const block = (d: number, indent: number): string => {
    if (d === t.rank) return texts[at++].padStart(width);
    const cells = picks[d].map((i) => (i < 0 ? '...' : block(d + 1, indent + 1)));
    if (d === t.rank - 1) return `[${wrap(cells, indent + 1)}]`;
    const gap = `,\n${'\n'.repeat(t.rank - d - 2)}${' '.repeat(indent + 1)}`;
    return `[${cells.join(gap)}]`;
  };
  const body = t.rank === 0 ? texts[0] : block(0, 0);
  return (
    `${body}\nTensor ${formatShape(t.shape)} ` +
    `${t.dtype}${t.device.name === 'cpu' ? '' : ` ${t.device.name}`}${t.requiresGrad ? ' requiresGrad' : ''}`
  );
}

function wrap(cells: readonly string[], indent: number): string {
  const lines: string[] = [];
  let line = '';
  for (const c of cells) {
    if (line && indent + line.length + c.length + 2 > printOptions.lineWidth) {
      lines.push(line);
      line = c;
    } else line = line ? `${line}, ${c}` : c;
  }
  return [...lines, line].join(`,\n${' '.repeat(indent)}`);
}
