// How far a run is, on the error stream: one line drawn over itself; without a terminal, a line now and then.

/** A bar for one run of so many steps. */
export class Progress {
  readonly #total: number;
  readonly #begin = performance.now();
  #shown = -Infinity;
  #open = false;
  constructor(total: number) {
    this.#total = total;
  }
  /** Shows a step and what there is to say about it. */
  show(step: number, text: string): void {
    const now = performance.now();
    const tty = process.stderr.isTTY === true;
    if (step < this.#total && now - this.#shown < (tty ? 100 : 5000)) return;
    this.#shown = now;
    const seconds = (now - this.#begin) / 1000;
    const left = step > 0 ? (seconds / step) * (this.#total - step) : 0;
    const width = 24;
    const done = Math.min(width, Math.round((width * step) / Math.max(1, this.#total)));
    const line =
      `[${'#'.repeat(done)}${'.'.repeat(width - done)}] ${step}/${this.#total} ${text} ` +
      `${seconds.toFixed(0)} s, ${left.toFixed(0)} s left`;
    this.#open = tty && step < this.#total;
    process.stderr.write(tty ? `\r\x1b[2K${line}${this.#open ? '' : '\n'}` : `${line}\n`);
  }
  /** Ends the line. */
  end(): void {
    if (this.#open) process.stderr.write('\n');
    this.#open = false;
  }
}
