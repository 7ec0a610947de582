// Commands run as users run them: in a process of their own.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const main = join(fileURLToPath(new URL('.', import.meta.url)), '../src/cli/main.js');

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
export const wick = (...args: readonly string[]): Ended => wickIn(undefined, ...args);
/** In a folder of its own, where what it leaves is seen. */
export function wickIn(cwd: string | undefined, ...args: readonly string[]): Ended {
  const r = spawnSync(process.execPath, [main, ...args], { encoding: 'utf8', maxBuffer: 2 ** 26, cwd });
  return { status: r.status, stdout: r.stdout, stderr: r.stderr };
}

/** A folder that goes with the process. */
export function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), 'wick-cli-'));
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  return dir;
}
