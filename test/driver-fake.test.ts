// Every call of the CUDA and HIP drivers against a driver in host memory (fake-gpu.c), found by the ordinary library
// search.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ArgumentError, DeviceError, DriverError, OutOfMemoryError } from '../src/base/errors.js';
import { ArgBuffer } from '../src/driver/args.js';
import { CUDA_TABLE, openCuda } from '../src/driver/cuda.js';
import type { Device, Driver } from '../src/driver/driver.js';
import { CUBLASLT } from '../src/driver/cublaslt.js';
import { forDriver } from '../src/driver/cuda-version.js';
import { CUDNN } from '../src/driver/cudnn.js';
import { libraryReports, openLibrary } from '../src/driver/ffi.js';
import { HIP_TABLE, openHip } from '../src/driver/hip.js';
import { HIPBLASLT } from '../src/driver/hipblaslt.js';
import { MIOPEN } from '../src/driver/miopen.js';
import { ROCBLAS } from '../src/driver/rocblas.js';
import { onFirstUse, orSentence } from '../src/driver/vendor.js';

const dir = mkdtempSync(join(tmpdir(), 'wick-fake-'));
after(() => rmSync(dir, { recursive: true, force: true }));
const source = fileURLToPath(new URL('../../test/fake-gpu.c', import.meta.url));
const build = (name: string, ...flags: string[]) =>
  spawnSync('cc', ['-O1', '-shared', '-fPIC', ...flags, '-o', join(dir, name), source], { encoding: 'utf8' });
const built = [build('libcuda.so.1', '-DCUDA'), build('libamdhip64.so.7')];
const failed = built.find((b) => b.status !== 0);
const skip =
  failed && (failed.error ? 'no C compiler here (cc)' : `the fake driver does not compile: ${failed.stderr}`);
process.env.WICK_LIBRARY_PATH = dir;

const VENDORS = {
  cuda: {
    open: openCuda,
    table: CUDA_TABLE,
    name: 'CUDA driver 13.0',
    arch: ['sm_90', 'sm_90'],
    full: 'sm_90',
    warp: 32,
    pools: true,
    alloc: 'cuMemAlloc_v2',
    full2: 'CUDA_ERROR_OUT_OF_MEMORY',
    // Attributes are 1000 and their number, where they are no others.
    facts: {
      ...{ multiprocessors: 1016, maxThreadsPerBlock: 1001, maxThreadsPerMultiprocessor: 1039, sharedPerBlock: 1008 },
      ...{ sharedPerBlockOptin: 200000, registersPerBlock: 1012, l2Bytes: 1038, tensorMaps: true },
    },
  },
  hip: {
    open: openHip,
    table: HIP_TABLE,
    name: 'HIP 7.2.53211',
    arch: ['gfx90a', 'gfx1100'],
    full: 'gfx90a:sramecc+:xnack-',
    warp: 64,
    pools: false,
    alloc: 'hipMalloc',
    full2: 'hipErrorOutOfMemory',
    facts: {
      ...{ multiprocessors: 1063, maxThreadsPerBlock: 1056, maxThreadsPerMultiprocessor: 1057, sharedPerBlock: 65536 },
      ...{ sharedPerBlockOptin: 65536, registersPerBlock: 1071, l2Bytes: 1019 },
    },
  },
} as const;

for (const [vendor, want] of Object.entries(VENDORS)) {
  describe(vendor, { skip }, () => {
    let driver: Driver;
    let device: Device;
    const args = skip ? undefined! : new ArgBuffer();
    const bytes = (a: ArrayBufferView) => new Uint8Array(a.buffer, a.byteOffset, a.byteLength);

    test('opens and describes its devices', () => {
      driver = want.open();
      assert.equal(driver.name, vendor);
      assert.equal(driver.version, want.name);
      assert.equal(driver.deviceCount, 2);
      device = driver.open(0);
      assert.equal(driver.open(0), device, 'one object per ordinal');
      assert.equal(device.info.name, 'Fake 0');
      assert.deepEqual([device.info.arch, driver.info(1).arch], want.arch);
      assert.equal(device.info.fullArch, want.full);
      assert.equal(device.info.warp, want.warp);
      assert.equal(device.info.memoryPools, want.pools);
      assert.equal(device.info.totalBytes, 2 ** 30);
      const { name, arch, fullArch, warp, memoryPools, ...facts } = driver.info(1);
      assert.deepEqual(facts, { ...want.facts, totalBytes: 2 ** 30 + 1, integrated: vendor === 'cuda' });
      assert.deepEqual([name, memoryPools, device.info.integrated], ['Fake 1', !want.pools, vendor === 'hip']);
      assert.throws(
        () => driver.open(2),
        (e) => e instanceof DeviceError && /there is no such device; .* sees 2/.test(e.message),
      );
    });

    test('copies to another device, its link opened once', () => {
      const other = driver.open(1);
      const stream = device.createStream();
      const [a, b] = [device.alloc(16), other.alloc(16)];
      device.copyIn(
        a,
        Uint8Array.from({ length: 16 }, (_, i) => i * 3),
        stream,
      );
      assert.equal(device.canReach?.(other), true);
      assert.equal(device.canReach?.(device), true);
      assert.equal(other.canReach?.(device), true);
      device.copyTo?.(other, b, a, 16, stream);
      device.copyTo?.(other, b, a, 0, stream);
      assert.throws(() => device.copyTo?.(other, b + 8, a, 16, stream), /to device 1/);
      const out = new Uint8Array(16);
      other.copyOut(out, b, 0);
      assert.deepEqual(
        [...out],
        Array.from({ length: 16 }, (_, i) => i * 3),
      );
      const event = other.createEvent(false);
      device.streamWait(stream, event);
      device.free(a);
      other.free(b);
    });
    test('allocates, fills, copies and frees', () => {
      const before = device.memory().free;
      const p = device.alloc(4096);
      assert.equal(device.memory().free, before - 4096);
      device.memset(p, 0xab, 4096, 0);
      const back = new Uint8Array(4096);
      device.copyOut(back, p, 0);
      assert.ok(back.every((b) => b === 0xab));
      const data = Uint8Array.from({ length: 4096 }, (_, i) => i * 7);
      const given = data.slice(100, 200);
      device.copyIn(p, given, 0);
      given.fill(0); // what was given is there when the call returns
      device.copy(p + 2000, p, 100, 0);
      device.copyOut(back, p, 0);
      assert.deepEqual(back.slice(2000, 2100), data.slice(100, 200));
      const host = device.allocHost(64);
      host.bytes.fill(1);
      device.copyOutAsync(host.address, p + 2000, 64, 0);
      assert.ok(
        host.bytes.every((b) => b === 1),
        'nothing waits for it',
      );
      device.synchronizeStream(0);
      assert.deepEqual(new Uint8Array(host.bytes), data.slice(100, 164));
      host.bytes.fill(9);
      device.copyInAsync(p + 8, host.address, 64, 0);
      device.copyOut(back, p, 0);
      assert.deepEqual([back[7], back[8], back[71], back[72]], [data[107], 9, 9, data[172]]);
      device.freeHost(host);
      device.copyIn(p, data, 0);
      const q = device.allocAsync(4096, 0);
      device.copy(q, p, 4096, 0);
      device.copyOut(back, q, 0);
      assert.deepEqual(back, data);
      device.freeAsync(q, 0);
      device.free(p);
      assert.equal(device.memory().free, before);
    });

    test('refuses what is wrong before or after the call, by name', () => {
      assert.throws(
        () => device.alloc(2 ** 31),
        (e) => e instanceof OutOfMemoryError && e.message === `${want.alloc}(2147483648): ${want.full2} (2)`,
      );
      assert.throws(() => device.alloc(0), ArgumentError);
      assert.throws(
        () => device.free(12345),
        (e) => e instanceof DriverError && /\(12345\): .*Invalid.* \(1\)/i.test(e.message),
      );
    });

    test('copies of no bytes make no call', () => {
      device.copyIn(0, new Uint8Array(0), 0);
      device.copyOut(new Uint8Array(0), 0, 0);
      device.copy(0, 0, 0, 0);
      device.memset(0, 0, 0, 0);
    });

    test('one byte is moved like many', () => {
      const [p, host] = [device.alloc(4), device.allocHost(4)];
      const read = (): number[] => {
        const back = new Uint8Array(4);
        device.copyOut(back, p, 0);
        return [...back];
      };
      device.memset(p, 3, 4, 0);
      device.memset(p + 1, 5, 1, 0);
      device.copyIn(p, Uint8Array.of(7), 0);
      device.copy(p + 2, p, 1, 0);
      host.bytes[0] = 9;
      device.copyInAsync(p + 3, host.address, 1, 0);
      assert.deepEqual(read(), [7, 5, 7, 9]);
      device.copyOutAsync(host.address + 1, p, 1, 0);
      const one = new Uint8Array(1);
      device.copyOut(one, p + 1, 0);
      assert.deepEqual([...host.bytes.subarray(0, 2), ...one], [9, 7, 5]);
      const [other, stream] = [driver.open(1), device.createStream()];
      const far = other.alloc(1);
      device.copyTo?.(other, far, p, 1, stream);
      other.copyOut(one, far, 0);
      assert.equal(one[0], 7);
      device.freeHost(host);
      device.free(p);
      other.free(far);
    });

    test('streams and events', () => {
      const s = device.createStream();
      const [a, b] = [device.createEvent(true), device.createEvent(true)];
      device.record(a, s);
      device.record(b, s);
      assert.equal(device.elapsed(a, b), 0.5);
      assert.deepEqual([device.queryEvent(b), device.queryEvent(b)], [false, true]);
      device.synchronizeEvent(b);
      device.synchronizeStream(s);
      const untimed = device.createEvent(false);
      assert.throws(() => device.elapsed(untimed, untimed), DriverError);
      for (const e of [a, b, untimed]) device.destroyEvent(e);
      device.destroyStream(s);
    });

    test('loads modules, launches with packed arguments, replays graphs', () => {
      assert.throws(
        () => device.loadModule(Buffer.from('broken'), 'm.hip'),
        (e) =>
          e instanceof DriverError &&
          e.message.includes('m.hip') &&
          (vendor !== 'cuda' || e.message.includes('ptxas says no')),
      );
      const m = device.loadModule(Buffer.from('fake'), 'm.hip');
      const fn = device.getFunction(m, 'axpy');
      assert.throws(() => device.getFunction(m, 'absent'), /no kernel 'absent'/);
      device.setMaxDynamicShared(fn, 60000);
      assert.throws(() => device.setMaxDynamicShared(fn, 300000), vendor === 'cuda' ? DriverError : ArgumentError);
      const s = device.createStream();
      const x = device.alloc(40);
      const out = device.alloc(40);
      device.copyIn(x, bytes(Float32Array.from({ length: 10 }, (_, i) => i)), s);
      device.memset(out, 0, 40, s);
      const pack = (a: number) => args.reset().pointer(out).pointer(x).f32(a).u32(10);
      const read = () => {
        const r = new Float32Array(10);
        device.copyOut(bytes(r), out, s);
        return r[4];
      };
      device.launch(fn, [1, 1, 1], [256, 1, 1], 0, s, pack(2));
      assert.equal(read(), 8);
      device.launch(fn, [1, 1, 1], [256, 1, 1], 0, s, pack(-1), true);
      assert.equal(read(), 4, 'a launch with leave to begin early runs too');
      device.launch(fn, [1, 1, 1], [256, 1, 1], 0, s, pack(1), true);
      device.launch(device.getFunction(m, 'none'), [1, 1, 1], [1, 1, 1], 0, s, args.reset());
      assert.throws(
        () => device.launch(fn, [0, 1, 1], [256, 1, 1], 0, s, pack(2)),
        (e) => e instanceof DriverError && /grid 0x1x1, block 256x1x1/.test(e.message),
      );
      const capture = (...factors: number[]) => {
        device.beginCapture(s);
        for (const f of factors) device.launch(fn, [1, 1, 1], [256, 1, 1], 0, s, pack(f));
        return device.endCapture(s);
      };
      // As CUDA does it: a stream that is captured frees nothing but what its graph allocates, and waits for nothing.
      const beside = device.createStream();
      const [q, r] = [device.allocAsync(64, s), device.allocAsync(64, s)];
      device.beginCapture(s);
      if (device.info.memoryPools) assert.throws(() => device.freeAsync(q, s), DriverError);
      assert.throws(() => device.synchronizeStream(s), DriverError);
      device.freeAsync(q, beside);
      device.synchronizeStream(beside);
      device.destroyGraph(device.endCapture(s));
      device.freeAsync(r, s);
      assert.throws(() => device.freeAsync(r, s), DriverError, 'freed before');
      const graph = capture(1, 2);
      assert.equal(read(), 8, 'capturing runs nothing');
      const exec = device.instantiate(graph);
      device.launchGraph(exec, s);
      assert.equal(read(), 8 + 12);
      device.launchGraph(exec, s);
      assert.equal(read(), 8 + 24);
      device.destroyGraph(graph);
      device.destroyGraphExec(exec);
      device.free(x);
      device.free(out);
    });

    test('a launch has its grid, block, shared memory and leave to begin early each in its place', () => {
      const [stream, out] = [device.createStream(), device.alloc(32)];
      const tell = device.getFunction(device.loadModule(Buffer.from('fake'), 'm.hip'), 'tell');
      for (const early of [true, false]) {
        device.launch(tell, [2, 3, 4], [5, 6, 7], 800, stream, args.reset().pointer(out), early);
        const told = new Uint32Array(8);
        device.copyOut(bytes(told), out, stream);
        assert.deepEqual([...told], [2, 3, 4, 5, 6, 7, 800, Number(early && vendor === 'cuda')]);
      }
      device.free(out);
    });

    const set = (variable: string, value: string | undefined): void => {
      if (value === undefined) delete process.env[variable];
      else process.env[variable] = value;
    };
    /** Every call of the table that devices make, by what makes it. */
    const exercises = (d: Device, other: Device): Readonly<Record<string, () => unknown>> => {
      const stream = d.createStream();
      const [a, far, host] = [d.alloc(64), other.alloc(64), d.allocHost(64)];
      const [early, late] = [d.createEvent(true), d.createEvent(true)];
      const [spareStream, spareEvent, spareHost] = [d.createStream(), d.createEvent(false), d.allocHost(8)];
      const spare = [d.alloc(8), d.allocAsync(8, stream)];
      const module = d.loadModule(Buffer.from('fake'), 'm.hip');
      const none = d.getFunction(module, 'none');
      const graphs = [0, 1].map(() => {
        d.beginCapture(stream);
        return d.endCapture(stream);
      });
      const exec = d.instantiate(graphs[0]);
      for (const e of [early, late]) d.record(e, stream);
      return {
        memAlloc: () => d.alloc(8),
        memFree: () => d.free(spare[0]),
        ...(d.info.memoryPools && {
          memAllocAsync: () => d.allocAsync(8, stream),
          memFreeAsync: () => d.freeAsync(spare[1], stream),
        }),
        memInfo: () => assert.equal(d.memory().total, 2 ** 30 + d.ordinal),
        hostAlloc: () => d.allocHost(8),
        hostFree: () => d.freeHost(spareHost),
        memset8: () => d.memset(a, 1, 64, stream),
        copyHtoD: () => d.copyInAsync(a, host.address, 64, stream),
        copyDtoH: () => d.copyOutAsync(host.address, a, 64, stream),
        copyDtoD: () => d.copy(a, a + 32, 32, stream),
        copyPeer: () => d.copyTo?.(other, far, a, 64, stream),
        streamCreate: () => d.createStream(),
        streamDestroy: () => d.destroyStream(spareStream),
        streamSync: () => d.synchronizeStream(stream),
        streamWaitEvent: () => d.streamWait(stream, early),
        eventCreate: () => d.createEvent(true),
        eventDestroy: () => d.destroyEvent(spareEvent),
        eventRecord: () => d.record(late, stream),
        eventQuery: () => d.queryEvent(late),
        eventSync: () => d.synchronizeEvent(late),
        eventElapsed: () => d.elapsed(early, late),
        moduleLoad: () => d.loadModule(Buffer.from('fake'), 'm.hip'),
        moduleFunction: () => d.getFunction(module, 'axpy'),
        ...(vendor === 'cuda' && { funcSetAttribute: () => d.setMaxDynamicShared(none, 60000) }),
        [vendor === 'cuda' ? 'launchEx' : 'launch']: () =>
          d.launch(none, [1, 1, 1], [1, 1, 1], 0, stream, args.reset()),
        instantiate: () => d.instantiate(graphs[1]),
        graphLaunch: () => d.launchGraph(exec, stream),
        graphDestroy: () => d.destroyGraph(graphs[1]),
        execDestroy: () => d.destroyGraphExec(exec),
        beginCapture: () => d.beginCapture(stream),
        endCapture: () => d.endCapture(stream),
      };
    };
    /** Calls that take the place of others and are told of by their names. */
    const TOLD_AS: Readonly<Record<string, string>> = { copyPeer: 'copyDtoD', launchEx: 'launch' };
    const symbol = (call: string): string => {
      const entry = (want.table as Readonly<Record<string, string | { readonly optional: string }>>)[call];
      return /(\w+)\(/.exec(typeof entry === 'string' ? entry : entry.optional)?.[1] as string;
    };

    test('every call that fails is told of by its name and status, and works when it does not', () => {
      for (const [d, other] of [
        [device, driver.open(1)],
        [driver.open(1), device],
      ])
        for (const [call, make] of Object.entries(exercises(d, other))) {
          set('FAKE_FAIL', symbol(call));
          const says = new RegExp(`${symbol(TOLD_AS[call] ?? call)}.*unknown \\w+ error \\(999\\)`, 's');
          assert.throws(make, (e) => e instanceof DriverError && says.test(e.message), call);
          set('FAKE_FAIL', undefined);
          assert.doesNotThrow(make, call);
        }
    });
    test('every call is made with its own device as the current one', () => {
      const other = driver.open(1);
      for (const make of Object.values(exercises(device, other))) {
        other.memory();
        assert.doesNotThrow(make, String(make));
      }
      for (const make of Object.values(exercises(other, device))) {
        device.memory();
        assert.doesNotThrow(make, String(make));
      }
    });
    test('a device that cannot be made current, and links that cannot be opened, are told of', () => {
      const fresh = want.open();
      const [near, far] = [fresh.open(0), fresh.open(1)];
      const fails = (call: string, make: () => unknown): void => {
        set('FAKE_FAIL', symbol(call));
        assert.throws(make, (e) => e instanceof DriverError && /\(999\)/.test(e.message), call);
        set('FAKE_FAIL', undefined);
      };
      near.memory();
      fails(vendor === 'cuda' ? 'contextSet' : 'deviceSet', () => far.memory());
      assert.equal(far.memory().total, 2 ** 30 + 1, 'it is tried again');
      fails('canAccessPeer', () => near.canReach?.(far));
      fails('enablePeer', () => near.canReach?.(far));
      assert.equal(near.canReach?.(far), true);
      set('FAKE_NO_PEER', '1');
      assert.equal(far.canReach?.(near), false);
      set('FAKE_NO_PEER', undefined);
      assert.equal(far.canReach?.(near), false, 'it is asked once');
      const [a, b] = [far.alloc(16), near.alloc(16)];
      far.copyTo?.(near, b, a, 16, far.createStream());
      assert.equal(near.canReach?.(driver.open(1)), false, 'a device of another driver');
    });

    test('says why there is no device', () => {
      const says = (variable: string, pattern: RegExp, value = '1') => {
        process.env[variable] = value;
        assert.throws(
          () => want.open(),
          (e) => e instanceof DeviceError && pattern.test(e.message),
          variable,
        );
        delete process.env[variable];
      };
      says('FAKE_NO_DEVICE', /no (NVIDIA|AMD) GPU: .*NO_?DEVICE \(100\)/i);
      says('FAKE_EMPTY', /no (NVIDIA|AMD) GPU: .* sees none/);
      for (const count of ['2000000000', '-1']) says('FAKE_COUNT', new RegExp(`tells of ${count} devices`), count);
      if (vendor === 'cuda') says('FAKE_OLD', /too old: it is of CUDA 11\.4; 12\.0 or newer is needed/);
    });

    test('libraries that are not there are sentences', (t) => {
      const there = (vendor === 'cuda' ? [CUBLASLT, CUDNN] : [HIPBLASLT, ROCBLAS, MIOPEN]).find(
        (l) => typeof openLibrary(l) !== 'string',
      );
      if (there) return t.skip(`${there.name} is installed here, and no fake`);
      const { blas, dnn } = device.libraries;
      for (const l of [blas, dnn]) assert.match(String(l), /was not found: looked for lib/);
    });
  });
}

test('a library that does not start is a sentence, and any other error is none', () => {
  const failing = (error: Error) => () => {
    throw error;
  };
  assert.equal(orSentence(failing(new DriverError('no start'))), 'no start');
  assert.equal(orSentence(failing(new DeviceError('no device'))), 'no device');
  assert.throws(() => orSentence(failing(new TypeError('a mistake'))), TypeError);
  let opened = 0;
  const found = onFirstUse({
    blas: () => `opened ${++opened} times`,
    dnn: failing(new DriverError('no dnn')),
  } as never);
  assert.equal(opened, 0);
  assert.deepEqual([found.blas, found.blas, found.dnn], ['opened 1 times', 'opened 1 times', 'no dnn']);
});

test('reports say which files were opened', { skip }, () => {
  const found = Object.fromEntries(libraryReports().map((r) => [r.name, r]));
  assert.equal(found.libcuda.found, join(dir, 'libcuda.so.1'));
  assert.equal(found.libcuda.version, '13.0');
  assert.equal(found.libamdhip64.version, '7.2.53211');
});

test('toolkit libraries of a newer major than the driver come last', { skip }, () => {
  const spec = { name: 'x', sonames: ['libx.so.14', 'libx.so.13', 'libx.so.12', 'libx.so'], vendor: 'cuda' } as const;
  assert.deepEqual(forDriver(spec).sonames, ['libx.so.13', 'libx.so.12', 'libx.so', 'libx.so.14']);
});
