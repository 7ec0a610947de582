// A GPU's driver takes a third of a second to wake up, a library of products is hundreds of megabytes and a compiler
// one: a command that will need them has other threads begin with them while its own modules are read.
import { env } from '../base/environment.js';
import { CUBLASLT } from './cublaslt.js';
import { forDriver, LIBCUDA } from './cuda-version.js';
import { Cell, openAside, openLibrary } from './ffi.js';
import { NVRTC } from './nvrtc.js';

/**
 * Begins to open a device that will be asked for; `undefined` is the first NVIDIA GPU, if there is one. Nothing is
 * awaited and nothing told: whoever opens the device calls the same functions and is told what is wrong. `products`
 * says that some will be large enough for a library. The compiler is read, too: it is asked for its version before
 * kernels are looked up.
 */
export function headStart(device: string | undefined, { products }: { readonly products: boolean }): void {
  const asked = /^cuda(?::(\d+))?$/.exec(device ?? 'cuda:0');
  const library = asked && openLibrary(LIBCUDA);
  if (!library || typeof library === 'string') return;
  const ordinal = Number(asked[1] ?? 0);
  const [number, context] = [new Cell(), new Cell()];
  library.aside('int cuInit(uint flags)', [0], (status) => {
    const found = status === 0 && library.func('int cuDeviceGet(void *device, int ordinal)');
    if (!found || found(number.raw, ordinal) !== 0) return;
    const retain = 'int cuDevicePrimaryCtxRetain(void *context, int device)';
    library.aside(retain, [context.raw, number.int], () => void context.clear());
  });
  if (env('WICK_NO_RTC') !== '1') openAside(forDriver(NVRTC));
  if (products) openAside(forDriver(CUBLASLT));
}
