// Texts to vectors, sound to spectrograms, pictures to numbers: what surrounds the models, against
// sentence-transformers' rules, transformers and Pillow.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync, deflateSync } from 'node:zlib';
import jpeg from 'jpeg-js';
import { packageRoot } from '../src/base/paths.js';
import { saveTensors } from '../src/io/index.js';
import { readPicture } from '../src/media/pictures.js';
import { resize } from '../src/media/resize.js';
import { readWav } from '../src/media/wav.js';
import { LogMel } from '../src/models/sound/audio.js';
import { Config } from '../src/models/files/config.js';
import { PictureProcessor } from '../src/models/vision/images.js';
import { EmbeddingModel, ImageClassifier, ImageTextModel, SpeechModel, TextToText } from '../src/models/index.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { tensor } from '../src/tensor/create.js';
import { WHISPER_SOUND, withTokenizer } from './small-models.js';

interface Golden {
  readonly mel: { config: Record<string, unknown>; samples: number[]; features: number[] }[];
  readonly resize: { image: string; w: number; h: number; r: number; out: number[] }[];
  readonly proc: { name: string; config: Record<string, unknown>; image: string; shape: number[]; out: number[] }[];
}
const golden = JSON.parse(
  brotliDecompressSync(readFileSync(join(packageRoot, 'test/golden/media.json.br'))).toString(),
) as Golden;
const picture = (base64: string) => readPicture(Buffer.from(base64, 'base64'));
const worst = (got: ArrayLike<number>, want: readonly number[], step: number): number =>
  want.reduce((w, v, i) => Math.max(w, Math.abs(v - got[i * step])), 0);

test('log-mel spectrograms are those of transformers', () => {
  for (const { config, samples, features } of golden.mel) {
    const mel = new LogMel(new Config(config));
    assert.ok(worst(mel.of(Float32Array.from(samples)), features, 11) < 1e-4);
  }
  for (const field of [{ n_fft: 401 }, { n_fft: 2 ** 40 }, { feature_size: 2 ** 31 }, { n_samples: 2 ** 53 - 1 }])
    assert.throws(() => new LogMel(new Config(field)), { name: 'UnsupportedError', message: /config.json: n_fft/ });
});
test('pictures are resized as Pillow does it, to the last bit', () => {
  for (const { image, w, h, r, out } of golden.resize)
    assert.deepEqual([...resize(picture(image), w, h, r).rgb], out, `${w}x${h} filter ${r}`);
});
test('pictures become the numbers of the image processors of transformers', () => {
  for (const { name, config, image, shape, out } of golden.proc) {
    const c = new Config(config, name);
    const got = new PictureProcessor(c).of(picture(image));
    c.refuseUnread();
    assert.deepEqual([3, got.height, got.width], shape);
    assert.ok(worst(got.data, out, 97) < 1e-6, name);
  }
  assert.throws(() => readPicture(Buffer.from('GIF89a')), { name: 'FormatError' });
  assert.throws(() => readPicture(Buffer.from(golden.resize[0].image, 'base64').subarray(0, 60)), {
    name: 'FormatError',
  });
  assert.throws(() => new PictureProcessor(new Config({ image_processor_type: 'OtherImageProcessor' })), /Other/);
  const sized = (size: unknown): PictureProcessor => new PictureProcessor(new Config({ size }), 'vit');
  assert.throws(() => sized({ height: 0, width: 3 }), /config.json: size.height is 0, not a whole number from 1/);
  assert.throws(() => sized('30'), /config.json: size is "30", not an object/);
  assert.throws(() => sized(1e5), /config.json: size asks for more than 100 million pixels/);
});

/** A chunk of a PNG file with its checksum. */
function chunk(type: string, body: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type), body]);
  let crc = -1;
  for (const byte of named) {
    crc ^= byte;
    for (let k = 0; k < 8; k++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(body.length);
  check.writeInt32BE(~crc);
  return Buffer.concat([length, named, check]);
}
/** Gray pixels of eight bits; rows hold their filters. */
function png(width: number, height: number, interlaced: 0 | 1, rows: Uint8Array): Buffer {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 0, 0, 0, interlaced], 8);
  const parts = [chunk('IHDR', head), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))];
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), ...parts]);
}
test('a PNG file has the pixels that its header promises, and not too many', () => {
  const plain = Uint8Array.of(0, 1, 2, 3, 0, 4, 5, 6);
  const gray = (file: Buffer): number[] => [...readPicture(file).rgb.filter((_, i) => i % 3 === 0)];
  assert.deepEqual(gray(png(3, 2, 0, plain)), [1, 2, 3, 4, 5, 6]);
  // Interlaced, three of the seven passes have pixels of a picture of 3x2: corner, third of its row, the others.
  assert.deepEqual(gray(png(3, 2, 1, Uint8Array.of(0, 1, 0, 3, 0, 2, 0, 4, 5, 6))), [1, 2, 3, 4, 5, 6]);
  assert.throws(() => readPicture(png(3, 2, 1, plain)), /FormatError.*3x2 pixels need 10 bytes, there are 8/);
  assert.throws(() => readPicture(png(3, 3, 0, plain)), /FormatError.*3x3 pixels need 12 bytes, there are 8/);
  assert.throws(() => readPicture(png(0, 3, 0, plain)), /FormatError.*0x3 pixels are none/);
  assert.throws(() => readPicture(png(2 ** 23, 23, 0, plain)), /FormatError.*8388608x23 pixels are .* 100 million/);
});
test('of 16 bits a channel the upper eight count, and files of other kinds are refused by their name', () => {
  const deep = picture(
    'iVBORw0KGgoAAAANSUhEUgAAAAIAAAABEAIAAAAr0DSeAAAAFklEQVR4nGNg/N/w7/9/hv9CDf8mAAAxPAecXiuVbgAAAABJRU5ErkJggg==',
  );
  assert.deepEqual([...deep.rgb], [0x01, 0x80, 0xff, 0x00, 0x12, 0xfe]);
  for (const [begins, name] of [
    ['GIF89a', 'a GIF file'],
    ['RIFF\0\0\0\0WEBPVP8 ', 'a WebP file'],
    ['BM\0\0', 'a BMP file'],
    ['II*\0', 'a TIFF file'],
    ['\0\0\0\x1cftypavif', 'an AVIF file'],
    ['\0\0\0\x1cftypheic', 'a HEIC file'],
  ])
    assert.throws(
      () => readPicture(Buffer.from(begins, 'latin1')),
      (e: Error) => e.message.includes(`is ${name}; PNG and JPEG are read`),
    );
  assert.throws(() => readPicture(Buffer.from('text')), /FormatError.*is neither PNG nor JPEG/);
});
test('a picture that is cut off anywhere is refused as such, not filled up with grey', () => {
  const [width, height] = [16, 9];
  const data = Buffer.from(Array.from({ length: width * height * 4 }, (_, i) => (i * i * 7 + (i >> 5) * 31) & 255));
  const plain = Buffer.from(jpeg.encode({ width, height, data }, 80).data);
  // What a camera writes before its picture holds a whole one, end mark and all.
  const small = Buffer.concat([Buffer.from([0xff, 0xe1, 0, 0]), plain]);
  small.writeUInt16BE(plain.length + 2, 2);
  const rows = Uint8Array.from({ length: 31 * 20 }, (_, i) => (i % 31 ? (i * i) & 255 : 0));
  const files = {
    plain,
    'with a small picture inside': Buffer.concat([plain.subarray(0, 2), small, plain.subarray(2)]),
    'with bytes behind': Buffer.concat([plain, Buffer.from([0xff, 0xd9, 7])]),
    png: png(30, 20, 0, rows),
  };
  for (const [name, file] of Object.entries(files)) {
    readPicture(file);
    const most = name === 'with bytes behind' ? plain.length : file.length;
    for (let length = 0; length < most; length++)
      assert.throws(() => readPicture(file.subarray(0, length)), { name: 'FormatError' }, `${name}: ${length} bytes`);
  }
  assert.deepEqual(readPicture(files['with bytes behind']), readPicture(plain));
  const scan = plain.indexOf(Buffer.from([0xff, 0xda]));
  const again = Array.from({ length: 101 }, () => plain.subarray(scan, -2));
  assert.throws(
    () => readPicture(Buffer.concat([plain.subarray(0, scan), ...again, plain.subarray(-2)])),
    /FormatError.*JPEG: it passes over its pixels more than 100 times/,
  );
  assert.throws(() => readPicture(plain.subarray(0, -2)), /JPEG: the file is cut off: its \d+ bytes hold no end/);
});

function wav(samples: readonly number[], rate: number, channels = 1): Uint8Array {
  const b = Buffer.alloc(44 + samples.length * 2);
  b.write('RIFF', 0);
  b.writeUInt32LE(36 + samples.length * 2, 4);
  b.write('WAVEfmt ', 8);
  b.writeUInt32LE(16, 16);
  b.writeUInt16LE(1, 20);
  b.writeUInt16LE(channels, 22);
  b.writeUInt32LE(rate, 24);
  b.writeUInt32LE(rate * channels * 2, 28);
  b.writeUInt16LE(channels * 2, 32);
  b.writeUInt16LE(16, 34);
  b.write('data', 36);
  b.writeUInt32LE(samples.length * 2, 40);
  samples.forEach((s, i) => b.writeInt16LE(s, 44 + 2 * i));
  return b;
}
test('WAV files: samples, channels averaged, and what is not one', () => {
  assert.deepEqual(readWav(wav([0, 16384, -32768], 8000)), { samples: Float32Array.of(0, 0.5, -1), rate: 8000 });
  assert.deepEqual(readWav(wav([0, 16384, -16384, -16384], 16000, 2)).samples, Float32Array.of(0.25, -0.5));
  for (const bad of [Buffer.from('RIFF'), wav([1], 8000).subarray(0, 30), wav([1], 8000).subarray(0, 36)])
    assert.throws(() => readWav(bad), { name: 'FormatError' });
  assert.throws(() => readWav(wav([1], 0)), /FormatError.*WAV: its rate is 0/);
  const whole = Buffer.from(wav([1, 2, 3, 4], 8000));
  for (let length = 0; length < whole.length; length++)
    assert.throws(() => readWav(whole.subarray(0, length)), { name: 'FormatError' }, `${length} bytes`);
  // A stream's length is not known when it begins.
  whole.writeUInt32LE(0xffffffff, 40);
  assert.equal(readWav(whole.subarray(0, -2)).samples.length, 3);
});

const near = (a: ArrayLike<number>, b: ArrayLike<number>, bound = 1e-5): void => {
  assert.equal(a.length, b.length);
  for (let i = 0; i < a.length; i++) assert.ok(Math.abs(a[i] - b[i]) <= bound, `${i}: ${a[i]} is not ${b[i]}`);
};

test('sentence vectors: pooling, a dense layer, length 1, prompts, and texts of any length in one call', {
  skip: missingGolden('hf/bert'),
}, async () => {
  const dir = withTokenizer('bert');
  const texts = ['the cat sat', 'a dog', 'the cat sat on a mat and a dog ran on'];
  const plain = await EmbeddingModel.load(dir);
  const { hidden } = plain.encoder.forward({ ids: tensor([plain.tokenizer.encode(texts[0])], { dtype: 'i32' }) });
  const [rows] = hidden.toArray() as number[][][];
  const mean = rows[0].map((_, j) => rows.reduce((s, r) => s + r[j], 0) / rows.length);
  near((await plain.embed(texts))[0], mean);
  near((await plain.embed(texts, { batchSize: 1 }))[1], (await plain.embed(texts))[1]);

  for (const folder of ['1_Pooling', '2_Dense']) mkdirSync(join(dir, folder));
  const type = (name: string): string => `sentence_transformers.models.${name}`;
  writeFileSync(
    join(dir, 'modules.json'),
    JSON.stringify([
      { idx: 0, name: '0', path: '', type: type('Transformer') },
      { idx: 1, name: '1', path: '1_Pooling', type: type('Pooling') },
      { idx: 2, name: '2', path: '2_Dense', type: type('Dense') },
      { idx: 3, name: '3', path: '3_Normalize', type: type('Normalize') },
    ]),
  );
  const pooling = { word_embedding_dimension: 64, pooling_mode_cls_token: true, pooling_mode_lasttoken: true };
  writeFileSync(
    join(dir, '1_Pooling/config.json'),
    JSON.stringify({ ...pooling, pooling_mode_max_tokens: true, pooling_mode_mean_tokens: false }),
  );
  const dense = {
    in_features: 192,
    out_features: 5,
    bias: true,
    activation_function: 'torch.nn.modules.activation.Tanh',
  };
  writeFileSync(join(dir, '2_Dense/config.json'), JSON.stringify(dense));
  const weight = Array.from({ length: 5 }, (_, i) => Array.from({ length: 192 }, (_, j) => Math.sin(i * 7 + j) / 9));
  saveTensors(join(dir, '2_Dense/model.safetensors'), {
    'linear.weight': tensor(weight),
    'linear.bias': tensor([0.1, 0, -0.1, 0.2, 0]),
  });
  writeFileSync(
    join(dir, 'config_sentence_transformers.json'),
    JSON.stringify({ prompts: { query: 'a mat ' }, default_prompt_name: null }),
  );
  const model = await EmbeddingModel.load(dir);
  const max = rows[0].map((_, j) => Math.max(...rows.map((r) => r[j])));
  const side = [...rows[0], ...max, ...(rows.at(-1) as number[])];
  const out = weight.map((w, i) => Math.tanh(w.reduce((s, v, j) => s + v * side[j], [0.1, 0, -0.1, 0.2, 0][i])));
  const length = Math.hypot(...out);
  const [got] = await model.embed(texts);
  near(
    got,
    out.map((v) => v / length),
  );
  near((await model.embed(['sat'], { promptName: 'query' }))[0], (await model.embed(['a mat sat']))[0]);
  await assert.rejects(model.embed(['x'], { promptName: 'none' }), /there are query/);
  writeFileSync(join(dir, '1_Pooling/config.json'), JSON.stringify({ ...pooling, pooling_mode_odd: true }));
  await assert.rejects(EmbeddingModel.load(dir), /pooling_mode_odd/);
});

test('every way of pooling, a prompt that does not count, a shorter vector, and cuts by older files', {
  skip: missingGolden('hf/bert'),
}, async () => {
  const dir = withTokenizer('bert');
  mkdirSync(join(dir, '1_Pooling'));
  const put = (name: string, json: unknown): void => writeFileSync(join(dir, name), JSON.stringify(json));
  put('modules.json', [
    { idx: 0, name: '0', path: '', type: 'sentence_transformers.models.Transformer' },
    { idx: 1, name: '1', path: '1_Pooling', type: 'sentence_transformers.models.Pooling' },
  ]);
  const plain = await EmbeddingModel.load(withTokenizer('bert'));
  const rowsOf = (text: string): number[][] =>
    (
      plain.encoder.forward({ ids: tensor([plain.tokenizer.encode(text)], { dtype: 'i32' }) }).hidden.toArray() as any
    )[0];
  const sum = (rows: number[][], weight = (_: number) => 1): number[] =>
    rows[0].map((_, j) => rows.reduce((all, r, i) => all + r[j] * weight(i), 0));
  const over = (v: number[], n: number): number[] => v.map((x) => x / n);
  const WAYS: Readonly<Record<string, (rows: number[][]) => number[]>> = {
    cls: (rows) => rows[0],
    max: (rows) => rows[0].map((_, j) => Math.max(...rows.map((r) => r[j]))),
    mean: (rows) => over(sum(rows), rows.length),
    mean_sqrt_len_tokens: (rows) => over(sum(rows), Math.sqrt(rows.length)),
    weightedmean: (rows) =>
      over(
        sum(rows, (i) => i + 1),
        (rows.length * (rows.length + 1)) / 2,
      ),
    lasttoken: (rows) => rows.at(-1) as number[],
  };
  const texts = ['the cat sat on a mat', 'a dog'];
  for (const [mode, pooled] of Object.entries(WAYS)) {
    const words: Partial<Record<string, string>> = { cls: 'cls_token', lasttoken: mode, mean_sqrt_len_tokens: mode };
    const older = `pooling_mode_${words[mode] ?? `${mode}_tokens`}`;
    for (const config of [{ pooling_mode: mode }, { [older]: true, pooling_mode_mean_tokens: mode === 'mean' }]) {
      put('1_Pooling/config.json', { word_embedding_dimension: 64, ...config });
      const got = await (await EmbeddingModel.load(dir)).embed(texts);
      texts.forEach((text, i) => near(got[i], pooled(rowsOf(text))));
    }
  }
  put('1_Pooling/config.json', { pooling_mode_mean_tokens: true, include_prompt: false });
  put('config_sentence_transformers.json', { prompts: { q: 'the cat ' }, default_prompt_name: 'q', truncate_dim: 9 });
  const asking = await EmbeddingModel.load(dir);
  const encode = asking.tokenizer.encode.bind(asking.tokenizer);
  const read: string[] = [];
  asking.tokenizer.encode = (text, options) => {
    read.push(text);
    return encode(text, options);
  };
  const [asked] = await asking.embed(['sat on a mat\n']);
  assert.deepEqual(read, ['the cat sat on a mat', 'the cat']);
  const own = rowsOf('the cat sat on a mat').slice(plain.tokenizer.encode('the cat').length - 1);
  near(asked, over(sum(own), own.length).slice(0, 9));
  put('config_sentence_transformers.json', { model_type: 'SparseEncoder' });
  await assert.rejects(EmbeddingModel.load(dir), /model_type is "SparseEncoder"/);
  put('config_sentence_transformers.json', {});
  put('sentence_roberta_config.json', { max_seq_length: 4, do_lower_case: true });
  const cut = await EmbeddingModel.load(dir);
  assert.equal(cut.maxTokens, 4);
  const [end] = plain.tokenizer.encode('a').slice(-1);
  assert.deepEqual(cut.tokenizer.encode(texts[0], { maxLength: 4 }).at(-1), end);
  put('sentence_roberta_config.json', { config_args: { attn_implementation: 'x' } });
  await assert.rejects(EmbeddingModel.load(dir), /config_args is/);
});

/** What Whisper's answers begin with, by what generation_config.json says and what the caller asks for. */
const KNOWN = { decoder_start_token_id: 3, lang_to_id: { '<|de|>': 11, '<|en|>': 12 }, no_timestamps_token_id: 9 };
const BOTH = { ...KNOWN, task_to_id: { transcribe: 21, translate: 22 } };
const STARTS: readonly [generation: object, options: object, start: readonly number[]][] = [
  [BOTH, { language: 'de' }, [3, 11, 21, 9]],
  [BOTH, { language: 'en', task: 'translate' }, [3, 12, 22, 9]],
  [{ ...BOTH, language: 'de', task: 'translate' }, {}, [3, 11, 22, 9]],
  [{ ...BOTH, language: 'de' }, { language: 'en' }, [3, 12, 21, 9]],
  [
    {
      ...BOTH,
      forced_decoder_ids: [
        [1, 12],
        [2, 22],
        [3, 9],
      ],
    },
    {},
    [3, 12, 22, 9],
  ],
  [
    {
      ...BOTH,
      forced_decoder_ids: [
        [1, 12],
        [2, 22],
      ],
    },
    { language: 'de' },
    [3, 11, 21, 9],
  ],
  [{ decoder_start_token_id: 3, forced_decoder_ids: [[1, 9]] }, {}, [3, 9]],
];
async function whisperStarts(dir: string): Promise<void> {
  for (const [generation, options, start] of STARTS) {
    writeFileSync(join(dir, 'generation_config.json'), JSON.stringify(generation));
    const speech = await SpeechModel.load(dir);
    let seen: readonly number[] = [];
    speech.model.answer = (_, { start }) => [[...(seen = start)]];
    await speech.transcribe(new Float32Array(100).fill(0.1), options);
    assert.deepEqual(seen, start, JSON.stringify(generation));
    speech.dispose();
  }
  writeFileSync(join(dir, 'generation_config.json'), JSON.stringify({ ...KNOWN, forced_decoder_ids: [[2, 9]] }));
  await assert.rejects(SpeechModel.load(dir), /forced_decoder_ids is \[\[2,9\]\]/);
}

test('the faces of the other models', { skip: missingGolden('hf/t5', 'hf/whisper', 'hf/vit', 'hf/clip') }, async () => {
  const t5 = await TextToText.load(withTokenizer('t5'));
  assert.equal((await t5.generate(['the cat', 'a dog ran on'], { maxTokens: 6 })).length, 2);
  const classifier = await ImageClassifier.load(findGolden('hf/vit') as string);
  const classes = await classifier.classify(
    tensor(
      Float32Array.from({ length: 3072 }, (_, i) => Math.sin(i)),
      { shape: [3, 32, 32] },
    ),
    3,
  );
  assert.equal(classes.length, 3);
  assert.match(classes[0].label, /^LABEL_\d$/);
  await assert.rejects(
    classifier.classify(golden.resize[0].image),
    /^FormatError.*: iVBOR.{195}\.\.\.: cannot be opened: ENAMETOOLONG: name too long$/,
  );
  await assert.rejects(
    classifier.classify(Buffer.from(golden.resize[0].image, 'base64')),
    /ArgumentError.*: images: neither preprocessor_config.json nor processor_config.json of the folder tells how/,
  );
  const clip = await ImageTextModel.load(withTokenizer('clip'));
  const [scores] = await clip.scores(
    [
      tensor(
        Float32Array.from({ length: 3072 }, (_, i) => Math.cos(i)),
        { shape: [3, 32, 32] },
      ),
    ],
    ['the cat', 'a dog ran'],
  );
  near([scores[0] + scores[1]], [1]);
  const dir = withTokenizer('whisper', WHISPER_SOUND);
  const speech = await SpeechModel.load(dir);
  assert.equal(
    typeof (await speech.transcribe(
      new Float32Array(12_000).map((_, i) => Math.sin(i / 9)),
      { maxTokens: 5 },
    )),
    'string',
  );
  await assert.rejects(speech.transcribe(wav([1, 2], 8000)), /8000 samples a second/);
  await whisperStarts(dir);
  await assert.rejects(EmbeddingModel.load(dir), /kind speech/);
});
