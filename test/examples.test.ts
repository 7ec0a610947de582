// Every example runs on small data and says what it should.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync } from 'node:zlib';
import { PNG as Declared } from 'pngjs';
import { packageRoot } from '../src/base/paths.js';
import { chatFolder } from './models-support.js';
import { WHISPER_SOUND, withTokenizer } from './small-models.js';

const dir = mkdtempSync(join(tmpdir(), 'wick-examples-'));
process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
const text = join(dir, 'text.txt');
writeFileSync(text, 'The cat sat on the mat. The dog ate the bone. A bird sang in the tree.\n\n'.repeat(40));

/** Examples that another test runs. */
const ELSEWHERE = ['answers']; // engine-requests

const picture = join(dir, 'picture.png');
const { resize } = JSON.parse(
  brotliDecompressSync(readFileSync(join(packageRoot, 'test/golden/media.json.br'))).toString(),
) as { resize: { image: string }[] };
writeFileSync(picture, Buffer.from(resize[0].image, 'base64'));
const small = { image_processor_type: 'CLIPImageProcessor', size: { shortest_edge: 32 }, crop_size: 32 };

/** The library writes too; the product only reads. */
const PNG = Declared as unknown as {
  new (size: { width: number; height: number }): { data: Buffer };
  sync: { write(png: object): Buffer };
};
/** Two classes that a glance tells apart: dark pictures and bright ones. */
const album = join(dir, 'album');
for (const [name, shade] of [
  ['dark', 30],
  ['light', 220],
] as const) {
  mkdirSync(join(album, name), { recursive: true });
  for (let i = 0; i < 10; i++) {
    const png = new PNG({ width: 32, height: 32 });
    for (let at = 0; at < png.data.length; at++)
      png.data[at] = at % 4 === 3 ? 255 : shade + ((at * (i + 3) * 7919) % 31) - 15;
    writeFileSync(join(album, name, `${i}.png`), PNG.sync.write(png));
  }
}

/** What each example is called with, and what its output must hold. */
const RUNS: Readonly<Record<string, readonly [args: readonly string[], says: RegExp]>> = {
  search: [
    [withTokenizer('bert'), '--top', '2', 'the cat sat on the mat', 'a dog ran'],
    /^the cat sat on the mat\n {2}1\.000 {2}the cat sat on the mat\n {2}0[^]*\na dog ran\n {2}1\.000 {2}a dog ran\n/,
  ],
  rag: [
    [withTokenizer('bert'), '--top', '1', '--max-tokens', '4', '--file', text, 'The cat sat on the mat.'],
    /^\[1\] [\d.-]+ {2}The cat sat on the mat\. [^]*\n[^]+\n$/,
  ],
  'fine-tune': [
    [withTokenizer('bert'), '--epochs', '2', '--out', join(dir, 'texts.safetensors'), 'the cat sat', 'a dog ran'],
    /classes cat, dog[^]*epoch 2: loss [\d.]+, \d+ % of 2 held back\n(cat|dog) \(\d+ %\): the cat sat\n(cat|dog) .*a dog ran/,
  ],
  'own-pictures': [
    [
      withTokenizer('vit'),
      album,
      '--side',
      '32',
      '--epochs',
      '12',
      join(album, 'dark/0.png'),
      join(album, 'light/1.png'),
    ],
    /20 pictures of 2 classes: dark, light[^]*epoch 12: [^]* 100 % of 4 [^]*\ndark \(.*dark\/0\.png\nlight \(.*1\.png\n$/,
  ],
  transcribe: [[withTokenizer('whisper', WHISPER_SOUND), '--max-tokens', '4'], /^".*"\n[\d.]+ s\n$/],
  'picture-labels': [
    [withTokenizer('clip', small), picture, 'the cat', 'a dog ran'],
    /^ *([\d.]+) % {2}(the cat|a dog ran)\n *[\d.]+ % /,
  ],
  'picture-chat': [
    [chatFolder('smolvlm'), picture, 'w20 w31', 'w42', '--max-tokens', '3'],
    /^> w20 w31\n.+\n> w42\n.+\n$/,
  ],
  'linear-regression': [[], /bias \[3\.99/],
  classifier: [
    ['--epochs', '2', '--samples', '320', '--out', join(dir, 'classifier')],
    /6,371 parameters[^]*epoch 2: loss [\d.]+, accuracy [\d.]+, validation\.loss[^]*% of 300 new pictures/,
  ],
  'custom-kernel': [['cpu', 'sim:32'], /compared: 12[^]*cpu:[^]*becomes([^]*)f32[^]*sim:32:[^]*becomes\1/],
  diffusion: [['--steps', '2', '--show', '1'], /43809 parameters[^]*loss [\d.]+ at first/],
  'hono-route': [['--once', 'ROMEO:'], /^200 "/m],
  'websocket-chat': [['--once', 'Who art thou?'], /\n[1-9]\d* pieces, ended by (stop|length)\n$/],
  lora: [['--steps', '1'], /after: loss/],
  'train-gpt': [
    [
      '--text',
      text,
      '--out',
      join(dir, 'gpt'),
      '--steps',
      '2',
      '--batch',
      '2',
      '--context',
      '16',
      '--vocab',
      '280',
      '--hidden',
      '16',
      '--layers',
      '1',
      '--heads',
      '2',
      '--kv-heads',
      '1',
      '--intermediate',
      '32',
      '--eval-every',
      '2',
      '--log-every',
      '1',
    ],
    /best held-back loss/,
  ],
};

const run = (name: string, args: readonly string[]): Promise<{ code: number | null; out: string }> =>
  new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [join(packageRoot, 'dist', 'examples', `${name}.js`), ...args], { cwd: dir });
    let out = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (out += part.toString()));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, out }));
  });

test('every example is run here', () => {
  const there = readdirSync(join(packageRoot, 'examples'))
    .filter((f) => f.endsWith('.ts'))
    .map((f) => f.slice(0, -3));
  assert.deepEqual(there.sort(), [...Object.keys(RUNS), ...ELSEWHERE].sort());
});

test('examples import what a user can: the package, and nothing beside it in the repository', () => {
  for (const name of readdirSync(join(packageRoot, 'examples')))
    assert.doesNotMatch(readFileSync(join(packageRoot, 'examples', name), 'utf8'), /from '\.\.?\//, name);
});

for (const [name, [args, says]] of Object.entries(RUNS))
  test(`examples/${name}.ts`, async () => {
    const { code, out } = await run(name, args);
    assert.equal(code, 0, out);
    assert.match(out, says);
  });

test('the classifier left a checkpoint, a plot and event files', () => {
  const files = readdirSync(join(dir, 'classifier'));
  assert.ok(files.includes('last.safetensors') && files.some((f) => f.startsWith('events.out.tfevents')));
  assert.match(readFileSync(join(dir, 'classifier', 'run.svg'), 'utf8'), /^<svg/);
});
