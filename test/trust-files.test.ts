// Files and memory under stress: modes, links, killed writers, cut-off libraries, garbage that holds memory.
import assert from 'node:assert/strict';
import { chmodSync, copyFileSync, lstatSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'; // biome-ignore format: one list
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { Backend, Memory } from '../src/backends/backend.js';
import { OutOfMemoryError } from '../src/base/errors.js';
import { processMark } from '../src/base/whole-file.js';
import { brokenLibrary } from '../src/driver/elf.js';
import { openLibrary } from '../src/driver/ffi.js';
import { Device, ones, zeros } from '../src/index.js';
import { writeAtomic } from '../src/io/atomic-file.js';
import { Storage } from '../src/tensor/storage.js';

const dir = mkdtempSync(join(tmpdir(), 'wick-trust-'));
after(() => rmSync(dir, { recursive: true }));
const mode = (path: string): number => statSync(path).mode & 0o777;
const save = (path: string, text: string): void => writeAtomic(path, (write) => write(Buffer.from(text)));

test('a file that is saved again keeps its mode, and a link stays one', () => {
  const path = join(dir, 'secret');
  save(path, 'one');
  assert.equal(mode(path), 0o666 & ~process.umask());
  for (const bits of [0o600, 0o640, 0o666]) {
    chmodSync(path, bits);
    save(path, 'two');
    assert.equal(mode(path), bits);
  }
  const link = join(dir, 'link');
  symlinkSync('secret', link);
  save(link, 'three');
  assert.ok(lstatSync(link).isSymbolicLink());
  assert.equal(readFileSync(path, 'utf8'), 'three');
});

test('what killed writers left is swept away, what others write now is not', () => {
  const path = join(dir, 'swept');
  const name = (mark: string): string => `.swept.${mark}.0123456789ab.part`;
  // A process that is gone, one whose number was given away again, one that runs, and another file's draft.
  const here = processMark(process.pid) as string;
  const kept = [name(here), `.other.999999999-1.0123456789ab.part`];
  const gone = [name('999999999-1'), name(`${process.pid}-1`)];
  for (const n of [...kept, ...gone]) writeFileSync(join(dir, n), 'x');
  save(path, 'whole');
  const left = readdirSync(dir).filter((n) => n.endsWith('.part'));
  assert.deepEqual(left.sort(), kept.sort());
  for (const n of kept) rmSync(join(dir, n));
  assert.throws(() => writeAtomic(path, () => assert.fail('the writer fails')), /the writer fails/);
  assert.equal(readFileSync(path, 'utf8'), 'whole');
  assert.deepEqual(
    readdirSync(dir).filter((n) => n.endsWith('.part')),
    [],
  );
});

test('a library that was cut off is named instead of loaded', () => {
  const whole = process.execPath;
  assert.equal(brokenLibrary(whole), undefined);
  const cut = join(dir, 'libcut.so');
  const { size } = statSync(whole);
  for (const [bytes, why] of [
    [0, /no ELF/],
    [100, /cut off/],
    [Math.floor(size / 2), /cut off: it has/],
  ] as const) {
    // biome-ignore format: one line
    copyFileSync(whole, cut);
    truncateSync(cut, bytes);
    assert.match(brokenLibrary(cut) as string, why);
    const answer = openLibrary({ name: `cut at ${bytes}`, sonames: [cut], vendor: 'host' });
    assert.match(answer as string, new RegExp(`not loadable: .*libcut.so: it is`));
  }
});

test('memory that only garbage holds is found before an allocation fails', () => {
  const room = 1000;
  let live = 0;
  let address = 1;
  const backend = {
    alloc: (bytes: number): Memory => {
      if (live + bytes > room) throw new OutOfMemoryError('full');
      live += bytes;
      return { bytes, address: address++ };
    },
    free: (m: Memory): void => void (live -= m.bytes),
  } as unknown as Backend;
  const atOnce = Number(process.versions.v8.split('.')[0]) <= 11;
  if (atOnce) for (let i = 0; i < 50; i++) new Storage(backend, 100).retain();
  const held = Array.from({ length: atOnce ? 5 : 10 }, () => new Storage(backend, 100).retain());
  assert.throws(() => Array.from({ length: 11 }, () => held.push(new Storage(backend, 100))), OutOfMemoryError);
  for (const s of held.slice(0, 5)) assert.equal(s.memory.bytes, 100);
});

test('a loop without a pause does not count what the collector has freed', () => {
  if (Number(process.versions.v8.split('.')[0]) > 11) return; // elsewhere finalisers wait for the loop's end
  const device = Device.cpu();
  for (let i = 0; i < 400; i++) zeros([1 << 20]);
  assert.ok(device.memory().liveBytes < 400 * 2 ** 22, 'as if all of it were alive');
});

test('a constant belongs to its device: disposing of it changes nothing', () => {
  const x = ones([2]);
  const seven = x.constant(7);
  seven.dispose();
  assert.deepEqual(x.add(7).toArray(), [8, 8]);
  assert.equal(seven.item(), 7);
  x.device.trim();
  assert.deepEqual(x.add(7).toArray(), [8, 8]);
  assert.throws(() => seven.item(), /disposed/);
});
