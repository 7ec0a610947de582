// A convolutional net that tells pictures apart: handwritten digits of a folder with MNIST's files, or rings, crosses
// and bars drawn here.
//   node dist/examples/classifier.js [--mnist FOLDER] [--epochs N] [--samples N] [--device NAME] [--out FOLDER]
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Device, Tensor } from 'wick';
import { DataLoader, Dataset, randomNumbers, readMnist } from 'wick/data';
import {
  AdamW,
  BatchNorm2d,
  Conv2d,
  cosineDecay,
  Flatten,
  Linear,
  losses,
  MaxPool2d,
  ReLU,
  Scheduler,
  Sequential,
} from 'wick/nn';
import { accuracy, fit } from 'wick/train';

const { values: v } = parseArgs({
  options: {
    mnist: { type: 'string' },
    epochs: { type: 'string', default: '4' },
    samples: { type: 'string', default: '1920' },
    device: { type: 'string', default: 'cpu' },
    out: { type: 'string' },
  },
});

const SIZE = 16;
/** Pictures of rings, crosses and bars at random places, with noise: { image, label }. */
function drawn(count: number, seed: number): Dataset<{ image: Tensor; label: Tensor }> {
  const random = randomNumbers(seed);
  const data = new Float32Array(count * SIZE * SIZE);
  const labels = Int32Array.from({ length: count }, () => Math.floor(random() * 3));
  labels.forEach((kind, n) => {
    const [cx, cy, r] = [5 + random() * 6, 5 + random() * 6, 2.5 + random() * 2.5];
    const inside = [
      (dx: number, dy: number): boolean => Math.abs(Math.hypot(dx, dy) - r) < 0.9,
      (dx: number, dy: number): boolean => Math.min(Math.abs(dx), Math.abs(dy)) < 0.8 && Math.hypot(dx, dy) < r,
      (dx: number, dy: number): boolean => Math.abs(dx) < 1.1 && Math.abs(dy) < r + 1,
    ][kind];
    for (let i = 0; i < SIZE * SIZE; i++)
      data[n * SIZE * SIZE + i] = (inside((i % SIZE) - cx, Math.floor(i / SIZE) - cy) ? 1 : 0) + 0.5 * (random() - 0.5);
  });
  return Dataset.fromTensors({
    image: Tensor.from(data, { shape: [count, 1, SIZE, SIZE] }),
    label: Tensor.from(labels).cast('i64'),
  });
}
const [train, test] = v.mnist
  ? [readMnist(v.mnist, 'train'), readMnist(v.mnist, 'test')]
  : [drawn(Number(v.samples), 1), drawn(300, 2)];
const [classes, size] = v.mnist ? [10, 28] : [3, SIZE];

const device = Device.get(v.device);
const model = new Sequential(
  new Conv2d(1, 16, 3, { padding: 1, device }),
  new BatchNorm2d(16, { device }),
  new ReLU(),
  new MaxPool2d(2),
  new Conv2d(16, 32, 3, { padding: 1, device }),
  new ReLU(),
  new MaxPool2d(2),
  new Flatten(),
  new Linear(32 * Math.floor(size / 4) ** 2, classes, { device }),
);
console.log(model);

/** Bytes to 0..1, on the device. */
const transform = <B extends { image: Tensor }>(batch: B): B => ({
  ...batch,
  image: batch.image.dtype === 'u8' ? batch.image.cast('f32').div(255) : batch.image,
});
const data = new DataLoader(train, { batch: 64, shuffle: true, device, transform });
const optimizer = new AdamW(model.parameters(), { learningRate: 3e-3 });
const epochs = Number(v.epochs);
const history = await fit(model, {
  data,
  validation: new DataLoader(test, { batch: 300, device, transform }),
  epochs,
  optimizer,
  scheduler: new Scheduler(optimizer, cosineDecay(epochs * data.length, 0.1)),
  forward: ({ image }) => model.forward(image),
  loss: (logits, { label }) => losses.crossEntropy(logits, label, { labelSmoothing: 0.05 }),
  metrics: { accuracy: (logits, { label }) => accuracy(logits, label) },
  ...(v.out && { checkpoint: { folder: v.out }, tensorboard: v.out, plot: join(v.out, 'run.svg') }),
  onEpoch: ({ epoch, measures }) =>
    console.log(
      `epoch ${epoch}: ${Object.entries(measures)
        .map(([name, m]) => `${name} ${m.toFixed(4)}`)
        .join(', ')}`,
    ),
});
const right = history.epochs.at(-1)?.measures['validation.accuracy'] ?? 0;
console.log(`${(100 * right).toFixed(1)} % of ${test.length} new pictures are told apart`);
