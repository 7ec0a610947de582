// What Prometheus is told. Gateways that spread requests over replicas read vLLM's names, so these are offered as they
// are.
import type { Engine, Usage } from '../engine/request.js';
import { Figures } from './prometheus.js';

const LATENCY = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const BETWEEN = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5];

export class Metrics {
  readonly #all = new Figures();
  readonly #firstToken = this.#all.histogram('vllm:time_to_first_token_seconds', 'Time to the first token.', LATENCY);
  readonly #between = this.#all.histogram('vllm:inter_token_latency_seconds', 'Time between tokens.', BETWEEN);
  readonly #whole = this.#all.histogram('vllm:e2e_request_latency_seconds', 'Time of whole answers.', LATENCY);
  readonly #queued = this.#all.histogram('vllm:request_queue_time_seconds', 'Time that requests waited.', LATENCY);
  readonly #prompt = this.#all.counter('vllm:prompt_tokens_total', 'Tokens of prompts.');
  readonly #written = this.#all.counter('vllm:generation_tokens_total', 'Tokens that were written.');
  readonly #cached = this.#all.counter(
    'wick_cached_prompt_tokens_total',
    'Tokens of prompts that were not computed again.',
  );
  readonly #finished = this.#all.counter('vllm:request_success_total', 'Answers that ended, by the reason.');
  readonly #responses = this.#all.counter('wick_http_responses_total', 'Responses by path and status.');

  constructor(engine: Engine | undefined) {
    if (!engine) return;
    const labels = { model_name: engine.name };
    const read = (name: string, help: string, value: () => number): void => this.#all.gauge(name, help, labels, value);
    const status = (): ReturnType<Engine['status']> => engine.status();
    read('vllm:num_requests_running', 'Requests that are being answered.', () => status().running);
    read('vllm:num_requests_waiting', 'Requests that wait.', () => status().waiting);
    read('vllm:kv_cache_usage_perc', 'Share of the pages for keys and values in use; 1 is all.', () => {
      const { pagesUsed, pagesTotal } = status();
      return pagesTotal > 0 ? pagesUsed / pagesTotal : 0;
    });
    read('wick_tokens_per_second', 'Tokens written a second, lately.', () => status().tokensPerSecond);
    read('wick_preemptions', 'Requests that lost their pages and were computed again.', () => status().preemptions);
    read('process_resident_memory_bytes', 'Memory of the process.', () => process.memoryUsage.rss());
  }

  firstToken(model: string, seconds: number): void {
    this.#firstToken({ model_name: model }, seconds);
  }
  /** Tokens that came joined share the time since the last ones. */
  nextTokens(model: string, seconds: number, tokens: number): void {
    this.#between({ model_name: model }, seconds / tokens);
  }
  finished(model: string, reason: string): void {
    this.#finished({ model_name: model, finished_reason: reason });
  }
  used(model: string, usage: Usage, seconds: number): void {
    const labels = { model_name: model };
    this.#prompt(labels, usage.promptTokens);
    this.#written(labels, usage.tokens);
    this.#cached(labels, usage.cachedTokens);
    this.#queued(labels, usage.queuedSeconds);
    this.#whole(labels, seconds);
  }
  responded(path: string, status: number): void {
    this.#responses({ path, status: String(status) });
  }
  get contentType(): string {
    return this.#all.contentType;
  }
  text(): string {
    return this.#all.text();
  }
}
