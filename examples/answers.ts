// Many answers at once from one model: a batch, a stream that is stopped, an answer in a given form, and a score.
//   npm run build && node dist/examples/answers.js [--model NAME] [--device NAME]
import { parseArgs } from 'node:util';
import { LanguageModel } from 'wick/engine';

const { values: v } = parseArgs({ options: { model: { type: 'string' }, device: { type: 'string' } } });
const model = await LanguageModel.load(v.model, v.device ? { device: v.device } : {});

// Prompts of a batch share every step of the model, and what their beginnings have in common is computed once.
const prompts = ['KING RICHARD:\nMy', 'KING RICHARD:\nNow', 'KING RICHARD:\nWhat'];
const answers = await model.batch(prompts, { maxTokens: 16, temperature: 0.7, seed: 1 });
answers.forEach(({ text, usage }, i) =>
  console.log(
    `${JSON.stringify(prompts[i] + text)} (${usage.tokens} tokens, ${usage.cachedTokens} of the prompt known)`,
  ),
);

// Text as it is written; leaving the loop ends the answer.
let written = '';
for await (const piece of model.reply('ROMEO:', { maxTokens: 200, temperature: 0.7, seed: 2 })) {
  written += piece;
  if (written.split('\n').length > 3) break;
}
console.log(`stopped after ${JSON.stringify(written)}`);

// A form that the answer must keep to, and how sure the model was of each token.
const grammar = { kind: 'regex', pattern: '(yes|no), my (lord|lady)\\.' } as const;
const formed = await model.reply('JULIET:\nDost thou love me?\n\nROMEO:\n', { grammar, temperature: 0, logprobs: 0 })
  .done;
const sure = (formed.logprobs ?? []).reduce((sum, l) => sum + l.logprob, 0);
console.log(`${formed.text} (log-probability ${sure.toFixed(1)}, ended by ${formed.reason})`);

const [light, night] = [
  await model.score('ROMEO:\nO, she', ' is fair'),
  await model.score('ROMEO:\nO, she', ' zqx vv'),
];
console.log(`' is fair' ${light.total.toFixed(1)}, ' zqx vv' ${night.total.toFixed(1)}`);
model.dispose();
