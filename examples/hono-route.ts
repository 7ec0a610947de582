// A language model behind a route of Hono (the same handler serves Next.js): text streams as it is written.
//   node dist/examples/hono-route.js [--port N] [--once PROMPT]
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { Hono } from 'hono';
import { LanguageModel } from 'wick/engine';

const { values: v } = parseArgs({ options: { port: { type: 'string', default: '3000' }, once: { type: 'string' } } });
const model = await LanguageModel.load(); // the built-in one; a folder, a .gguf file or owner/name elsewhere

const app = new Hono();
app.post('/generate', async (c) => {
  const { prompt = '', maxTokens = 60 } = await c.req.json<{ prompt?: string; maxTokens?: number }>();
  const pieces = model
    .generate(String(prompt), { maxTokens: Math.min(500, maxTokens), seed: 1 })
    [Symbol.asyncIterator]();
  const body = new ReadableStream<Uint8Array>({
    async pull(out) {
      const { value, done } = await pieces.next();
      if (done) out.close();
      else out.enqueue(new TextEncoder().encode(value));
    },
    async cancel() {
      await pieces.return?.(undefined as never); // whoever goes away ends the work
    },
  });
  return new Response(body, { headers: { 'content-type': 'text/plain; charset=utf-8' } });
});

if (v.once !== undefined) {
  const answer = await app.request('/generate', {
    method: 'POST',
    body: JSON.stringify({ prompt: v.once, maxTokens: 20 }),
  });
  console.log(answer.status, JSON.stringify(await answer.text()));
} else {
  createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const part of req) chunks.push(part as Buffer);
    const body = req.method === 'GET' ? undefined : Buffer.concat(chunks);
    const answer = await app.fetch(
      new Request(`http://localhost${req.url}`, { method: req.method ?? 'GET', ...(body && { body }) }),
    );
    res.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) for await (const part of answer.body) res.write(part);
    res.end();
  }).listen(Number(v.port), () => console.log(`POST http://localhost:${v.port}/generate {"prompt": "ROMEO:"}`));
}
