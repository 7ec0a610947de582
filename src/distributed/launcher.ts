// Who this process is among its like: what torchrun, OpenMPI, MPICH, Slurm and Kubernetes write into the environment.
import { env, type VariableName } from '../base/environment.js';
import { ArgumentError } from '../base/errors.js';

/** Where a process stands among the ranks, as its launcher says. */
export interface Place {
  /** What started the ranks: 'torchrun', 'OpenMPI', ... */
  readonly launcher: string;
  /** Its number, from 0. */
  readonly rank: number;
  /** How many ranks there are. */
  readonly size: number;
  /** Among the ranks of one machine. */
  readonly localRank: number;
  /** How many of them are on this machine. */
  readonly localSize: number;
  /** Where the ranks meet; undefined where the launcher does not say and another way must be found. */
  readonly address?: {
    /** The machine of rank 0. */
    readonly host: string;
    /** A port that is free there. */
    readonly port: number;
  };
}

interface Launcher {
  readonly name: string;
  readonly rank: VariableName;
  readonly size: readonly VariableName[];
  readonly localRank?: VariableName;
  readonly localSize?: VariableName;
  /** Must be set as well: what stands in the environment of a job's own script means nothing. */
  readonly within?: VariableName;
  readonly host?: () => string | undefined;
  readonly port?: () => number;
}

const DEFAULT_PORT = 29500;

/** 'node[03-07,12],other' begins with node03. */
export function firstHost(list: string): string {
  const [, head, first = ''] = /^([^[,]*)(?:\[(\d+))?/.exec(list) as RegExpExecArray;
  return `${head}${first}`;
}

/** In the order they are asked; the first whose rank is set counts. */
const LAUNCHERS: readonly Launcher[] = [
  {
    name: 'torchrun',
    rank: 'RANK',
    size: ['WORLD_SIZE'],
    localRank: 'LOCAL_RANK',
    localSize: 'LOCAL_WORLD_SIZE',
  },
  {
    name: 'OpenMPI',
    rank: 'OMPI_COMM_WORLD_RANK',
    size: ['OMPI_COMM_WORLD_SIZE'],
    localRank: 'OMPI_COMM_WORLD_LOCAL_RANK',
    localSize: 'OMPI_COMM_WORLD_LOCAL_SIZE',
  },
  {
    name: 'Slurm',
    within: 'SLURM_STEP_ID',
    rank: 'SLURM_PROCID',
    size: ['SLURM_STEP_NUM_TASKS', 'SLURM_NTASKS'],
    localRank: 'SLURM_LOCALID',
    host: () => {
      const nodes = env('SLURM_JOB_NODELIST');
      return nodes && firstHost(nodes);
    },
    // Jobs that share a machine must not meet each other.
    port: () => 20000 + (Number(env('SLURM_JOB_ID') ?? 0) % 10000),
  },
  { name: 'MPICH', rank: 'PMI_RANK', size: ['PMI_SIZE'], localRank: 'MPI_LOCALRANKID' },
  {
    name: 'LeaderWorkerSet',
    rank: 'LWS_WORKER_INDEX',
    size: ['LWS_GROUP_SIZE'],
    host: () => env('LWS_LEADER_ADDRESS'),
  },
];

function whole(name: VariableName, least: number): number | undefined {
  const text = env(name);
  if (text === undefined) return undefined;
  const n = Number(text);
  if (!Number.isInteger(n) || n < least)
    throw new ArgumentError(`${name} is ${JSON.stringify(text)}; it must be a whole number from ${least}`);
  return n;
}

function meetingPlace(launcher: Launcher, alone: boolean): Place['address'] {
  const host = env('MASTER_ADDR') ?? launcher.host?.() ?? (alone ? '127.0.0.1' : undefined);
  if (host === undefined) return undefined;
  const port = whole('MASTER_PORT', 1);
  // torchrun's own agent listens on MASTER_PORT, except in its oldest way of starting.
  const taken = port !== undefined && env('TORCHELASTIC_USE_AGENT_STORE') === 'True' ? 1 : 0;
  return { host, port: (port ?? launcher.port?.() ?? DEFAULT_PORT) + taken };
}

/** This process's place, or undefined where nothing says that there are others. */
export function placeFromEnvironment(): Place | undefined {
  for (const l of LAUNCHERS) {
    const rank = whole(l.rank, 0);
    if (rank === undefined || (l.within && env(l.within) === undefined)) continue;
    const sizeName = l.size.find((name) => env(name) !== undefined);
    const size = sizeName && whole(sizeName, 1);
    if (size === undefined)
      throw new ArgumentError(`${l.rank} is ${rank}, but ${l.size.join(' and ')} are not set: ${l.name} sets both`);
    if (rank >= size) throw new ArgumentError(`${l.rank} is ${rank} of ${size} (${sizeName}): ranks count from 0`);
    const localSize = (l.localSize && whole(l.localSize, 1)) ?? size;
    const localRank = (l.localRank && whole(l.localRank, 0)) ?? 0;
    // OpenMPI tells ranks apart but names no port; its own library carries the address then.
    const address =
      l.name === 'OpenMPI' && env('MASTER_ADDR') === undefined ? undefined : meetingPlace(l, localSize === size);
    return { launcher: l.name, rank, size, localRank, localSize, ...(address && { address }) };
  }
  return undefined;
}
