// Fine-tunes the built-in model with low-rank adapters: a writer of mock Shakespeare learns to keep a ship's log, in
// about a minute on a CPU.
//   npm run build && node dist/examples/lora.js [--steps N] [--rank R] [--out DIR] [--device NAME] [--text FILE]
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Device, Generator, noGrad, scope, tensor, type Tensor } from 'wick';
import { builtinModel, LanguageModel } from 'wick/engine';
import { AdamW, addLora } from 'wick/nn';

const { values: v } = parseArgs({
  options: {
    steps: { type: 'string', default: '80' },
    rank: { type: 'string', default: '8' },
    out: { type: 'string' },
    device: { type: 'string' },
    text: { type: 'string' },
  },
});

/** A log of a voyage that nobody made: days, winds, sails and what was seen. */
function shipsLog(): string {
  const winds = ['north', 'south by west', 'east', 'northeast', 'south', 'west by north', 'southeast'];
  const sails = [
    'all sail set',
    'the mainsail reefed',
    'under topsails alone',
    'the jib split and mended',
    'bare poles',
  ];
  const seen = [
    'a whale at noon',
    'no land',
    'two sails far off',
    'weed and gulls',
    'ice to leeward',
    'an island unnamed',
  ];
  const men = [
    'all hands well',
    'the cook is sick',
    'one man overboard, saved',
    'water is short',
    'the crew sang at night',
  ];
  return Array.from({ length: 120 }, (_, day) => {
    const pick = (list: readonly string[], by: number): string => list[(day * by + (day >> 2)) % list.length];
    return `Day ${day + 1}. Wind ${pick(winds, 3)}, ${pick(sails, 2)}. Seen: ${pick(seen, 5)}. ${pick(men, 3)}.\n`;
  }).join('');
}

const device = v.device ? Device.get(v.device) : Device.best();
const language = await LanguageModel.load(builtinModel, { device, dtype: 'f32' });
const { model, tokenizer } = language;
const adapters = addLora(model, {
  targets: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'],
  rank: Number(v.rank),
  generator: new Generator(1),
});
const trained = adapters.parameters().reduce((n, p) => n + p.size, 0);
console.error(
  `${adapters.names.length} adapters with ${trained} numbers beside ${model.parameterCount() - trained}, on ` +
    device.name,
);

const text = v.text ? readFileSync(v.text, 'utf8') : shipsLog();
const ids = tokenizer.encode(text, { special: false });
const [context, batch] = [64, 8];
const held = Math.floor(ids.length * 0.9);

/** Windows of tokens and, for each place, the token that follows. */
function windows(starts: readonly number[]): { x: Tensor; y: Tensor } {
  const rows = (shift: number): Tensor =>
    tensor(Int32Array.from(starts.flatMap((s) => ids.slice(s + shift, s + shift + context))), {
      shape: [starts.length, context],
      device,
    });
  return { x: rows(0), y: rows(1) };
}
const lossOf = ({ x, y }: { x: Tensor; y: Tensor }): Tensor => model.forward(x).crossEntropy(y);
const heldOut = (): number => scope(() => noGrad(() => lossOf(windows([0, 1, 2, 3].map((i) => held + i * 8))).item()));
async function sample(): Promise<string> {
  let out = 'Day 7.';
  for await (const piece of language.generate(out, { maxTokens: 60, temperature: 0.5, seed: 3 })) out += piece;
  return out;
}

console.log(`before: loss ${heldOut().toFixed(3)} on text it does not learn from\n${await sample()}\n`);
const optimizer = new AdamW(adapters.parameters(), { learningRate: 5e-3, weightDecay: 0 });
const steps = Number(v.steps);
for (let step = 1; step <= steps; step++) {
  model.train();
  const loss = scope(() => {
    const starts = Array.from({ length: batch }, (_, i) => ((step * 7919 + i * 104_729) % (held - context - 1)) | 0);
    const value = lossOf(windows(starts));
    optimizer.backwardStep(value);
    return value.item();
  });
  model.eval();
  if (step % 20 === 0) console.error(`step ${step}: loss ${loss.toFixed(3)}`);
}
console.log(`after: loss ${heldOut().toFixed(3)}\n${await sample()}`);
if (v.out) {
  adapters.save(v.out, { baseModel: builtinModel });
  console.error(`saved to ${v.out}, a folder that PEFT loads too`);
}
