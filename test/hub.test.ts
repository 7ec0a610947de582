// Models by name, against a local server that breaks off, lies and refuses: resumed, checked, cached, offline, with the
// reason where it fails.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { LanguageModel } from '../src/engine/index.js';
import { type HubProgress, modelPath } from '../src/hub/index.js';
import { builtinModel } from '../src/engine/index.js';
import { scratch } from './io-support.js';

const COMMIT = 'c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00';
const large = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7 + (i >> 8)) & 255));
const FILES: Record<string, Buffer> = {
  'config.json': Buffer.from('{"model_type":"test"}'),
  'model.safetensors': large,
  'sub/tokenizer.json': Buffer.from('{}'),
  'empty.txt': Buffer.alloc(0),
  'pytorch_model.bin': Buffer.from('of another program'),
  // A part in a folder of its own, which has no other weights.
  '2_Dense/pytorch_model.bin': Buffer.from('a part of this model'),
  'a-00001-of-00002.gguf': Buffer.from('one'),
  'a-00002-of-00002.gguf': Buffer.from('two'),
};
const sha256 = (b: Buffer): string => createHash('sha256').update(b).digest('hex');
const gitSha = (b: Buffer): string => createHash('sha1').update(`blob ${b.length}\0`).update(b).digest('hex');

interface Behaviour {
  /** Bytes after which a connection is cut, each time. */
  readonly breakAfter?: number;
  readonly ranges?: boolean;
  readonly corrupt?: boolean;
  readonly token?: string;
  readonly broken?: number;
}
interface Asked {
  readonly path: string;
  readonly range: string | undefined;
}

/** A hub of one model. */
async function withHub(b: Behaviour, run: (asked: Asked[], cache: string) => Promise<void>): Promise<void> {
  const asked: Asked[] = [];
  let failures = b.broken ?? 0;
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const path = decodeURIComponent(request.url ?? '');
    asked.push({ path, range: request.headers.range });
    if (b.token && request.headers.authorization !== `Bearer ${b.token}`) return void response.writeHead(401).end();
    if (path.startsWith('/api/models/some/model/revision/main')) {
      const siblings = Object.entries(FILES).map(([rfilename, body]) =>
        body.length > 1000
          ? { rfilename, size: body.length, blobId: gitSha(body), lfs: { sha256: sha256(body), size: body.length } }
          : { rfilename, size: body.length, blobId: gitSha(body) },
      );
      return void response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ sha: COMMIT, siblings }));
    }
    const body = FILES[path.replace(`/some/model/resolve/${COMMIT}/`, '')];
    if (!body) return void response.writeHead(404).end();
    if (failures-- > 0) return void response.writeHead(503).end();
    const from = b.ranges === false ? 0 : Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    const rest = Buffer.from(body.subarray(from));
    if (b.corrupt && rest.length > 100) rest[50] ^= 1;
    response.writeHead(from > 0 ? 206 : 200, { 'content-length': rest.length });
    if (b.breakAfter !== undefined && rest.length > b.breakAfter) {
      response.write(rest.subarray(0, b.breakAfter), () => response.destroy());
      return;
    }
    response.end(rest);
  };
  const server = createServer(answer);
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const cache = scratch();
  const before = { ...process.env };
  process.env.HF_ENDPOINT = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  process.env.HF_HUB_CACHE = cache;
  delete process.env.HF_TOKEN;
  delete process.env.HF_HUB_OFFLINE;
  try {
    await run(asked, cache);
  } finally {
    process.env = before;
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  }
}
const contents = (dir: string): void => {
  for (const [name, body] of Object.entries(FILES))
    if (!/^pytorch_model\.bin$|\.gguf$/.test(name)) assert.deepEqual(readFileSync(join(dir, name)), body, name);
};

test('a model is fetched into the layout of the Hugging Face cache, and once only', () =>
  withHub({}, async (asked, cache) => {
    const seen: HubProgress[] = [];
    const dir = await modelPath('some/model', { onDownload: (p) => seen.push(p) });
    const home = join(cache, 'models--some--model');
    assert.equal(dir, join(home, 'snapshots', COMMIT));
    contents(dir);
    assert.ok(!existsSync(join(dir, 'pytorch_model.bin')));
    assert.equal(readFileSync(join(home, 'refs/main'), 'utf8'), COMMIT);
    assert.ok(lstatSync(join(dir, 'model.safetensors')).isSymbolicLink());
    assert.ok(
      existsSync(join(home, 'blobs', sha256(large))) && existsSync(join(home, 'blobs', gitSha(FILES['config.json']))),
    );
    assert.ok(readdirSync(join(home, 'blobs')).every((n) => !n.endsWith('.incomplete')));
    assert.equal(seen.at(-1)?.done, seen.at(-1)?.total);
    assert.ok(seen.every((p, i) => i === 0 || p.done >= seen[i - 1].done));
    const before = asked.length;
    assert.equal(await modelPath('some/model'), dir);
    assert.equal(asked.length, before + 1, 'only the list is asked for again');
  }));

test('a connection that breaks off again and again is taken up where it stopped', () =>
  withHub({ breakAfter: 70_000 }, async (asked) => {
    contents(await modelPath('some/model'));
    const ranges = asked.filter((a) => a.path.endsWith('model.safetensors')).map((a) => a.range);
    assert.equal(ranges[0], undefined);
    assert.ok(ranges.length >= 4 && ranges.slice(1).every((r) => /^bytes=[1-9]\d*-$/.test(r ?? '')), ranges.join(' '));
  }));

test('what an earlier process left is gone on with, and a server without ranges begins anew', async () => {
  for (const ranges of [true, false])
    await withHub({ ranges }, async (asked, cache) => {
      const blobs = join(cache, 'models--some--model/blobs');
      mkdirSync(blobs, { recursive: true });
      writeFileSync(join(blobs, `${sha256(large)}.incomplete`), large.subarray(0, 123_456));
      contents(await modelPath('some/model'));
      assert.equal(asked.find((a) => a.path.endsWith('model.safetensors'))?.range, 'bytes=123456-');
    });
});

test('a server in trouble is asked again; bytes that are wrong are refused and thrown away', async () => {
  await withHub({ broken: 2 }, async () => contents(await modelPath('some/model')));
  await withHub({ corrupt: true }, async (_, cache) => {
    await assert.rejects(modelPath('some/model'), { name: 'FormatError', message: /checksum/ });
    assert.ok(!existsSync(join(cache, 'models--some--model/blobs', sha256(large))));
    assert.ok(!existsSync(join(cache, 'models--some--model/refs/main')), 'half a model is not a model');
  });
});

test('HF_TOKEN is shown, and a refusal says what is missing', () =>
  withHub({ token: 'secret' }, async () => {
    await assert.rejects(modelPath('some/model'), { name: 'UnsupportedError', message: /401.*HF_TOKEN/ });
    process.env.HF_TOKEN = 'secret';
    contents(await modelPath('some/model'));
    await assert.rejects(modelPath('some/other'), /404/);
  }));

test('without a network a model in the cache loads, and another is told where it was sought', () =>
  withHub({}, async (asked, cache) => {
    const dir = await modelPath('some/model');
    process.env.HF_ENDPOINT = 'http://127.0.0.1:1';
    assert.equal(await modelPath('some/model'), dir);
    await assert.rejects(
      modelPath('some/other'),
      (e: Error) => e.message.includes(cache) && /cannot be reached/.test(e.message),
    );
    process.env.HF_HUB_OFFLINE = '1';
    const before = asked.length;
    assert.equal(await modelPath('some/model'), dir);
    await assert.rejects(modelPath('some/other'), /HF_HUB_OFFLINE/);
    assert.equal(asked.length, before);
    await assert.rejects(modelPath('no such folder'), /owner\/name/);
  }));

test('a GGUF file by its name, with its shards', () =>
  withHub({}, async () => {
    const path = await modelPath('some/model:a-00001-of-00002.gguf');
    assert.ok(path.endsWith('a-00001-of-00002.gguf'));
    assert.equal(readFileSync(path.replace('00001-of', '00002-of'), 'utf8'), 'two');
    assert.ok(statSync(path).size === 3);
    await assert.rejects(modelPath('some/model:b.gguf'), /there are a-00001/);
  }));

test('a language model in the cache loads by its name, and tells how far it is', () =>
  withHub({}, async (_, cache) => {
    const home = join(cache, 'models--own--builtin');
    cpSync(builtinModel, join(home, 'snapshots/abc'), { recursive: true });
    mkdirSync(join(home, 'refs'));
    writeFileSync(join(home, 'refs/main'), 'abc');
    process.env.HF_HUB_OFFLINE = '1';
    const seen: [number, number][] = [];
    const model = await LanguageModel.load('own/builtin', { device: 'cpu', onProgress: (...p) => seen.push(p) });
    assert.ok(seen.length > 3 && seen.at(-1)?.[0] === seen.at(-1)?.[1]);
    model.dispose();
  }));
