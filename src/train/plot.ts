// Curves of a run as SVG: lines over steps with axes and a legend.
import { ArgumentError } from '../base/errors.js';
import { writeAtomic } from '../io/atomic-file.js';

/** A named line. */
export interface Series {
  /** What the legend calls it. */
  readonly name: string;
  /** Points [x, y], in order. */
  readonly points: readonly (readonly [x: number, y: number])[];
}
/** How a plot is drawn. */
export interface PlotOptions {
  /** What stands above it. */
  readonly title?: string;
  /** What stands below the x axis; default 'steps'. */
  readonly xLabel?: string;
  /** Powers of ten instead of even steps on the y axis; default false. */
  readonly logY?: boolean;
}

const COLOURS = ['#4269d0', '#ff725c', '#3ca951', '#efb118', '#9c6b4e', '#a463f2'];
const escaped = (text: string): string =>
  text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c] as string);
const label = (v: number): string =>
  v === 0 || (Math.abs(v) >= 0.01 && Math.abs(v) < 1e5) ? v.toFixed(2) : v.toExponential(1);

/** The plot as the text of an SVG file; points that are not finite numbers are left out. */
export function plotSvg(series: readonly Series[], options: PlotOptions = {}): string {
  const { title = '', xLabel = 'steps', logY = false } = options;
  const [w, h, left, bottom, top] = [760, 420, 64, 44, 40];
  const seen = series.map((s) => ({
    ...s,
    points: s.points.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y) && (!logY || y > 0)),
  }));
  const all = seen.flatMap((s) => s.points);
  if (all.length === 0) throw new ArgumentError('plot: there is no finite point to draw');
  const scale = (y: number): number => (logY ? Math.log10(y) : y);
  let [minX, maxX, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const [x, y] of all) {
    [minX, maxX] = [Math.min(minX, x), Math.max(maxX, x)];
    [low, high] = [Math.min(low, scale(y)), Math.max(high, scale(y))];
  }
  minX = Math.min(minX, 0);
  const [spanX, span] = [maxX - minX || 1, high - low || 1];
  const px = (x: number): number => left + ((x - minX) / spanX) * (w - left - 20);
  const py = (y: number): number => top + ((high - y) / span) * (h - top - bottom);
  const lines = seen.map((s, i) => {
    const colour = COLOURS[i % COLOURS.length];
    const path = s.points.map(([x, y]) => `${px(x).toFixed(1)},${py(scale(y)).toFixed(1)}`).join(' ');
    return (
      `<polyline fill="none" stroke="${colour}" stroke-width="1.5" points="${path}"/>` +
      `<text x="${w - 150}" y="${top + 18 * (i + 1)}" fill="${colour}">${escaped(s.name)}</text>`
    );
  });
  const ticks = Array.from({ length: 6 }, (_, i) => {
    const y = low + (span * i) / 5;
    const x = minX + (spanX * i) / 5;
    const at = py(y).toFixed(1);
    return (
      `<line x1="${left}" x2="${w - 20}" y1="${at}" y2="${at}" stroke="#ddd"/>` +
      `<text x="${left - 8}" y="${(py(y) + 4).toFixed(1)}" text-anchor="end">${label(logY ? 10 ** y : y)}</text>` +
      `<text x="${px(x).toFixed(1)}" y="${h - bottom + 18}" text-anchor="middle">${Math.round(x)}</text>`
    );
  });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${w} ${h}" font-family="sans-serif" ` +
    `font-size="12"><rect width="${w}" height="${h}" fill="#fff"/>` +
    `<text x="${left}" y="22" font-size="15">${escaped(title)}</text><text x="${w / 2}" y="${h - 8}" ` +
    `text-anchor="middle">${escaped(xLabel)}</text>${ticks.join('')}${lines.join('')}</svg>\n`
  );
}
/** Writes the plot to a file. */
export function writePlot(path: string, series: readonly Series[], options: PlotOptions = {}): void {
  const text = plotSvg(series, options);
  writeAtomic(path, (write) => write(new TextEncoder().encode(text)));
}
