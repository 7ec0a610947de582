// Stand-ins of cuBLASLt and hipBLASLt: layouts, descriptors and preferences are bags of attributes of known sizes; the
// numbers are the bindings' own.
import { CUBLASLT_NUMBERS } from '../driver/cublaslt.js';
import type { NativeArg } from '../driver/ffi.js';
import { HIPBLASLT_NUMBERS } from '../driver/hipblaslt.js';
import { LT_TYPES, type LtNumbers } from '../driver/lt.js';
import {
  Handles,
  hostMemory,
  type HostedDevice,
  Misuse,
  StandIn,
  standInCalls,
  type Symbols,
  textAddress,
  typeOf,
  useWorkspace,
} from './library.js';
import { checkProduct, type Matrices, multiply, type Product } from './product.js';

interface Layout {
  readonly type: number;
  readonly rows: number;
  readonly cols: number;
  readonly ld: number;
  batch: number;
  stride: number;
}
interface Description {
  readonly compute: number;
  readonly scale: number;
  readonly attributes: Map<number, number>;
}
interface Preference {
  workspace: number;
  readonly alignments: Map<number, number>;
}
/** What an algorithm was chosen for: it serves nothing else. */
interface Choice {
  readonly key: string;
  readonly alignment: number;
  readonly workspace: number;
  /** Its place among those that were offered. */
  readonly place: number;
}

const NOT_SUPPORTED = { cublasLt: 15, hipblasLt: 7 } as const;
const EPILOGUE_DEFAULT = 1;
/** A mark at the beginning of every algorithm, then its number. */
const MARK = 0x4f474c41;
const DEFAULT_ALIGNMENT = 256;
const WORKSPACE = 1 << 16;
/** Algorithms that it has for every product. */
const OFFERED = 3;

interface LtOptions {
  /** Dtypes it has no algorithm for, as hipBLASLt has none for f64 on most GPUs. */
  readonly refused?: readonly string[];
  /** As the library tells it. */
  readonly version?: number;
}

export function ltStandIn(prefix: 'cublasLt' | 'hipblasLt', device: HostedDevice, options: LtOptions = {}): StandIn {
  return new StandIn(prefix, new LtLibrary(prefix, device, options).symbols());
}

class LtLibrary {
  readonly #numbers: LtNumbers;
  readonly #refused: readonly string[];
  readonly #version: number;
  readonly #handles = new Handles();
  readonly #choices: Choice[] = [];

  readonly prefix: 'cublasLt' | 'hipblasLt';
  readonly device: HostedDevice;

  constructor(prefix: 'cublasLt' | 'hipblasLt', device: HostedDevice, options: LtOptions) {
    this.prefix = prefix;
    this.device = device;
    const nvidia = prefix === 'cublasLt';
    this.#numbers = nvidia ? CUBLASLT_NUMBERS : HIPBLASLT_NUMBERS;
    this.#refused = options.refused ?? (nvidia ? [] : ['f64']);
    this.#version = options.version ?? (nvidia ? 130101 : 100202);
  }

  symbols(): Symbols {
    const calls: Symbols = {
      GetVersion:
        this.prefix === 'cublasLt' ? () => this.#version : (h: number, cell: NativeArg) => this.#tellVersion(h, cell),
      GetStatusName: (s: number) => textAddress(s === 0 ? 'CUBLAS_STATUS_SUCCESS' : `CUBLAS_STATUS_${s}`),
      Create: (cell: NativeArg) => this.#handles.make(cell, 'handle', {}),
      Destroy: (h: number) => this.#handles.destroy(h, 'handle'),
      ...this.#layoutCalls(),
      ...this.#descriptionCalls(),
      ...this.#preferenceCalls(),
      MatmulAlgoGetHeuristic: (...args: Parameters<LtLibrary['choose']>) => this.choose(...args),
      Matmul: (...args: Parameters<LtLibrary['matmul']>) => this.matmul(...args),
    };
    return Object.fromEntries(Object.entries(calls).map(([name, call]) => [`${this.prefix}${name}`, call]));
  }

  #tellVersion(handle: number, cell: NativeArg): number {
    this.#handles.get(handle, 'handle');
    hostMemory(cell, 4).setInt32(0, this.#version, true);
    return 0;
  }

  #layoutCalls(): Symbols {
    const { layout: attributes } = this.#numbers;
    return {
      MatrixLayoutCreate: (cell: NativeArg, type: number, rows: number, cols: number, ld: number) => {
        typeOf(LT_TYPES, type);
        const layout: Layout = { type, rows, cols, ld, batch: 1, stride: 0 };
        return this.#handles.make(cell, 'matrix layout', layout);
      },
      MatrixLayoutSetAttribute: (h: number, attribute: number, value: NativeArg, bytes: number) => {
        const layout = this.#layout(h);
        if (attribute === attributes.batchCount) layout.batch = sized(value, bytes, 4);
        else if (attribute === attributes.batchStride) layout.stride = sized(value, bytes, 8);
        else throw new Misuse(`attribute ${attribute}`);
        return 0;
      },
      MatrixLayoutDestroy: (h: number) => this.#handles.destroy(h, 'matrix layout'),
    };
  }

  #descriptionCalls(): Symbols {
    const { desc } = this.#numbers;
    return {
      MatmulDescCreate: (cell: NativeArg, compute: number, scale: number) =>
        this.#handles.make(cell, 'description', { compute, scale, attributes: new Map() } satisfies Description),
      MatmulDescSetAttribute: (h: number, attribute: number, value: NativeArg, bytes: number) => {
        const { attributes } = this.#description(h);
        if (!Object.values(desc).includes(attribute)) throw new Misuse(`attribute ${attribute}`);
        attributes.set(attribute, sized(value, bytes, attribute === desc.biasPointer ? 8 : 4));
        return 0;
      },
      MatmulDescDestroy: (h: number) => this.#handles.destroy(h, 'description'),
    };
  }

  #preferenceCalls(): Symbols {
    const { pref } = this.#numbers;
    return {
      MatmulPreferenceCreate: (cell: NativeArg) =>
        this.#handles.make(cell, 'preference', { workspace: 0, alignments: new Map() } satisfies Preference),
      MatmulPreferenceSetAttribute: (h: number, attribute: number, value: NativeArg, bytes: number) => {
        const preference = this.#handles.get<Preference>(h, 'preference');
        if (attribute === pref.maxWorkspace) preference.workspace = sized(value, bytes, 8);
        else if (pref.minAlignment.includes(attribute)) preference.alignments.set(attribute, sized(value, bytes, 4));
        else throw new Misuse(`attribute ${attribute}`);
        return 0;
      },
      MatmulPreferenceDestroy: (h: number) => this.#handles.destroy(h, 'preference'),
    };
  }

  #layout(h: number): Layout {
    return this.#handles.get<Layout>(h, 'matrix layout');
  }

  #description(h: number): Description {
    return this.#handles.get<Description>(h, 'description');
  }

  /** The product that a description and its layouts speak of, if all of them fit together; addresses come later. */
  #product(d: Description, [a, b, c, out]: readonly Layout[]): Product {
    const numbers = this.#numbers;
    if (a.batch !== b.batch || a.batch !== out.batch || c.batch !== out.batch)
      throw new Misuse(`batches of ${a.batch}, ${b.batch}, ${c.batch} and ${out.batch}`);
    if (c.type !== out.type) throw new Misuse('c and d are of different types');
    const transposed = (attribute: number): boolean => {
      const value = d.attributes.get(attribute);
      if (value !== numbers.opN && value !== numbers.opT)
        throw new Misuse(`operation ${value} of attribute ${attribute}`);
      return value === numbers.opT;
    };
    const matrices = (l: Layout): Matrices => ({ ...l, address: 0, dtype: typeOf(LT_TYPES, l.type) });
    this.#checkArithmetic(d, matrices(a).dtype);
    const p = {
      batch: out.batch,
      a: matrices(a),
      b: matrices(b),
      d: matrices(out),
      transposedA: transposed(numbers.desc.transA),
      transposedB: transposed(numbers.desc.transB),
      alpha: 1,
      beta: 0,
      tf32: d.compute === numbers.compute.tf32,
    };
    checkProduct(p);
    return p;
  }

  #checkArithmetic(d: Description, dtype: string): void {
    const { compute, desc, epilogueBias } = this.#numbers;
    const scale = dtype === 'f64' ? LT_TYPES.f64 : LT_TYPES.f32;
    if (d.scale !== scale) throw new Misuse(`scale type ${d.scale} of a product of ${dtype}`);
    const served = { f64: [compute.f64], f32: [compute.f32, compute.tf32] }[dtype] ?? [compute.f32];
    if (!served.includes(d.compute)) throw new Misuse(`compute type ${d.compute} of a product of ${dtype}`);
    const epilogue = d.attributes.get(desc.epilogue) ?? EPILOGUE_DEFAULT;
    if (epilogue !== EPILOGUE_DEFAULT && epilogue !== epilogueBias) throw new Misuse(`epilogue ${epilogue}`);
  }

  choose(
    h: number,
    desc: number,
    a: number,
    b: number,
    c: number,
    d: number,
    pref: number,
    wanted: number,
    results: NativeArg,
    found: NativeArg,
  ): number {
    this.#handles.get(h, 'handle');
    const preference = this.#handles.get<Preference>(pref, 'preference');
    const layouts = [a, b, c, d].map((l) => this.#layout(l));
    const p = this.#product(this.#description(desc), layouts);
    hostMemory(found, 4).setInt32(0, 0, true);
    if (this.#refused.includes(p.a.dtype)) return NOT_SUPPORTED[this.prefix];
    const { size, workspaceSize } = this.#numbers.result;
    const count = Math.min(wanted, OFFERED);
    const out = hostMemory(results, wanted * size);
    for (let i = 0; i < count; i++) {
      // The last one divides sums in another way.
      const workspace = Math.min(preference.workspace, i < OFFERED - 1 ? WORKSPACE : WORKSPACE / 2);
      this.#choices.push({ key: keyOf(p), alignment: this.#alignment(preference), workspace, place: i });
      out.setUint32(i * size, MARK, true);
      out.setUint32(i * size + 4, this.#choices.length - 1, true);
      out.setBigUint64(i * size + workspaceSize, BigInt(workspace), true);
    }
    hostMemory(found, 4).setInt32(0, count, true);
    return 0;
  }

  /** Without a word about it the library takes its own memory's; hipBLASLt has no such attribute and takes any. */
  #alignment({ alignments }: Preference): number {
    const told = this.#numbers.pref.minAlignment.map((n) => alignments.get(n) ?? DEFAULT_ALIGNMENT);
    return Math.max(1, ...told);
  }

  matmul(h: number, desc: number, ...args: number[]): number {
    const [alpha, a, aLayout, b, bLayout, beta, c, cLayout, d, dLayout, algo, workspace, bytes, stream] = args;
    this.#handles.get(h, 'handle');
    if (stream === 0) throw new Misuse('the default stream');
    const description = this.#description(desc);
    const layouts = [aLayout, bLayout, cLayout, dLayout].map((l) => this.#layout(l));
    const p = this.#product(description, layouts);
    const choice = this.#chosen(algo, p);
    const by = `${this.prefix}Matmul by algorithm ${choice.place}`;
    standInCalls.set(by, (standInCalls.get(by) ?? 0) + 1);
    const bias = this.#bias(description);
    checkAlignment({ a, b, c, d, ...(bias !== undefined && { bias }) }, choice.alignment);
    const scalar = (at: number): number =>
      p.a.dtype === 'f64' ? hostMemory(at, 8).getFloat64(0, true) : hostMemory(at, 4).getFloat32(0, true);
    if (c !== d && scalar(beta) === 0) throw new Misuse('c and d are different addresses, though beta is 0');
    const run: Product = {
      ...p,
      a: { ...p.a, address: a },
      b: { ...p.b, address: b },
      d: { ...p.d, address: d },
      alpha: scalar(alpha),
      beta: scalar(beta),
      c,
      ...(bias !== undefined && { bias }),
    };
    this.device.enqueue(stream, () => {
      useWorkspace(this.device, workspace, bytes, choice.workspace);
      multiply(this.device, run);
    });
    return 0;
  }

  #chosen(algo: number, p: Product): Choice {
    const chosen = hostMemory(algo, 8);
    const choice = chosen.getUint32(0, true) === MARK ? this.#choices[chosen.getUint32(4, true)] : undefined;
    if (choice?.key !== keyOf(p)) throw new Misuse('the algorithm is none that was chosen for this product');
    return choice;
  }

  /** The address of the bias that the epilogue adds; none where it adds none. */
  #bias({ attributes }: Description): number | undefined {
    if (attributes.get(this.#numbers.desc.epilogue) !== this.#numbers.epilogueBias) return undefined;
    const bias = attributes.get(this.#numbers.desc.biasPointer);
    if (!bias) throw new Misuse('the epilogue adds a bias, and there is no address of one');
    return bias;
  }
}

function checkAlignment(addresses: Readonly<Record<string, number>>, alignment: number): void {
  for (const [name, address] of Object.entries(addresses))
    if (address % alignment !== 0)
      throw new Misuse(`${name} at ${address} is not aligned to ${alignment}, what the algorithm was chosen for`);
}

/** What an algorithm is good for: shapes, types and strides, not addresses. */
const keyOf = (p: Product): string => JSON.stringify({ ...p, alpha: 0, beta: 0 });

function sized(value: NativeArg, bytes: number, want: 4 | 8): number {
  if (bytes !== want) throw new Misuse(`${bytes} bytes where the attribute has ${want}`);
  const view = hostMemory(value, want);
  return want === 4 ? view.getInt32(0, true) : Number(view.getBigInt64(0, true));
}
