// Kernels made ahead of time: targets, PTX versions, packs, what is said when nothing serves, and real PTX where NVRTC
// is installed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import '../src/index.js';
import { Functions } from '../src/backends/gpu/functions.js';
import { CompileError } from '../src/base/errors.js';
import type { Device } from '../src/driver/driver.js';
import { buildKernels, jobsFor, targetsOf } from '../src/backends/gpu/aot.js';
import { KernelCache } from '../src/kernels/cache.js';
import type { Compiler } from '../src/driver/compiler.js';
import { codeFor, compilerFor } from '../src/kernels/compile.js';
import { findExact, findPrebuilt, prebuiltTargets, withoutServed, writePrebuilt } from '../src/kernels/prebuilt.js';
import { kernelModule, unitOf } from '../src/backends/gpu/modules.js';
import { SOFTMAX } from '../src/backends/gpu/softmax.js';
import { belongs, lowerPtx, runsAsIs, servedBy, targetFor } from '../src/kernels/targets.js';

const dir = mkdtempSync(join(tmpdir(), 'wick-aot-'));
after(() => rmSync(dir, { recursive: true, force: true }));
const compiler = compilerFor('compute_80');

const variant = (dtype: string): Record<string, unknown> => ({ log: false, width: 'packs4', dtype });
const softmax = unitOf('softmax', ['softmax_rows_f32_packs4']);
const hopper = unitOf('attention-hopper', [[...kernelModule('attention-hopper').entries.keys()][0]]);
const code = (text: string): Uint8Array => new TextEncoder().encode(text);

describe('targets', () => {
  test('a unit that asks for sm_90a gets it on sm_90, and is refused elsewhere', () => {
    assert.equal(hopper.needs, 'sm_90a');
    assert.equal(targetFor(hopper, 'sm_90'), 'sm_90a');
    assert.equal(targetFor(hopper, 'compute_90'), 'compute_90a');
    assert.equal(targetFor(softmax, 'sm_90'), 'sm_90');
    assert.throws(
      () => targetFor(hopper, 'sm_80'),
      (e) => e instanceof CompileError && /attention-hopper.hip is for sm_90a alone, not for sm_80/.test(e.message),
    );
    assert.throws(() => targetFor(hopper, 'gfx1100'), CompileError);
  });
  test('builds for a special target hold what needs it, others all the rest', () => {
    assert.deepEqual(
      ['sm_90', 'compute_80', 'gfx1100', 'compute_90a'].map((t) => belongs(softmax, t)),
      [true, true, true, false],
    );
    assert.deepEqual(
      ['sm_90', 'compute_80', 'gfx1100', 'compute_90a'].map((t) => belongs(hopper, t)),
      [false, false, false, true],
    );
  });
  test('own code first, then PTX of the same or older GPUs, newest first', () => {
    const atHand = ['compute_75', 'compute_80', 'compute_90a', 'compute_100', 'gfx1100', 'sm_90'];
    assert.deepEqual(servedBy('sm_90', atHand), ['sm_90', 'compute_80', 'compute_75']);
    assert.deepEqual(servedBy('sm_90a', atHand), ['compute_90a']);
    assert.deepEqual(servedBy('sm_120', atHand), ['compute_100', 'compute_80', 'compute_75']);
    assert.deepEqual(servedBy('sm_70', atHand), []);
    assert.deepEqual(servedBy('gfx1100', atHand), ['gfx1100']);
    assert.deepEqual(servedBy('gfx1101', atHand), []);
  });
  test('machine code runs on newer GPUs of its generation, and on no other', () => {
    const atHand = ['sm_80', 'sm_86', 'sm_90', 'sm_90a', 'gfx1100', 'compute_80'];
    assert.deepEqual(runsAsIs('sm_89', atHand), ['sm_86', 'sm_80']);
    assert.deepEqual(runsAsIs('sm_86', atHand), ['sm_86', 'sm_80']);
    assert.deepEqual(runsAsIs('sm_80', atHand), ['sm_80']);
    assert.deepEqual(runsAsIs('sm_90a', atHand), ['sm_90a']);
    assert.deepEqual(runsAsIs('sm_120', atHand), []);
    assert.deepEqual(runsAsIs('gfx1101', atHand), []);
    assert.deepEqual(servedBy('sm_89', atHand), ['sm_86', 'sm_80', 'compute_80']);
  });
});

describe('PTX versions', () => {
  const ptx = (target: string, body: string): string =>
    `// text\n.version 9.0\n.target ${target}\n.address_size 64\n${body}\n`;
  const versionOf = (text: string): string => /^\.version (\S+)/m.exec(text)?.[1] ?? '';
  test('the target sets the lowest version', () => {
    assert.deepEqual(
      ['sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90', 'sm_90a'].map((t) => versionOf(lowerPtx(ptx(t, '')))),
      ['6.0', '6.3', '7.0', '7.1', '7.8', '8.0'],
    );
  });
  test('an instruction that came later raises it', () => {
    assert.equal(versionOf(lowerPtx(ptx('sm_70', 'nanosleep.u32 20;'))), '6.3');
    assert.equal(versionOf(lowerPtx(ptx('sm_90a', 'fence.proxy.tensormap::generic.acquire.gpu [a], 128;'))), '8.5');
    assert.equal(versionOf(lowerPtx(ptx('sm_75', 'ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a,b,c,d}, [e];'))), '6.5');
    assert.equal(versionOf(lowerPtx(ptx('sm_80', 'mov.b32 {%rs1, _}, %r1;'))), '7.1');
    assert.equal(versionOf(lowerPtx(ptx('sm_80', 'ld.global.L1::no_allocate.v4.u32 {a,b,c,d}, [e];'))), '7.4');
    assert.equal(versionOf(lowerPtx(ptx('sm_90', 'griddepcontrol.wait;'))), '7.8');
  });
  test('hints that only newer drivers know are left out', () => {
    const lowered = lowerPtx(ptx('sm_80', '\t.pragma "used_bytes_mask 0xff";\n\tld.global.v4.u32 {a,b,c,d}, [e];'));
    assert.equal(versionOf(lowered), '7.0');
    assert.ok(!lowered.includes('used_bytes_mask') && lowered.includes('ld.global.v4.u32'));
  });
  test("a version is never raised above the compiler's own, and unknown targets are left alone", () => {
    const old = ptx('sm_80', '').replace('9.0', '7.0');
    assert.equal(lowerPtx(old), old);
    assert.equal(versionOf(lowerPtx(ptx('sm_999', ''))), '9.0');
    assert.throws(() => lowerPtx('int main() {}'), CompileError);
  });
});

describe('packs', () => {
  const pack = join(dir, 'pack');
  const other = unitOf('softmax', ['softmax_rows_f16_packs4']);
  before(async () => {
    await writePrebuilt(pack, 'compute_80', 'test 1', [
      { units: [softmax], code: code('first') },
      { units: [other], code: code('second') },
    ]);
  });
  test('each kernel comes back as it was written, for every target it serves', () => {
    assert.deepEqual(prebuiltTargets(pack), ['compute_80']);
    assert.deepEqual(findPrebuilt(other, 'sm_90', [pack]), code('second'));
    assert.deepEqual(findPrebuilt(softmax, 'sm_80', [pack]), code('first'));
  });
  test('what is not there is said: the symbol, the target, the source', () => {
    const missing = unitOf('softmax', ['softmax_rows_f64_packs4']);
    assert.match(String(findPrebuilt(missing, 'sm_90', [pack])), /compute_80\.pack has no softmax_rows_f64_packs4/);
    assert.match(String(findPrebuilt(softmax, 'gfx1100', [pack])), /is for compute_80/);
    assert.match(String(findPrebuilt(softmax, 'sm_90', [join(dir, 'nowhere')])), /holds no kernels/);
    assert.match(
      String(findPrebuilt({ ...softmax, source: `${softmax.source} ` }, 'sm_90', [pack])),
      /made from other source text/,
    );
  });
  test(
    "PTX for a newer GPU that equals an older one's but for its version and target is not written again, and " +
      'is found all the same',
    async () => {
      const both = join(dir, 'both');
      const ptx = (version: string, target: string, body: string): Uint8Array =>
        code(`.version ${version}\n.target ${target}\n${body}`);
      await writePrebuilt(both, 'compute_75', 'test 1', [
        { units: [softmax], code: ptx('6.3', 'sm_75', 'same') },
        { units: [other], code: ptx('6.3', 'sm_75', 'plain') },
      ]);
      const newer = withoutServed(both, 'compute_80', [
        { units: [softmax], code: ptx('7.0', 'sm_80', 'same') },
        { units: [other], code: ptx('7.0', 'sm_80', 'better') },
      ]);
      assert.deepEqual(
        newer.map((m) => m.units[0]),
        [other],
      );
      await writePrebuilt(both, 'compute_80', 'test 1', newer);
      assert.deepEqual(findPrebuilt(softmax, 'sm_90', [both]), ptx('6.3', 'sm_75', 'same'));
      assert.deepEqual(findPrebuilt(other, 'sm_90', [both]), ptx('7.0', 'sm_80', 'better'));
      assert.deepEqual(findPrebuilt(other, 'sm_75', [both]), ptx('6.3', 'sm_75', 'plain'));
    },
  );
  test('a damaged pack is an error, not garbage', async () => {
    const broken = join(dir, 'broken');
    await writePrebuilt(broken, 'compute_80', 'test 1', [{ units: [softmax], code: code('first') }]);
    const bytes = readFileSync(join(broken, 'compute_80.pack'));
    bytes[bytes.length >> 1] ^= 0xff;
    writeFileSync(join(broken, 'compute_80.pack'), bytes);
    assert.throws(
      () => findPrebuilt(softmax, 'sm_90', [broken]),
      (e) => e instanceof CompileError && /is damaged/.test(e.message),
    );
  });
});

describe('machine code made ahead of time', () => {
  test('serves newer GPUs of its generation, before PTX', async () => {
    const shipped = join(dir, 'machine');
    await writePrebuilt(shipped, 'sm_80', 'NVRTC 13.0', [{ units: [softmax], code: code('machine code') }]);
    await writePrebuilt(shipped, 'compute_80', 'NVRTC 13.0', [{ units: [softmax], code: code('ptx') }]);
    assert.deepEqual(
      findExact(softmax, 'sm_86', [shipped], () => 13000),
      code('machine code'),
    );
    assert.deepEqual(
      findPrebuilt(softmax, 'sm_86', [shipped], () => 13000),
      code('machine code'),
    );
    assert.equal(
      findExact(softmax, 'sm_90', [shipped], () => 13000),
      undefined,
    );
    assert.deepEqual(
      findPrebuilt(softmax, 'sm_90', [shipped], () => 13000),
      code('ptx'),
    );
  });
  test('is left alone where its compiler is newer than the driver', () => {
    const shipped = join(dir, 'machine');
    assert.equal(
      findExact(softmax, 'sm_86', [shipped], () => 12080),
      undefined,
    );
    assert.deepEqual(
      findPrebuilt(softmax, 'sm_86', [shipped], () => 12080),
      code('ptx'),
    );
    assert.deepEqual(
      findExact(softmax, 'sm_86', [shipped], () => undefined),
      code('machine code'),
    );
  });
});

test('code is found by what its text is made of before the text is made', () => {
  const cache = new KernelCache(join(dir, 'also'));
  const compiled: string[] = [];
  const compiler: Compiler = {
    ...{ name: 'none', version: '1', accepts: () => true, options: () => [] },
    compile: ({ source }) => code(`${compiled.push(source)}`),
  };
  let made = 0;
  const asked = (whole: string, source: string): string => {
    const unit = {
      ...{ name: softmax.name, entries: softmax.entries, whole },
      get source() {
        made++;
        return source;
      },
    };
    return Buffer.from(codeFor(unit, 'compute_80', cache, compiler)).toString();
  };
  assert.equal(asked('whole', 'text'), '1');
  const texts = made;
  assert.ok(texts > 0);
  assert.equal(asked('whole', 'text'), '1');
  assert.equal(made, texts, 'no text the second time');
  assert.equal(asked('another whole', 'text'), '1', 'what comes to the same text has the same code');
  assert.ok(made > texts);
  assert.equal(asked('a third', 'other text'), '2');
  assert.deepEqual(compiled, ['text', 'other text']);
  const other = unitOf('softmax', ['softmax_rows_f64_packs4']);
  assert.ok(softmax.whole !== undefined && softmax.whole !== other.whole);
});

describe('without a compiler', () => {
  const shipped = join(dir, 'shipped');
  const saved = { rtc: process.env.WICK_NO_RTC, dirs: process.env.WICK_PREBUILT_DIR };
  const restore = (name: string, value: string | undefined): void => {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  };
  before(async () => {
    await writePrebuilt(shipped, 'compute_80', 'test 1', [{ units: [softmax], code: code('ptx of softmax') }]);
    process.env.WICK_NO_RTC = '1';
    process.env.WICK_PREBUILT_DIR = shipped;
  });
  after(() => {
    restore('WICK_NO_RTC', saved.rtc);
    restore('WICK_PREBUILT_DIR', saved.dirs);
  });
  const loaded: string[] = [];
  const device = {
    driver: { name: 'cuda' },
    info: { arch: 'sm_90' },
    loadModule: (bytes: Uint8Array) => loaded.push(new TextDecoder().decode(bytes)),
    getFunction: (module: number, symbol: string) => module * 1000 + symbol.length,
  } as unknown as Device;

  test('a kernel made ahead of time is loaded once', () => {
    const functions = new Functions(device);
    const fn = functions.ofKernel(SOFTMAX.kernels[0], variant('f32'));
    assert.equal(functions.ofKernel(SOFTMAX.kernels[0], variant('f32')), fn);
    assert.deepEqual(loaded, ['ptx of softmax']);
  });
  test('one that was not made says what was looked for', () => {
    assert.throws(
      () => new Functions(device).ofKernel(SOFTMAX.kernels[0], variant('f64')),
      (e) =>
        e instanceof CompileError &&
        /softmax_rows_f64_packs4 for sm_90: it cannot be compiled here, and was not made ahead of time/.test(
          e.message,
        ) &&
        /WICK_NO_RTC/.test(e.message) &&
        e.message.includes(shipped),
    );
  });
  test('a build says that there is no compiler', async () => {
    await assert.rejects(
      () => buildKernels({ arch: 'compute_80', out: dir }),
      (e) =>
        e instanceof CompileError &&
        /building kernels for compute_80: run-time compilers are switched off/.test(e.message),
    );
  });
});

describe('what a build compiles', () => {
  test('names choose rows, modules and symbols; an unknown name is refused', () => {
    const symbols = (ops: string[]): string[] => jobsFor('compute_80', { ops }).map((j) => j.symbol);
    assert.ok(symbols(['tanh']).includes('flat_tanh_f32') && symbols(['tanh']).every((s) => /tanh/.test(s)));
    assert.ok([...kernelModule('rope').entries.keys()].every((s) => symbols(['rope']).includes(s)));
    assert.deepEqual(symbols(['softmax_rows_f32_packs4']), ['softmax_rows_f32_packs4']);
    assert.ok(
      symbols(['attention', 'attention-matrix']).length > symbols(['attention-matrix']).length,
      'one name may begin with another',
    );
    assert.throws(
      () => symbols(['tahn']),
      (e) => e instanceof CompileError && /no kernel belongs to tahn/.test(e.message),
    );
  });
  test('a GPU with special features is built for twice, where what is chosen uses them', () => {
    assert.deepEqual(targetsOf('sm_90'), ['sm_90', 'sm_90a']);
    assert.deepEqual(targetsOf('sm_90', { ops: ['tanh'] }), ['sm_90']);
    assert.deepEqual(
      [targetsOf('compute_80'), targetsOf('gfx1100'), targetsOf('compute_90a')],
      [['compute_80'], ['gfx1100'], ['compute_90a']],
    );
  });
  test('symbols are unique, so that an index by symbol holds them all', () => {
    const all = jobsFor('compute_80').map((j) => j.symbol);
    assert.equal(new Set(all).size, all.length);
    assert.ok(!all.some((s) => s.startsWith('attention_hopper')));
    assert.ok(
      all.some((s) => s.startsWith('attention_matrix')) &&
        !jobsFor('gfx1030').some((j) => j.symbol.startsWith('attention_matrix')),
      'matrix units',
    );
    assert.ok(jobsFor('compute_90a').every((j) => j.symbol.includes('_hopper_')));
  });
});

describe('real PTX', { skip: typeof compiler === 'string' ? compiler : false }, () => {
  const outOf = (arch: string): string => join(dir, `ptx-${arch}`);
  const ops = ['softmax_rows_f32_packs4', 'flat_add_bf16'];
  test('is made, lowered and found', async () => {
    for (const [arch, version] of [
      ['compute_75', '6.3'],
      ['compute_80', '7.0'],
    ]) {
      const summary = await buildKernels({ arch, ops, out: outOf(arch) });
      assert.deepEqual([summary.kernels, summary.failed], [2, []]);
      const text = new TextDecoder().decode(
        findPrebuilt(softmax, arch.replace('compute', 'sm'), [outOf(arch)]) as Uint8Array,
      );
      assert.match(text, new RegExp(`^\\.version ${version.replace('.', '\\.')}$`, 'm'));
      assert.match(text, /\.entry softmax_rows_f32_packs4\(/);
    }
  });
  test('assembles for the GPUs it is to serve', (t) => {
    const ptxas = ['ptxas', '/usr/local/cuda/bin/ptxas'].find((p) => spawnSync(p, ['--version']).status === 0);
    if (!ptxas) return t.skip('ptxas was not found');
    for (const [from, to] of [
      ['compute_75', 'sm_75'],
      ['compute_80', 'sm_80'],
      ['compute_80', 'sm_90'],
    ]) {
      const text = findPrebuilt(softmax, from.replace('compute', 'sm'), [outOf(from)]) as Uint8Array;
      writeFileSync(join(dir, 'k.ptx'), text);
      const r: { status: number | null; stderr: string } = spawnSync(
        ptxas,
        [`-arch=${to}`, join(dir, 'k.ptx'), '-o', join(dir, 'k.cubin')],
        { encoding: 'utf8' },
      );
      assert.equal(r.status, 0, `${from} for ${to}: ${r.stderr}`);
    }
  });
  test('a build into the cache is what a device takes later', async () => {
    const cache = new KernelCache(join(dir, 'cache'));
    await buildKernels({ arch: 'compute_80', ops: ops.slice(0, 1), cache });
    const { misses } = cache.stats();
    codeFor(softmax, 'compute_80', cache);
    assert.deepEqual([cache.stats().misses, cache.stats().hits], [misses, 1]);
  });
});
