// A pretrained encoder learns to sort texts into classes of your own: a new head on top, all weights trained a little.
// node dist/examples/fine-tune.js MODEL [--file TEXTS.csv] [--epochs N] [--device NAME] [--out FILE] [TEXT...] MODEL is
// a folder or a name such as distilbert/distilbert-base-uncased; TEXTS.csv has columns `text` and `label`. What it has
// learned goes to FILE (safetensors); each TEXT is sorted at the end.
import { parseArgs } from 'node:util';
import { Device, manualSeed, noGrad, scope, tensor, type Tensor } from 'wick';
import { DataLoader, Dataset, readCsv } from 'wick/data';
import { EmbeddingModel } from 'wick/models';
import { AdamW, Dropout, Linear, losses, Module, OneCycleLR } from 'wick/nn';
import { accuracy } from 'wick/train';

const { values: v, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    file: { type: 'string' },
    epochs: { type: 'string', default: '4' },
    device: { type: 'string' },
    out: { type: 'string' },
  },
});
const [name, ...texts] = positionals;
if (!name) {
  console.error('usage: fine-tune MODEL [--file TEXTS.csv] [--epochs N] [--device NAME] [--out FILE] [TEXT...]');
  process.exit(2);
}
interface Labelled {
  readonly text: string;
  readonly label: string;
}
/** Examples where no file is given. */
const GIVEN: readonly Labelled[] = [
  ['the cat sat on the mat', 'cat'],
  ['a cat ran and sat', 'cat'],
  ['the cat and a mat', 'cat'],
  ['on a mat sat the cat', 'cat'],
  ['a dog ran', 'dog'],
  ['the dog sat on a mat', 'dog'],
  ['the dog ran and ran', 'dog'],
  ['a dog and the dog', 'dog'],
].map(([text, label]) => ({ text, label }));
async function rowsOf(path: string): Promise<Labelled[]> {
  const table = readCsv(path);
  return Promise.all(Array.from({ length: table.length }, (_, i) => table.get(i) as unknown as Promise<Labelled>));
}
const rows = v.file ? await rowsOf(v.file) : GIVEN;
const classes = [...new Set(rows.map((r) => String(r.label)))].sort();

manualSeed(1);
const device = v.device ? Device.get(v.device) : Device.best();
const { encoder, tokenizer, maxTokens } = await EmbeddingModel.load(name, { device, dtype: 'f32' });

/** Token numbers in rows of one length, and which of them are of the text. */
function encoded(list: readonly string[]): { ids: Tensor; mask: Tensor } {
  const tokens = list.map((text) => tokenizer.encode(text, { maxLength: Math.min(maxTokens, 128) }));
  const time = Math.max(...tokens.map((t) => t.length));
  const pad = tokenizer.roleId('pad') ?? 0;
  const each = (f: (row: readonly number[], i: number) => number): number[] =>
    tokens.flatMap((row) => Array.from({ length: time }, (_, i) => f(row, i)));
  const shape = [list.length, time];
  return {
    ids: tensor(Int32Array.from(each((row, i) => row[i] ?? pad)), { shape, device }),
    mask: tensor(Float32Array.from(each((row, i) => Number(i < row.length))), { shape, device }),
  };
}

class Classifier extends Module {
  encoder = encoder;
  dropout = new Dropout(0.1);
  head = new Linear(encoder.width, classes.length, { device });
  /** Logits of the classes: of the mean over a text's tokens. */
  forward({ ids, mask }: { ids: Tensor; mask: Tensor }): Tensor {
    const { hidden } = this.encoder.forward({ ids, mask });
    const weights = mask.unsqueeze(-1);
    const mean = hidden.mul(weights).sum(1).div(weights.sum(1));
    return this.head.forward(this.dropout.forward(mean));
  }
}
const model = new Classifier().requireGrad();
console.error(
  `${model.parameterCount().toLocaleString('en')} parameters on ${device.name}; classes ${classes.join(', ')}`,
);

const samples = Dataset.of(rows.map(({ text, label }) => ({ text, label: classes.indexOf(String(label)) })));
const [train, held] = samples.split([0.75, 0.25], 1);
const loader = new DataLoader(train, { batch: 16, shuffle: true, seed: 1, device });
const epochs = Number(v.epochs);
// The head is new and takes long steps; what was learned before is moved with care.
const optimizer = new AdamW(
  [{ params: model.encoder.parameters(), learningRate: 5e-5 }, { params: model.head.parameters() }],
  { learningRate: 1e-3 },
);
const scheduler = new OneCycleLR(optimizer, { maxLr: 1e-3, totalSteps: Math.max(2, epochs * loader.length) });

for (let epoch = 1; epoch <= epochs; epoch++) {
  model.train();
  let sum = 0;
  for await (const { text, label } of loader) {
    sum += scope(() => {
      const loss = losses.crossEntropy(model.forward(encoded(text)), label.cast('i64'));
      optimizer.backwardStep(loss, { clipNorm: 1 });
      return loss.item();
    });
    scheduler.step();
  }
  model.eval();
  const right: number[] = [];
  for await (const { text, label } of new DataLoader(held, { batch: 32, device }))
    right.push(
      scope(() => noGrad(() => accuracy(model.forward(encoded(text)), label.cast('i64')).item() * text.length)),
    );
  const share = right.reduce((a, b) => a + b, 0) / held.length;
  console.log(
    `epoch ${epoch}: loss ${(sum / loader.length).toFixed(3)}, ${(100 * share).toFixed(0)} % of ${held.length} held back`,
  );
}
if (v.out) model.save(v.out);
for (const text of texts) {
  const [shares] = scope(() =>
    noGrad(() =>
      model
        .forward(encoded([text]))
        .softmax(-1)
        .toArray<number[][]>(),
    ),
  );
  const best = shares.indexOf(Math.max(...shares));
  console.log(`${classes[best]} (${(100 * shares[best]).toFixed(0)} %): ${text}`);
}
