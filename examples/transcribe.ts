// Speech to text with Whisper or Moonshine: a WAV file, or half a second of a tone to try it.
//   node dist/examples/transcribe.js MODEL [FILE.wav] [--max-tokens N]
// MODEL is a folder or a name such as openai/whisper-tiny or UsefulSensors/moonshine-tiny.
import { parseArgs } from 'node:util';
import { SpeechModel } from 'wick/models';

const { values: v, positionals } = parseArgs({
  allowPositionals: true,
  options: { 'max-tokens': { type: 'string', default: '100' } },
});
const [name, file] = positionals;
if (!name) {
  console.error('usage: transcribe MODEL [FILE.wav] [--max-tokens N]');
  process.exit(2);
}
const model = await SpeechModel.load(name);
const { rate } = model.hearing;
const tone = new Float32Array(rate / 2).map((_, i) => Math.sin((2 * Math.PI * 440 * i) / rate) / 4);
const begin = performance.now();
const text = await model.transcribe(file ?? tone, { maxTokens: Number(v['max-tokens']) });
console.log(JSON.stringify(text));
console.log(`${((performance.now() - begin) / 1000).toFixed(1)} s`);
