// Pictures to text by an encoder and a decoder of other families, against transformers.
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ArgumentError, UnsupportedError } from '../src/base/errors.js';
import { ImageToText, loadModel, taggedFields } from '../src/models/index.js';
import type { PictureWriter } from '../src/models/pictures/picture-writer.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, captions, familyFolder } from './models-support.js';

const of = (name: string, key: string): Tensor => answerOf(name, key, 'captions');
type Fields = Readonly<Record<string, unknown>>;
/** A folder with other fields in the whole config, the encoder's or the decoder's. */
const folder = (name: string, more: Fields = {}, encoder: Fields = {}, decoder: Fields = {}): string =>
  familyFolder(
    name,
    (f) => {
      const [seeing, writing] = [f.config.encoder, f.config.decoder] as [Fields, Fields];
      const inner = { encoder: { ...seeing, ...encoder }, decoder: { ...writing, ...decoder } };
      return { ...f, config: { ...f.config, ...inner, ...more } };
    },
    captions,
  );
const open = (dir: string): PictureWriter =>
  loadModel<PictureWriter>(dir, { kind: 'image-to-text', device: 'cpu' }).model;
/** A row up to its end, which padding follows. */
const upTo = (row: readonly number[], end: number): readonly number[] => {
  const at = row.indexOf(end, 1);
  return at < 0 ? row : row.slice(0, at + 1);
};

for (const name of Object.keys(captions))
  test(`captions ${name}: the numbers and the choices of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const model = open(folder(name));
        const near = (a: Tensor, b: Tensor, what: string): void => {
          assert.deepEqual(a.shape, b.shape, what);
          const off = a.sub(b).abs().max().item() / b.abs().max().item();
          assert.ok(off <= 1e-4, `${what} is off by ${off}`);
        };
        const pixels = of(name, 'pixels');
        near(model.eye.hidden(pixels), of(name, 'encoded'), 'encoded');
        const { crossed } = model.begin(model.encode(pixels));
        near(model.decode(of(name, 'decoder_input_ids'), { crossed }), of(name, 'logits'), 'logits');
        const greedy = of(name, 'greedy').toArray() as number[][];
        const about = { start: [2], end: [], maxTokens: 12 };
        assert.deepEqual(model.answer(pixels, about), greedy);
        const beams = model.answer(pixels, { ...about, end: [7], beams: 3, lengthPenalty: 0.7 });
        const best = of(name, 'beams').toArray() as number[][];
        assert.deepEqual(
          beams.map((row) => upTo(row, 7)),
          best.map((row) => upTo(row, 7)),
          'by beams',
        );
        model.dispose();
      }),
    ));

test('encoders and decoders that are not served, and fields that would change their sums, are refused by name', () => {
  const refused: [name: string, whole: object, encoder: object, decoder: object, message: RegExp][] = [
    ['trocr', {}, { model_type: 'pvt' }, {}, /encoder.model_type is "pvt"; served are vit, deit/],
    ['trocr', {}, {}, { model_type: 'xlm' }, /decoder.model_type is "xlm"; served are trocr, mbart/],
    ['trocr', {}, {}, { is_decoder: false }, /decoder.is_decoder is false/],
    ['trocr', {}, {}, { add_cross_attention: false }, /decoder.add_cross_attention is false/],
    ['trocr', {}, {}, { cross_attention_hidden_size: null }, /encoder_attn.k_proj.weight/],
    ['trocr-b', {}, {}, { pad_token_id: 3 }, /decoder.pad_token_id is 3/],
    ['donut', {}, { use_absolute_embeddings: true }, {}, /encoder.use_absolute_embeddings is true/],
    ['donut', {}, {}, { cross_attention_hidden_size: 16 }, /cross_attention_hidden_size is 16; .* decoder reads 24/],
    ['donut', {}, {}, { add_final_layer_norm: false }, /decoder.add_final_layer_norm is false/],
    ['vit-bert', {}, {}, { position_embedding_type: 'relative_key' }, /position_embedding_type is "relative_key"/],
    ['vit-gpt2', {}, {}, { rotary_dim: 1 }, /decoder.rotary_dim is 1; nothing here honours/],
    ['vit-gpt2', { encoder: null }, {}, {}, /encoder and decoder must both be given/],
  ];
  for (const [name, whole, encoder, decoder, message] of refused)
    assert.throws(
      () => open(folder(name, whole as Fields, encoder as Fields, decoder as Fields)),
      (e: Error) => message.test(e.message),
      `${name} ${message}`,
    );
  assert.throws(
    () => loadModel(folder('trocr'), { kind: 'vision', device: 'cpu' }),
    (e: Error) => e instanceof UnsupportedError && /a model of kind image-to-text, not vision/.test(e.message),
  );
});

const WORDS = ['<s>', '<pad>', '</s>', ...Array.from({ length: 93 }, (_, i) => `w${i}`)];
const TOKENIZER = {
  ...{ version: '1.0', normalizer: null, pre_tokenizer: { type: 'WhitespaceSplit' } },
  added_tokens: [{ id: 2, content: '</s>', special: true }],
  model: { type: 'WordLevel', vocab: Object.fromEntries(WORDS.map((w, i) => [w, i])), unk_token: '<pad>' },
};
/** A folder that says how pictures and words become numbers. */
function whole(name: string, generation: object = {}): string {
  const dir = folder(name);
  const processor = { image_processor_type: 'DonutImageProcessor', size: { height: 32, width: 24 } };
  const size = { height: 20, width: 20 };
  const files = {
    'preprocessor_config.json': name === 'donut' ? processor : { image_processor_type: 'ViTImageProcessor', size },
    'generation_config.json': { decoder_start_token_id: 2, eos_token_id: 7, ...generation },
    'tokenizer.json': TOKENIZER,
  };
  for (const [to, json] of Object.entries(files)) writeFileSync(join(dir, to), JSON.stringify(json));
  return dir;
}
const PICTURE = { width: 41, height: 30, rgb: new Uint8Array(3 * 41 * 30).map((_, i) => (i * i) % 251) };
const said = (ids: readonly number[]): string => ids.map((id) => WORDS[id]).join(' ');

test('ImageToText writes what a model answers to a picture, one by one or by beams', async () => {
  const writer = await ImageToText.load(whole('trocr'), { device: 'cpu' });
  const { data, height, width } = (writer.processor as NonNullable<typeof writer.processor>).of(PICTURE);
  const pixels = tensor(data, { shape: [1, 3, height, width], device: 'cpu' });
  const about = { start: [2], end: [7], maxTokens: 9 };
  const [plain] = writer.model.answer(pixels, about);
  const [searched] = writer.model.answer(pixels, { ...about, beams: 3 });
  assert.deepEqual(await writer.generate([PICTURE], { maxTokens: 9 }), [said(plain.slice(1))]);
  assert.deepEqual(await writer.generate([PICTURE], { maxTokens: 9, beams: 3 }), [said(searched.slice(1))]);
  // A prompt follows the start, and is not part of the answer.
  const [told] = writer.model.answer(pixels, { ...about, start: [2, 9, 8], maxTokens: 5 });
  assert.deepEqual(await writer.generate([PICTURE], { prompt: 'w6 w5', maxTokens: 5 }), [said(told.slice(3))]);
  // Two pictures, each with its own text; the numbers of one are given.
  const two = await writer.generate([PICTURE, of('trocr', 'pixels').get(1)], { maxTokens: 12 });
  const [, second] = writer.model.answer(of('trocr', 'pixels'), { ...about, maxTokens: 12 });
  assert.equal(two[1], said(upTo(second, 7).slice(1)));
  await assert.rejects(writer.generate([PICTURE], { maxTokens: 40 }), ArgumentError);
  await assert.rejects(writer.generate([]), /the list is empty/);
  writer.dispose();
});

test("Donut's prompt stands where others start, and rules of generation_config.json hold", async () => {
  const writer = await ImageToText.load(whole('donut', { begin_suppress_tokens: [5], num_beams: 2 }), {
    device: 'cpu',
  });
  const { data, height, width } = (writer.processor as NonNullable<typeof writer.processor>).of(PICTURE);
  assert.deepEqual([height, width], [32, 24]);
  const pixels = tensor(data, { shape: [1, 3, height, width], device: 'cpu' });
  const [first] = writer.model.answer(pixels, { start: [9], end: [], maxTokens: 1 });
  const banned = await ImageToText.load(whole('donut', { begin_suppress_tokens: [first[1]] }), { device: 'cpu' });
  const adjust = (logits: Tensor, step: number): Tensor => {
    const all = logits.toArray() as number[][];
    if (step === 0) all[0][first[1]] = -Infinity;
    return tensor(all, { device: 'cpu' });
  };
  const [wanted] = writer.model.answer(pixels, { start: [9], end: [7], maxTokens: 6, adjust });
  assert.notEqual(wanted[1], first[1]);
  assert.deepEqual(await banned.generate([PICTURE], { prompt: 'w6', maxTokens: 6 }), [said(wanted.slice(1))]);
  banned.dispose();
  writer.dispose();
  // Without that file the decoder's config tells: mBART's answers end with 2.
  const dir = whole('donut');
  rmSync(join(dir, 'generation_config.json'));
  const forced = await ImageToText.load(dir, { device: 'cpu' });
  const [text] = await forced.generate([PICTURE], { maxTokens: 3, special: true });
  assert.match(text, /<\/s>$/);
  forced.dispose();
  await assert.rejects(
    ImageToText.load(whole('donut', { guidance_scale: 3 }), { device: 'cpu' }),
    /guidance_scale is 3/,
  );
});

/** Texts with tags, and what transformers makes of them; of all tags <yes/> is a word. */
const TAGGED: readonly (readonly [text: string, fields: unknown])[] = [
  [
    '<s_menu><s_nm>tea</s_nm><s_cnt>2</s_cnt><sep/><s_nm>cake </s_nm></s_menu><s_total><s_price>4.50</s_price></s_total>',
    { menu: [{ nm: 'tea', cnt: '2' }, { nm: 'cake' }], total: { price: '4.50' } },
  ],
  ['plain text', { text_sequence: 'plain text' }],
  ['<s_a>x<sep/> y</s_a>', { a: ['x', 'y'] }],
  ['<s_a><yes/></s_a><s_b><maybe/></s_b>', { a: 'yes', b: '<maybe/>' }],
  ['<s_a>1</s_a><sep/><s_a>2</s_a><sep/><s_b>3</s_b>', [{ a: '1' }, { a: '2' }, { b: '3' }]],
  ['<s_open>left <s_a>1</s_a>', { a: '1' }],
  ['<s_A>1</s_a>', { A: '1' }],
  ['</s_a> <s_a>1</s_a>', { a: '1' }],
  ['<s_a></s_a>', { a: '' }],
  ['<s_a><s_b></s_b></s_a>', { a: { b: '' } }],
  ['<s_a', { text_sequence: '<s_a' }],
  ['<s_a>x</s_a>tail', { a: 'x' }],
  ['<s_q>only', { text_sequence: 'only' }],
  ['<s_a.b>1</s_a.b><s_c(>2</s_c(>', { 'a.b': '1', 'c(': '2' }],
  ['<s_a>1</s_a><sep/>rest', [{ a: '1' }]],
  ['<s_o><s_a>1</s_a><sep/></s_o>', { o: { a: '1' } }],
  ['a</s_x>b<s_y>z', { text_sequence: 'a</s_x>bz' }],
];
test('tags become fields as transformers reads them', () => {
  for (const [text, fields] of TAGGED)
    assert.deepEqual(
      taggedFields(text, (token) => token === '<yes/>'),
      fields,
      text,
    );
  const own = taggedFields('<s___proto__>1</s___proto__>');
  assert.deepEqual(Object.keys(own), ['__proto__']);
});

test('ImageToText tells the fields of a page, without what ends the answer', async () => {
  const plain = await ImageToText.load(whole('donut', { eos_token_id: 95, no_repeat_ngram_size: 1 }), {
    device: 'cpu',
  });
  const [said] = await plain.generate([PICTURE], { maxTokens: 4 });
  assert.deepEqual(await plain.fields([PICTURE], { maxTokens: 4 }), [{ text_sequence: said }]);
  plain.dispose();
  const ids = said.split(' ').map((word) => WORDS.indexOf(word));
  assert.equal(new Set(ids).size, 4, 'the words of the answer differ');
  const tags = ['<s_total>', '4.50', '</s_total>', '<pad>'];
  const words = WORDS.map((word, id) => tags[ids.indexOf(id)] ?? (word === '<pad>' ? 'w' : word));
  const dir = whole('donut', { eos_token_id: 95, no_repeat_ngram_size: 1 });
  const vocab = Object.fromEntries(words.map((word, id) => [word, id]));
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify({ ...TOKENIZER, model: { ...TOKENIZER.model, vocab } }));
  writeFileSync(join(dir, 'tokenizer_config.json'), JSON.stringify({ pad_token: '<pad>' }));
  const tagged = await ImageToText.load(dir, { device: 'cpu' });
  assert.deepEqual(await tagged.fields([PICTURE], { maxTokens: 4 }), [{ total: '4.50' }]);
  tagged.dispose();
});
