// Ranks that share models out among them: each loads a model whole and its own share of it, and compares.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import type { Group } from '../src/distributed/index.js';
import { noGrad, scope, tensor, type Tensor } from '../src/index.js';
import { type CausalLM, type ExpertDivision, loadModel } from '../src/models/index.js';
import { GraphDecoder, PlainDecoder } from '../src/engine/index.js';
import { Gguf } from '../src/io/gguf.js';
import { standInWorld } from './distributed-ranks.js';

export type Shared = {
  readonly name: string;
  /** Worst difference of logits over the largest logit: all at once, then token by token with a cache. */
  readonly error: number;
  readonly cachedError: number;
  /** Bytes that this rank holds, as a part of the whole model's; and bytes it read from files. */
  readonly held: number;
  readonly read: number;
  /** Bytes of tensors that really came from the files while this rank's share was loaded, as a part of the files'. */
  readonly fromDisk: number;
  readonly refused?: string;
};
/** Runs f and counts what it reads of open files beyond their headers, which every rank reads. */
function counted<T>(header: number, f: () => T): { readonly result: T; readonly bytes: number } {
  const { readSync } = fs;
  let bytes = 0;
  fs.readSync = ((fd: number, to: Uint8Array, at: number, length: number, position: number): number => {
    const n = readSync(fd, to, at, length, position);
    if (position >= header) bytes += n;
    return n;
  }) as typeof readSync;
  syncBuiltinESMExports(); // for those who imported it by name
  try {
    const result = f();
    return { result, bytes };
  } finally {
    fs.readSync = readSync;
    syncBuiltinESMExports();
  }
}
/** Where the tensors begin in a model's one file, and how many bytes they take. */
function tensorBytes(path: string): { readonly header: number; readonly bytes: number } {
  const file = path.endsWith('.gguf') ? path : join(path, 'model.safetensors');
  const { size } = fs.statSync(file);
  const gguf = path.endsWith('.gguf') ? Gguf.open(path) : undefined;
  const header = gguf
    ? Math.min(...gguf.names.map((name) => gguf.info(name).start))
    : 8 + Number(fs.readFileSync(file).readBigUInt64LE());
  gguf?.close();
  return { header, bytes: size - header };
}
const bytesOf = (m: CausalLM): number => [...new Set(m.stateDict().values())].reduce((n, t) => n + t.memory.bytes, 0);
function differ(a: Tensor, b: Tensor): number {
  return scope(() => a.sub(b).abs().max().item() / b.abs().max().item());
}

/** How ranks divide a model: all by heads and rows, all by layers, or both: pairs by rows, pairs of pairs by layers. */
const WAYS = {
  shard: (g: Group) => ({ shard: g }),
  experts: (g: Group) => ({ shard: g, experts: 'whole' as const }),
  stages: (g: Group) => ({ stages: g }),
  both: (g: Group) => ({ shard: g.split(Math.floor(g.rank / 2)), stages: g.split(g.rank % 2) }),
};
export function sharedModels(
  g: Group,
  models: readonly { name: string; path: string }[],
  way: keyof typeof WAYS = 'shard',
): Shared[] {
  const how = WAYS[way](g);
  return models.map(({ name, path }) =>
    noGrad(() =>
      scope((): Shared => {
        const whole = loadModel<CausalLM>(path, { kind: 'decoder', device: g.device, dtype: 'f32' }).model;
        const [full, readWhole] = [bytesOf(whole), bytesOf(whole)];
        let own: CausalLM;
        let read = 0;
        let fromDisk = 0;
        try {
          const onProgress = (done: number): void => void (read = done);
          const { header, bytes: stored } = tensorBytes(path);
          const options = { kind: 'decoder', device: g.device, dtype: 'f32', ...how, onProgress } as const;
          const { result, bytes } = counted(header, () => loadModel<CausalLM>(path, options).model);
          own = result;
          fromDisk = bytes / stored;
        } catch (e) {
          const none = { error: NaN, cachedError: NaN, held: NaN, read: NaN, fromDisk: NaN };
          return { name, ...none, refused: (e as Error).message };
        }
        const { vocabSize } = whole.config;
        const ids = tensor(
          Int32Array.from({ length: 20 }, (_, i) => (i * 37 + 11) % vocabSize),
          { shape: [2, 10], device: g.device },
        );
        const error = differ(own.forward(ids), whole.forward(ids));
        const [a, b] = [own.newCache(), whole.newCache()];
        let cachedError = 0;
        for (const [from, n] of [
          [0, 7],
          [7, 1],
          [8, 2],
        ]) {
          const part = ids.narrow(1, from, n);
          cachedError = Math.max(cachedError, differ(own.forward(part, a), whole.forward(part, b)));
        }
        const held = bytesOf(own) / full;
        for (const c of [a, b]) c.dispose();
        for (const m of [own, whole]) m.dispose();
        return { name, error, cachedError, held, read: read / readWhole, fromDisk };
      }),
    ),
  );
}

export const stagedModels = (g: Group, models: readonly { name: string; path: string }[]): Shared[] =>
  sharedModels(g, models, 'stages');
export const wholeExperts = (g: Group, models: readonly { name: string; path: string }[]): Shared[] =>
  sharedModels(g, models, 'experts');
export const gridModels = (g: Group, models: readonly { name: string; path: string }[]): Shared[] =>
  sharedModels(g, models, 'both');

/** Greedy tokens of a model that is shared out. */
export async function sharedTokens(
  g: Group,
  { path, prompt, count }: { path: string; prompt: number[]; count: number },
): Promise<number[]> {
  const model = loadModel<CausalLM>(path, { kind: 'decoder', device: 'cpu', shard: g }).model;
  const decoder = new PlainDecoder(model);
  const got = [...prompt];
  for (let i = 0; i < count; i++) got.push(await decoder.runGreedy(i === 0 ? prompt : got.slice(-1)));
  return got;
}
export function wrongToken(g: Group, path: string): string {
  const model = loadModel<CausalLM>(path, { kind: 'decoder', device: 'cpu', shard: g }).model;
  try {
    noGrad(() =>
      model.forward(tensor(Int32Array.of(model.config.vocabSize), { shape: [1, 1], device: 'cpu' })).dataSync(),
    );
  } catch (e) {
    return `${(e as Error).name}: ${(e as Error).message}`;
  }
  return 'nothing was said';
}

/**
 * Greedy tokens of a shared model decoded by a recorded step, NCCL's calls inside it (a stand-in on a simulated GPU).
 */
export async function recordedTokens(
  g: Group,
  { path, prompt, count, experts }: { path: string; prompt: number[]; count: number; experts?: ExpertDivision },
): Promise<number[]> {
  const { world } = standInWorld(g);
  const how = { kind: 'decoder', device: world.device, shard: world, ...(experts && { experts }) } as const;
  const { model } = loadModel<CausalLM>(path, how);
  if (!GraphDecoder.serves(model)) throw new Error('the shared model is not decoded by a recorded step');
  const decoder = new GraphDecoder(model, 64);
  const got = [...prompt];
  for (let i = 0; i < count; i++) got.push(await decoder.runGreedy(i === 0 ? prompt : got.slice(-1)));
  world.close(); // before the recorded step that talks to it is gone
  decoder.dispose();
  return got;
}
