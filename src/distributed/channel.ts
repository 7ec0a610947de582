// Messages between ranks beside collectives: bytes of any size, whenever the sender likes. Nobody waits for a receiver,
// and a receiver may wait for as long as it takes: whoever has gone is told of by the watch.
import type { HubClient } from './hub-client.js';

/** Messages of bytes between ranks, beside collectives. */
export class Channel {
  readonly #hub: HubClient;
  readonly #members: readonly number[];
  readonly #tag: string;
  readonly #fail: (why: string) => void;

  /** `members` are the hub's numbers of a group's ranks; channels of one tag hear each other. */
  constructor(hub: HubClient, members: readonly number[], tag: string, fail: (why: string) => void) {
    this.#hub = hub;
    this.#members = members;
    this.#tag = tag;
    this.#fail = fail;
  }
  /** Sends a message to a rank; nothing waits. */
  send(to: number, bytes: Uint8Array): void {
    this.#hub.send(this.#members[to], this.#tag, bytes);
  }
  /** The next message of a rank; the process lives while it waits. */
  next(from: number): Promise<Uint8Array> {
    return this.#hub.next(this.#members[from], this.#tag);
  }
  /** Tells the other ranks that this one cannot go on: they end. */
  fail(why: string): void {
    this.#fail(why);
  }
}

/** What a group makes its channels of. */
export interface ChannelSource {
  readonly hub: HubClient;
  /** The hub's numbers of the group's ranks. */
  readonly members: readonly number[];
  readonly name: string;
  fail(why: string): void;
}
