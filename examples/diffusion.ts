// The parts of image generation, small enough for a CPU: a U-Net of residual blocks, attention and a way down and up
// learns to take noise away from pictures of rings and bars, and then makes new ones out of noise.
//   node dist/examples/diffusion.js [--steps N] [--device NAME] [--show N]
import { parseArgs } from 'node:util';
import { Device, Generator, noGrad, randn, scope, Tensor } from 'wick';
import { randomNumbers } from 'wick/data';
import { AdamW, Conv2d, EMA, GroupNorm, Linear, losses, Module, MultiheadAttention, Upsample } from 'wick/nn';
import { Progress } from 'wick/train';

const { values: v } = parseArgs({
  options: {
    steps: { type: 'string', default: '300' },
    device: { type: 'string', default: 'cpu' },
    show: { type: 'string', default: '2' },
  },
});
const device = Device.get(v.device);
const [SIZE, WIDTH, TIMES] = [8, 16, 50];

/** Two convolutions that know the time, and a way past them. */
class ResBlock extends Module {
  norm1: GroupNorm;
  conv1: Conv2d;
  time: Linear;
  norm2: GroupNorm;
  conv2: Conv2d;
  skip: Conv2d | undefined;
  constructor(inputs: number, outputs: number) {
    super();
    this.norm1 = new GroupNorm(4, inputs, { device });
    this.conv1 = new Conv2d(inputs, outputs, 3, { padding: 1, device });
    this.time = new Linear(WIDTH, outputs, { device });
    this.norm2 = new GroupNorm(4, outputs, { device });
    this.conv2 = new Conv2d(outputs, outputs, 3, { padding: 1, device });
    this.skip = inputs === outputs ? undefined : new Conv2d(inputs, outputs, 1, { device });
  }
  forward(x: Tensor, time: Tensor): Tensor {
    const h = this.conv1.forward(this.norm1.forward(x).silu());
    const told = h.add(this.time.forward(time).unsqueeze(-1).unsqueeze(-1));
    const y = this.conv2.forward(this.norm2.forward(told).silu());
    return y.add(this.skip ? this.skip.forward(x) : x);
  }
}
/** Every place of a picture looks at every other. */
class PictureAttention extends Module {
  norm = new GroupNorm(4, 2 * WIDTH, { device });
  attend = new MultiheadAttention(2 * WIDTH, 4, { device });
  forward(x: Tensor): Tensor {
    const [b, c, h, w] = x.shape;
    const places = this.norm
      .forward(x)
      .reshape([b, c, h * w])
      .transpose(1, 2); // (batch, places, channels)
    return x.add(this.attend.forward(places).transpose(1, 2).reshape([b, c, h, w]));
  }
}
/** Down to half the size and up again, with what was there before beside it. */
class UNet extends Module {
  begin = new Conv2d(1, WIDTH, 3, { padding: 1, device });
  down = new ResBlock(WIDTH, WIDTH);
  smaller = new Conv2d(WIDTH, 2 * WIDTH, 3, { stride: 2, padding: 1, device });
  middle = new ResBlock(2 * WIDTH, 2 * WIDTH);
  attention = new PictureAttention();
  larger = new Upsample({ scale: 2 });
  up = new ResBlock(3 * WIDTH, WIDTH);
  end = new Conv2d(WIDTH, 1, 3, { padding: 1, device });
  forward(x: Tensor, time: Tensor): Tensor {
    const fine = this.down.forward(this.begin.forward(x), time);
    const coarse = this.attention.forward(this.middle.forward(this.smaller.forward(fine), time));
    return this.end.forward(this.up.forward(this.larger.forward(coarse).cat([fine], 1), time));
  }
}

/** How much of a picture is left after each of the times: a cosine. */
const kept = Float32Array.from({ length: TIMES }, (_, t) => Math.cos((((t + 1) / TIMES) * Math.PI) / 2.1) ** 2);
/** Times as waves of several lengths. */
const waves = (times: readonly number[]): Tensor =>
  Tensor.from(
    times.map((t) => Array.from({ length: WIDTH }, (_, i) => (i % 2 ? Math.cos : Math.sin)(t / 4 ** (i >> 1)))),
    { device },
  );
const random = randomNumbers(1);
function pictures(count: number): Tensor {
  const one = (): number[][] => {
    const [cx, cy, ring] = [2.5 + 2 * random(), 2.5 + 2 * random(), random() < 0.5];
    const on = (x: number, y: number): boolean =>
      ring ? Math.abs(Math.hypot(x - cx, y - cy) - 2) < 0.7 : Math.abs(x - cx) < 0.8 && Math.abs(y - cy) < 2.6;
    return Array.from({ length: SIZE }, (_, y) => Array.from({ length: SIZE }, (_u, x) => (on(x, y) ? 1 : -1)));
  };
  return Tensor.from(
    Array.from({ length: count }, () => [one()]),
    { device },
  );
}

const model = new UNet();
const optimizer = new AdamW(model.parameters(), { learningRate: 2e-3 });
const average = new EMA(model, { decay: 0.98, warmup: true });
const generator = new Generator(7);
const [steps, batch] = [Number(v.steps), 32];
const bar = new Progress(steps);
const curve: number[] = [];
console.log(`${model.parameterCount()} parameters on ${device.name}`);
for (let step = 1; step <= steps; step++) {
  const loss = scope(() => {
    const times = Array.from({ length: batch }, () => Math.floor(random() * TIMES));
    const share = Tensor.from(
      times.map((t) => [[[kept[t]]]]),
      { device },
    );
    const noise = randn([batch, 1, SIZE, SIZE], { generator, device });
    const seen = pictures(batch)
      .mul(share.sqrt())
      .add(noise.mul(share.affine(-1, 1).sqrt()));
    const value = losses.mse(model.forward(seen, waves(times)), noise);
    optimizer.backwardStep(value, { clipNorm: 1 });
    return value.item();
  });
  average.update();
  curve.push(loss);
  bar.show(step, `loss ${loss.toFixed(4)}`);
}
const mean = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0) / list.length;
console.log(`loss ${mean(curve.slice(0, 10)).toFixed(3)} at first, ${mean(curve.slice(-10)).toFixed(3)} at the end`);

/** Pictures out of noise, a little of it taken away at each time, from the last to the first (DDIM). */
const made = average.use(() =>
  scope(() =>
    noGrad(() => {
      const count = Number(v.show);
      let x = randn([count, 1, SIZE, SIZE], { generator, device });
      for (let t = TIMES - 1; t >= 0; t--) {
        const noise = model.eval().forward(x, waves(new Array<number>(count).fill(t)));
        const clean = x
          .sub(noise.mul(Math.sqrt(1 - kept[t])))
          .div(Math.sqrt(kept[t]))
          .clamp(-1.5, 1.5);
        const [left, rest] = t > 0 ? [kept[t - 1], 1 - kept[t - 1]] : [1, 0];
        x = clean.mul(Math.sqrt(left)).add(noise.mul(Math.sqrt(rest)));
      }
      return x;
    }),
  ),
);
for (const [picture] of made.toArray() as number[][][][])
  console.log(
    picture.map((row) => row.map((p) => (p > 0.3 ? '##' : p > -0.3 ? '::' : '  ')).join('')).join('\n'),
    '\n',
  );
