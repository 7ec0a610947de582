// Modules that are read when they are first needed: what only some programs need costs the others no time.
import { createRequire } from 'node:module';
import { UnsupportedError } from './errors.js';

/**
 * Reads ES modules by their path from the file at `url`, at once: whoever opens a device does not wait for a promise.
 * Older versions of Node cannot do that.
 */
export function requireFrom(url: string): (path: string) => unknown {
  const require = createRequire(url);
  return (path) => {
    try {
      return require(path);
    } catch (cause) {
      if ((cause as { code?: string }).code !== 'ERR_REQUIRE_ESM') throw cause;
      throw new UnsupportedError(
        `wick needs Node 20.19 or 22.12 or later to open devices; this is ${process.version}`,
        {
          cause,
        },
      );
    }
  };
}
