// Matrix products through the "Lt" interface, which cuBLASLt and hipBLASLt share call for call; their files hold
// symbols and numbers.
import { DTYPE } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import {
  checkGemm,
  columnMajor,
  gemmKey,
  type Blas,
  type ColumnMajor,
  type GemmDType,
  type GemmPlan,
  type GemmSpec,
} from './blas.js';
import type { Calls } from './checked-calls.js';
import type { Address, Device, Stream } from './driver.js';
import { Cell, nativeBlock, type Native, type Table } from './ffi.js';
import { Planned } from './library-plans.js';
import { Workspaces } from './workspace.js';

/** The 13 prototypes with a vendor's prefix; the two libraries agree on all parameters. */
export const ltTable = (p: 'cublasLt' | 'hipblasLt') =>
  ({
    create: `int ${p}Create(void *handle)`,
    destroy: `int ${p}Destroy(uintptr_t handle)`,
    layoutCreate: `int ${p}MatrixLayoutCreate(void *layout, int type, uint64_t rows, uint64_t cols, int64_t ld)`,
    layoutSet: `int ${p}MatrixLayoutSetAttribute(uintptr_t layout, int attribute, void *value, size_t bytes)`,
    layoutDestroy: `int ${p}MatrixLayoutDestroy(uintptr_t layout)`,
    descCreate: `int ${p}MatmulDescCreate(void *desc, int compute, int scale)`,
    descSet: `int ${p}MatmulDescSetAttribute(uintptr_t desc, int attribute, void *value, size_t bytes)`,
    descDestroy: `int ${p}MatmulDescDestroy(uintptr_t desc)`,
    prefCreate: `int ${p}MatmulPreferenceCreate(void *pref)`,
    prefSet: `int ${p}MatmulPreferenceSetAttribute(uintptr_t pref, int attribute, void *value, size_t bytes)`,
    prefDestroy: `int ${p}MatmulPreferenceDestroy(uintptr_t pref)`,
    heuristic:
      `int ${p}MatmulAlgoGetHeuristic(uintptr_t handle, uintptr_t desc, uintptr_t a, uintptr_t b, uintptr_t c, ` +
      'uintptr_t d, uintptr_t pref, int wanted, void *results, void *found)',
    matmul:
      `int ${p}Matmul(uintptr_t handle, uintptr_t desc, uintptr_t alpha, uintptr_t a, uintptr_t aLayout, uintptr_t ` +
      'b, uintptr_t bLayout, uintptr_t beta, uintptr_t c, uintptr_t cLayout, uintptr_t d, uintptr_t dLayout, ' +
      'uintptr_t algo, uintptr_t workspace, size_t workspaceBytes, uintptr_t stream)',
  }) as const satisfies Table;
type LtTable = ReturnType<typeof ltTable>;

/** The numbers on which the two libraries differ. */
export interface LtNumbers {
  readonly layout: { readonly batchCount: number; readonly batchStride: number };
  readonly desc: {
    readonly transA: number;
    readonly transB: number;
    readonly epilogue: number;
    readonly biasPointer: number;
  };
  readonly pref: { readonly maxWorkspace: number; readonly minAlignment: readonly number[] };
  readonly epilogueBias: number;
  readonly opN: number;
  readonly opT: number;
  readonly compute: { readonly f32: number; readonly tf32: number; readonly f64: number };
  /** The heuristic's answer: its size, where the workspace need stands. The algorithm is at its beginning. */
  readonly result: { readonly size: number; readonly workspaceSize: number };
}

/** cudaDataType and hipDataType agree. */
export const LT_TYPES: { readonly [D in GemmDType]: number } = { f32: 0, f64: 1, f16: 2, bf16: 14 };
const WORKSPACE = 32 << 20;

/** An algorithm in native memory and the workspace it wants. */
interface Algorithm {
  readonly address: number;
  readonly workspace: number;
}

/** Algorithms that are measured for a product, in so many rounds of so many runs. */
const [MOST_OFFERED, ROUNDS, RUNS] = [8, 3, 2];
/** By how much another algorithm must be quicker than the library's first. */
const QUICKER = 1.02;
function quickest(offered: readonly Algorithm[], times: readonly number[]): Algorithm {
  const handicapped = times.map((t, i) => (i === 0 ? t : t * QUICKER));
  return offered[handicapped.indexOf(Math.min(...handicapped))];
}
/** The lowest set bit of addresses, or'ed together, as its exponent; at most 8, for 256 bytes. */
function alignment(addresses: number): number {
  const bits = (addresses | 256) & 511;
  return 31 - Math.clz32(bits & -bits);
}

class LtPlan implements GemmPlan {
  readonly spec: GemmSpec;
  readonly cm: ColumnMajor;
  readonly desc: number;
  readonly layouts: readonly [a: number, b: number, d: number];
  /** By the alignment of the addresses, as its exponent: an algorithm for aligned data must not get other. */
  readonly algorithms: (Algorithm | undefined)[] = [];
  /** The one for data aligned to its elements only, good for all. */
  least: Algorithm | undefined;
  bias = -1;

  constructor(spec: GemmSpec, cm: ColumnMajor, desc: number, layouts: readonly [number, number, number]) {
    this.spec = spec;
    this.cm = cm;
    this.desc = desc;
    this.layouts = layouts;
  }
  get description(): string {
    const used = this.algorithms.filter((a) => a !== undefined);
    return `${gemmKey(this.spec)}: ${
      used.length === 0 ? 'not run yet' : used.map((a) => `workspace ${a.workspace}`).join(', ')
    }`;
  }
}

export class LtBlas extends Planned<GemmSpec, LtPlan> implements Blas {
  readonly name: string;
  readonly #device: Device;
  readonly #calls: Calls<LtTable>;
  readonly #numbers: LtNumbers;
  readonly #handle: number;
  readonly #workspaces: Workspaces;
  readonly #matmul: Native;
  /** alpha at +0, beta at +8, the bias pointer at +16. */
  readonly #scalars = nativeBlock(24);
  readonly #view = new DataView(this.#scalars.buffer);

  constructor(name: string, device: Device, calls: Calls<LtTable>, numbers: LtNumbers) {
    super('matmul', gemmKey);
    this.name = name;
    this.#device = device;
    this.#workspaces = new Workspaces(device);
    this.#calls = calls;
    this.#numbers = numbers;
    this.#matmul = calls.raw.matmul as Native;
    this.#handle = made((cell) => calls.call('create', cell));
  }

  protected make(spec: GemmSpec): LtPlan | string {
    const rule = checkGemm(spec);
    if (rule !== true) return `${this.name}: ${rule}`;
    this.#device.makeCurrent();
    const { layout, desc: attribute, opN, opT, compute, epilogueBias } = this.#numbers;
    const cm = columnMajor(spec);
    const c = this.#calls;
    const type = LT_TYPES[spec.dtype];
    const layoutOf = (dtype: number, rows: number, cols: number, ld: number, stride: number): number => {
      const l = made((cell) => c.call('layoutCreate', cell, dtype, rows, cols, ld));
      c.call('layoutSet', l, layout.batchCount, int32(spec.batch), 4);
      c.call('layoutSet', l, layout.batchStride, int64(stride), 8);
      return l;
    };
    // A transposed operand is stored the other way round.
    const stored = (o: ColumnMajor['a'], rows: number, cols: number) =>
      layoutOf(type, o.transposed ? cols : rows, o.transposed ? rows : cols, o.ld, o.batchStride);
    const wide = spec.dtype === 'f64';
    const math = wide ? compute.f64 : spec.dtype === 'f32' && spec.tf32 ? compute.tf32 : compute.f32;
    const desc = made((cell) => c.call('descCreate', cell, math, wide ? LT_TYPES.f64 : LT_TYPES.f32));
    c.call('descSet', desc, attribute.transA, int32(cm.a.transposed ? opT : opN), 4);
    c.call('descSet', desc, attribute.transB, int32(cm.b.transposed ? opT : opN), 4);
    if (spec.bias) c.call('descSet', desc, attribute.epilogue, int32(epilogueBias), 4);
    const layouts = [
      stored(cm.a, cm.m, cm.k),
      stored(cm.b, cm.k, cm.n),
      layoutOf(LT_TYPES[spec.outDtype ?? spec.dtype], cm.m, cm.n, cm.d.ld, cm.d.batchStride),
    ] as const;
    const plan = new LtPlan(spec, cm, desc, layouts);
    // Whatever the addresses will be, they are multiples of an element: an algorithm for those must exist.
    const exponent = Math.log2(DTYPE[spec.dtype].bytes);
    const least = this.#choose(plan, 1 << exponent);
    if (typeof least === 'string') {
      this.#release(plan);
      return least;
    }
    plan.algorithms[exponent] = plan.least = least;
    return plan;
  }

  readonly run: Blas['run'] = (plan, a, b, d, bias, alpha, beta, stream, c = d) => {
    const p = plan as LtPlan;
    this.#device.makeCurrent();
    if (p.spec.bias && p.bias !== bias) {
      this.#view.setUint32(16, bias, true);
      this.#view.setUint32(20, bias / 0x100000000, true);
      this.#calls.call('descSet', p.desc, this.#numbers.desc.biasPointer, this.#scalars.address + 16, 8);
      p.bias = bias;
    }
    const align = alignment(a | b | c | d | (p.spec.bias ? bias : 0));
    const algorithm = (p.algorithms[align] ??= this.#better(p, 1 << align));
    const status = this.#enqueue(p, algorithm, a, b, c, d, alpha, beta, stream);
    if (status !== 0) throw this.#calls.error('matmul', [gemmKey(p.spec)], status);
  };
  #enqueue(
    p: LtPlan,
    algorithm: Algorithm,
    a: Address,
    b: Address,
    c: Address,
    d: Address,
    alpha: number,
    beta: number,
    stream: Stream,
  ): number {
    const bytes = algorithm.workspace === 0 ? 0 : WORKSPACE; // one size for all, so that the block never grows
    const workspace = this.#workspaces.get(stream, bytes);
    const view = this.#view;
    if (p.spec.dtype === 'f64') {
      view.setFloat64(0, alpha, true);
      view.setFloat64(8, beta, true);
    } else {
      view.setFloat32(0, alpha, true);
      view.setFloat32(8, beta, true);
    }
    const at = this.#scalars.address;
    const left = p.cm.swap ? b : a;
    const right = p.cm.swap ? a : b;
    const [la, lb, ld] = p.layouts;
    return this.#matmul(
      this.#handle,
      p.desc,
      at,
      left,
      la,
      right,
      lb,
      at + 8,
      c,
      ld,
      d,
      ld,
      algorithm.address,
      workspace,
      bytes,
      stream,
    ) as number;
  }

  readonly measure: NonNullable<Blas['measure']> = (plan, a, b, room, stream) => {
    const p = plan as LtPlan;
    const device = this.#device;
    device.makeCurrent();
    const align = alignment(a | b | room);
    const all = this.#offered(p, 1 << align, MOST_OFFERED);
    if (typeof all === 'string') return;
    // With the same workspace sums are divided alike: results are the same bits, whatever the clock says.
    const offered = all.filter(({ workspace }) => workspace === all[0].workspace);
    if (offered.length === 1) return;
    const [start, end] = [device.createEvent(true), device.createEvent(true)];
    const milliseconds = (algorithm: Algorithm): number => {
      device.record(start, stream);
      for (let run = 0; run < RUNS; run++)
        if (this.#enqueue(p, algorithm, a, b, room, room, 1, 0, stream) !== 0) return Infinity;
      device.record(end, stream);
      device.synchronizeEvent(end);
      return device.elapsed(start, end);
    };
    // In turns: a device that grows warm is as slow for each. The first round is for the device to wake.
    const rounds = Array.from({ length: 1 + ROUNDS }, () => offered.map(milliseconds)).slice(1);
    device.destroyEvent(start);
    device.destroyEvent(end);
    const times = offered.map((_, i) => Math.min(...rounds.map((r) => r[i])));
    p.algorithms[align] = quickest(offered, times);
  };

  #better(p: LtPlan, align: number): Algorithm {
    const found = this.#choose(p, align);
    if (typeof found !== 'string') return found;
    if (p.least === undefined || align < DTYPE[p.spec.dtype].bytes)
      throw new ArgumentError(
        `matmul: addresses are aligned to ${align} bytes, less than an element of ${p.spec.dtype}`,
      );
    return p.least;
  }

  #choose(p: LtPlan, align: number): Algorithm | string {
    const offered = this.#offered(p, align, 1);
    return typeof offered === 'string' ? offered : offered[0];
  }
  /** At most so many algorithms, the one that the library expects to be the quickest first. */
  #offered(p: LtPlan, align: number, most: number): Algorithm[] | string {
    const c = this.#calls;
    const { pref: attribute, result } = this.#numbers;
    const pref = made((cell) => c.call('prefCreate', cell));
    try {
      c.call('prefSet', pref, attribute.maxWorkspace, int64(WORKSPACE), 8);
      for (const n of attribute.minAlignment) c.call('prefSet', pref, n, int32(align), 4);
      const results = nativeBlock(most * result.size);
      const found = new Cell();
      const [a, b, d] = p.layouts;
      const status = c.status('heuristic', this.#handle, p.desc, a, b, d, d, pref, most, results.address, found.raw);
      if (status !== 0 || found.int === 0) {
        return `${this.name} has no algorithm for ${gemmKey(p.spec)} at alignment ${align} (${c.rules.errorName(status)})`;
      }
      const view = new DataView(results.buffer);
      return Array.from({ length: found.int }, (_, i) => ({
        address: results.address + i * result.size,
        workspace: Number(view.getBigUint64(i * result.size + result.workspaceSize, true)),
      }));
    } finally {
      c.call('prefDestroy', pref);
    }
  }

  #release(p: LtPlan): void {
    for (const l of p.layouts) this.#calls.call('layoutDestroy', l);
    this.#calls.call('descDestroy', p.desc);
  }

  dispose(): void {
    this.clearPlans((p) => this.#release(p));
    this.#workspaces.dispose();
    this.#calls.call('destroy', this.#handle);
  }
}

/** The handle a creating call writes. */
export function made(create: (cell: Uint32Array) => void): number {
  const cell = new Cell();
  create(cell.raw);
  return cell.value;
}
const int32 = (v: number): Int32Array => new Int32Array([v]);
const int64 = (v: number): BigInt64Array => new BigInt64Array([BigInt(v)]);
