// Counters for Prometheus. Gateways that spread requests over replicas read vLLM's names, so these are offered as they
// are.
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Engine, Usage } from '../engine/request.js';

const labelNames = ['model_name'] as const;
const LATENCY = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const BETWEEN = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5];

export class Metrics {
  readonly #registry = new Registry();
  readonly #firstToken = this.#histogram('vllm:time_to_first_token_seconds', 'Time to the first token.', LATENCY);
  readonly #between = this.#histogram('vllm:inter_token_latency_seconds', 'Time between tokens.', BETWEEN);
  readonly #whole = this.#histogram('vllm:e2e_request_latency_seconds', 'Time of whole answers.', LATENCY);
  readonly #queued = this.#histogram('vllm:request_queue_time_seconds', 'Time that requests waited.', LATENCY);
  readonly #prompt = this.#counter('vllm:prompt_tokens_total', 'Tokens of prompts.');
  readonly #written = this.#counter('vllm:generation_tokens_total', 'Tokens that were written.');
  readonly #cached = this.#counter(
    'wick_cached_prompt_tokens_total',
    'Tokens of prompts that were not computed again.',
  );
  readonly #finished = new Counter({
    name: 'vllm:request_success_total',
    help: 'Answers that ended, by the reason.',
    labelNames: [...labelNames, 'finished_reason'],
    registers: [this.#registry],
  });
  readonly #responses = new Counter({
    name: 'wick_http_responses_total',
    help: 'Responses by path and status.',
    labelNames: ['path', 'status'],
    registers: [this.#registry],
  });

  constructor(engine: Engine | undefined) {
    if (!engine) return;
    const read = (name: string, help: string, value: () => number): void => {
      const gauge: Gauge = new Gauge({
        name,
        help,
        labelNames,
        registers: [this.#registry],
        collect: () => gauge.set({ model_name: engine.name }, value()),
      });
    };
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
  #histogram(name: string, help: string, buckets: number[]): Histogram<'model_name'> {
    return new Histogram({ name, help, buckets, labelNames, registers: [this.#registry] });
  }
  #counter(name: string, help: string): Counter<'model_name'> {
    return new Counter({ name, help, labelNames, registers: [this.#registry] });
  }

  firstToken(model: string, seconds: number): void {
    this.#firstToken.observe({ model_name: model }, seconds);
  }
  /** Tokens that came joined share the time since the last ones. */
  nextTokens(model: string, seconds: number, tokens: number): void {
    this.#between.observe({ model_name: model }, seconds / tokens);
  }
  finished(model: string, reason: string): void {
    this.#finished.inc({ model_name: model, finished_reason: reason });
  }
  used(model: string, usage: Usage, seconds: number): void {
    const labels = { model_name: model };
    this.#prompt.inc(labels, usage.promptTokens);
    this.#written.inc(labels, usage.tokens);
    this.#cached.inc(labels, usage.cachedTokens);
    this.#queued.observe(labels, usage.queuedSeconds);
    this.#whole.observe(labels, seconds);
  }
  responded(path: string, status: number): void {
    this.#responses.inc({ path, status: String(status) });
  }
  get contentType(): string {
    return this.#registry.contentType;
  }
  text(): Promise<string> {
    return this.#registry.metrics();
  }
}
