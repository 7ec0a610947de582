// The rule of all caches: private folders, digests beside files, one builder, nothing half under a final name.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'; // biome-ignore format: one list
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { isIntact, keep, keptOr, oneAtATime, unsafeFolder } from '../src/base/kept-files.js';
import { processMark } from '../src/base/whole-file.js';

const dir = mkdtempSync(join(tmpdir(), 'wick-kept-'));
after(() => rmSync(dir, { recursive: true, force: true }));
const root = process.getuid?.() === 0;
const href = (path: string): string => JSON.stringify(new URL(path, import.meta.url).href);
const child = (code: string, env: NodeJS.ProcessEnv = {}) =>
  spawnSync(process.execPath, ['--input-type=module', '-e', code], {
    encoding: 'utf8',
    env: { ...process.env, TMPDIR: dir, ...env },
  });

test('a folder that others may write, or that belongs to others, keeps no code', () => {
  const open = join(dir, 'open');
  mkdirSync(open);
  for (const mode of [0o777, 0o770, 0o702, 0o1777]) {
    chmodSync(open, mode);
    assert.match(unsafeFolder(open) as string, /others may write .*open \(mode 7/);
    const { stdout, stderr } = child(
      `import { cacheFolder } from ${href('../src/base/kept-files.js')}; console.log(cacheFolder('native'))`,
      { WICK_CACHE_DIR: open },
    );
    assert.equal(stdout.trim(), join(dir, `wick-${process.getuid?.()}`, 'native'));
    assert.match(stderr, /the cache .*open is not used: others may write/);
  }
  for (const mode of [0o700, 0o755]) {
    chmodSync(open, mode);
    assert.equal(unsafeFolder(open), undefined);
  }
  if (root) return; // folders of others cannot be had without being root, and root is let in anywhere
  assert.match(unsafeFolder('/proc/1') ?? 'belongs to another user', /belongs to another user/);
});

test('the cache that wick makes is closed to others', () => {
  const cache = join(dir, 'made', 'deep');
  const { stdout, stderr } = child(
    `process.umask(0); import { cacheFolder } from ${href('../src/base/kept-files.js')}; ` +
      "console.log(cacheFolder('sim', true))",
    { WICK_CACHE_DIR: cache },
  );
  assert.equal(stdout.trim(), join(cache, 'sim'), stderr);
  for (const d of [cache, join(cache, 'sim')]) assert.equal(statSync(d).mode & 0o777, 0o700);
});

test('a file that changed since it was kept is made anew', () => {
  const path = join(dir, 'object');
  let made = 0;
  const get = (): string =>
    keptOr(path, (draft) => {
      made++;
      writeFileSync(draft, 'whole object');
    });
  get();
  get();
  assert.equal(made, 1);
  const damage = [
    () => truncateSync(path, 5),
    () => writeFileSync(path, 'planted code'),
    () => rmSync(`${path}.sha256`),
    () => writeFileSync(`${path}.sha256`, ''),
    () => rmSync(path),
  ];
  damage.forEach((harm, i) => {
    harm();
    assert.ok(!isIntact(path));
    get();
    assert.equal(made, i + 2);
    assert.equal(readFileSync(path, 'utf8'), 'whole object');
  });
});

test('a writer that fails, for instance on a full disk, leaves nothing', () => {
  const path = join(dir, 'failed');
  assert.throws(
    () =>
      keep(path, (draft) => {
        writeFileSync(draft, 'half');
        throw new Error('no space left on device');
      }),
    /no space left/,
  );
  assert.deepEqual(
    readdirSync(dir).filter((n) => n.includes('failed')),
    [],
  );
  if (!existsSync('/dev/full')) return;
  assert.throws(() => keep(path, (draft) => writeFileSync('/dev/full', readFileSync('/proc/self/exe').subarray(0, 9e4)) ?? draft), /ENOSPC/); // biome-ignore format: one line
  assert.ok(!existsSync(path));
});

test('a lock of a process that is gone, or whose number another one has now, is taken over', () => {
  const lock = join(dir, 'stale.lock');
  for (const mark of ['999999999-5', `${process.pid}-1`, '1-1']) {
    mkdirSync(lock);
    writeFileSync(join(lock, 'owner'), mark);
    let ran = false;
    oneAtATime(lock, () => (ran = true));
    assert.ok(ran);
    assert.ok(!existsSync(lock));
  }
  assert.match(processMark(process.pid) as string, /^\d+-\d+$/);
});

test('twenty processes that want one file make it once', async () => {
  const log = join(dir, 'log');
  const code = `
    import { appendFileSync, writeFileSync } from 'node:fs';
    import { keptOr } from ${href('../src/base/kept-files.js')};
    keptOr(${JSON.stringify(join(dir, 'shared'))}, (draft) => {
      appendFileSync(${JSON.stringify(log)}, 'made\\n');
      const end = Date.now() + 300;
      while (Date.now() < end);
      writeFileSync(draft, 'shared');
    });`;
  const all = Array.from(
    { length: 20 },
    () =>
      new Promise<number | null>((done) => {
        spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: 'inherit' }).on('close', done);
      }),
  );
  assert.deepEqual(new Set(await Promise.all(all)), new Set([0]));
  assert.equal(readFileSync(log, 'utf8'), 'made\n');
  assert.ok(isIntact(join(dir, 'shared')));
  assert.deepEqual(
    readdirSync(dir).filter((n) => n.startsWith('shared.lock') || n.endsWith('.part')),
    [],
  );
});

test('a half-written engine or simulated module heals itself', () => {
  const cache = join(dir, 'heal');
  const code = `
    import { buildHost } from ${href('../src/driver/host-cc.js')};
    import { openSim } from ${href('../src/driver/sim.js')};
    console.log(openSim().open(32).memory().free > 0, buildHost('probe', 'extern "C" int wick_probe() { return 7; }'));`;
  let before = '';
  for (const bytes of [undefined, 4096, 0]) {
    const libraries = existsSync(cache) ? readdirSync(join(cache, 'sim')).filter((f) => f.endsWith('.so')) : [];
    if (bytes !== undefined) {
      assert.equal(libraries.length, 2);
      for (const f of libraries) truncateSync(join(cache, 'sim', f), bytes);
    }
    const r = child(code, { WICK_CACHE_DIR: cache });
    assert.equal(r.status, 0, `${r.signal}: ${r.stderr}`);
    assert.match(r.stdout, /^true /);
    if (before) assert.equal(r.stdout, before);
    before = r.stdout;
    const path = r.stdout.trim().split(' ')[1];
    assert.ok(isIntact(path) && statSync(path).size > 4096);
  }
});
