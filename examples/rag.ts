// Answers from texts of your own: passages that are nearest to a question in meaning go before it in the prompt, and a
// language model answers from them. node dist/examples/rag.js ENCODER [--model NAME] [--file TEXT] [--top N]
// [--max-tokens N] QUESTION ENCODER makes vectors of texts (sentence-transformers/all-MiniLM-L6-v2), NAME answers
// (Qwen/Qwen3-0.6B): folders, GGUF files or names on the hub. Passages are parted by empty lines. The built-in model,
// which serves where no NAME is given, shows how it goes; it writes mock Shakespeare and knows no answers.
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { tensor, type Tensor } from 'wick';
import { LanguageModel } from 'wick/engine';
import { EmbeddingModel } from 'wick/models';

const { values: v, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    model: { type: 'string' },
    file: { type: 'string' },
    top: { type: 'string', default: '2' },
    'max-tokens': { type: 'string', default: '120' },
  },
});
const [name, question] = positionals;
if (!name || !question) {
  console.error('usage: rag ENCODER [--model NAME] [--file TEXT] [--top N] [--max-tokens N] QUESTION');
  process.exit(2);
}
const text = v.file
  ? readFileSync(v.file, 'utf8')
  : `The library opens at nine on weekdays and at ten on Saturdays.

Books are lent for four weeks. They may be renewed twice, unless someone else waits for them.

Lost books are replaced, or paid for at their price.`;
const passages = text
  .split(/\n\s*\n/)
  .map((p) => p.trim().replace(/\s+/g, ' '))
  .filter((p) => p !== '');

// An index is a matrix of vectors of length 1: products with a question's vector are cosines.
const encoder = await EmbeddingModel.load(name);
async function vectors(texts: readonly string[]): Promise<Tensor> {
  const rows = await encoder.embed(texts, { normalize: true });
  return tensor(
    rows.flatMap((r) => [...r]),
    { shape: [rows.length, rows[0].length] },
  );
}
const index = await vectors(passages);
const likeness = index.matmul((await vectors([question])).t()).squeeze(1);
const [scores, places] = likeness.topk(Math.min(Number(v.top), passages.length));
const found = places.toArray<number[]>();
found.forEach((at, i) => console.log(`[${i + 1}] ${scores.at(i).item().toFixed(3)}  ${passages[at]}`));

const known = found.map((at, i) => `[${i + 1}] ${passages[at]}`).join('\n');
const task = `Answer from these passages alone, and say which you used.\n\n${known}\n\nQuestion: ${question}`;
const model = await LanguageModel.load(v.model);
const options = { maxTokens: Number(v['max-tokens']), temperature: 0 };
const reply = model.tokenizer.chatTemplates
  ? model.chat([{ role: 'user', content: task }], options)
  : model.reply(`${task}\nAnswer:`, options);
for await (const piece of reply) process.stdout.write(piece);
process.stdout.write('\n');
