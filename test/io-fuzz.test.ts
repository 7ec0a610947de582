// Broken files of every format: thousands of seeded mutations and every truncation end in a result or a typed error
// that names the byte, without a crash, a hang or much memory.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { DTypeError, FormatError, UnsupportedError, WickError } from '../src/base/errors.js';
import { MemorySource, readBytes } from '../src/io/byte-source.js';
import { canDequantize } from '../src/base/blocks/decode.js';
import { ggmlType } from '../src/base/blocks/types.js';
import { Gguf } from '../src/io/gguf.js';
import { ggufBytes } from '../src/io/gguf-write.js';
import { openNpy, openNpz } from '../src/io/npy.js';
import { SafeTensors } from '../src/io/safetensors.js';
import { TorchFile } from '../src/io/torch.js';
import { ZipFile } from '../src/io/zip.js';
import { ROOT } from './io-support.js';
import * as p from './io-torch-build.js';

const MUTATIONS = Number(process.env.WICK_FUZZ || 2500);
const folder = join(ROOT, 'test/golden/files');
const files = (ending: string): Uint8Array[] =>
  readdirSync(folder)
    .filter((f) => f.endsWith(ending))
    .map((f) => new Uint8Array(readFileSync(join(folder, f))))
    .filter((b) => b.length < 8192);

/** Mulberry32: the same files every time. */
function random(seed: number): (below: number) => number {
  let a = seed;
  return (below) => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

const WORDS = [
  0n,
  1n,
  0x7fn,
  0xffn,
  0x7fffn,
  0xffffn,
  2n ** 31n - 1n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 53n,
  2n ** 63n - 1n,
  2n ** 63n,
  2n ** 64n - 1n,
];

/** One to four changes: bits, bytes, numbers at the edges, parts left out, doubled or moved. */
function mutate(file: Uint8Array, pick: (below: number) => number): Uint8Array {
  let out = Buffer.from(file);
  // Headers are where the meaning is.
  const place = (): number => pick(pick(2) ? out.length : Math.min(out.length, 256));
  for (let left = 1 + pick(4); left > 0 && out.length > 0; left--) {
    const at = place();
    const kind = pick(7);
    if (kind === 0) out[at] ^= 1 << pick(8);
    else if (kind === 1) out[at] = pick(256);
    else if (kind === 2) {
      const word = Buffer.alloc(8);
      word.writeBigUInt64LE(WORDS[pick(WORDS.length)]);
      word.copy(out, at, 0, 1 << pick(4));
    } else if (kind === 3) out = Buffer.concat([out.subarray(0, at), out.subarray(at + 1 + pick(16))]);
    else if (kind === 4)
      out = Buffer.concat([out.subarray(0, at), out.subarray(at, at + 1 + pick(64)), out.subarray(at)]);
    else if (kind === 5) {
      const from = place();
      out.copy(out, at, from, from + 1 + pick(32));
    } else out = out.subarray(0, at);
  }
  return new Uint8Array(out);
}

interface Fuzzed {
  /** Valid files to begin with. */
  readonly seeds: readonly Uint8Array[];
  readonly read: (bytes: Uint8Array) => void;
}
const torchRead = (bytes: Uint8Array): void => {
  using file = TorchFile.open(bytes);
  for (const name of file.names) file.record(name, { widen: true }).read();
};
const q8 = ggmlType('Q8_0');
const smallGguf = ggufBytes(
  new Map([
    ['general.architecture', { type: 'string', value: 'llama' }],
    ['general.alignment', { type: 'u32', value: 32 }],
    ['tokens', { type: 'array', of: 'string', value: ['a', 'bc', ''] }],
    ['flags', { type: 'array', of: 'bool', value: [true, false] }],
    ['scores', { type: 'array', of: 'f32', value: Float32Array.from([1, 2, 3]) }],
    ['nested', { type: 'array', of: 'array', value: [{ type: 'array', of: 'u8', value: Uint8Array.from([1]) }] }],
  ]),
  [
    { name: 'plain', type: ggmlType('F32'), shape: [2, 3], bytes: new Uint8Array(24) },
    { name: 'blocks', type: q8, shape: [2, 32], bytes: new Uint8Array(2 * q8.bytes) },
  ],
);
/**
 * The pickles inside PyTorch's own files: their checksums hide them from damage, so they are damaged before they are
 * packed.
 */
const pickles = files('-zip.pt').map((bytes) => {
  const source = new MemorySource(bytes);
  const zip = new ZipFile(source);
  const name = [...zip.entries.keys()].find((n) => n.endsWith('/data.pkl')) as string;
  const content = zip.open(name);
  return readBytes(content, 2, content.size - 3); // without the protocol and the end, which packing adds
});
const storages = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`${i}`, new Uint8Array(1024)]));

const FORMATS: Readonly<Record<string, Fuzzed>> = {
  safetensors: {
    seeds: files('.safetensors'),
    read: (bytes) => {
      using file = SafeTensors.open(bytes);
      for (const r of file.records({ widen: true })) r.read();
    },
  },
  gguf: {
    seeds: [smallGguf],
    read: (bytes) => {
      using file = Gguf.open(bytes);
      for (const name of file.names)
        if (file.info(name).type.plain || canDequantize(file.info(name).type))
          file.dequantize(name, { widen: true }).read();
    },
  },
  npy: { seeds: files('.npy'), read: (bytes) => void openNpy(bytes, { widen: true }).read() },
  npz: { seeds: files('.npz'), read: (bytes) => openNpz(bytes, { widen: true }).forEach((r) => void r.read()) },
  'torch zip': { seeds: files('-zip.pt'), read: torchRead },
  'torch pickle': { seeds: pickles, read: (bytes) => torchRead(p.zipFile(Buffer.from(bytes), storages)) },
  'torch legacy': { seeds: files('-legacy.pt'), read: torchRead },
  'torch tar': {
    seeds: [
      p.tarFile({
        storages: p.tarStorages(
          [[7, 'FloatStorage', 6, new Uint8Array(24)]],
          p.list(p.tuple(p.int(8), p.int(7), p.int(2), p.int(4))),
        ),
        tensors: p.tarTensors([[1, 8, 'FloatTensor', [2, 2], [2, 1], 0]]),
        pickle: p.pickle(p.dict([p.str('w'), p.persistent(p.int(1))])),
      }),
    ],
    read: torchRead,
  },
};

/** Reads a broken file: true where it was read, false where it was refused as it must be. */
function refused(format: string, read: () => void): boolean {
  try {
    read();
    return false;
  } catch (error) {
    assert.ok(error instanceof WickError, `${format}: untyped: ${(error as Error).stack}`);
    // Types and features that are not served are refused by name; everything else says where.
    const byName = error instanceof DTypeError || error instanceof UnsupportedError;
    assert.ok(
      byName || (error instanceof FormatError && /: at byte \d+: /.test(error.message)),
      `${format}: ${error.message}`,
    );
    return true;
  }
}

for (const [format, { seeds, read }] of Object.entries(FORMATS)) {
  test(`${format}: ${MUTATIONS} mutations`, () => {
    for (const seed of seeds)
      assert.equal(
        refused(format, () => read(seed)),
        false,
        'a seed must be valid',
      );
    const pick = random(0x12c0ffee);
    const before = process.resourceUsage().maxRSS;
    let count = 0;
    for (let i = 0; i < MUTATIONS; i++) {
      const bytes = mutate(seeds[pick(seeds.length)], pick);
      if (refused(format, () => read(bytes))) count++;
    }
    assert.ok(count > MUTATIONS / 10, `only ${count} were refused`);
    const grown = (process.resourceUsage().maxRSS - before) / 1024;
    assert.ok(grown < 500, `${grown.toFixed(0)} MB more memory`);
  });

  test(`${format}: cut at every byte`, () => {
    const small = [...seeds].sort((a, b) => a.length - b.length)[0];
    for (let n = 0; n < small.length; n++) refused(format, () => read(small.slice(0, n)));
    for (const most of ['safetensors', 'npy', 'npz', 'torch zip'])
      if (most === format)
        for (let n = 0; n < small.length; n++)
          assert.ok(
            refused(format, () => read(small.slice(0, n))),
            `${n} bytes`,
          );
  });
}
