// init(): who this rank is by its launcher's environment, which device it works on, what the ranks talk through.
import { networkInterfaces } from 'node:os';
import { env } from '../base/environment.js';
import { ArgumentError, DistributedError } from '../base/errors.js';
import { driverOrSentence, VENDOR_NAMES, VENDORS } from '../driver/drivers.js';
import { type Mpi, openMpi } from '../driver/mpi.js';
import { openNccl } from '../driver/nccl.js';
import { tensor } from '../tensor/create.js';
import { Device } from '../tensor/device.js';
import { AloneTransport } from './alone.js';
import { ExchangeTransport } from './exchange.js';
import { Group } from './group.js';
import { type Place, placeFromEnvironment } from './launcher.js';
import { MpiTransport } from './mpi.js';
import { NcclTransport } from './nccl.js';
import type { Transport } from './transport.js';
import { Watch, type WatchOptions } from './watch.js';

/** The ways for ranks to speak to each other: NCCL or RCCL between GPUs, MPI, plain sockets. */
export const COLLECTIVES = ['nccl', 'mpi', 'socket'] as const;
/** A way for ranks to speak to each other by name. */
export type CollectiveName = (typeof COLLECTIVES)[number];

/** Which ranks meet, where, and how they speak. */
export interface InitOptions {
  /** A device, its name, or a kind alone ('cuda', 'rocm'): then the GPU of this rank's number on its machine. */
  readonly device?: Device | string;
  /** Default: nccl on GPUs, mpi under mpirun, else socket; WICK_COLLECTIVE says otherwise. */
  readonly collective?: CollectiveName;
  /** How long a rank waits for the others in a call; default ten minutes. */
  readonly timeoutMs?: number;
  /** How long ranks wait for each other at the start; default two minutes. */
  readonly meetMs?: number;
  /** A rank that gives no sign of life for so long counts as gone; default 30 s. One whose process ended, at once. */
  readonly silenceMs?: number;
}

let world: Promise<Group> | undefined;

/** The group of all ranks; a process that nobody launched as one of several is a world of its own. */
export function init(options: InitOptions = {}): Promise<Group> {
  return (world ??= start(options));
}

function localGpu(kind: string, localRank: number): Device | undefined {
  const vendor = VENDOR_NAMES.find((name) => VENDORS[name].kind === kind);
  if (!vendor) return undefined;
  const driver = driverOrSentence(vendor);
  if (typeof driver === 'string') throw new DistributedError(`${kind}: ${driver}`);
  // Launchers that show each rank its own GPU only make it number 0 everywhere.
  return Device.get(`${kind}:${localRank % driver.deviceCount}`);
}

function deviceOf(device: Device | string | undefined, localRank: number): Device {
  return (typeof device === 'string' ? localGpu(device, localRank) : undefined) ?? Device.of(device);
}

const onGpu = (device: Device): boolean => /^(cuda|rocm):/.test(device.name);

function choose(place: Place, device: Device, given: string | undefined): CollectiveName {
  const name =
    given ?? env('WICK_COLLECTIVE') ?? (onGpu(device) ? 'nccl' : place.launcher === 'OpenMPI' ? 'mpi' : 'socket');
  if (!COLLECTIVES.includes(name as CollectiveName))
    throw new ArgumentError(`collective: ${JSON.stringify(name)} is none; there are ${COLLECTIVES.join(', ')}`);
  return name as CollectiveName;
}

function needMpi(place: Place): Mpi {
  const mpi = openMpi();
  if (typeof mpi === 'string') throw new DistributedError(`rank ${place.rank} of ${place.size}: ${mpi}`);
  return mpi;
}

/** An address of this machine that others reach. */
function ownAddress(): string {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return all.find((a) => a.family === 'IPv4' && !a.internal)?.address ?? '127.0.0.1';
}

async function start(options: InitOptions): Promise<Group> {
  const place = placeFromEnvironment();
  const device = deviceOf(options.device, place?.localRank ?? 0);
  if (!place || place.size === 1) return new Group(new AloneTransport(), device);
  const collective = choose(place, device, options.collective);
  const { rank, size } = place;
  const timeoutMs = options.timeoutMs ?? 600_000;
  const times = { timeoutMs, meetMs: options.meetMs ?? 120_000, silenceMs: options.silenceMs ?? 30_000 };
  const viaMpi = collective === 'mpi' || place.address === undefined;
  const mpi = viaMpi ? needMpi(place) : undefined;
  const comm = mpi && new MpiTransport(mpi, mpi.world, timeoutMs);
  if (comm && (comm.rank !== rank || comm.size !== size))
    throw new DistributedError(
      `${place.launcher} says rank ${rank} of ${size}, MPI rank ${comm.rank} of ${comm.size}: start the ranks with ` +
        'mpirun, or set WICK_COLLECTIVE=socket',
    );
  const watch = await (place.address
    ? meet(place, place.address, times)
    : meetByMpi(place, comm as MpiTransport, times));
  if (mpi) endMpi(mpi);
  const members = Array.from({ length: size }, (_, i) => i);
  const transport = ((): Transport => {
    if (collective === 'mpi') return comm as MpiTransport;
    if (collective === 'socket') return new ExchangeTransport('socket', watch.hub, members);
    if (!device.backend.gpu)
      throw new ArgumentError(`nccl works on GPUs, and ${device.name} is none; mpi and socket serve the CPU`);
    const nccl = openNccl(device.backend.gpu.context.device);
    if (typeof nccl === 'string') throw new DistributedError(`rank ${rank} of ${size}: ${nccl}`);
    return new NcclTransport(nccl, device, watch.hub, members);
  })();
  // Before the goodbye, so that ranks that fail meanwhile are still told of.
  if (transport instanceof NcclTransport)
    process.prependListener('exit', (code) => {
      if (code === 0) transport.abandon();
    });
  const fail = (why: string): void => watch.leave(1, why);
  return new Group(transport, device, { hub: watch.hub, members, name: 'world', fail });
}

type Times = Pick<WatchOptions, 'timeoutMs' | 'meetMs' | 'silenceMs'>;

async function meet(place: Place, { host, port }: { host: string; port: number }, times: Times): Promise<Watch> {
  const watch = new Watch({
    rank: place.rank,
    size: place.size,
    host,
    at: port,
    job: env('SLURM_JOB_ID') ?? 'wick',
    ...times,
  });
  await watch.ready;
  return watch;
}

/** Rank 0 takes a free port and tells it by MPI. */
async function meetByMpi(place: Place, comm: MpiTransport, times: Times): Promise<Watch> {
  const { rank, size } = place;
  const host = place.localSize === size ? '127.0.0.1' : rank === 0 ? ownAddress() : '';
  const room = 256;
  const told = new Uint8Array(room);
  let watch: Watch | undefined;
  if (rank === 0) {
    const job = `${process.pid}.${Date.now()}`;
    watch = new Watch({ rank, size, host, at: 0, job, ...times });
    told.set(Buffer.from(JSON.stringify({ host, at: await watch.listening, job })));
  }
  const bytes = tensor(told, { dtype: 'u8', device: 'cpu' });
  comm.broadcast(bytes, 0).wait();
  const text = Buffer.from(bytes.bytesSync()).toString().replace(/\0+$/, '');
  bytes.dispose();
  watch ??= new Watch({ rank, size, ...(JSON.parse(text) as { host: string; at: number; job: string }), ...times });
  await watch.ready;
  return watch;
}

/** MPI wants to be told of the end: mpirun takes a silent one for a failure, and a failed rank ends the others. */
function endMpi({ calls, world: comm }: Mpi): void {
  process.on('exit', (code) => {
    const status = Number(process.exitCode ?? code); // who listened before may know better
    if (status === 0) calls.status('finalize');
    else calls.status('abort', comm, status);
  });
}
