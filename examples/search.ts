// Search by meaning: every text becomes a vector, and the nearest to a question come first.
//   node dist/examples/search.js MODEL [--file TEXTS] [--top N] QUESTION...
// MODEL is a folder or the name of a BERT-like encoder (sentence-transformers/all-MiniLM-L6-v2); TEXTS has one a line.
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { tensor } from 'wick';
import { EmbeddingModel } from 'wick/models';

const { values: v, positionals } = parseArgs({
  allowPositionals: true,
  options: { file: { type: 'string' }, top: { type: 'string', default: '3' } },
});
const [name, ...questions] = positionals;
if (!name || questions.length === 0) {
  console.error('usage: search MODEL [--file TEXTS] [--top N] QUESTION...');
  process.exit(2);
}
const texts = v.file
  ? readFileSync(v.file, 'utf8')
      .split('\n')
      .filter((line) => line.trim() !== '')
  : ['the cat sat on the mat', 'a dog ran', 'the price of copper rose again', 'how to bake bread at home'];

const model = await EmbeddingModel.load(name);
const matrix = async (lines: readonly string[]) => {
  const rows = await model.embed(lines, { normalize: true });
  return tensor(
    rows.flatMap((r) => [...r]),
    { shape: [rows.length, rows[0].length] },
  );
};
// Vectors of length 1: their product is the cosine of the angle between them.
const likeness = (await matrix(questions)).matmul((await matrix(texts)).t()).toArray<number[][]>();
questions.forEach((question, i) => {
  console.log(question);
  const order = texts.map((_, j) => j).sort((a, b) => likeness[i][b] - likeness[i][a]);
  for (const j of order.slice(0, Number(v.top))) console.log(`  ${likeness[i][j].toFixed(3)}  ${texts[j]}`);
});
