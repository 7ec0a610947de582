// Builds the CPU engine ahead of its first use; where it cannot be built, says so and leaves the reference engine to
// serve.
import { WickError } from '../src/base/errors.js';
import { ensureNative } from '../src/backends/native-build.js';

try {
  const begin = Date.now();
  ensureNative();
  const seconds = (Date.now() - begin) / 1000;
  if (seconds > 2) console.log(`the CPU engine was built in ${seconds.toFixed(0)} s`);
} catch (e) {
  if (!(e instanceof WickError)) throw e;
  console.log(`${e.message}\nThe reference engine serves in its place: correct, but slow.`);
}
