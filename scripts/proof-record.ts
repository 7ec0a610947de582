// A long run's result, with what it was a run of.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { arch, cpus } from 'node:os';

/** Prints a report, and keeps it where a file is named. */
export function record(report: object, file: string | undefined): void {
  const git = (...args: string[]): string => execFileSync('git', args, { encoding: 'utf8' }).trim();
  const commit =
    git('rev-parse', '--short=12', 'HEAD') + (git('status', '--porcelain', 'src', 'native') && ' and changes');
  const text = JSON.stringify(
    { commit, node: process.version, machine: `${cpus().length} cores, ${arch()}`, ...report },
    undefined,
    1,
  );
  console.log(text);
  if (file) writeFileSync(file, `${text}\n`);
}
