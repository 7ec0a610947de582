// Builds the CPU engine ahead of its first use; where it cannot be built, says so and what serves in its place.
import { WickError } from '../src/base/errors.js';
import { ensureNative } from '../src/backends/native-build.js';
import { findWasm } from '../src/backends/wasm-build.js';

function inItsPlace(): string {
  try {
    findWasm();
    return 'The same engine as WebAssembly serves in its place.';
  } catch (e) {
    if (!(e instanceof WickError)) throw e;
    return 'Until then the reference engine serves in its place: correct, but some hundred times as slow.';
  }
}

try {
  const begin = Date.now();
  ensureNative();
  const seconds = (Date.now() - begin) / 1000;
  if (seconds > 2) console.log(`the CPU engine was built in ${seconds.toFixed(0)} s`);
} catch (e) {
  if (!(e instanceof WickError)) throw e;
  console.log(`${e.message}\n${inItsPlace()}`);
}
