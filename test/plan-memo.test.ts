// A plan that is kept is the plan that would be made: for every call of test/launches.txt.br on paper, and to the byte
// of every argument for calls on a GPU that does nothing.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Memory, View } from '../src/backends/backend.js';
import { planRow } from '../src/backends/gpu/families.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Libraries } from '../src/backends/gpu/libraries.js';
import { FAULT, type Plan, Slot } from '../src/backends/gpu/plan.js';
import { PlanMemo } from '../src/backends/gpu/plan-memo.js';
import { Layout } from '../src/base/layout.js';
import { findSymbol } from '../src/backends/gpu/modules.js';
import type { ArgBuffer } from '../src/driver/args.js';
import type { Entry } from '../src/kernels/declare.js';
import type { DeviceInfo, Fn } from '../src/driver/driver.js';
import { Device, QTensor, scope, zeros } from '../src/index.js';
import type { RunRow } from '../src/ops/op.js';
import { opList, OPS } from '../src/ops/table.js';
import { buildInputs, casesOf, runCase } from '../src/testing/cases.js';
import { IdleGpu } from '../src/testing/idle-gpu.js';
import { launchLines, LIBRARY, ON_PAPER, readLines } from './launch-lines.js';

const noLibraries = (): Libraries => new Libraries(() => ({ blas: 'none', dnn: 'none' }));
/** Steps with operands' memory in the place of slots. */
function filled<T>(of: T, memories: readonly Memory[]): T {
  if (of === FAULT) return of;
  if (of instanceof Slot) return memories[of.operand] as T;
  if (Array.isArray(of)) return of.map((x) => filled(x, memories)) as T;
  if (typeof of !== 'object' || of === null || Object.getPrototypeOf(of) !== Object.prototype) return of;
  if ('siblings' in of) return of; // a chain
  return Object.fromEntries(Object.entries(of).map(([name, x]) => [name, filled(x, memories)])) as T;
}

test('plans that are kept are those made afresh, for every call of the launches written down', () => {
  const memos = new Map<DeviceInfo, PlanMemo>();
  const byLibrary = new PlanMemo(ON_PAPER[1], Object.assign(noLibraries(), LIBRARY));
  const counts = { calls: 0, kept: 0 };
  const kept: typeof planRow = (row, inputs, outputs, params, device, served) => {
    if (!memos.has(device)) memos.set(device, new PlanMemo(device, noLibraries()));
    const memo = served ? byLibrary : (memos.get(device) as PlanMemo);
    memo.find(row, inputs, outputs, params);
    const made = memo.find(row, inputs, outputs, params);
    const found = memo.find(row, inputs, outputs, structuredClone(params));
    assert.equal(found, made, `${row.name}: the call is found again`);
    counts.calls++;
    if (!found) return planRow(row, inputs, outputs, params, device, served);
    counts.kept++;
    const memories = [...inputs, ...outputs].map((v) => v.memory);
    return found.steps.map((step) => filled(step, memories)) satisfies Plan;
  };
  const written = readLines();
  for (const [key, lines] of launchLines((op) => op !== 'elementwise', kept)) {
    const at = lines.findIndex((line, i) => line !== written.get(key)?.[i]);
    if (at >= 0) assert.equal(lines[at], written.get(key)?.[at], key);
  }
  assert.ok(counts.kept > 0.9 * counts.calls, `${counts.kept} of ${counts.calls} calls are kept`);
});

test('whatever a plan may read makes another key', () => {
  const libraries = noLibraries();
  const memo = new PlanMemo(new IdleGpu().info, libraries);
  const view = (shape: number[], { address = 256, offset = 0, dtype = 'f32' } = {}): View => ({
    ...{ memory: { address, bytes: 1e6 }, layout: Layout.contiguous(shape, offset), dtype: dtype as 'f32' },
  });
  const turned = view([8, 4]);
  const [sum, mean] = [OPS.sum, OPS.mean] as unknown as RunRow[];
  const fill = OPS.newFull as unknown as RunRow;
  const dims = { dims: [1], keepdim: false };
  const x = view([4, 8]);
  const calls: [RunRow, View[], View[], object][] = [
    [sum, [x], [view([4])], dims],
    [mean, [x], [view([4])], dims],
    [sum, [view([4, 8], { dtype: 'f16' })], [view([4])], dims],
    [sum, [view([4, 8], { offset: 1 })], [view([4])], dims],
    [sum, [view([4, 8], { address: 260 })], [view([4])], dims],
    [sum, [{ ...turned, layout: turned.layout.transpose(0, 1) }], [view([4])], dims],
    [sum, [view([4, 9])], [view([4])], dims],
    [sum, [x], [view([4], { offset: 4 })], dims],
    [sum, [x], [view([4])], { ...dims, keepdim: true }],
    [sum, [x], [view([8])], { ...dims, dims: [0] }],
    [fill, [], [x], { shape: [4, 8], dtype: 'f32', value: 0 }],
    [fill, [], [x], { shape: [4, 8], dtype: 'f32', value: 0.5 }],
  ];
  const find = () => calls.map((c) => memo.find(...(c as Parameters<PlanMemo['find']>)));
  const [first, made, found] = [find(), find(), find()];
  const isNone = (p: unknown): boolean => p === undefined;
  assert.ok(first.every(isNone), 'the first call is planned afresh');
  assert.equal(new Set(made).size, calls.length);
  assert.ok(!made.some(isNone));
  assert.deepEqual(
    found.map((p) => made.indexOf(p)),
    calls.map((_, i) => i),
  );
  const zero = { shape: [4, 8], dtype: 'f32', value: -0 } as never;
  assert.ok(!made.includes(memo.find(fill, [], [x], zero)), '-0 has bits of its own');
  for (const change of [
    () => (libraries.enabled = false),
    () => (libraries.tf32 = true),
    () => (libraries.deterministic = false),
    () => (libraries.products = false),
    () => (libraries.attentionTried = !libraries.attentionTried),
    () => libraries.attentionFrom++,
    () => libraries.attentionPatience++,
    () => libraries.refused++,
  ]) {
    change();
    assert.ok(find().every(isNone), String(change));
  }
  const object = { ...dims, at: new Date() };
  for (let i = 0; i < 3; i++) assert.equal(memo.find(sum, [x], [view([4])], object as never), undefined);
});

/** Notes arguments of declared kernels, without the bytes between them, which nobody writes. */
class NotingGpu extends IdleGpu {
  readonly #entries: (Entry | undefined)[] = [];
  override getFunction(module: number, symbol: string): Fn {
    const fn = super.getFunction(module, symbol);
    this.#entries[fn] = findSymbol(symbol)?.entry;
    return fn;
  }
  override launch(...[fn, grid, block, shared, , args, early]: Parameters<IdleGpu['launch']>): void {
    const entry = this.#entries[fn];
    const bytes = Buffer.from((args as ArgBuffer).bytes());
    const packed = entry?.params.map((p) => bytes.toString('hex', p.offset, p.offset + p.size));
    this.note(`${entry?.symbol} ${grid} ${block} ${shared} ${early} ${packed}`);
  }
}
/** What every run of the cases asks of a GPU; with `anew` no call is like another, so that none is kept. */
function asked(anew: boolean): { lines: string[]; runs: number } {
  const [lines, RUNS]: [string[], number] = [[], 3];
  let runs = 0;
  for (const libraries of [[], ['blas', 'attention']] as const) {
    const bare = new NotingGpu(undefined, libraries);
    const backend = new GpuBackend('idle', bare);
    bare.onAttention = (plan) => backend.context.libraries.keepWay(plan, 0);
    const device = new (Device as unknown as new (b: GpuBackend) => Device)(backend);
    for (const row of opList) {
      const all = [...casesOf([row])];
      for (const c of all.slice(libraries.length ? all.length >> 1 : 0).slice(0, 1))
        for (let i = 0; i < RUNS; i++, runs++)
          scope(() => {
            if (anew) backend.context.libraries.attentionPatience += 1;
            lines.push(`# ${c.name}`);
            try {
              const { tensors } = buildInputs(c, device);
              bare.list = lines;
              runCase(c, tensors, device);
            } catch (e) {
              lines.push(`error ${(e as Error).message}`);
            }
            bare.list = undefined;
          });
    }
  }
  return { lines, runs };
}
test('launches from plans that are kept have the bytes of those planned every time', () => {
  const [kept, fresh] = [asked(false), asked(true)];
  assert.ok(kept.runs > 500);
  const at = kept.lines.findIndex((line, i) => line !== fresh.lines[i]);
  if (at >= 0)
    assert.equal(
      kept.lines[at],
      fresh.lines[at],
      kept.lines.slice(0, at).findLast((l) => l.startsWith('#')),
    );
  assert.equal(kept.lines.length, fresh.lines.length);
});

test('a product begins early, except behind a launch that writes its weights', () => {
  const bare = new NotingGpu();
  const device = new (Device as unknown as new (b: GpuBackend) => Device)(new GpuBackend('idle', bare));
  const weights = QTensor.fromBytes('Q4_K', [64, 256], new Uint8Array(64 * 144), device);
  const { blocks } = weights.parts[0];
  const other = zeros(blocks.shape, { dtype: 'u8', device });
  for (const rows of [1, 8]) {
    const x = zeros([rows, 256], { dtype: 'bf16', device });
    const beginsEarly = (before: () => unknown): boolean => {
      before();
      bare.list = [];
      weights.matmul(x, { quick: true });
      const line = bare.list.find((l) => /^weights_(quick|matrix)/.test(l)) as string;
      return line.split(' ')[4] === 'true';
    };
    assert.equal(
      beginsEarly(() => weights.matmul(x, { quick: true })),
      true,
      'behind a product',
    );
    assert.equal(
      beginsEarly(() => other.add(1).memory),
      true,
      'behind what writes elsewhere',
    );
    const [to, from] = [blocks, other].map((t) => t.narrow(1, 0, 8));
    assert.equal(
      beginsEarly(() => to.assign(from)),
      false,
      'behind a launch that writes a part of the weights',
    );
    assert.equal(
      beginsEarly(() => from.assign(to)),
      true,
      'behind one that reads it',
    );
    assert.equal(
      beginsEarly(() => blocks.assign(other)),
      false,
      'behind a copy by the driver',
    );
  }
});
