// A request while it runs: its answers, where they go and its times.
import type { GenerationRequest, Usage } from './request.js';
import type { Sequence } from './sequence.js';
import type { PieceSink } from './stream.js';

/** What a request knows of its answers: what they have shown, and how they are made to show the rest. */
interface Shown {
  readonly sequence: Sequence;
  readonly shownTokens: number;
  flush(): void;
}
export class Request<A extends Shown = Shown> {
  readonly id: number;
  readonly asked: GenerationRequest;
  readonly answers: A[] = [];
  readonly sink: PieceSink;
  readonly #arrived = performance.now();
  #begun: number | undefined;
  #first: number | undefined;

  constructor(id: number, asked: GenerationRequest, sink: PieceSink) {
    this.id = id;
    this.asked = asked;
    this.sink = sink;
  }
  /** Its first tokens are computed. */
  begin(now: number): void {
    this.#begun ??= now;
  }
  /** Sends what its answers have gathered. */
  flush(): void {
    for (const answer of this.answers) answer.flush();
    if (this.answers.some((a) => a.sequence.written > 0)) this.#first ??= performance.now();
  }
  get seconds(): number {
    return (performance.now() - this.#arrived) / 1000;
  }
  end(error?: unknown): void {
    this.flush();
    this.sink.end(this.#usage(), error);
  }
  #usage(): Usage {
    const now = performance.now();
    const begun = this.#begun ?? now;
    const first = this.#first ?? now;
    return {
      promptTokens: this.asked.prompt.length,
      cachedTokens: this.answers[0].sequence.cached ?? 0,
      tokens: this.answers.reduce((n, a) => n + a.shownTokens, 0),
      queuedSeconds: (begun - this.#arrived) / 1000,
      prefillSeconds: Math.max(0, first - begun) / 1000,
      decodeSeconds: Math.max(0, now - first) / 1000,
    };
  }
}
