// MIOpen: convolutions forward and backward on AMD GPUs in its immediate mode, ROCm 5.2 to 7.
import { Calls } from './checked-calls.js';
import { checkConv, type ConvDType, convKey, type ConvPlan, type ConvSpec, type Dnn, withAddresses } from './dnn.js';
import type { Address, Device, Maybe, Stream } from './driver.js';
import { Cell, type FindLibrary, nativeBlock, nativeString, openLibrary, type LibrarySpec } from './ffi.js';
import { made } from './lt.js';
import { Planned } from './library-plans.js';
import { Workspaces } from './workspace.js';

export const MIOPEN: LibrarySpec = { name: 'MIOpen', sonames: ['libMIOpen.so.1', 'libMIOpen.so'], vendor: 'rocm' };

const handles = 'uintptr_t handle, uintptr_t first, uintptr_t second, uintptr_t conv, uintptr_t third';
const running =
  'uintptr_t handle, uintptr_t d1, uintptr_t p1, uintptr_t d2, uintptr_t p2, uintptr_t conv, uintptr_t d3, ' +
  'uintptr_t p3, uintptr_t workspace, size_t bytes, uint64_t solution';
export const MIOPEN_TABLE = {
  create: 'int miopenCreate(void *handle)',
  destroy: 'int miopenDestroy(uintptr_t handle)',
  version: 'int miopenGetVersion(void *major, void *minor, void *patch)',
  errorString: 'uintptr_t miopenGetErrorString(int status)',
  setStream: 'int miopenSetStream(uintptr_t handle, uintptr_t stream)',
  tensorCreate: 'int miopenCreateTensorDescriptor(void *desc)',
  tensorSet: 'int miopenSet4dTensorDescriptor(uintptr_t desc, int type, int n, int c, int h, int w)',
  tensorDestroy: 'int miopenDestroyTensorDescriptor(uintptr_t desc)',
  convCreate: 'int miopenCreateConvolutionDescriptor(void *desc)',
  convSet:
    'int miopenInitConvolutionDescriptor(uintptr_t desc, int mode, int padH, int padW, int strideH, int strideW, ' +
    'int dilationH, int dilationW)',
  convGroups: 'int miopenSetConvolutionGroupCount(uintptr_t desc, int groups)',
  convDestroy: 'int miopenDestroyConvolutionDescriptor(uintptr_t desc)',
  solveForward: `int miopenConvolutionForwardGetSolution(${handles}, size_t wanted, void *found, void *solutions)`,
  solveData: `int miopenConvolutionBackwardDataGetSolution(${handles}, size_t wanted, void *found, void *solutions)`,
  solveFilter: `int miopenConvolutionBackwardWeightsGetSolution(${handles}, size_t wanted, void *found, void *solutions)`,
  compileForward: `int miopenConvolutionForwardCompileSolution(${handles}, uint64_t solution)`,
  compileData: `int miopenConvolutionBackwardDataCompileSolution(${handles}, uint64_t solution)`,
  compileFilter: `int miopenConvolutionBackwardWeightsCompileSolution(${handles}, uint64_t solution)`,
  runForward: `int miopenConvolutionForwardImmediate(${running})`,
  runData: `int miopenConvolutionBackwardDataImmediate(${running})`,
  runFilter: `int miopenConvolutionBackwardWeightsImmediate(${running})`,
} as const;

export const MIOPEN_NUMBERS = {
  miopenHalf: 0,
  miopenFloat: 1,
  miopenBFloat16: 5,
  miopenDouble: 6,
  miopenConvolution: 0,
  miopenStatusAllocFailed: 4,
} as const;
export const MIOPEN_SOLUTION = {
  size: 32,
  fields: { time: 0, workspace_size: 8, solution_id: 16, algorithm: 24 },
} as const;

const N = MIOPEN_NUMBERS;
export const MIOPEN_TYPES: { readonly [D in ConvDType]: number } = {
  f16: N.miopenHalf,
  f32: N.miopenFloat,
  bf16: N.miopenBFloat16,
  f64: N.miopenDouble,
};
/** Operand order by kind; forward names the filter first, unlike cuDNN. */
const KINDS = {
  forward: { solve: 'solveForward', compile: 'compileForward', run: 'runForward', order: ['filter', 'x', 'y'] },
  'backward-data': { solve: 'solveData', compile: 'compileData', run: 'runData', order: ['y', 'filter', 'x'] },
  'backward-filter': { solve: 'solveFilter', compile: 'compileFilter', run: 'runFilter', order: ['y', 'x', 'filter'] },
} as const;
const WANTED = 16;
const MOST_WORKSPACE = 1 << 30;

interface Solution {
  readonly id: number;
  readonly workspace: number;
}
interface MiopenPlan extends ConvPlan {
  readonly x: number;
  readonly filter: number;
  readonly y: number;
  readonly conv: number;
  readonly solutions: readonly Solution[];
  solution: number;
  workspaceBytes: number;
  description: string;
}

export function openMiopen(device: Device, find: FindLibrary = openLibrary): Maybe<Dnn> {
  const library = find(MIOPEN);
  if (typeof library === 'string') return library;
  const raw = library.bind(MIOPEN_TABLE);
  const calls = new Calls(MIOPEN_TABLE, raw, {
    errorName: (s) => nativeString(raw.errorString(s)),
    outOfMemory: [N.miopenStatusAllocFailed],
  });
  const [major, minor, patch] = [new Cell(), new Cell(), new Cell()];
  calls.call('version', major.raw, minor.raw, patch.raw);
  const version = `${major.value}.${minor.value}.${patch.value}`;
  library.note(version);
  return new Miopen(`MIOpen ${version}`, device, calls);
}

class Miopen extends Planned<ConvSpec, MiopenPlan> implements Dnn {
  readonly name: string;
  readonly #device: Device;
  readonly #calls: Calls<typeof MIOPEN_TABLE>;
  readonly #handle: number;
  readonly #workspaces: Workspaces;
  #stream: Stream = 0;

  constructor(name: string, device: Device, calls: Calls<typeof MIOPEN_TABLE>) {
    super('conv2d', convKey);
    this.name = name;
    this.#device = device;
    this.#calls = calls;
    this.#workspaces = new Workspaces(device);
    this.#handle = made((cell) => calls.call('create', cell));
  }

  protected make(spec: ConvSpec, key: string): MiopenPlan | string {
    const rule = spec.dtype === 'f64' ? 'no f64 convolutions' : checkConv(spec);
    if (rule !== true) return `${this.name}: ${rule}`;
    this.#device.makeCurrent();
    const c = this.#calls;
    const tensor = ([n, ch, h, w]: readonly [number, number, number, number]): number => {
      const t = made((cell) => c.call('tensorCreate', cell));
      c.call('tensorSet', t, MIOPEN_TYPES[spec.dtype], n, ch, h, w);
      return t;
    };
    const conv = made((cell) => c.call('convCreate', cell));
    c.call('convSet', conv, N.miopenConvolution, ...spec.padding, ...spec.stride, ...spec.dilation);
    c.call('convGroups', conv, spec.groups);
    const descs = { x: tensor(spec.x), filter: tensor(spec.filter), y: tensor(spec.y) };
    const kind = KINDS[spec.kind];
    const [first, second, third] = kind.order.map((o) => descs[o]);
    const block = nativeBlock(MIOPEN_SOLUTION.size * WANTED);
    const found = new Cell();
    const status = c.status(kind.solve, this.#handle, first, second, conv, third, WANTED, found.raw, block.address);
    const view = new DataView(block.buffer);
    const at = MIOPEN_SOLUTION.fields;
    const solutions = Array.from(
      { length: status === 0 ? found.value : 0 },
      (_, i): Solution => ({
        id: Number(view.getBigUint64(i * MIOPEN_SOLUTION.size + at.solution_id, true)),
        workspace: Number(view.getBigUint64(i * MIOPEN_SOLUTION.size + at.workspace_size, true)),
      }),
    ).filter((s) => s.workspace <= MOST_WORKSPACE);
    const plan: MiopenPlan = { spec, ...descs, conv, solutions, solution: -1, workspaceBytes: 0, description: key };
    if (solutions.length === 0) {
      this.#release(plan);
      return `${this.name} has no solution for ${key} (${c.rules.errorName(status)})`;
    }
    this.#take(plan, solutions[0]); // sorted by expected time
    return plan;
  }

  #take(plan: MiopenPlan, s: Solution): void {
    const kind = KINDS[plan.spec.kind];
    const [first, second, third] = kind.order.map((o) => plan[o]);
    this.#calls.call(kind.compile, this.#handle, first, second, plan.conv, third, s.id);
    plan.solution = s.id;
    plan.workspaceBytes = s.workspace;
    plan.description = `solution ${s.id}, workspace ${s.workspace}`;
  }

  tune(plan: ConvPlan, x: Address, filter: Address, y: Address, stream: Stream): void {
    const p = plan as MiopenPlan;
    const [start, end] = [this.#device.createEvent(true), this.#device.createEvent(true)];
    let best: { solution: Solution; time: number } | undefined;
    for (const solution of p.solutions) {
      this.#take(p, solution);
      this.run(p, x, filter, y, stream); // the first run may still load code
      this.#device.record(start, stream);
      this.run(p, x, filter, y, stream);
      this.#device.record(end, stream);
      this.#device.synchronizeEvent(end);
      const time = this.#device.elapsed(start, end);
      if (!best || time < best.time) best = { solution, time };
    }
    this.#device.destroyEvent(start);
    this.#device.destroyEvent(end);
    if (best) this.#take(p, best.solution);
  }

  run(plan: ConvPlan, x: Address, filter: Address, y: Address, stream: Stream): void {
    const p = plan as MiopenPlan;
    this.#device.makeCurrent();
    if (stream !== this.#stream) {
      this.#calls.call('setStream', this.#handle, stream);
      this.#stream = stream;
    }
    const kind = KINDS[p.spec.kind];
    const [first, second, third] = withAddresses(kind.order, p, { x, filter, y });
    const workspace = [this.#workspaces.get(stream, p.workspaceBytes), p.workspaceBytes];
    this.#calls.call(kind.run, this.#handle, ...first, ...second, p.conv, ...third, ...workspace, p.solution);
  }

  #release(p: MiopenPlan): void {
    for (const t of [p.x, p.filter, p.y]) this.#calls.call('tensorDestroy', t);
    this.#calls.call('convDestroy', p.conv);
  }

  dispose(): void {
    this.clearPlans((p) => this.#release(p));
    this.#workspaces.dispose();
    this.#calls.call('destroy', this.#handle);
  }
}
