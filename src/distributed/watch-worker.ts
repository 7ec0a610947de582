// The thread beside every rank of a run over several processes: it holds the socket to rank 0, where the hub is,
// carries exchanges, and when a rank has gone says so and ends this process, whatever the main thread is busy with.
import { writeSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';
import { deliver } from './hub-client.js';
import { Hub, type Reply, type Request } from './hub.js';
import { FrameReader, type Frame, writeFrame } from './frames.js';
import { ENDED, LEFT, STATE, type WatchMessage, type WatchStart } from './watch.js';

const { rank, size, host, at, timeoutMs, meetMs, silenceMs, job, words, port } = workerData as WatchStart;
const PROCESS_ENDED = 'has gone: its process ended';
/** Ranks that said goodbye, or whose end was told already. */
const left = new Set<number>();
let ended = false;

/** The sentence, and the end: by a signal, since the main thread may be deep in a library's call. */
function end(text: string): void {
  if (ended) return;
  ended = true;
  Atomics.store(words, STATE, ENDED);
  writeSync(2, `wick: rank ${rank} of ${size} ends: ${text}\n`);
  process.kill(process.pid, 'SIGTERM');
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), 3000);
}
// A watch that has failed watches nobody: this rank must not go on without one.
process.on('uncaughtException', (e) => end(`its watch failed: ${e.message}`));
const tell = (m: WatchMessage): void => parentPort?.postMessage(m);
const reply = (r: Reply): void => deliver(port, words, r);

// ---- rank 0: the hub and everyone's sockets ----
const sockets = new Map<number, Socket>();
function gone(who: number, why: string): void {
  if (left.has(who)) return;
  left.add(who);
  const text = `rank ${who} ${why}`;
  for (const [other, socket] of sockets) if (other !== who) writeFrame(socket, { kind: 'gone', text });
  setTimeout(() => end(text), 100); // the others are told first
}
const sendTo = (to: number, r: Reply): void => {
  if (to === rank) return reply(r);
  const socket = sockets.get(to);
  if (!socket) return;
  if (r.kind === 'all') writeFrame(socket, { kind: r.kind, group: r.group }, r.parts);
  else if (r.kind === 'sent') writeFrame(socket, { kind: r.kind, from: r.from, tag: r.tag }, [r.bytes]);
  else writeFrame(socket, { kind: r.kind, text: r.text });
};
const hub = rank === 0 ? new Hub(timeoutMs, sendTo) : undefined;
const asRequest = ({ head, parts }: Frame): Request =>
  head.kind === 'send'
    ? { kind: 'send', to: head.to as number, tag: head.tag as string, bytes: parts[0] }
    : {
        kind: 'exchange',
        group: head.group as string,
        members: head.members as number[],
        what: head.what as string,
        bytes: parts[0],
      };

/** Why a caller is none of this run's ranks, or not one that is missing. */
function refusal(head: Readonly<Record<string, unknown>>): string | undefined {
  const rank = head.rank as number;
  if (head.kind !== 'hello' || head.job !== job || head.size !== size) return `this is a run of ${size} ranks (${job})`;
  if (!(Number.isInteger(rank) && rank > 0 && rank < size) || sockets.has(rank))
    return `there is a rank ${rank} already, or there can be none`;
  return undefined;
}
/** All ranks must have come by then. */
function endMeeting(): void {
  if (sockets.size === size - 1) return;
  const missing = Array.from({ length: size - 1 }, (_, i) => i + 1).filter((r) => !sockets.has(r));
  const text = `rank ${missing.join(', ')} did not come to ${host}:${at} within ${meetMs / 1000} s`;
  for (const s of sockets.values()) writeFrame(s, { kind: 'refused', text });
  tell({ kind: 'failed', text });
}
/** A call of another rank: who it is, what it asks, and when it goes. */
function attend(socket: Socket): void {
  let who: number | undefined;
  let heard = Date.now();
  socket.setNoDelay(true);
  const reader = new FrameReader((frame) => {
    heard = Date.now();
    const { head } = frame;
    if (who === undefined) {
      const wrong = refusal(head);
      if (wrong) {
        writeFrame(socket, { kind: 'refused', text: wrong });
        socket.end();
        return;
      }
      who = head.rank as number;
      sockets.set(who, socket);
      if (sockets.size === size - 1) {
        for (const s of sockets.values()) writeFrame(s, { kind: 'ready' });
        tell({ kind: 'ready' });
      }
    } else if (head.kind === 'bye') {
      left.add(who);
      writeFrame(socket, { kind: 'bye' });
    } else if (head.kind === 'failing') gone(who, String(head.why));
    else if (head.kind === 'send' || head.kind === 'exchange') hub?.receive(who, asRequest(frame));
  });
  socket.on('data', (chunk) => {
    try {
      reader.push(chunk);
    } catch (e) {
      socket.destroy(e as Error); // a stranger, or a broken wire
    }
  });
  const lost = (why: string): void => {
    if (who !== undefined) gone(who, why);
  };
  // A process that is killed with bytes unread resets its connection; one with none closes it.
  socket.on('error', (e: NodeJS.ErrnoException) =>
    lost(e.code === 'ECONNRESET' || e.code === 'EPIPE' ? PROCESS_ENDED : 'has gone: its connection broke'),
  );
  socket.on('close', () => lost(PROCESS_ENDED));
  const beat = setInterval(() => {
    if (socket.destroyed) return clearInterval(beat);
    writeFrame(socket, { kind: 'beat' });
    if (Date.now() - heard > silenceMs) lost(`has been silent for ${silenceMs / 1000} s`);
  }, 1000);
  beat.unref();
}
function serve(): void {
  const server = createServer(attend);
  const listening = (): void => tell({ kind: 'listening', port: (server.address() as { port: number }).port });
  let everywhere = false;
  server.on('error', (e: NodeJS.ErrnoException) => {
    // The name of a service may be another machine's, which passes calls on: then any address of this one will do.
    if (e.code === 'EADDRNOTAVAIL' && !everywhere) {
      everywhere = true;
      server.listen(at, listening);
    } else tell({ kind: 'failed', text: `cannot listen on ${host}:${at}: ${e.message}` });
  });
  server.listen(at, host, listening);
  setTimeout(endMeeting, meetMs).unref();
}

// ---- the other ranks: one socket ----
let wire: Socket | undefined;
function call(since: number): void {
  const socket = connect(at, host);
  socket.setNoDelay(true);
  let heard = Date.now();
  let met = false;
  const reader = new FrameReader(({ head, parts }) => {
    heard = Date.now();
    met = true;
    if (head.kind === 'ready') tell({ kind: 'ready' });
    else if (head.kind === 'refused') tell({ kind: 'failed', text: String(head.text) });
    else if (head.kind === 'gone') end(String(head.text));
    else if (head.kind === 'bye') {
      left.add(0);
      Atomics.store(words, STATE, LEFT);
      Atomics.notify(words, STATE);
    } else if (head.kind === 'all') reply({ kind: 'all', group: head.group as string, parts });
    else if (head.kind === 'sent')
      reply({ kind: 'sent', from: head.from as number, tag: head.tag as string, bytes: parts[0] });
    else if (head.kind === 'failed') reply({ kind: 'failed', text: head.text as string });
  });
  socket.on('connect', () => {
    // While nobody listens, a call from a port that happens to be rank 0's own reaches itself.
    if (socket.localPort === at && socket.localAddress === socket.remoteAddress) {
      socket.destroy(new Error('the call reached itself'));
      return;
    }
    wire = socket;
    writeFrame(socket, { kind: 'hello', rank, size, job });
  });
  socket.on('data', (chunk) => reader.push(chunk));
  socket.on('error', (e) => {
    if (met) return;
    if (Date.now() - since < meetMs) setTimeout(() => call(since), 100);
    else tell({ kind: 'failed', text: `rank 0 was not met at ${host}:${at} within ${meetMs / 1000} s: ${e.message}` });
  });
  socket.on('close', () => {
    if (met && !left.has(0)) end(`rank 0 ${PROCESS_ENDED}`);
  });
  const beat = setInterval(() => {
    if (socket.destroyed) return clearInterval(beat);
    if (!met) return;
    writeFrame(socket, { kind: 'beat' });
    if (Date.now() - heard > silenceMs && !left.has(0)) end(`rank 0 has been silent for ${silenceMs / 1000} s`);
  }, 1000);
  beat.unref();
}

// ---- what the main thread asks for ----
port.on('message', (m: Request | { readonly kind: 'leave'; readonly code: number; readonly why: string }) => {
  if (m.kind === 'leave') leave(m.code, m.why);
  else if (hub) hub.receive(rank, m);
  else if (m.kind === 'send') writeFrame(wire as Socket, { kind: m.kind, to: m.to, tag: m.tag }, [m.bytes]);
  else writeFrame(wire as Socket, { kind: m.kind, group: m.group, members: m.members, what: m.what }, [m.bytes]);
});
/** The main thread waits (not for long) for STATE to say LEFT. */
function leave(code: number, why: string): void {
  const done = (): void => {
    Atomics.store(words, STATE, LEFT);
    Atomics.notify(words, STATE);
  };
  ended = true; // whatever is heard from now on does not matter
  if (rank !== 0) {
    if (!wire) return done();
    if (code !== 0) writeFrame(wire, { kind: 'failing', why });
    else writeFrame(wire, { kind: 'bye' });
    // A goodbye is answered; a failure only has to be on its way.
    if (code !== 0) wire.end(done);
    return;
  }
  if (code !== 0) {
    for (const s of sockets.values()) writeFrame(s, { kind: 'gone', text: `rank 0 ${why}` });
    setTimeout(done, 50);
    return;
  }
  // The hub stays for those who still need it: rank 0 leaves last.
  const waiting = setInterval(() => {
    if (left.size < size - 1) return;
    clearInterval(waiting);
    done();
  }, 10);
}
if (rank === 0) serve();
else call(Date.now());
