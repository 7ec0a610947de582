// What stand-ins of vendor libraries are made of: symbols in TypeScript behind the very prototypes that bind the real
// ones, handles that are followed, and device memory that is read within its blocks only.
//
// A library that is there answers misuse with a status, or with wrong numbers. A stand-in throws, and nothing catches
// what it throws.
import { DTYPE, type DType } from '../base/dtype.js';
import { DeviceError } from '../base/errors.js';
import type { Address, Device, Stream } from '../driver/driver.js';
import {
  type Bound,
  type Native,
  type NativeArg,
  nativeBlock,
  nativeView,
  symbolOf,
  type Table,
} from '../driver/ffi.js';

/** A rule of the vendor's manual that a call breaks. No WickError: no fallback may take it for "not supported". */
export class Misuse extends Error {}

/** What stand-ins ask of a device: the simulation's and the emulator's have it. */
export interface HostedDevice extends Device {
  /** Whether these bytes lie in one block that alloc gave. */
  holds(address: Address, bytes: number): boolean;
  /** Does it now, or writes it down where the stream records. */
  enqueue(stream: Stream, work: () => void): void;
  /** Whether a recording has this work in it that is not gone yet. */
  isHeld(work: () => void): boolean;
}

/** Calls so far by symbol, for tests of who was asked. */
export const standInCalls = new Map<string, number>();

export type Symbols = Readonly<Record<string, (...args: never[]) => number>>;

/** Called like a library that was opened. */
export class StandIn {
  readonly path = 'a stand-in';
  readonly #name: string;
  readonly #symbols: Symbols;

  constructor(name: string, symbols: Symbols) {
    this.#name = name;
    this.#symbols = symbols;
  }

  bind<T extends Table>(table: T): Bound<T> {
    const bound: Record<string, Native | undefined> = {};
    for (const [key, p] of Object.entries(table)) {
      const prototype = typeof p === 'string' ? p : p.optional;
      const symbol = symbolOf(prototype);
      const body = this.#symbols[symbol] as Native | undefined;
      if (!body && typeof p === 'string') throw new DeviceError(`the stand-in of ${this.#name} lacks ${symbol}`);
      bound[key] = body && this.#checked(prototype, symbol, body);
    }
    return bound as Bound<T>;
  }
  /** A real library's version is noted for `wick devices`; this one is not a library. */
  note(): void {}

  #checked(prototype: string, symbol: string, body: Native): Native {
    const parameters = parametersOf(prototype);
    return (...args) => {
      standInCalls.set(symbol, (standInCalls.get(symbol) ?? 0) + 1);
      if (args.length !== parameters.length)
        throw new Misuse(`${symbol}: ${args.length} arguments where the prototype has ${parameters.length}`);
      for (const [i, { type, name }] of parameters.entries()) {
        const wrong = PARAMETERS[type](args[i]);
        if (wrong) throw new Misuse(`${symbol}: argument ${i} (${type} ${name}) is ${String(args[i])}: ${wrong}`);
      }
      try {
        return body(...args);
      } catch (e) {
        if (e instanceof Misuse && !e.message.startsWith(symbol)) e.message = `${symbol}: ${e.message}`;
        throw e;
      }
    };
  }
}

const whole =
  (least: number, most: number) =>
  (a: NativeArg): string | undefined =>
    typeof a === 'number' && Number.isInteger(a) && a >= least && a <= most
      ? undefined
      : `not a whole number from ${least} to ${most}`;
const PARAMETERS: Readonly<Record<string, (a: NativeArg) => string | undefined>> = {
  int: whole(-(2 ** 31), 2 ** 31 - 1),
  int32_t: whole(-(2 ** 31), 2 ** 31 - 1),
  uint32_t: whole(0, 2 ** 32 - 1),
  int64_t: whole(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER),
  uint64_t: whole(0, Number.MAX_SAFE_INTEGER),
  size_t: whole(0, Number.MAX_SAFE_INTEGER),
  uintptr_t: whole(0, Number.MAX_SAFE_INTEGER),
  // A struct by value: an object of its fields.
  ncclUniqueId: (a) => ((a as { internal?: Uint8Array } | null)?.internal?.length === 128 ? undefined : 'no id'),
  'void *': (a) => (ArrayBuffer.isView(a) || (typeof a === 'number' && a > 0) ? undefined : 'no memory'),
};
function parametersOf(prototype: string): { type: string; name: string }[] {
  const list = prototype.slice(prototype.indexOf('(') + 1, prototype.lastIndexOf(')')).trim();
  return list === ''
    ? []
    : list.split(',').map((p) => {
        const [, type, name] = /^\s*(void \*|\w+ )(\w+)\s*$/.exec(p) as RegExpExecArray;
        return { type: type === 'void *' ? type : type.trim(), name };
      });
}

/** Memory of the host that a call was given: a typed array or an address. */
export function hostMemory(arg: NativeArg, bytes: number): DataView {
  if (typeof arg === 'number') {
    const copy = nativeView(arg, bytes);
    return new DataView(copy.buffer, copy.byteOffset, bytes);
  }
  const view = arg as ArrayBufferView;
  if (view.byteLength < bytes)
    throw new Misuse(`${view.byteLength} bytes of memory where ${bytes} are written or read`);
  return new DataView(view.buffer, view.byteOffset, bytes);
}

const texts = new Map<string, number>();
/** The address of a C string that lives as long as the process. */
export function textAddress(text: string): number {
  let address = texts.get(text);
  if (address === undefined) {
    const bytes = Buffer.from(`${text}\0`);
    const block = nativeBlock(bytes.length);
    new Uint8Array(block.buffer).set(bytes);
    texts.set(text, (address = block.address));
  }
  return address;
}

/** Objects that a library hands out by number: what was destroyed or is of another kind is refused. */
export class Handles {
  readonly #objects = new Map<number, { readonly kind: string; readonly value: unknown }>();
  #next = 0x1000;

  make(cell: NativeArg, kind: string, value: unknown): number {
    const handle = (this.#next += 16);
    this.#objects.set(handle, { kind, value });
    hostMemory(cell, 8).setBigUint64(0, BigInt(handle), true);
    return 0;
  }
  get<T>(handle: number, kind: string): T {
    const found = this.#objects.get(handle);
    if (found?.kind !== kind)
      throw new Misuse(`${handle} is ${found ? `a ${found.kind}` : 'nothing that lives'}, not a ${kind}`);
    return found.value as T;
  }
  destroy(handle: number, kind: string): number {
    this.get(handle, kind);
    this.#objects.delete(handle);
    return 0;
  }
  /** How many of a kind live. */
  count(kind: string): number {
    return [...this.#objects.values()].filter((o) => o.kind === kind).length;
  }
}

/** Numbers of a dtype in device memory, seen as doubles; written back whole. */
export class Numbers {
  readonly values: Float64Array;
  readonly #device: HostedDevice;
  readonly #address: Address;
  readonly #dtype: DType;

  constructor(device: HostedDevice, what: string, address: Address, count: number, dtype: DType) {
    const { bytes, Raw, decode } = DTYPE[dtype];
    checkMemory(device, what, address, count * bytes);
    if (address % bytes !== 0) throw new Misuse(`${what} at ${address} is not aligned to an element of ${dtype}`);
    const raw = new Uint8Array(count * bytes);
    device.copyOut(raw, address, 0);
    this.values = Float64Array.from(new Raw(raw.buffer, 0, count) as Iterable<number>, (r) => Number(decode(r)));
    this.#device = device;
    this.#address = address;
    this.#dtype = dtype;
  }
  write(): void {
    const { Raw, encode } = DTYPE[this.#dtype];
    const raw = new Raw(new ArrayBuffer(this.values.length * DTYPE[this.#dtype].bytes)) as Float64Array;
    for (let i = 0; i < raw.length; i++) raw[i] = encode(this.values[i]) as number;
    this.#device.copyIn(this.#address, new Uint8Array(raw.buffer), 0);
  }
}

export function checkMemory(device: HostedDevice, what: string, address: Address, bytes: number): void {
  if (!device.holds(address, bytes)) throw new Misuse(`${what}: ${bytes} bytes at ${address} are not in device memory`);
}

const WORKSPACE_ALIGNMENT = 256;
/** A workspace is the library's to write, so it is written: nothing else may live there. */
export function useWorkspace(device: HostedDevice, address: Address, bytes: number, need: number): void {
  if (bytes < need) throw new Misuse(`a workspace of ${bytes} bytes where the algorithm needs ${need}`);
  if (need === 0) return;
  if (address % WORKSPACE_ALIGNMENT !== 0)
    throw new Misuse(`the workspace at ${address} is not aligned to ${WORKSPACE_ALIGNMENT}`);
  checkMemory(device, 'workspace', address, bytes);
  device.copyIn(address, new Uint8Array(need).fill(0xff), 0);
}

/** Vendors' type numbers to ours; another number is refused. */
export function typeOf(types: Readonly<Record<string, number>>, number: number): DType {
  const found = Object.entries(types).find(([, n]) => n === number)?.[0];
  if (found === undefined) throw new Misuse(`${number} is not a data type that is used here`);
  return found as DType;
}
