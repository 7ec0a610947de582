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
/** What the server says went wrong; of what its log tells more, with the id that it stands under there. */
function told(response, error, status) {
  const id = status >= 500 && response.headers.get('x-request-id');
  const message = error?.message ?? `the server answered ${status}`;
  return new ServerError(id ? `${message}: ${id}` : message, status, error?.code);
}
async function failed(response) {
  const body = await response.json().catch(() => ({}));
  return told(response, body.error, response.status);
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
  let whole = false;
  for await (const data of events(response.body)) {
    whole = data === '[DONE]';
    if (whole) break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw told(response, chunk.error, 500);
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
  if (!whole) throw new ServerError('the answer was cut off on its way', 502);
  result.seconds = first ? (performance.now() - first) / 1000 : 0;
  return result;
}
