// A chat over a WebSocket: every connection is a conversation, text streams as it is written, and who goes away ends
// the work. The page at / speaks to it; so does any client that sends {"text": "..."}.
//   node dist/examples/websocket-chat.js [--port N] [--model NAME] [--once TEXT]
import { on, once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { parseArgs } from 'node:util';
import { LanguageModel } from 'wick/engine';
import type { ChatMessage } from 'wick/tokenizers';
import { type RawData, WebSocket, WebSocketServer } from 'ws';

const { values: v } = parseArgs({
  options: { port: { type: 'string', default: '3000' }, model: { type: 'string' }, once: { type: 'string' } },
});
const model = await LanguageModel.load(v.model); // the built-in one; a folder, a .gguf file or owner/name elsewhere

function converse(socket: WebSocket): void {
  const messages: ChatMessage[] = [];
  let under: { cancel(): void } | undefined;
  const send = (what: object): void => socket.send(JSON.stringify(what));
  socket.on('close', () => under?.cancel());
  socket.on('message', async (data: RawData) => {
    try {
      if (under) return send({ error: 'one message at a time: the answer is not done' });
      const { text } = JSON.parse(String(data)) as { text?: unknown };
      if (typeof text !== 'string') return send({ error: 'send {"text": "..."}' });
      messages.push({ role: 'user', content: text });
      const reply = model.chat(messages, { maxTokens: 200, temperature: 0.7, seed: 1 });
      under = reply;
      let written = '';
      for await (const piece of reply) {
        written += piece;
        send({ piece });
      }
      messages.push({ role: 'assistant', content: written });
      send({ done: (await reply.done).reason });
    } catch (e) {
      send({ error: (e as Error).message });
    } finally {
      under = undefined;
    }
  });
}

const PAGE = `<!doctype html><meta charset="utf-8"><title>chat</title>
<pre id="log"></pre><form><input id="text" size="60" autofocus><button>send</button></form>
<script type="module">
  const socket = new WebSocket(location.origin.replace('http', 'ws'));
  const show = (s) => (log.textContent += s);
  socket.onmessage = ({ data }) => {
    const { piece, error, done } = JSON.parse(data);
    show(piece ?? (error ? '[' + error + ']\\n' : done ? '\\n' : ''));
  };
  document.forms[0].onsubmit = (e) => {
    e.preventDefault();
    show('> ' + text.value + '\\n');
    socket.send(JSON.stringify({ text: text.value }));
    text.value = '';
  };
</script>`;
const server = createServer((_, res) => res.setHeader('content-type', 'text/html').end(PAGE));
const sockets = new WebSocketServer({ server, maxPayload: 1 << 16 });
sockets.on('connection', converse);
server.listen(v.once === undefined ? Number(v.port) : 0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as AddressInfo;

if (v.once === undefined) console.log(`http://127.0.0.1:${port}`);
else {
  const client = new WebSocket(`ws://127.0.0.1:${port}`);
  await once(client, 'open');
  const heard = on(client, 'message') as AsyncIterable<[RawData]>;
  client.send(JSON.stringify({ text: v.once }));
  let pieces = 0;
  for await (const [data] of heard) {
    const { piece, done, error } = JSON.parse(String(data)) as { piece?: string; done?: string; error?: string };
    if (piece !== undefined && ++pieces) process.stdout.write(piece);
    if (error !== undefined) throw new Error(error);
    if (done !== undefined) {
      console.log(`\n${pieces} pieces, ended by ${done}`);
      break;
    }
  }
  client.close();
  sockets.close();
  server.close();
  model.dispose();
}
