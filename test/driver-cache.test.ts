// The kernel cache: what its keys tell apart, what it refuses to believe, and processes that race for one entry.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { cacheDir } from '../src/base/paths.js';
import { processMark } from '../src/base/whole-file.js';
import { cacheKey, decodeEntry, encodeEntry, KernelCache } from '../src/kernels/cache.js';

const root = mkdtempSync(join(tmpdir(), 'wick-cache-'));
after(() => rmSync(root, { recursive: true, force: true }));
let next = 0;
const fresh = (maxBytes?: number): KernelCache => new KernelCache(join(root, `c${next++}`), maxBytes);
const code = (text: string): Uint8Array => Buffer.from(text);

test('a key changes with every part, and parts do not run into each other', () => {
  const base = { source: 'ab', options: ['x', 'y'], arch: 'gfx1030', compiler: 'hipRTC 5' };
  const keys = [
    base,
    { ...base, source: 'ac' },
    { ...base, options: ['xy'] },
    { ...base, options: ['y', 'x'] },
    { ...base, arch: 'gfx1031' },
    { ...base, compiler: 'hipRTC 6' },
    { ...base, source: 'abx', options: ['', 'y'] },
  ].map(cacheKey);
  assert.equal(new Set(keys).size, keys.length);
  assert.equal(cacheKey(base), cacheKey({ ...base }));
});

test('what is put is got, across objects, and counted', () => {
  const cache = fresh();
  assert.equal(cache.get('k', 'sm_90'), undefined);
  cache.put('k', 'sm_90', code('hello'));
  assert.equal(Buffer.from(cache.get('k', 'sm_90')!).toString(), 'hello');
  assert.equal(Buffer.from(new KernelCache(cache.dir).get('k', 'sm_90')!).toString(), 'hello');
  const { entries, hits, misses } = cache.stats();
  assert.deepEqual({ entries, hits, misses }, { entries: 1, hits: 1, misses: 1 });
});

test('code that has another key is found by either, and by neither once it is gone', () => {
  const cache = fresh();
  cache.putAlso('also', 'k', 'sm_90');
  assert.equal(cache.getAlso('also', 'sm_90'), undefined, 'the code is not there yet');
  cache.put('k', 'sm_90', code('hello'));
  assert.equal(Buffer.from(cache.getAlso('also', 'sm_90')!).toString(), 'hello');
  assert.equal(cache.getAlso('other', 'sm_90'), undefined);
  writeFileSync(cache.path('k'), 'damaged');
  assert.equal(cache.getAlso('also', 'sm_90'), undefined);
  assert.deepEqual([cache.stats().hits, cache.stats().misses, cache.stats().dropped], [1, 0, 1]);
});

test('getOrBuild builds once', () => {
  const cache = fresh();
  let built = 0;
  const build = (): Uint8Array => code(`built ${++built}`);
  for (let i = 0; i < 3; i++) assert.equal(Buffer.from(cache.getOrBuild('k', 'a', build)).toString(), 'built 1');
});

const damage: Record<string, (path: string) => void> = {
  'one bit flipped in the code': (p) => {
    const b = readFileSync(p);
    b[b.length - 1] ^= 1;
    writeFileSync(p, b);
  },
  'one bit flipped in the checksum': (p) => {
    const b = readFileSync(p);
    b[10] ^= 1;
    writeFileSync(p, b);
  },
  'cut short': (p) => truncateSync(p, statSync(p).size - 3),
  'cut to its head': (p) => truncateSync(p, 20),
  empty: (p) => truncateSync(p, 0),
  'something else': (p) => writeFileSync(p, 'not a kernel at all, but long enough to be one by its size alone'),
  'code for another target': (p) => writeFileSync(p, encodeEntry('gfx906', code('other'))),
};
for (const [what, spoil] of Object.entries(damage)) {
  test(`an entry that is ${what} is dropped and rebuilt`, () => {
    const cache = fresh();
    cache.put('k', 'gfx1030', code('good'));
    spoil(cache.path('k'));
    assert.equal(cache.get('k', 'gfx1030'), undefined);
    assert.ok(!existsSync(cache.path('k')), 'the bad file is gone');
    assert.equal(Buffer.from(cache.getOrBuild('k', 'gfx1030', () => code('rebuilt'))).toString(), 'rebuilt');
    assert.equal(Buffer.from(cache.get('k', 'gfx1030')!).toString(), 'rebuilt');
    assert.equal(cache.stats().dropped, 1);
  });
}

test('decoding says why an entry is not believed', () => {
  const entry = encodeEntry('sm_80', code('x'));
  assert.equal(decodeEntry(entry, 'sm_90'), 'it is for sm_80, not sm_90');
  entry[entry.length - 1] ^= 1;
  assert.equal(decodeEntry(entry, 'sm_80'), 'its checksum is wrong');
  assert.equal(decodeEntry(code('nonsense'), 'sm_80'), 'not a kernel entry');
});

test('beyond its bound the cache drops what was used longest ago', () => {
  const cache = fresh(10_000);
  const size = 2_000;
  for (let i = 0; i < 4; i++) {
    cache.put(`k${i}`, 'a', new Uint8Array(size));
    const old = new Date(Date.now() - (10 - i) * 86400_000);
    utimesSync(cache.path(`k${i}`), old, old);
  }
  cache.get('k0', 'a'); // used now: no longer the oldest
  cache.put('k4', 'a', new Uint8Array(size * 1.5));
  assert.deepEqual(
    ['k0', 'k1', 'k2', 'k3', 'k4'].map((k) => existsSync(cache.path(k))),
    [true, false, false, true, true],
  );
  assert.ok(cache.stats().bytes <= 10_000);
});

test('what a dead writer left behind is removed, and what a living one writes is not', () => {
  const cache = fresh();
  cache.put('k', 'a', code('x'));
  const draft = (mark: string): string => join(cache.dir, `.x.kernel.${mark}.0123456789ab.part`);
  const [stale, young] = [draft(`${process.pid}-1`), draft(processMark(process.pid) as string)];
  for (const p of [stale, young]) writeFileSync(p, 'half');
  cache.prune();
  assert.deepEqual([existsSync(stale), existsSync(young), existsSync(cache.path('k'))], [false, true, true]);
});

test('a folder that cannot be made costs only time, and says so', () => {
  const file = join(root, 'a-file');
  writeFileSync(file, '');
  const cache = new KernelCache(join(file, 'below'));
  assert.equal(Buffer.from(cache.getOrBuild('k', 'a', () => code('built'))).toString(), 'built');
  assert.match(cache.stats().disabled ?? '', /kernels are not kept in .*below/);
});

test('the folder comes from WICK_CACHE_DIR, then XDG_CACHE_HOME, then the home', () => {
  const saved = { ...process.env };
  try {
    process.env.WICK_CACHE_DIR = '/x/own';
    process.env.XDG_CACHE_HOME = '/x/xdg';
    assert.equal(cacheDir(), '/x/own');
    delete process.env.WICK_CACHE_DIR;
    assert.equal(cacheDir(), '/x/xdg/wick');
    delete process.env.XDG_CACHE_HOME;
    assert.match(cacheDir(), /\/\.cache\/wick$/);
  } finally {
    process.env = saved;
  }
});

test('processes that race for the same entries all see whole ones', async () => {
  const dir = join(root, 'race');
  mkdirSync(dir);
  const module = new URL('../src/kernels/cache.js', import.meta.url).href;
  // Each writes and reads the same keys over and over, spoiling one now and then; a torn read would show as foreign
  // bytes.
  const script = `
    import { writeFileSync } from 'node:fs';
    import { KernelCache } from ${JSON.stringify(module)};
    const cache = new KernelCache(${JSON.stringify(dir)}, 400000);
    for (let round = 0; round < 60; round++) {
      for (let k = 0; k < 5; k++) {
        const want = Buffer.alloc(20000 + k, k + 1);
        const got = cache.getOrBuild('key' + k, 'sm_90', () => want);
        if (!want.equals(got)) { console.error('torn entry', k); process.exit(1); }
        if (round % 10 === Number(process.argv[1]) && k === 2) writeFileSync(cache.path('key2'), 'spoiled by process ' + process.argv[1]);
        if (round % 7 === 3) cache.put('key' + k, 'sm_90', want);
      }
    }`;
  const children = Array.from({ length: 4 }, (_, i) => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, String(i)], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let stderr = '';
    child.stderr.on('data', (d) => (stderr += d));
    return new Promise<string>((done) =>
      child.on('close', (status) => done(status === 0 ? '' : `${status}: ${stderr}`)),
    );
  });
  assert.deepEqual(await Promise.all(children), ['', '', '', '']);
  assert.deepEqual(
    readdirSync(dir).filter((n) => n.endsWith('.part')),
    [],
  );
});

test('readers never meet an entry that is only partly written', async () => {
  const dir = join(root, 'whole');
  mkdirSync(dir);
  const module = new URL('../src/kernels/cache.js', import.meta.url).href;
  const script = `
    import { existsSync, writeFileSync } from 'node:fs';
    import { KernelCache } from ${JSON.stringify(module)};
    const cache = new KernelCache(${JSON.stringify(dir)});
    const [code, done, ready] = [Buffer.alloc(4 << 20, 7), ${JSON.stringify(join(root, 'done'))}, ${JSON.stringify(join(root, 'reader'))}];
    if (process.argv[1] === 'write') {
      while (!existsSync(ready + 'a') || !existsSync(ready + 'b')) await new Promise((r) => setTimeout(r, 5));
      for (let round = 0; round < 40; round++) cache.put('key', 'sm_90', code);
      writeFileSync(done, '');
    } else for (writeFileSync(ready + process.argv[1], ''); !existsSync(done);) cache.get('key', 'sm_90');
    if (cache.stats().dropped > 0) { console.error(cache.stats().dropped + ' entries were torn'); process.exit(1); }`;
  const children = ['write', 'a', 'b'].map((role) => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, role], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let stderr = '';
    child.stderr.on('data', (d) => (stderr += d));
    return new Promise<string>((done) =>
      child.on('close', (status) => done(status === 0 ? '' : `${status}: ${stderr}`)),
    );
  });
  assert.deepEqual(await Promise.all(children), ['', '', '']);
});
