// Models that find what texts name, reading words and picture together, against transformers.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { FormatError, UnsupportedError } from '../src/base/errors.js';
import { loadModel, ZeroShotDetector } from '../src/models/index.js';
import { phrasesOf } from '../src/models/scenes/grounded-text.js';
import type { GroundingDino } from '../src/models/scenes/grounding-dino.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, familyFolder, grounders } from './models-support.js';

const open = (name: string, change: (config: any) => object = () => ({})): GroundingDino =>
  loadModel<GroundingDino>(
    familyFolder(name, (f) => ({ ...f, config: { ...f.config, ...change(f.config) } }), grounders),
    { kind: 'zero-shot-detection', device: 'cpu' },
  ).model;

/** Boxes go from layer to layer without a slope; a norm of one place evens all out; token types are the first alone. */
const UNMOVED = /^(guess|text\.types|boxes\.[0-9]+$)|^narrow\.3\.(conv\.|norm\.weight)/;
for (const name of Object.keys(grounders)) {
  const of = (key: string): Tensor => answerOf(name, key, 'grounded');
  test(`grounded ${name}: the boxes of transformers, and how words fit, padded behind`, () =>
    scope(() =>
      noGrad(() => {
        const model = open(name);
        const made = model.forward(of('pixels'), of('input_ids'), of('attention_mask'));
        const near = (a: Tensor, b: Tensor, what: string): void => {
          assert.deepEqual(a.shape, b.shape, what);
          const off = a.sub(b).abs().max().item() / b.abs().max().item();
          assert.ok(off <= 1e-4, `${what} are off by ${off}`);
        };
        near(made.boxes, of('boxes'), 'boxes');
        // Nothing fits padding.
        const real = of('attention_mask').cast('f32').unsqueeze(1);
        near(made.logits.clamp(-1000, 1000).mul(real), of('logits').mul(real), 'logits');
        assert.equal(made.logits.narrow(0, 1, 1).narrow(2, 8, 2).max().item(), -Infinity);
        model.dispose();
      }),
    ));
  test(`grounded ${name}: training has a gradient for every weight`, () =>
    scope(() => {
      const model = open(name).requireGrad();
      const { logits, boxes } = model.forward(of('pixels'), of('input_ids'));
      const sum = (y: Tensor): Tensor => y.mul(y.onesLike().flatten().cumsum(0).sin().reshape(y.shape)).sum();
      const grads = sum(logits).add(sum(boxes)).backward();
      const none = [...model.namedParameters()]
        .filter(([, p]) => !((grads.get(p)?.abs().max().item() as number) > 0))
        .map(([key]) => key)
        .filter((key) => !UNMOVED.test(key) && !(name.endsWith('-b') && key.startsWith('boxes.0.')));
      assert.equal(none.join(', '), '');
      model.dispose();
    }));
}

test('words see their phrase and the mark behind it, and count from its beginning', () =>
  scope(() => {
    const ids = tensor([[101, 7, 8, 1012, 9, 1012, 102]], { dtype: 'i32', device: 'cpu' });
    const { seen, at } = phrasesOf(ids);
    assert.deepEqual(at.toArray(), [[0, 0, 1, 0, 0, 0, 0]]);
    const rows = (seen.toArray() as number[][][])[0].map((row) => row.join(''));
    assert.deepEqual(rows, ['1000000', '0111000', '0111000', '0111000', '0000110', '0000110', '0000001']);
  }));

interface Seen {
  readonly files: Readonly<Record<string, object>>;
  readonly picture: string;
  readonly texts: readonly string[];
  readonly rules: { readonly threshold: number; readonly wordThreshold: number };
  readonly ids: readonly number[];
  readonly scores: readonly number[];
  readonly boxes: readonly (readonly number[])[];
  readonly labels: readonly string[];
}
const GOLDEN = 'families/grounded-seen.json';
const seen: Readonly<Record<string, Seen>> = missingGolden(GOLDEN)
  ? {}
  : JSON.parse(readFileSync(findGolden(GOLDEN) as string, 'utf8'));
for (const [name, s] of Object.entries(seen))
  test(`grounded ${name}: what texts name in a picture`, async () => {
    const dir = familyFolder(name, (f) => f, grounders);
    for (const [file, json] of Object.entries(s.files)) writeFileSync(join(dir, file), JSON.stringify(json));
    const detector = await ZeroShotDetector.load(dir, { device: 'cpu' });
    assert.deepEqual(detector.tokenizer.encode('a red cats. the dog.'), s.ids);
    const picture = Buffer.from(s.picture, 'base64');
    const { rules } = s;
    const found = await detector.detect(picture, s.texts, rules);
    const order = s.scores.map((_, i) => i).sort((a, b) => s.scores[b] - s.scores[a]);
    assert.equal(found.length, s.scores.length);
    found.forEach(({ label, score, box }, i) => {
      assert.equal(label, s.labels[order[i]]);
      assert.ok(Math.abs(score - s.scores[order[i]]) <= 1e-5);
      const corners = [box.xmin, box.ymin, box.xmax, box.ymax];
      s.boxes[order[i]].forEach((v, k) => assert.ok(Math.abs(v - corners[k]) <= 1e-3, `${v} ${corners[k]}`));
    });
    assert.deepEqual(await detector.detect(picture, ['a red cats. the dog.'], rules), found);
    const [first] = await detector.detect(picture, s.texts, { ...rules, threshold: found[1].score });
    assert.deepEqual(first, found[0]);
    await assert.rejects(detector.detect(picture, []), /the list is empty/);
    await assert.rejects(detector.detect(picture, ['a'], { wordThreshold: 2 }), /wordThreshold is 2/);
    detector.dispose();
  });

test('what Grounding DINO does not serve is refused by name', () => {
  const refused: [(c: any) => object, RegExp][] = [
    [() => ({ two_stage: false }), /two_stage is false/],
    [() => ({ embedding_init_target: false }), /embedding_init_target is false/],
    [() => ({ query_dim: 2 }), /query_dim is 2/],
    [() => ({ two_stage_bbox_embed_share: true }), /two_stage_bbox_embed_share is true/],
    [(c) => ({ text_config: { ...c.text_config, model_type: 'roberta' } }), /text_config.model_type is "roberta"/],
    [(c) => ({ text_config: { ...c.text_config, rotary_dim: 1 } }), /text_config.rotary_dim is 1/],
  ];
  for (const [change, message] of refused)
    assert.throws(
      () => open('grounding-dino', change),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
      String(message),
    );
  const wrong: [(c: any) => object, RegExp][] = [
    [() => ({ num_feature_levels: 2 }), /num_feature_levels is 2, and the backbone lets out 3 maps/],
    [() => ({ d_model: 40 }), /d_model is 40, which does not divide into the 32 groups/],
    [() => ({ encoder_attention_heads: 5 }), /encoder_attention_heads is 5, an odd number/],
  ];
  for (const [change, message] of wrong)
    assert.throws(
      () => open('grounding-dino', change),
      (e: Error) => e instanceof FormatError && message.test(e.message),
      String(message),
    );
  const model = open('grounding-dino');
  const long = tensor([Array<number>(21).fill(7)], { dtype: 'i32', device: 'cpu' });
  const pixels = answerOf('grounding-dino', 'pixels', 'grounded').narrow(0, 0, 1);
  assert.throws(() => model.forward(pixels, long), /21 tokens of a text, the model reads 20/);
  model.dispose();
});
