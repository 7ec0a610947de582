// Many streams at once against a running server, some of them left at random: every byte is compared with what the same
// request gets alone.
import assert from 'node:assert/strict';
import type { Engine } from '../src/engine/request.js';
import { randomStream } from '../src/engine/sampler.js';

export interface SoakReport {
  readonly whole: number;
  readonly left: number;
  /** Asked of the engine itself and cancelled there. */
  readonly cancelled: number;
  /** Sent again, since their connection was being closed. */
  readonly stale: number;
  readonly tokens: number;
  readonly seconds: number;
  /** What differed, in words. */
  readonly wrong: readonly string[];
  readonly pagesUsedBefore: number;
  readonly pagesUsed: number;
  /** Mebibytes of the process after the first requests, and at the end. */
  readonly memoryBefore: number;
  readonly memory: number;
}
interface Ask {
  readonly prompt: string;
  readonly seed: number;
  readonly max_tokens: number;
  readonly temperature: number;
  readonly top_p?: number;
  readonly repetition_penalty?: number;
}

/** Requests of many kinds, the same for the same seed. */
function asks(count: number): Ask[] {
  const random = randomStream(11);
  const names = ['ROMEO', 'JULIET', 'KING', 'First Citizen', 'NURSE', 'GLOUCESTER'];
  return Array.from({ length: count }, (_, i) => ({
    prompt: `${names[i % names.length]}:\n${'What light is this that breaks? '.repeat(Math.floor(random() * 4))}`,
    seed: i,
    max_tokens: 8 + Math.floor(random() * 48),
    temperature: i % 4 === 0 ? 0 : 0.5 + random(),
    ...(i % 3 === 0 && { top_p: 0.9 }),
    ...(i % 5 === 0 && { repetition_penalty: 1.2 }),
  }));
}

/** Requests that were sent on a connection which the server was closing, and sent again. */
let stale = 0;
/** The text of a stream; left after so many chunks. */
async function readStream(
  url: string,
  ask: Ask,
  leaveAfter: number,
): Promise<{ text: string; over: boolean; tokens: number }> {
  const leave = new AbortController();
  let [text, chunks, buffer] = ['', 0, ''];
  try {
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...ask, stream: true, stream_options: { include_usage: true } }),
      signal: leave.signal,
    });
    // Node closes a connection that brought no request for a minute (left ones do that) with this answer, and a client
    // may take it for the answer to a request that it sends at that moment; clients try again.
    if (response.status === 408) {
      stale++;
      return await readStream(url, ask, leaveAfter);
    }
    assert.equal(response.status, 200);
    let tokens = 0;
    for await (const bytes of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      buffer += bytes;
      for (let end = buffer.indexOf('\n\n'); end >= 0; end = buffer.indexOf('\n\n')) {
        const frame = buffer.slice(0, end);
        buffer = buffer.slice(end + 2);
        if (!frame.startsWith('data: {')) continue;
        const chunk = JSON.parse(frame.slice(6));
        assert.ok(!chunk.error, JSON.stringify(chunk));
        text += chunk.choices[0]?.text ?? '';
        tokens = chunk.usage?.completion_tokens ?? tokens;
        if (++chunks === leaveAfter) {
          leave.abort();
          return { text, over: false, tokens: 0 };
        }
      }
    }
    return { text, over: true, tokens };
  } catch (error) {
    if (!leave.signal.aborted) throw error;
    return { text, over: false, tokens: 0 };
  }
}

/** The same asked of the engine itself, and cancelled after so many pieces. */
async function readCancelled(engine: Engine, ask: Ask, cancelAfter: number): Promise<{ text: string; over: boolean }> {
  const generation = engine.submit({
    prompt: engine.tokenizer.encode(ask.prompt),
    maxTokens: ask.max_tokens,
    ...{ seed: ask.seed, temperature: ask.temperature, topP: ask.top_p, repetitionPenalty: ask.repetition_penalty },
  });
  let [text, pieces, over] = ['', 0, true];
  for await (const piece of generation) {
    text += piece.text;
    if (++pieces === cancelAfter) generation.cancel();
    if (piece.finish === 'aborted') over = false;
  }
  return { text, over };
}

/**
 * For so many seconds, and until `least` requests were made: a test counts those, whatever the machine does besides.
 */
export async function soak(
  url: string,
  engine: Engine,
  o: { seconds: number; streams: number; least?: number; requests?: number; onProgress?: (line: string) => void },
): Promise<SoakReport> {
  const list = asks(o.requests ?? 24);
  const pagesUsedBefore = engine.status().pagesUsed;
  const alone: string[] = [];
  for (const ask of list) alone.push((await readStream(url, ask, Infinity)).text);
  const mebibytes = (): number => {
    (globalThis as { gc?: () => void }).gc?.();
    return Math.round(process.memoryUsage.rss() / 2 ** 20);
  };
  const wrong: string[] = [];
  let [whole, left, cancelled, tokens] = [0, 0, 0, 0];
  const check = (i: number, got: { readonly text: string; readonly over: boolean }): void => {
    const same = got.over ? got.text === alone[i] : alone[i].startsWith(got.text);
    if (!same) wrong.push(`request ${i}: ${JSON.stringify(got.text)} is not ${JSON.stringify(alone[i])}`);
  };
  const random = randomStream(5);
  const begin = performance.now();
  let asked = 0;
  const lap = async (until: number): Promise<void> => {
    await Promise.all(
      Array.from({ length: o.streams }, async () => {
        while (performance.now() < until || asked < (o.least ?? 0)) {
          asked++;
          const i = Math.floor(random() * list.length);
          const kind = random();
          const after = 1 + Math.floor(random() * 20);
          if (kind < 0.1) {
            const got = await readCancelled(engine, list[i], after);
            check(i, got);
            cancelled++;
            continue;
          }
          const got = await readStream(url, list[i], kind < 0.4 ? after : Infinity);
          check(i, got);
          got.over ? whole++ : left++;
          tokens += got.tokens;
        }
      }),
    );
  };
  await lap(begin + o.seconds * 200);
  const memoryBefore = mebibytes();
  for (let part = 1; part <= 4; part++) {
    await lap(begin + o.seconds * (200 + part * 200));
    const { running, waiting, pagesUsed } = engine.status();
    o.onProgress?.(
      `${Math.round((performance.now() - begin) / 1000)} s: ${whole} whole, ${left} left, ${cancelled} cancelled, ` +
        `${wrong.length} wrong; ${running} running, ${waiting} waiting, ${pagesUsed} pages, ${mebibytes()} MiB`,
    );
  }
  for (let i = 0; i < 6000 && engine.status().running + engine.status().waiting > 0; i++)
    await new Promise((r) => setTimeout(r, 10));
  return {
    whole,
    left,
    cancelled,
    stale,
    tokens,
    seconds: (performance.now() - begin) / 1000,
    wrong,
    pagesUsedBefore,
    pagesUsed: engine.status().pagesUsed,
    memoryBefore,
    memory: mebibytes(),
  };
}
