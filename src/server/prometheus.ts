// Figures in the text format that Prometheus reads: counters, histograms, and gauges that are asked when somebody
// reads.

/** What tells the series of one figure apart, by name. */
export type Labels = Readonly<Record<string, string>>;
interface Figure {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly lines: () => Iterable<string>;
}

const escaped = (text: string): string => text.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n');
const shown = (value: number): string => (Math.abs(value) === Infinity ? `${value > 0 ? '+' : '-'}Inf` : String(value));
const line = (name: string, labels: Labels, value: number): string => {
  const list = Object.entries(labels).map(([key, text]) => `${key}="${escaped(text)}"`);
  return `${name}${list.length > 0 ? `{${list.join(',')}}` : ''} ${shown(value)}`;
};

/** One value for each set of labels that came up. */
class Series<T> {
  readonly #known = new Map<string, { readonly labels: Labels; readonly value: T }>();
  readonly #first: () => T;
  constructor(first: () => T) {
    this.#first = first;
  }
  of(labels: Labels): T {
    const key = JSON.stringify(labels);
    let found = this.#known.get(key);
    if (!found) this.#known.set(key, (found = { labels, value: this.#first() }));
    return found.value;
  }
  [Symbol.iterator](): Iterator<{ readonly labels: Labels; readonly value: T }> {
    return this.#known.values();
  }
}

/** All figures of a program. */
export class Figures {
  readonly contentType = 'text/plain; version=0.0.4; charset=utf-8';
  readonly #all: Figure[] = [];

  /** What only grows. */
  counter(name: string, help: string): (labels: Labels, by?: number) => void {
    const series = new Series(() => ({ sum: 0 }));
    const lines = (): string[] => [...series].map(({ labels, value }) => line(name, labels, value.sum));
    this.#all.push({ name, help, type: 'counter', lines });
    return (labels, by = 1) => {
      series.of(labels).sum += by;
    };
  }
  /** What is as it is when somebody asks. */
  gauge(name: string, help: string, labels: Labels, read: () => number): void {
    this.#all.push({ name, help, type: 'gauge', lines: () => [line(name, labels, read())] });
  }
  /** How many values were at most as large as each bound, their number and their sum. */
  histogram(name: string, help: string, bounds: readonly number[]): (labels: Labels, value: number) => void {
    const limits = [...bounds, Infinity];
    const series = new Series(() => ({ within: limits.map(() => 0), sum: 0 }));
    const lines = (): string[] =>
      [...series].flatMap(({ labels, value: { within, sum } }) => [
        ...limits.map((bound, i) => line(`${name}_bucket`, { le: shown(bound), ...labels }, within[i])),
        line(`${name}_sum`, labels, sum),
        line(`${name}_count`, labels, within[limits.length - 1]),
      ]);
    this.#all.push({ name, help, type: 'histogram', lines });
    return (labels, value) => {
      const seen = series.of(labels);
      seen.sum += value;
      for (let i = limits.length - 1; i >= 0 && value <= limits[i]; i--) seen.within[i]++;
    };
  }
  text(): string {
    return this.#all
      .map(({ name, help, type, lines }) => [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines(), ''])
      .map((group) => `${group.join('\n')}\n`)
      .join('');
  }
}
