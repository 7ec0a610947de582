// Tells pictures of your own apart: a pretrained vision model sees them, and a new layer learns which class is which.
//   node dist/examples/own-pictures.js MODEL FOLDER [--side N] [--epochs N] [--device NAME] [--out FILE] [PICTURE...]
// FOLDER holds a folder of PNG or JPEG pictures for each class; MODEL is a folder or a name such as
// google/vit-base-patch16-224, whose pictures have sides of N pixels (224) and colors from -1 to 1. The layer goes to
// FILE; each PICTURE is sorted at the end.
import { parseArgs } from 'node:util';
import { cat, Device, manualSeed, noGrad, scope, type Tensor, tensor } from 'wick';
import { DataLoader, Dataset, loadPicture, PictureFolder } from 'wick/data';
import { ImageClassifier } from 'wick/models';
import { AdamW, Linear, losses } from 'wick/nn';
import { accuracy, fit } from 'wick/train';

const { values: v, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    side: { type: 'string', default: '224' },
    epochs: { type: 'string', default: '20' },
    device: { type: 'string' },
    out: { type: 'string' },
  },
});
const [name, folder, ...pictures] = positionals;
if (!name || !folder) {
  console.error('usage: own-pictures MODEL FOLDER [--side N] [--epochs N] [--device NAME] [--out FILE] [PICTURE...]');
  process.exit(2);
}
manualSeed(1);
const device = v.device ? Device.get(v.device) : Device.best();
const { model } = await ImageClassifier.load(name, { device, dtype: 'f32' });
model.eval();
const looks = (pixels: Tensor): Tensor => noGrad(() => model.pooled(model.hidden(pixels)));

const side = Number(v.side);
const options = { size: [side, side], mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] } as const;
const files = new PictureFolder(folder, options);
const { classes } = files;

// The vision model stays as it is: every picture is seen once, and the layer learns from vectors in seconds.
const vectors: Tensor[] = [];
const labels: Tensor[] = [];
for await (const { image, label } of new DataLoader(files, { batch: 16, device })) {
  vectors.push(scope(() => looks(image)));
  labels.push(label);
}
const [x, y] = [cat(vectors, 0), cat(labels, 0)];
console.error(`${x.shape[0]} pictures of ${classes.length} classes: ${classes.join(', ')}`);

const head = new Linear(x.shape[1], classes.length, { device });
const [train, held] = Dataset.fromTensors({ x, y }).split([0.8, 0.2], 1);
await fit(head, {
  data: new DataLoader(train, { batch: 32, shuffle: true, device }),
  validation: new DataLoader(held, { batch: 32, device }),
  epochs: Number(v.epochs),
  optimizer: new AdamW(head.parameters(), { learningRate: 1e-2 }),
  loss: (logits, { y }) => losses.crossEntropy(logits, y),
  metrics: { accuracy: (logits, { y }) => accuracy(logits, y) },
  progress: false,
  onEpoch: ({ epoch, measures }) =>
    console.log(
      `epoch ${epoch}: loss ${measures.loss.toFixed(3)}, ` +
        `${(100 * measures['validation.accuracy']).toFixed(0)} % of ${held.length} pictures held back`,
    ),
});
if (v.out) head.save(v.out);

for (const path of pictures) {
  const { data, shape } = loadPicture(path, options);
  const pixels = tensor(data, { shape, device }).unsqueeze(0);
  const [shares] = scope(() => noGrad(() => head.forward(looks(pixels)).softmax(-1).toArray<number[][]>()));
  const best = shares.indexOf(Math.max(...shares));
  console.log(`${classes[best]} (${(100 * shares[best]).toFixed(0)} %): ${path}`);
}
