// Work that would hold up the event loop, done on another thread where the backend can.
import type { CausalLM } from '../models/index.js';

/** What f asks of a model's device. Ranks that share a model talk to each other on the way, so theirs stays here. */
export function offThread<T>({ device: { backend }, shard, stage }: CausalLM, f: () => T): Promise<T> {
  return backend.elsewhere && !shard && !stage ? backend.elsewhere(f) : Promise.resolve().then(f);
}
