// A small convolutional net that tells rings, crosses and bars apart, on pictures made here: node
// dist/examples/classifier.js
import { Device, noGrad, scope, tensor, type Tensor } from '../src/index.js';
import {
  AdamW,
  conv2d,
  cosineDecay,
  func,
  linear,
  Module,
  seq,
  type Sequential,
  VarBuilder,
  VarMap,
} from '../src/nn/index.js';
import { randomStream } from '../src/engine/sampler.js';

const SIZE = 16;
const KINDS = ['ring', 'cross', 'bar'] as const;
const random = randomStream(3);

/** A picture of one kind at a random place, with noise. */
function picture(kind: number): Float32Array {
  const [cx, cy, r] = [5 + random() * 6, 5 + random() * 6, 2.5 + random() * 2.5];
  const inside = [
    (dx: number, dy: number): boolean => Math.abs(Math.hypot(dx, dy) - r) < 0.9,
    (dx: number, dy: number): boolean =>
      (Math.abs(dx) < 0.8 && Math.abs(dy) < r) || (Math.abs(dy) < 0.8 && Math.abs(dx) < r),
    (dx: number, dy: number): boolean => Math.abs(dx) < 1.1 && Math.abs(dy) < r + 1,
  ][kind];
  return Float32Array.from(
    { length: SIZE * SIZE },
    (_, i) => (inside((i % SIZE) - cx, Math.floor(i / SIZE) - cy) ? 1 : 0) + 0.5 * (random() - 0.5),
  );
}
function batch(n: number, device: Device): { x: Tensor; labels: Tensor } {
  const labels = Int32Array.from({ length: n }, () => Math.floor(random() * KINDS.length));
  const data = new Float32Array(n * SIZE * SIZE);
  labels.forEach((k, i) => data.set(picture(k), i * SIZE * SIZE));
  return { x: tensor(data, { shape: [n, 1, SIZE, SIZE], device }), labels: tensor(labels, { device }) };
}

class Net extends Module {
  readonly body: Sequential;
  constructor(vb: VarBuilder) {
    super();
    this.body = seq(
      conv2d(1, 16, 3, vb.pp('conv1'), { padding: 1 }),
      func((x) => x.relu().maxPool2d(2)),
      conv2d(16, 32, 3, vb.pp('conv2'), { padding: 1 }),
      func((x) => x.relu().maxPool2d(2).flatten(1)),
      linear(32 * (SIZE / 4) ** 2, KINDS.length, vb.pp('out')),
    );
  }
  forward(x: Tensor): Tensor {
    return this.body.forward(x);
  }
}

const device = Device.get(process.argv[2] ?? 'cpu');
const net = new Net(VarBuilder.fromVarMap(new VarMap(), { device }));
const STEPS = 120;
const optimizer = new AdamW(net.parameters(), { learningRate: 3e-3 });
const rate = cosineDecay(STEPS, 0.1);
console.log(`${net.parameterCount()} parameters on ${device.name}`);
for (let step = 0; step < STEPS; step++) {
  optimizer.learningRate = 3e-3 * rate(step);
  scope(() => {
    const { x, labels } = batch(64, device);
    const loss = net.forward(x).crossEntropy(labels);
    optimizer.backwardStep(loss);
    if ((step + 1) % 20 === 0) console.log(`step ${step + 1}: loss ${loss.item().toFixed(4)}`);
  });
}
const right = scope(() =>
  noGrad(() => {
    const { x, labels } = batch(300, device);
    return net.eval().forward(x).argmax(1).cast('i32').eq(labels).cast('f32').mean().item();
  }),
);
console.log(`${(100 * right).toFixed(1)} % of 300 new pictures are told apart`);
