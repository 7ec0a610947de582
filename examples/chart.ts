// What the examples draw: a progress line on stderr and a curve as SVG.
import { writeFileSync } from 'node:fs';

export interface Series {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

const COLOURS = ['#4269d0', '#ff725c', '#3ca951'];

/** Lines over steps with axes and a legend. */
export function writeCurve(path: string, title: string, series: readonly Series[]): void {
  const [w, h, left, bottom, top] = [760, 420, 60, 44, 40];
  const all = series.flatMap((s) => s.points).filter(([, y]) => Number.isFinite(y));
  if (all.length === 0) return;
  const maxX = Math.max(1, ...all.map(([x]) => x));
  const [low, high] = [Math.min(...all.map(([, y]) => y)), Math.max(...all.map(([, y]) => y))];
  const span = high - low || 1;
  const px = (x: number): number => left + (x / maxX) * (w - left - 20);
  const py = (y: number): number => top + ((high - y) / span) * (h - top - bottom);
  const lines = series.map(
    (s, i) =>
      `<polyline fill="none" stroke="${COLOURS[i % COLOURS.length]}" stroke-width="1.5" points="${s.points
        .filter(([, y]) => Number.isFinite(y))
        .map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`)
        .join(' ')}"/>` +
      `<text x="${w - 150}" y="${top + 18 * (i + 1)}" fill="${COLOURS[i % COLOURS.length]}">${s.name}</text>`,
  );
  const ticks = Array.from({ length: 6 }, (_, i) => {
    const y = low + (span * i) / 5;
    const x = (maxX * i) / 5;
    const at = py(y).toFixed(1);
    return (
      `<line x1="${left}" x2="${w - 20}" y1="${at}" y2="${at}" stroke="#ddd"/><text x="${left - 8}" y="${(py(y) + 4).toFixed(1)}" text-anchor="end">${y.toFixed(2)}</text>` +
      `<text x="${px(x).toFixed(1)}" y="${h - bottom + 18}" text-anchor="middle">${Math.round(x)}</text>`
    );
  });
  writeFileSync(
    path,
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${w} ${h}" font-family="sans-serif" font-size="12"><rect width="${w}" height="${h}" fill="#fff"/>` +
      `<text x="${left}" y="22" font-size="15">${title}</text><text x="${w / 2}" y="${h - 8}" text-anchor="middle">steps</text>${ticks.join('')}${lines.join('')}</svg>\n`,
  );
}

/** One line that is written over; on a file, a line now and then. */
export class Progress {
  readonly #total: number;
  readonly #begin = performance.now();
  #shown = 0;
  constructor(total: number) {
    this.#total = total;
  }
  show(step: number, text: string): void {
    const now = performance.now();
    const tty = process.stderr.isTTY === true;
    if (step < this.#total && now - this.#shown < (tty ? 100 : 5000)) return;
    this.#shown = now;
    const seconds = (now - this.#begin) / 1000;
    const left = step > 0 ? (seconds / step) * (this.#total - step) : 0;
    const width = 24;
    const done = Math.round((width * step) / this.#total);
    const line = `[${'#'.repeat(done)}${'.'.repeat(width - done)}] ${step}/${this.#total} ${text} ${seconds.toFixed(0)} s, ${left.toFixed(0)} s left`;
    process.stderr.write(tty ? `\r\x1b[2K${line}${step >= this.#total ? '\n' : ''}` : `${line}\n`);
  }
}
