// `wick perplexity`: the sum of log-probabilities that the model's own logits give, over windows that overlap.
import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { builtinModel, LanguageModel, type Perplexity, perplexity } from '../src/engine/index.js';
import { noGrad, tensor } from '../src/index.js';
import { scratch, wick } from './cli-support.js';

const TEXT = 'ROMEO:\nWhat light is this that breaks upon the door?\nIt is the night, and I am come to speak.\n';
const skip = !existsSync(builtinModel) && 'the built-in model is not part of this installation';
const file = join(scratch(), 'text.txt');
writeFileSync(file, TEXT);

/** Log-probability of the last token of a list given the others, in double precision. */
function logProbability(model: LanguageModel, ids: readonly number[]): number {
  const given = tensor(Int32Array.from(ids.slice(0, -1)), { shape: [1, ids.length - 1] });
  const logits = noGrad(() => model.model.forward(given, undefined, { last: true }).dataSync()) as Float32Array;
  const most = logits.reduce((a, b) => Math.max(a, b));
  const sum = logits.reduce((s, v) => s + Math.exp(v - most), 0);
  return logits[ids.at(-1) as number] - most - Math.log(sum);
}

test('the built-in model: the command gives what one token after another gives', { skip }, async () => {
  const model = await LanguageModel.load(undefined, { device: 'cpu' });
  const all = model.tokenizer.encode(TEXT);
  const starts = model.tokenizer.isSpecial(all[0]);
  const [context, stride] = [16, 5];
  const { status, stdout, stderr } = wick(
    ...['perplexity', file, '--device', 'cpu', '--context', '16', '--stride', '5', '--json'],
  );
  assert.equal(status, 0, stderr);
  const got = JSON.parse(stdout) as Perplexity;
  const ids = starts ? all.slice(1) : all;
  const head = starts ? [all[0]] : [];
  const room = context - head.length;
  let sum = 0;
  let scored = 0;
  for (let i = 1 - head.length; i < ids.length; i++) {
    // The window that scores a token is the first that holds it.
    const end = i < room ? room : room + Math.ceil((i + 1 - room) / stride) * stride;
    const begin = Math.max(0, Math.min(end, ids.length) - room);
    sum += logProbability(model, [...head, ...ids.slice(begin, i + 1)]);
    scored++;
  }
  assert.deepEqual([got.tokens, got.scored, got.context, got.stride], [ids.length, scored, context, stride]);
  assert.equal(got.windows, 1 + Math.ceil((ids.length - room) / stride));
  assert.ok(Math.abs(got.logProbability - sum) < 1e-3 * Math.abs(sum), `${got.logProbability} and ${sum}`);
  assert.ok(Math.abs(got.perplexity - Math.exp(-sum / scored)) < 1e-2 * got.perplexity);
  assert.ok(Math.abs(got.bitsPerByte + sum / Math.LN2 / Buffer.byteLength(TEXT)) < 1e-2);
  // A text like those it was trained on is far more likely than the same letters backwards.
  const backwards = await perplexity(model, [...TEXT].reverse().join(''));
  assert.ok(backwards.perplexity > 3 * got.perplexity, `${backwards.perplexity} and ${got.perplexity}`);
  model.dispose();
});

test('the report and the progress', { skip }, () => {
  const { status, stdout, stderr } = wick('perplexity', '--device', 'cpu', file);
  assert.equal(status, 0, stderr);
  assert.match(
    stdout,
    /^perplexity \d+\.\d{4} ± \d+\.\d{4}, \d\.\d{4} bits a byte\n\d+ of \d+ tokens scored in 1 windows /,
  );
  assert.match(stderr, /^scoring \d+ tokens$/m);
});

test('bad input is one sentence', { skip }, () => {
  const [empty, binary] = [join(scratch(), 'empty.txt'), join(scratch(), 'binary.txt')];
  writeFileSync(empty, '');
  writeFileSync(binary, Buffer.from([0xff, 0xfe, 0x80]));
  const cases: [string[], RegExp][] = [
    [[], /takes one text, not 0/],
    [[empty], /has 0 tokens, too few/],
    [[binary], /is no UTF-8 text/],
    [[`${file}.absent`], /cannot be opened/],
    [[file, '--context', '1'], /a context of 1 tokens/],
    [[file, '--context', '100000'], /a context of 100000 tokens/],
    [[file, '--context', '8', '--stride', '8'], /a stride of 8 tokens/],
    [[file, '--context', '1e2'], /"1e2" is not a whole number/],
    [[file, '--model', '/nonexistent/model'], /nonexistent/],
  ];
  for (const [args, message] of cases) {
    const { status, stdout, stderr } = wick('perplexity', '--device', 'cpu', ...args);
    assert.deepEqual([status, stdout], [1, ''], `${args.join(' ')}: ${stdout}${stderr}`);
    assert.match(stderr, message);
    assert.match(stderr, /^wick perplexity: [^\n]+\n$/);
  }
});
