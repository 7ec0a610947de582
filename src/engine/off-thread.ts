// Work that would hold up the event loop, done on another thread where the backend can.
import type { Backend } from '../backends/backend.js';

/** On another thread where a backend would otherwise hold this one up. */
export function offThread<T>(backend: Backend, f: () => T): Promise<T> {
  return backend.elsewhere ? backend.elsewhere(f) : Promise.resolve().then(f);
}
