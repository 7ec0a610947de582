// A meeting point of ranks: everyone hands in bytes, and when all members of a group have, everyone gets all of them.
// Sockets (rank 0's watch) and threads (the process that started them) put it behind their own wires.

/** What a rank asks for. `what` says the call in words: ranks that do different things are told so. */
export type Request =
  | {
      readonly kind: 'exchange';
      readonly group: string;
      readonly members: readonly number[];
      readonly what: string;
      readonly bytes: Uint8Array;
    }
  | { readonly kind: 'send'; readonly to: number; readonly tag: string; readonly bytes: Uint8Array };
/** What it gets. */
export type Reply =
  | { readonly kind: 'all'; readonly group: string; readonly parts: readonly Uint8Array[] }
  | { readonly kind: 'sent'; readonly from: number; readonly tag: string; readonly bytes: Uint8Array }
  | { readonly kind: 'failed'; readonly text: string };

interface Waiting {
  readonly members: readonly number[];
  /** By rank, what it has handed in and nobody has taken. */
  readonly queues: Map<number, { readonly what: string; readonly bytes: Uint8Array }[]>;
  timer?: NodeJS.Timeout;
}

export class Hub {
  readonly #timeoutMs: number;
  readonly #reply: (rank: number, reply: Reply) => void;
  readonly #groups = new Map<string, Waiting>();
  /** Groups whose ranks are out of step: whoever comes later is told as well. */
  readonly #failed = new Map<string, string>();

  constructor(timeoutMs: number, reply: (rank: number, reply: Reply) => void) {
    this.#timeoutMs = timeoutMs;
    this.#reply = reply;
  }

  receive(rank: number, r: Request): void {
    if (r.kind === 'send') {
      this.#reply(r.to, { kind: 'sent', from: rank, tag: r.tag, bytes: r.bytes });
      return;
    }
    const failed = this.#failed.get(r.group);
    if (failed !== undefined) return this.#reply(rank, { kind: 'failed', text: failed });
    let group = this.#groups.get(r.group);
    if (!group) this.#groups.set(r.group, (group = { members: r.members, queues: new Map() }));
    const queue = group.queues.get(rank) ?? [];
    queue.push({ what: r.what, bytes: r.bytes });
    group.queues.set(rank, queue);
    group.timer ??= this.#late(r.group, group);
    this.#answer(r.group, group);
  }

  #fail(name: string, ranks: readonly number[], text: string): void {
    clearTimeout(this.#groups.get(name)?.timer);
    this.#groups.delete(name);
    this.#failed.set(name, text);
    for (const rank of ranks) this.#reply(rank, { kind: 'failed', text });
  }

  #answer(name: string, { members, queues, timer }: Waiting): void {
    const heads = members.map((m) => queues.get(m)?.[0]);
    const here = heads.flatMap((h, i) => (h ? [{ rank: members[i], what: h.what }] : []));
    const odd = here.find((h) => h.what !== here[0].what);
    if (odd) {
      const text =
        `rank ${here[0].rank} calls ${here[0].what}, rank ${odd.rank} calls ${odd.what}: all ranks must make the ` +
        'same calls in the same order';
      return this.#fail(
        name,
        here.map((h) => h.rank),
        text,
      );
    }
    if (here.length < members.length) return;
    clearTimeout(timer);
    this.#groups.delete(name);
    const parts = heads.map((h) => (h as { bytes: Uint8Array }).bytes);
    const rest = members.map((m) => queues.get(m)?.slice(1) ?? []);
    for (const m of members) this.#reply(m, { kind: 'all', group: name, parts });
    // A quick rank may have handed in more already.
    rest.forEach((queue, i) => {
      for (const { what, bytes } of queue)
        this.receive(members[i], { kind: 'exchange', group: name, members, what, bytes });
    });
  }

  #late(name: string, group: Waiting): NodeJS.Timeout {
    const timer = setTimeout(() => {
      const [here, missing] = [true, false].map((is) =>
        group.members.filter((m) => (group.queues.get(m)?.length ?? 0) > 0 === is),
      );
      const what = group.queues.get(here[0])?.[0].what;
      const text = `rank ${missing.join(', ')} did not call ${what} within ${this.#timeoutMs / 1000} s`;
      this.#fail(name, here, text);
    }, this.#timeoutMs);
    timer.unref();
    return timer;
  }
}
