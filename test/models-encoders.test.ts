// Encoders, encoder-decoders and vision models against transformers: hidden states, logits, embeddings and greedy
// answers.
import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { isFloat } from '../src/base/dtype.js';
import { FormatError, UnsupportedError } from '../src/base/errors.js';
import { loadTensors, saveTensors } from '../src/io/index.js';
import { answerRules } from '../src/models/seq2seq/answer-rules.js';
import type { ImageText } from '../src/models/vision/clip.js';
import { architecturesOf, Config } from '../src/models/files/config.js';
import type { EncoderInput, TextEncoder } from '../src/models/encoders/encoder.js';
import { loadModel } from '../src/models/load.js';
import type { Seq2Seq } from '../src/models/seq2seq/seq2seq.js';
import { distanceBucket } from '../src/models/seq2seq/t5.js';
import { encoderAt } from '../src/models/encoders/embedding-model.js';
import { TextClassifier } from '../src/models/encoders/text-classifier.js';
import { MaskedLanguageModel, QuestionAnswerer, TokenClassifier } from '../src/models/encoders/token-models.js';
import type { Vit } from '../src/models/vision/vit.js';
import { Module } from '../src/nn/module.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor, zeros } from '../src/tensor/create.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import { loadTokenizer } from '../src/tokenizers/index.js';
import { scratch } from './io-support.js';
import { answerOf, classifiers, encoders, familyFolder, pairs, skipEncoders, tokenHeads } from './models-support.js';
import { withTokenizer } from './small-models.js';

type Golden = Record<string, Tensor>;
type Check = (model: any, g: Golden, close: (got: Tensor, name: string, mask?: Tensor) => void) => void;

const encoder: Check = (model: TextEncoder, g, close) => {
  const out = model.forward({ ids: g.input_ids, mask: g.attention_mask });
  close(out.hidden, 'last_hidden_state', g.attention_mask);
  assert.equal(out.pooled !== undefined, g.pooler !== undefined);
  if (out.pooled) close(out.pooled, 'pooler');
};
const seq2seq: Check = (model: Seq2Seq, g, close) => {
  const input = g.input_ids ?? g.input_features;
  const encoded = model.encode(input, g.attention_mask);
  close(encoded, 'encoder_last_hidden_state', g.attention_mask);
  close(
    model.decode(g.decoder_input_ids, { crossed: model.begin(encoded).crossed, ...maskOf(model, encoded, g) }),
    'logits',
  );
  const greedy = g.greedy.toArray() as number[][];
  const answer = model.answer(
    input,
    { start: [greedy[0][0]], end: [], maxTokens: greedy[0].length - 1 },
    g.attention_mask,
  );
  assert.deepEqual(answer, greedy);
};
/** The mask of what was read, without the caches of a fresh answer. */
const maskOf = (model: Seq2Seq, encoded: Tensor, g: Golden): { mask?: Tensor } => {
  const { mask } = model.begin(encoded, g.attention_mask);
  return mask ? { mask } : {};
};

const CHECKS: Readonly<Record<string, Check>> = {
  bert: encoder,
  roberta: encoder,
  modernbert: encoder,
  t5: seq2seq,
  't5-v1_1': seq2seq,
  whisper: seq2seq,
  vit: (model: Vit, g, close) => {
    close(model.hidden(g.pixel_values), 'last_hidden_state');
    close(model.forward(g.pixel_values), 'logits');
  },
  clip: (model: ImageText, g, close) => {
    close(model.text.hidden(g.input_ids, g.attention_mask), 'text_last_hidden_state', g.attention_mask);
    close(model.vision.hidden(g.pixel_values), 'vision_last_hidden_state');
    const texts = model.embedText(g.input_ids, g.attention_mask);
    const images = model.embedImage(g.pixel_values);
    close(texts, 'text_embeds');
    close(images, 'image_embeds');
    close(model.logits(images, texts), 'logits_per_image');
  },
};

for (const { name, device, missing } of testDevices('cpu')) {
  for (const [family, check] of Object.entries(CHECKS)) {
    const skip = missing ?? missingGolden(`hf/${family}`);
    test(`${family} on ${name}: the numbers of transformers`, { skip }, () =>
      scope(() =>
        noGrad(() => {
          const dir = findGolden(`hf/${family}`) as string;
          const golden = Object.fromEntries(
            loadTensors(join(dir, 'golden.safetensors'), { device: device as Device }),
          ) as Golden;
          const { model } = loadModel(dir, { device: device as Device });
          assert.ok(model instanceof Module);
          check(model, golden, (got, what, mask) => {
            let [a, b] = [got, golden[what]];
            assert.deepEqual(a.shape, b.shape, what);
            // Vectors at padding mean nothing.
            const real = mask?.ne(0).cast('f32').unsqueeze(-1);
            if (real) [a, b] = [a.mul(real), b.mul(real)];
            const error = a.sub(b).abs().max().item() / b.abs().max().item();
            assert.ok(error <= 1e-4, `${what} is off by ${error} of the largest`);
          });
        }),
      ),
    );
  }
}

/** The numbers that a folder's weights are. */
const storedNumbers = (folder: string): number =>
  [...loadTensors(join(folder, 'model.safetensors')).values()].reduce((n, t) => n + (isFloat(t.dtype) ? t.size : 0), 0);
/** Shares of folders with weights that are read: others are of attention that is global, of languages, are computed. */
const UNREAD: Readonly<Record<string, number>> = {
  ...{ longformer: 0.73, roformer: 0.97, esm: 0.999, 'esm-b': 0.999, xlm: 0.998, xlnet: 0.998 },
  // Numbers of rounding, products for entities, adapters of other languages.
  ...{ ibert: 0.508, 'ibert-b': 0.508, luke: 0.696, 'luke-b': 0.935, xmod: 0.9, 'xmod-c': 0.9 },
};
for (const name of Object.keys(encoders))
  test(`encoder ${name}: the numbers of transformers, padded behind`, { skip: skipEncoders }, () =>
    scope(() =>
      noGrad(() => {
        const folder = familyFolder(name, (f) => f, encoders);
        const model = encoderAt(folder, { device: 'cpu' });
        assert.ok(model.parameterCount() >= (UNREAD[name] ?? 1) * storedNumbers(folder), 'every weight is a parameter');
        const of = (key: string): Tensor => answerOf(name, key, 'encoders');
        const mask = of('attention_mask');
        const [ids, boxes, pixels] = [of('input_ids'), of('boxes'), of('pixels')];
        const out = model.forward({ ids, mask, ...(boxes && { boxes }), ...(pixels && { pixels }) });
        const [hidden, { pooled }] = [out.hidden.narrow(1, 0, ids.shape[1]), out];
        const real = mask.cast('f32').unsqueeze(-1);
        const off = (a: Tensor, b: Tensor): number => a.sub(b).abs().max().item() / b.abs().max().item();
        assert.ok(off(hidden.mul(real), of('hidden').mul(real)) <= 1e-4, 'hidden states');
        assert.equal(pooled !== undefined, of('pooled') !== undefined, 'has a pooler');
        if (pooled) assert.ok(off(pooled, of('pooled')) <= 1e-4, 'pooled');
        model.dispose();
      }),
    ),
  );

const classifierOf = (name: string): TextEncoder =>
  loadModel<TextEncoder>(
    familyFolder(name, (f) => f, classifiers),
    { kind: 'encoder', device: 'cpu' },
  ).model;
for (const name of Object.keys(classifiers))
  test(`classifier ${name}: the logits of transformers, padded behind`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'classifiers');
        const model = classifierOf(name);
        const typeIds = of('token_type_ids');
        const input = { ids: of('input_ids'), mask: of('attention_mask'), ...(typeIds && { typeIds }) };
        const [got, want] = [model.forward(input).logits as Tensor, of('logits')];
        assert.deepEqual(got.shape, want.shape);
        assert.ok(got.sub(want).abs().max().item() / want.abs().max().item() <= 1e-4);
        model.dispose();
      }),
    ));
test('encoders that look another way or have other positions, and Gemma that looks both ways, are refused by name', () => {
  const refused: [string, object, RegExp][] = [
    ['eurobert', { is_causal: true }, /is_causal is true/],
    ['gte', { position_embedding_type: 'absolute' }, /position_embedding_type is "absolute"/],
    ['xlnet', { attn_type: 'uni' }, /attn_type is "uni"/],
    ['xlnet', { bi_data: true }, /bi_data is true/],
  ];
  const gemma = familyFolder('decoder-gemma3', (f) => f, encoders);
  assert.throws(() => loadModel(gemma, { device: 'cpu' }), /use_bidirectional_attention is true/);
  for (const [name, more, message] of refused) {
    const changed = (added: object): string =>
      familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...added } }), encoders);
    const open = (added: object): TextEncoder => loadModel<TextEncoder>(changed(added), { device: 'cpu' }).model;
    open({}).dispose();
    assert.throws(
      () => open(more),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
  }
});
test('boxes and pictures of pages are for models of pages, and fit the tokens and the model', () => {
  const ids = zeros([1, 3], { dtype: 'i32', device: 'cpu' });
  const [boxes, pixels] = [zeros([1, 4, 4], { dtype: 'i32', device: 'cpu' }), zeros([1, 3, 8, 8], { device: 'cpu' })];
  const open = (name: string): TextEncoder =>
    loadModel<TextEncoder>(
      familyFolder(name, (f) => f, encoders),
      { device: 'cpu' },
    ).model;
  assert.throws(() => open('ernie').forward({ ids, boxes }), /boxes and pixels are for models of pages/);
  assert.throws(() => open('lilt').forward({ ids, boxes }), /boxes have shape \[1, 4, 4\]; .* they are \(1, 3, 4\)/);
  assert.throws(() => open('layoutlm-b').forward({ ids, boxes }), /boxes have shape/);
  assert.throws(() => open('layoutlm-b').forward({ ids, pixels }), /pixels are for models that look at pages/);
  assert.throws(() => open('lilt').forward({ ids, pixels }), /pixels are for/);
  assert.throws(() => open('layoutlmv3').forward({ ids, pixels }), /the model takes \(batch, 3, 16, 16\)/);
});
test('heads that a family has no use for are refused by the name of their class', () => {
  const refused = [
    ...[['longt5', 'LongT5ForTokenClassification'] as const, ['switch', 'SwitchForQuestionAnswering'] as const],
    ...[['t5gemma', 'T5GemmaForSequenceClassification'] as const, ['bart', 'BartForTokenClassification'] as const],
    ...[['marian', 'MarianForQuestionAnswering'] as const, ['mbart', 'MBartForCausalLM'] as const],
    ...[['llama', 'LlamaForQuestionAnswering'] as const, ['xlnet', 'XLNetForQuestionAnswering'] as const],
  ];
  for (const [name, architecture] of refused) {
    const of = name in pairs ? pairs : classifiers;
    const dir = familyFolder(name, (f) => ({ ...f, config: { ...f.config, architectures: [architecture] } }), of);
    assert.throws(
      () => loadModel(dir, { device: 'cpu' }),
      (e: Error) => e instanceof UnsupportedError && e.message.includes(`architectures names ${architecture}`),
    );
  }
  const scored = familyFolder('llama', (f) => f, classifiers);
  assert.throws(() => loadModel(scored, { device: 'cpu', kind: 'decoder' }), /kind encoder, not decoder/);
});
test('the head of a decoder reads the last token that is no padding, by its number or by the mask', () =>
  scope(() =>
    noGrad(() => {
      const model = classifierOf('llama');
      const ids = answerOf('llama', 'input_ids', 'classifiers').narrow(0, 1, 1);
      const of = (input: EncoderInput): readonly number[] =>
        (model.forward(input).logits as Tensor).flatten().toArray() as number[];
      const mask = tensor([Array.from({ length: 24 }, (_, i) => Number(i < 9))], { device: 'cpu' });
      const [by, short, masked] = [of({ ids }), of({ ids: ids.narrow(1, 0, 17) }), of({ ids, mask })];
      const near = (a: readonly number[], b: readonly number[]): boolean =>
        a.every((x, i) => Math.abs(x - b[i]) < 1e-4);
      assert.ok(near(by, short) && near(masked, of({ ids: ids.narrow(1, 0, 9) })) && !near(by, masked));
      model.dispose();
    }),
  ));
test('texts that BigBird would see in parts, and heads of other rules, are refused by name', () => {
  const open = (name: string, more: object): TextEncoder =>
    loadModel<TextEncoder>(
      familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...more } }), encoders),
      { device: 'cpu' },
    ).model;
  const ids = zeros([1, 45], { dtype: 'i32', device: 'cpu' });
  // Up to 5 + 2 * 3 blocks of 4 tokens all see all.
  assert.throws(
    () => open('big_bird', {}).forward({ ids }),
    (e: Error) => e instanceof UnsupportedError && /45 tokens; attention_type block_sparse .* up to 44/.test(e.message),
  );
  assert.deepEqual(open('big_bird', { attention_type: 'original_full' }).forward({ ids }).hidden.shape, [1, 45, 48]);
  const refused: [string, object, RegExp][] = [
    ['big_bird', { use_bias: false }, /use_bias is false/],
    ['big_bird', { architectures: ['BigBirdForQuestionAnswering'] }, /for questions have a layer of their own/],
    ['longformer', { architectures: ['LongformerForQuestionAnswering'] }, /looks at all of a question/],
    ['roformer', { rotary_value: true }, /rotary_value is true/],
    ['esm', { is_folding_model: true }, /is_folding_model is true/],
    ['xmod', { default_language: null }, /default_language is ""; texts are of one language, .* en_XX, de_DE/],
    ['xmod', { default_language: 'fr_XX' }, /default_language is "fr_XX"/],
    ['nystromformer', { num_landmarks: 16 }, /num_landmarks is 16 and segment_means_seq_len 64/],
    ['nystromformer', { inv_coeff_init_option: true }, /inv_coeff_init_option is true/],
  ];
  for (const [name, more, message] of refused)
    assert.throws(
      () => open(name, more),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
});
test('texts have classes, pairs have scores, alone as in a batch', { skip: missingGolden('hf/bert') }, async () => {
  const tokenizer = loadTokenizer(withTokenizer('bert'));
  const pairs = [
    ['the cat', 'sat on a mat'],
    ['the dog ran', 'a cat'],
  ] as const;
  const reranker = new TextClassifier(classifierOf('xlm-roberta'), tokenizer);
  const [scores, logits] = [await reranker.score(pairs), await reranker.logits(pairs, { batchSize: 1 })];
  logits.forEach(([x], i) => assert.ok(Math.abs(scores[i] - 1 / (1 + Math.exp(-x))) < 1e-5));
  assert.notEqual(scores[0], scores[1]);
  const sorter = new TextClassifier(classifierOf('bert'), tokenizer);
  const [classes] = await sorter.classify(['the cat sat']);
  assert.deepEqual(classes.map((c) => c.label).sort(), ['LABEL_0', 'LABEL_1', 'LABEL_2']);
  assert.ok(Math.abs(classes.reduce((sum, c) => sum + c.score, 0) - 1) < 1e-6 && classes[0].score >= classes[1].score);
  // The second text's tokens are told apart by their type.
  assert.notDeepEqual(await sorter.logits([pairs[0]]), await sorter.logits([pairs[0].join(' ')]));
  await assert.rejects(sorter.score(pairs), /3 classes, not one/);
  const plain = loadModel<TextEncoder>(
    familyFolder('mpnet', (f) => f, encoders),
    { kind: 'encoder', device: 'cpu' },
  );
  assert.throws(() => new TextClassifier(plain.model, tokenizer), /no head for sequence classification/);
});

const withTokenHead = (name: string): TextEncoder =>
  loadModel<TextEncoder>(
    familyFolder(name, (f) => f, tokenHeads),
    { kind: 'encoder', device: 'cpu' },
  ).model;
for (const name of Object.keys(tokenHeads))
  test(`head for tokens ${name}: the logits of transformers, padded behind`, () =>
    scope(() =>
      noGrad(() => {
        const of = (key: string): Tensor => answerOf(name, key, 'tokens');
        const model = withTokenHead(name);
        const mask = of('attention_mask');
        const [got, want] = [model.tokenLogits({ ids: of('input_ids'), mask }), of('logits')];
        assert.deepEqual(got.shape, want.shape);
        const real = mask.cast('f32').unsqueeze(-1);
        assert.ok(got.sub(want).mul(real).abs().max().item() / want.abs().max().item() <= 1e-4);
        model.dispose();
      }),
    ));
test('masks are filled, tokens have classes, questions have answers', { skip: missingGolden('hf/bert') }, async () => {
  const tokenizer = loadTokenizer(withTokenizer('bert'));
  const words = new MaskedLanguageModel(withTokenHead('bert'), tokenizer);
  const masked = 'the [MASK] sat on a [MASK]';
  const filled = await words.fill(masked, 3);
  const [{ ids, logits }] = await words.logits([masked, 'a cat'], { batchSize: 1 });
  const places = ids.flatMap((id, i) => (tokenizer.token(id) === '[MASK]' ? [i] : []));
  assert.equal(places.length, 2);
  places.forEach((at, k) => {
    const best = logits[at].indexOf(Math.max(...logits[at]));
    assert.equal(filled[k][0].id, best);
    assert.ok(filled[k].length === 3 && filled[k][0].score >= filled[k][1].score);
  });
  await assert.rejects(words.fill('the cat'), /has no "\[MASK\]"/);
  const named = new TokenClassifier(withTokenHead('bert-c'), tokenizer);
  const [classes] = await named.classify(['the cat sat']);
  assert.deepEqual(
    classes.map((c) => c.id),
    tokenizer.encode('the cat sat', { special: false }),
  );
  assert.ok(classes.every((c) => /^LABEL_[012]$/.test(c.label) && c.score > 1 / 3));
  const answerer = new QuestionAnswerer(withTokenHead('roberta-q'), tokenizer);
  const passage = 'the cat sat on a mat';
  const { text, span, score } = await answerer.answer('where did the dog go', passage, 2);
  assert.ok(
    passage.replaceAll(' ', '').includes(text) && text.length > 0 && span[1] - span[0] < 2 && score > 0 && score <= 1,
  );
  assert.throws(
    () => new QuestionAnswerer(withTokenHead('bert-c'), tokenizer),
    /no head for spans, but one for classes/,
  );
});

test(
  "T5's dense_act_fn counts where it differs from feed_forward_proj; far distances share rows as " + "transformers'",
  () =>
    scope(() =>
      noGrad(() => {
        const encoded = (config: object): Tensor => {
          const folder = familyFolder('t5-b', (f) => ({ ...f, config: { ...f.config, ...config } }), pairs);
          return loadModel<Seq2Seq>(folder, { kind: 'seq2seq', device: 'cpu' }).model.encode(
            answerOf('t5-b', 'input_ids', 'seq2seq'),
          );
        };
        const stated = encoded({ dense_act_fn: 'relu' });
        const off = (b: Tensor): number => stated.sub(b).abs().max().item();
        assert.equal(off(encoded({ feed_forward_proj: 'gated-relu', dense_act_fn: undefined })), 0);
        assert.ok(off(encoded({})) > 0);
        // Where single distances reach past the farthest one, rows run backwards.
        assert.deepEqual(
          [7, 8, 9, 20].map((d) => distanceBucket(-d, false, 16, 6)),
          [7, 8, 5, -17],
        );
      }),
    ),
);

/** Up to the first end, behind which transformers pads. */
const upTo = (row: readonly number[], end: number): readonly number[] => {
  const at = row.indexOf(end, 1);
  return at < 0 ? row : row.slice(0, at + 1);
};
for (const [name, { config, rules }] of Object.entries(pairs))
  test(`encoder-decoder ${name}: the numbers and the choices of transformers`, () =>
    scope(() =>
      noGrad(() => {
        const folder = familyFolder(name, (f) => f, pairs);
        const { model } = loadModel<Seq2Seq>(folder, { kind: 'seq2seq', device: 'cpu' });
        const of = (key: string): Tensor => answerOf(name, key, 'seq2seq');
        const off = (a: Tensor, b: Tensor): number => a.sub(b).abs().max().item() / b.abs().max().item();
        const [ids, mask] = [of('input_ids'), of('attention_mask')];
        const real = mask.cast('f32').unsqueeze(-1);
        const encoded = model.encode(ids, mask);
        assert.ok(off(encoded.mul(real), of('encoded').mul(real)) <= 1e-4, 'encoded');
        const { caches: _, ...fresh } = model.begin(encoded, mask);
        assert.ok(off(model.decode(of('decoder_input_ids'), fresh), of('logits')) <= 1e-4, 'logits');
        const greedy = of('greedy').toArray() as number[][];
        const about = { start: [greedy[0][0]], maxTokens: greedy[0].length - 1 };
        assert.deepEqual(model.answer(ids, { ...about, end: [] }, mask), greedy);
        const end = config.eos_token_id as number;
        const ruled = { ...about, end: [end], maxTokens: 14, read: ids.toArray() as number[][] };
        const chosen = model.answer(ids, { ...ruled, ...answerRules({ ...config, ...rules }, name)(ruled) }, mask);
        const wanted = of('ruled').toArray() as number[][];
        assert.deepEqual(
          chosen.map((row) => upTo(row, end)),
          wanted.map((row) => upTo(row, end)),
        );
        const { early_stopping: earlyStopping = false } = rules as { early_stopping?: boolean | 'never' };
        const wide = { beams: 3, lengthPenalty: 0.7, earlyStopping };
        const searched = model.answer(
          ids,
          { ...ruled, ...answerRules({ ...config, ...rules }, name)(ruled), ...wide },
          mask,
        );
        const best = of('beams').toArray() as number[][];
        assert.deepEqual(
          searched.map((row) => upTo(row, end)),
          best.map((row) => upTo(row, end)),
          'by beams',
        );
        model.dispose();
      }),
    ));
test('rules of a choice that are not served are refused by name', () => {
  assert.throws(() => answerRules({ guidance_scale: 3 }, 'model'), /model: guidance_scale is 3/);
  assert.deepEqual(answerRules({ guidance_scale: 1, num_beams: 1 }, 'model')({ start: [0], end: [] }), {});
});
test('a rule that looks at what was read is refused where that is not given', () => {
  const rules = answerRules({ encoder_no_repeat_ngram_size: 3 }, 'model');
  assert.throws(() => rules({ start: [0], end: [] }), /model: encoder_no_repeat_ngram_size is 3, and the tokens/);
  assert.ok(rules({ start: [0], end: [], read: [[4]] }).adjust);
});
test('fields of generation_config.json that are of another kind are refused', () => {
  const wrong = {
    ...{
      repetition_penalty: '1.2',
      no_repeat_ngram_size: -1,
      encoder_no_repeat_ngram_size: 'few',
      min_length: 2.5,
      min_new_tokens: 'all',
      num_beams: [4],
    },
    ...{ length_penalty: 'long', early_stopping: 'soon', bad_words_ids: [[]], forced_bos_token_id: '<s>' },
    ...{ forced_eos_token_id: [1, null], suppress_tokens: 'none', begin_suppress_tokens: { a: 1 } },
  };
  for (const [field, value] of Object.entries(wrong))
    assert.throws(
      () => answerRules({ [field]: value }, 'model'),
      (e: Error) =>
        e instanceof FormatError && e.message.startsWith(`model: ${field} is ${JSON.stringify(value)}, not `),
    );
});
test('beams that a folder asks for are used, and those of several groups refused', () => {
  const asked = { num_beams: 4, length_penalty: 2, early_stopping: true };
  const about = { start: [0], end: [] };
  assert.deepEqual(answerRules(asked, 'model')(about), { beams: 4, lengthPenalty: 2, earlyStopping: true });
  assert.throws(() => answerRules({ ...asked, num_beam_groups: 2 }, 'model'), /num_beam_groups is 2/);
});

test('distances fall into the buckets of T5', () => {
  const row = (bidirectional: boolean): number[] =>
    [-200, -20, -9, -3, -1, 0, 1, 3, 9, 20, 200].map((d) => distanceBucket(d, bidirectional, 32, 128));
  assert.deepEqual(row(true), [15, 10, 8, 3, 1, 0, 17, 19, 24, 26, 31]);
  assert.deepEqual(row(false), [31, 17, 9, 3, 1, 0, 0, 0, 0, 0, 0]);
});

test('what a config says and is not honoured, and tensors over or missing, are refused by name', {
  skip: missingGolden('hf/bert'),
}, () => {
  const dir = findGolden('hf/bert') as string;
  const altered = (change: (config: Record<string, unknown>, tensors: Map<string, Tensor>) => void): string => {
    const to = scratch();
    cpSync(dir, to, { recursive: true });
    const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as Record<string, unknown>;
    const tensors = loadTensors(join(dir, 'model.safetensors'));
    change(config, tensors);
    writeFileSync(join(to, 'config.json'), JSON.stringify(config));
    saveTensors(join(to, 'model.safetensors'), tensors);
    return to;
  };
  const refused = (
    change: Parameters<typeof altered>[0],
    kind: typeof UnsupportedError | typeof FormatError,
    message: RegExp,
  ): void => {
    const at = altered(change);
    assert.throws(
      () => loadModel(at),
      (e: Error) => e instanceof kind && message.test(e.message),
    );
  };
  refused((c) => (c.position_embedding_type = 'relative_key'), UnsupportedError, /position_embedding_type/);
  refused((c) => (c.rotary_dim = 3), UnsupportedError, /rotary_dim/);
  refused((c) => (c.hidden_act = 'sqrtsoftplus'), UnsupportedError, /hidden_act is "sqrtsoftplus"/);
  refused(
    (_, t) => t.set('encoder.layer.9.extra', t.get('pooler.dense.bias') as Tensor),
    UnsupportedError,
    /layer\.9\.extra/,
  );
  refused((_, t) => t.delete('encoder.layer.0.output.dense.bias'), FormatError, /output\.dense\.bias/);
});

test('architectures are a list of names, or left out', () => {
  assert.deepEqual(architecturesOf(new Config({})), []);
  assert.deepEqual(architecturesOf(new Config({ architectures: ['BertModel'] })), ['BertModel']);
  for (const architectures of ['BertModel', [null], 3])
    assert.throws(() => architecturesOf(new Config({ architectures })), /config.json: architectures is .*, not a list/);
});
