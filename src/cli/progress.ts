// Long runs tell how far they are: one line drawn over itself with the time left, and Ctrl-C that keeps what there is.

export const clock = (seconds: number): string =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;

export interface ProgressBar {
  show(done: number, all: number, what: string): void;
  end(): void;
}

/** On the error stream; without a terminal, only that the run has begun. */
export function progressBar(unit = 'cases', doing = 'measuring'): ProgressBar {
  const out = process.stderr;
  const start = Date.now();
  let last = 0;
  if (!out.isTTY)
    return {
      show: (_, all) => {
        if (last++ === 0) out.write(`${doing} ${all} ${unit}\n`);
      },
      end: () => {},
    };
  return {
    show: (done, all, what) => {
      const now = Date.now();
      if (now - last < 60 && done < all) return;
      last = now;
      const width = 24;
      const filled = Math.min(width, Math.round((width * done) / all));
      const left = now - start > 3000 ? `${clock(((now - start) / 1000 / done) * Math.max(all - done, 0))} left  ` : '';
      const line =
        `${'█'.repeat(filled)}${'░'.repeat(width - filled)} ` +
        `${String(Math.floor((100 * done) / all)).padStart(3)}%  ${left}${what}`;
      out.write(`\r\x1b[2K${line.slice(0, (out.columns || 80) - 1)}`);
    },
    end: () => out.write('\r\x1b[2K'),
  };
}

/** A run with a progress bar. The first Ctrl-C asks it to end with what there is; a second one ends it at once. */
export async function watched<T>(
  run: (w: { progress: ProgressBar['show']; stopped: () => boolean }) => Promise<T>,
): Promise<T> {
  let stop = false;
  const onSignal = (): void => {
    if (stop) process.exit(130);
    stop = true;
  };
  process.on('SIGINT', onSignal);
  const bar = progressBar();
  try {
    return await run({ progress: bar.show, stopped: () => stop });
  } finally {
    bar.end();
    process.off('SIGINT', onSignal);
  }
}
