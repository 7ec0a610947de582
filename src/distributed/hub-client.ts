// A rank's side of a hub, without await: requests go out through a port, and the thread sleeps until the answer is
// there.
import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { DistributedError } from '../base/errors.js';
import type { Reply, Request } from './hub.js';

/** The hub tells of lateness itself, naming who is late; this much later it counts as gone. */
const GRACE_MS = 10_000;

export interface HubWire {
  readonly port: MessagePort;
  /** One word that the other side raises and notifies with every reply. */
  readonly signal: Int32Array;
}

export class HubClient {
  readonly rank: number;
  readonly size: number;
  readonly timeoutMs: number;
  readonly #wire: HubWire;
  readonly #sent: Extract<Reply, { kind: 'sent' }>[] = [];
  readonly #all: Extract<Reply, { kind: 'all' }>[] = [];
  readonly #awaited: {
    readonly from: number;
    readonly tag: string;
    readonly resolve: (bytes: Uint8Array) => void;
  }[] = [];
  #listens = false;

  constructor(rank: number, size: number, wire: HubWire, timeoutMs: number) {
    this.rank = rank;
    this.size = size;
    this.timeoutMs = timeoutMs;
    this.#wire = wire;
  }

  /** The bytes of all members, in their order. */
  exchange(group: string, members: readonly number[], what: string, bytes: Uint8Array): readonly Uint8Array[] {
    this.#post({ kind: 'exchange', group, members, what, bytes });
    const is = (r: Reply): boolean => r.kind === 'all' && r.group === group;
    return (this.#take(what, this.#all, is) as Extract<Reply, { kind: 'all' }>).parts;
  }
  send(to: number, tag: string, bytes: Uint8Array): void {
    this.#post({ kind: 'send', to, tag, bytes });
  }
  recv(from: number, tag: string): Uint8Array {
    const is = (r: Reply): boolean => r.kind === 'sent' && r.from === from && r.tag === tag;
    return (this.#take(`recv from rank ${from}`, this.#sent, is) as Extract<Reply, { kind: 'sent' }>).bytes;
  }
  /** The same without sleeping and without a limit of time. */
  next(from: number, tag: string): Promise<Uint8Array> {
    const at = this.#sent.findIndex((r) => r.from === from && r.tag === tag);
    if (at >= 0) return Promise.resolve(this.#sent.splice(at, 1)[0].bytes);
    return new Promise((resolve) => {
      this.#awaited.push({ from, tag, resolve });
      if (this.#awaited.length > 1) return;
      // While somebody waits, replies come as events; a call that sleeps takes them from the port itself.
      if (this.#listens) this.#wire.port.ref();
      else this.#wire.port.on('message', (reply: Reply) => this.#keep(reply));
      this.#listens = true;
    });
  }
  close(): void {
    this.#wire.port.close();
  }

  #post(request: Request): void {
    this.#wire.port.postMessage(request);
  }
  #take(what: string, kept: Reply[], is: (r: Reply) => boolean): Reply {
    const at = kept.findIndex(is);
    if (at >= 0) return kept.splice(at, 1)[0];
    const end = Date.now() + this.timeoutMs + GRACE_MS;
    for (;;) {
      const seen = Atomics.load(this.#wire.signal, 0);
      const reply = receiveMessageOnPort(this.#wire.port)?.message as Reply | undefined;
      if (reply === undefined) {
        const left = end - Date.now();
        if (left <= 0 || Atomics.wait(this.#wire.signal, 0, seen, left) === 'timed-out')
          throw this.#error(`${what}: no answer within ${this.timeoutMs / 1000} s`);
        continue;
      }
      if (reply.kind === 'failed') throw this.#error(reply.text);
      if (is(reply)) return reply;
      this.#keep(reply);
    }
  }
  /** Holds a reply for whoever asks for it, or hands it to who waits for it. */
  #keep(reply: Reply): void {
    if (reply.kind === 'all') return void this.#all.push(reply);
    if (reply.kind === 'failed') return; // of a call that was given up; the group's next one is told again
    const at = this.#awaited.findIndex((a) => a.from === reply.from && a.tag === reply.tag);
    if (at < 0) return void this.#sent.push(reply);
    const [{ resolve }] = this.#awaited.splice(at, 1);
    if (this.#awaited.length === 0) this.#wire.port.unref();
    resolve(reply.bytes);
  }
  #error(text: string): DistributedError {
    return new DistributedError(`rank ${this.rank} of ${this.size}: ${text}`);
  }
}

/** The other side of a wire: hands a reply over and wakes whoever sleeps. */
export function deliver(port: MessagePort, signal: Int32Array, reply: Reply): void {
  port.postMessage(reply);
  Atomics.add(signal, 0, 1);
  Atomics.notify(signal, 0);
}
