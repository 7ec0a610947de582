// Stand-ins of vendor libraries for devices that live on the host: 'sim:32+hipblaslt+rocblas+miopen'.
import { DeviceError } from '../base/errors.js';
import { type Blas, withFallback } from '../driver/blas.js';
import { openCublasLt } from '../driver/cublaslt.js';
import { type Begin, openCudnn } from '../driver/cudnn.js';
import type { Dnn } from '../driver/dnn.js';
import type { DeviceLibraries, Maybe } from '../driver/driver.js';
import { openHipblasLt } from '../driver/hipblaslt.js';
import { openMiopen } from '../driver/miopen.js';
import { openRocblas } from '../driver/rocblas.js';
import { openCusolver, openHipsolver, type Solver } from '../driver/solver.js';
import { cudnnStandIn } from './cudnn.js';
import type { HostedDevice } from './library.js';
import { ltStandIn } from './lt.js';
import { miopenStandIn } from './miopen.js';
import { rocblasStandIn } from './rocblas.js';
import { solverStandIn } from './solver.js';

/** A call whose answer comes late, as from another thread. */
const callLate: Begin = (call, _path, _prototype, args) => {
  let asked = 0;
  let answer: number | undefined;
  return {
    get done() {
      return answer !== undefined || ++asked > 3;
    },
    wait: () => (answer ??= call(...args)),
  };
};

type Open<T> = (device: HostedDevice) => Maybe<T>;
const PRODUCTS: Readonly<Record<string, Open<Blas>>> = {
  cublaslt: (d) => openCublasLt(d, () => ltStandIn('cublasLt', d)),
  hipblaslt: (d) => openHipblasLt(d, () => ltStandIn('hipblasLt', d)),
  rocblas: (d) => openRocblas(d, () => rocblasStandIn(d)),
};
const CONVOLUTIONS: Readonly<Record<string, Open<Dnn>>> = {
  cudnn: (d) => openCudnn(d, () => cudnnStandIn(d), callLate),
  miopen: (d) => openMiopen(d, () => miopenStandIn(d)),
};

const FACTORIZATIONS: Readonly<Record<string, Open<Solver>>> = {
  cusolver: (d) => openCusolver(d, () => solverStandIn('cusolverDn', d)),
  hipsolver: (d) => openHipsolver(d, () => solverStandIn('hipsolverDn', d)),
};

const STAND_INS = [PRODUCTS, CONVOLUTIONS, FACTORIZATIONS].flatMap(Object.keys);

/** The libraries named: of those for products the first is asked first, the next what it refuses. */
export function standIns(device: HostedDevice, names: readonly string[]): DeviceLibraries {
  const unknown = names.find((n) => !STAND_INS.includes(n));
  if (unknown !== undefined)
    throw new DeviceError(
      `${JSON.stringify(unknown)} is not a stand-in of a library; there are ${STAND_INS.join(', ')}`,
    );
  const [first, ...others] = names.flatMap((n) => PRODUCTS[n] ?? []);
  const solver = names.flatMap((n) => FACTORIZATIONS[n] ?? [])[0];
  const dnn = names.flatMap((n) => CONVOLUTIONS[n] ?? [])[0];
  return {
    blas: first
      ? others.reduce<Maybe<Blas>>((blas, next) => withFallback(blas, () => next(device)), first(device))
      : 'no stand-in for products was named',
    dnn: dnn ? dnn(device) : 'no stand-in for convolutions was named',
    ...(solver && { solver: solver(device) }),
  };
}
