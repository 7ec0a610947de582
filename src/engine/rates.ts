// How fast an engine is at the moment, and what it did since its start.

const SECONDS = 10;

/** Sums over the last seconds, a second at a time. */
class Window {
  readonly #sums = new Float64Array(SECONDS);
  readonly #at = new Float64Array(SECONDS).fill(-1);
  total = 0;
  readonly #began = performance.now() / 1000;
  add(n: number): void {
    const second = Math.floor(performance.now() / 1000);
    const slot = second % SECONDS;
    if (this.#at[slot] !== second) [this.#at[slot], this.#sums[slot]] = [second, 0];
    this.#sums[slot] += n;
    this.total += n;
  }
  perSecond(): number {
    const now = performance.now() / 1000;
    let sum = 0;
    for (let i = 0; i < SECONDS; i++) if (this.#at[i] > now - SECONDS) sum += this.#sums[i];
    return sum / Math.min(SECONDS - 1, Math.max(1, now - this.#began));
  }
}

export class Rates {
  readonly #written = new Window();
  readonly #computed = new Window();
  #seconds = 1;
  wrote(tokens: number): void {
    this.#written.add(tokens);
  }
  computed(tokens: number): void {
    this.#computed.add(tokens);
  }
  /** A moving average of how long a request takes. */
  answered(seconds: number): void {
    this.#seconds += (seconds - this.#seconds) / 8;
  }
  secondsPerAnswer(): number {
    return this.#seconds;
  }
  now(): { tokensPerSecond: number; promptTokensPerSecond: number; tokens: number; promptTokens: number } {
    return {
      tokensPerSecond: this.#written.perSecond(),
      promptTokensPerSecond: this.#computed.perSecond(),
      tokens: this.#written.total,
      promptTokens: this.#computed.total,
    };
  }
}
