// The pages and what they are made of: files of the package, read once, and nothing else by any name.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { extname, join } from 'node:path';
import { packageRoot } from '../base/paths.js';
import { ApiError } from './errors.js';
import type { ServerContext } from './exchange.js';

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};
const folder = join(packageRoot, 'src', 'server', 'pages');

/** Pages run their own scripts, talk to their own server and load nothing from elsewhere. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

interface File {
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}
let files: ReadonlyMap<string, File> | undefined;
function allFiles(): ReadonlyMap<string, File> {
  if (!existsSync(folder)) return new Map();
  return new Map(
    readdirSync(folder)
      .filter((name) => Object.hasOwn(TYPES, extname(name)))
      .map((name) => {
        const body = readFileSync(join(folder, name));
        const headers = {
          'content-type': TYPES[extname(name)],
          'cache-control': 'no-cache',
          etag: `"${createHash('sha256').update(body).digest('hex').slice(0, 32)}"`,
          'content-security-policy': POLICY,
          'x-content-type-options': 'nosniff',
          'referrer-policy': 'no-referrer',
        };
        return [name, { body, headers }];
      }),
  );
}

/** One page, or the file that the path names. */
export const page =
  (name?: string) =>
  (c: ServerContext): Response => {
    files ??= allFiles();
    const wanted = name ?? c.req.param('name') ?? '';
    const file = files.get(wanted);
    if (!file) throw new ApiError(404, 'there is no such file');
    if (c.req.header('if-none-match') === file.headers.etag) return c.body(null, 304, { ...file.headers });
    return c.body(new Uint8Array(file.body), 200, { ...file.headers });
  };
