// Calls to the server that the page came from.

export const keyOf = () => localStorage.getItem('wick.key') ?? '';
const headers = () => (keyOf() ? { authorization: `Bearer ${keyOf()}` } : {});

export class ServerError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}
async function failed(response) {
  const body = await response.json().catch(() => ({}));
  const message = body.error?.message ?? `the server answered ${response.status}`;
  return new ServerError(message, response.status, body.error?.code);
}

export async function get(path) {
  const response = await fetch(path, { headers: headers() });
  if (!response.ok) throw await failed(response);
  return response.json();
}

/** Server-sent events of a response, the data of each. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const frame = text.slice(0, end);
      text = text.slice(end + 2);
      if (frame.startsWith('data: ')) yield frame.slice(6);
    }
  }
}

/** An answer as it comes: told piece by piece, then what it took. */
export async function streamChat(request, signal, onDelta) {
  const begin = performance.now();
  const response = await fetch('/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers() },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await failed(response);
  const result = { finish: null, usage: null, firstMs: null, seconds: 0 };
  let first = 0;
  for await (const data of events(response.body)) {
    if (data === '[DONE]') break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message, 500, chunk.error.code);
    if (chunk.usage) result.usage = chunk.usage;
    const [choice] = chunk.choices;
    if (!choice) continue;
    const { content, reasoning } = choice.delta;
    if ((content || reasoning) && first === 0) {
      first = performance.now();
      result.firstMs = first - begin;
    }
    if (content || reasoning) onDelta({ content: content ?? '', reasoning: reasoning ?? '' });
    result.finish = choice.finish_reason ?? result.finish;
  }
  result.seconds = first ? (performance.now() - first) / 1000 : 0;
  return result;
}
