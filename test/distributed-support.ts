// Starting ranks as processes, by hand with torchrun's variables or by mpirun.
import { spawn, spawnSync } from 'node:child_process';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('./distributed-program.js', import.meta.url));

export const skipMpi: string | false =
  spawnSync('mpirun', ['--version'], { encoding: 'utf8' }).status === 0
    ? false
    : 'mpirun is not installed (openmpi-bin)';

export interface Ended {
  readonly code: number | null;
  readonly signal: string | null;
  readonly out: string;
  readonly err: string;
}
export function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    let [out, err] = ['', ''];
    child.stdout.on('data', (d) => (out += String(d)));
    child.stderr.on('data', (d) => (err += String(d)));
    child.on('error', (e) => resolve({ code: -1, signal: null, out, err: `${err}${e.message}` }));
    child.on('close', (code, signal) => resolve({ code, signal, out, err }));
  });
}
/**
 * A port that nobody else is given: below those that systems hand out (32768 and up), where a port that was free a
 * moment ago may be another program's connection by the time rank 0 listens; processes of tests start at places of
 * their own.
 */
const [LOWEST, PORTS] = [12_000, 20_000];
let candidate = (process.pid * 37) % PORTS;
const isFree = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const server = createServer();
    server.on('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
export async function freePort(): Promise<number> {
  for (;;) {
    candidate = (candidate + 1) % PORTS;
    if (await isFree(LOWEST + candidate)) return LOWEST + candidate;
  }
}

/** Threads of the CPU engine: one a rank, since ranks share the machine. */
const FEW = { WICK_THREADS: '1' };

/** As torchrun starts them; answers how each ended. */
export async function byHand(size: number, argv: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended[]> {
  const port = String(await freePort());
  return Promise.all(
    Array.from({ length: size }, (_, rank) =>
      run(process.execPath, argv, {
        ...FEW,
        ...{ RANK: String(rank), WORLD_SIZE: String(size), LOCAL_RANK: String(rank), LOCAL_WORLD_SIZE: String(size) },
        ...{ MASTER_ADDR: '127.0.0.1', MASTER_PORT: port },
        ...env,
      }),
    ),
  );
}
export const byMpi = (size: number, argv: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> =>
  run('mpirun', ['--oversubscribe', '-np', String(size), process.execPath, ...argv], {
    ...FEW,
    ...{ OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' },
    ...env,
  });

/** The answers of a function of distributed-ranks.ts, by rank. */
export function answersOf(...ends: readonly Ended[]): unknown[] {
  const failed = ends.find((e) => e.code !== 0);
  if (failed) throw new Error(`a rank ended with ${failed.code ?? failed.signal}:\n${failed.out}${failed.err}`);
  const lines = ends
    .flatMap((e) => e.out.trim().split('\n'))
    .map((l) => JSON.parse(l) as { rank: number; answer: unknown });
  return lines.sort((a, b) => a.rank - b.rank).map((l) => l.answer);
}
export const programArgs = (name: string, data: unknown = {}): string[] => [program, name, JSON.stringify(data)];
