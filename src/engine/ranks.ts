// One engine over ranks that share a model: rank 0 schedules, samples and speaks to clients, and tells the others what
// each step computes; they run the same step and throw its answer away.
import { ArgumentError, DistributedError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';
import { tensor } from '../tensor/create.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Executor, Rows, Work } from './executor.js';
import type { MemoryPlan } from './memory-plan.js';
import { Sequence } from './sequence.js';

/** Messages between ranks, in the order they are sent in. */
export interface StepChannel {
  /** Sends a message to a rank; nothing waits. */
  send(to: number, bytes: Uint8Array): void;
  /** The next message of a rank. */
  next(from: number): Promise<Uint8Array>;
  /** Tells the other ranks that this one cannot go on: they end. */
  fail(why: string): void;
}
/** What an engine asks of the ranks that share its model; a Group of wick/distributed has it. */
export interface StepGroup {
  /** This rank's number; rank 0 schedules and speaks to clients. */
  readonly rank: number;
  /** How many ranks there are. */
  readonly size: number;
  /** Everyone's x one after another along a dimension, on all ranks. */
  allGather(x: Tensor, dim?: number): Tensor;
  /** A way to send messages beside collectives. */
  channel(): StepChannel;
}

/** What rank 0 tells of. Pages come once: a step names those that were added since the sequence's last one. */
type Order =
  | { readonly kind: 'step'; readonly work: readonly OrderedWork[] }
  | { readonly kind: 'forget'; readonly id: number }
  | { readonly kind: 'look' }
  | { readonly kind: 'end' };
interface OrderedWork extends Pick<Work, 'start' | 'tokens' | 'rows'> {
  readonly id: number;
  /** Pages from this one on. */
  readonly from: number;
  readonly pages: readonly number[];
}

/** The ranks that an engine's model is shared among; undefined where it is whole. */
export function ranksOf({ shard, stage }: CausalLM, given?: StepGroup): StepGroup | undefined {
  if (!shard && !stage) return undefined;
  if (!given && shard && stage)
    throw new ArgumentError('engine: layers and rows are both divided; give all ranks together as `ranks`');
  const group = given ?? ((shard ?? stage)?.group as Partial<StepGroup> | undefined);
  if (!group?.channel || !group.allGather)
    throw new ArgumentError('engine: the ranks that share the model have no channel; give a Group as `ranks`');
  const product = (shard?.group.size ?? 1) * (stage?.group.size ?? 1);
  if (group.size !== product)
    throw new ArgumentError(`engine: the model is shared by ${product} ranks, and \`ranks\` has ${group.size}`);
  return group as StepGroup;
}

/** A plan that fits every rank: the least room that one of them has. Everything else must be alike. */
export function agreedPlan(plan: MemoryPlan, group: StepGroup, model: CausalLM): MemoryPlan {
  const mine = [plan.pages, plan.contextTokens, plan.maxRunning, plan.pageTokens];
  const all = scope(() =>
    Array.from(group.allGather(tensor(Int32Array.from(mine), { device: model.device })).dataSync() as Int32Array),
  );
  const each = Array.from({ length: group.size }, (_, r) => all.slice(r * mine.length, (r + 1) * mine.length));
  each.forEach((theirs, r) => {
    for (const [i, what] of [[2, 'maxRunning'] as const, [3, 'pageTokens'] as const])
      if (theirs[i] !== each[0][i])
        throw new ArgumentError(`engine: ${what} is ${each[0][i]} on rank 0 and ${theirs[i]} on rank ${r}`);
  });
  const pages = Math.min(...each.map((e) => e[0]));
  const contextTokens = Math.min(pages * plan.pageTokens, ...each.map((e) => e[1]));
  return { ...plan, pages, contextTokens, pageBytes: (plan.pageBytes / plan.pages) * pages };
}

/** Rank 0's executor: tells the others of a step, then takes part in it. */
export class LeadingExecutor implements Executor {
  readonly shares: boolean;
  readonly cuts: boolean;
  readonly #own: Executor;
  readonly #channel: StepChannel;
  readonly #size: number;
  /** How many of which pages the others know of a sequence. */
  readonly #told = new Map<Sequence, { readonly pages: readonly number[]; readonly count: number }>();
  readonly #onExit = (): void => this.#tell({ kind: 'end' });
  readonly #onBroken: ((error: Error) => void) | undefined;
  #broken: DistributedError | undefined;

  constructor(own: Executor, group: StepGroup, onBroken?: (error: Error) => void) {
    this.#own = own;
    this.shares = own.shares;
    this.cuts = own.cuts;
    this.#channel = group.channel();
    this.#size = group.size;
    this.#onBroken = onBroken;
    // A program that just ends must not leave the others waiting: this comes before goodbyes are said.
    process.prependListener('exit', this.#onExit);
  }
  #tell(order: Order): void {
    const bytes = Buffer.from(JSON.stringify(order));
    for (let r = 1; r < this.#size; r++) this.#channel.send(r, bytes);
  }
  async run(work: readonly Work[], bestOnly: boolean): Promise<Rows> {
    if (this.#broken) throw this.#broken;
    this.#tell({ kind: 'step', work: work.map((w) => this.#ordered(w)) });
    try {
      return await this.#own.run(work, bestOnly);
    } catch (e) {
      const why = `a step of the engine failed: ${(e as Error).message}`;
      this.#broken = new DistributedError(`rank 0 of ${this.#size}: ${why}; ranks that share a model end together`, {
        cause: e,
      });
      this.#channel.fail(why);
      this.#onBroken?.(this.#broken);
      throw this.#broken;
    }
  }
  #ordered({ sequence, start, tokens, rows }: Work): OrderedWork {
    const { id, pages } = sequence;
    const told = this.#told.get(sequence);
    // Lists of pages only grow; a sequence that lost its pages has a new one.
    const from = told?.pages === pages ? told.count : 0;
    this.#told.set(sequence, { pages, count: pages.length });
    return { id, start, tokens, rows, from, pages: pages.slice(from) };
  }
  changed(): boolean {
    if (!this.#broken) this.#tell({ kind: 'look' });
    return this.#own.changed();
  }
  forget(sequence: Sequence): void {
    this.#own.forget(sequence);
    if (this.#told.delete(sequence) && !this.#broken) this.#tell({ kind: 'forget', id: sequence.id });
  }
  dispose(): void {
    process.off('exit', this.#onExit);
    if (!this.#broken) this.#tell({ kind: 'end' });
    this.#own.dispose();
  }
}

/** Runs what rank 0 tells of, until it tells of the end. */
export async function followSteps(own: Executor, group: StepGroup): Promise<void> {
  const channel = group.channel();
  const sequences = new Map<number, Sequence>();
  try {
    for (;;) {
      const order = JSON.parse(Buffer.from(await channel.next(0)).toString()) as Order;
      if (order.kind === 'end') return;
      if (order.kind === 'look') own.changed();
      else if (order.kind === 'forget') {
        const sequence = sequences.get(order.id);
        if (sequence) own.forget(sequence);
        sequences.delete(order.id);
      } else
        await own.run(
          order.work.map((w) => placed(sequences, w)),
          true,
        );
    }
  } catch (e) {
    channel.fail(`failed in a step of the engine: ${(e as Error).message}`);
    throw e;
  } finally {
    own.dispose();
  }
}
function placed(sequences: Map<number, Sequence>, { id, start, tokens, rows, from, pages }: OrderedWork): Work {
  let sequence = sequences.get(id);
  if (!sequence) {
    sequence = new Sequence({ id, prompt: [], maxLength: Infinity, priority: 0, pageTokens: 1 });
    sequences.set(id, sequence);
  }
  sequence.pages = [...sequence.pages.slice(0, from), ...pages];
  return { sequence, start, tokens, rows };
}
