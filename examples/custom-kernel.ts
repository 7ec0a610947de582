// An op of one's own with a kernel for every device and a gradient: node dist/examples/custom-kernel.js [DEVICE ...]
import { defineOp, Device, randn } from 'wick';
import { gradCheck } from 'wick/train';

/** x where it is small, growing with its root beyond 1: one expression for all GPUs, one function for the CPU. */
const gentle = defineOp({
  name: 'gentle',
  inputs: 1,
  dtypes: ['f32', 'f64'],
  scalars: ['limit'],
  cpu: (x, limit) => (Math.abs(x) < limit ? x : Math.sign(x) * Math.sqrt(limit * (2 * Math.abs(x) - limit))),
  gpu: 'select(absg(x) < a, x, select(x < C(0), -C(1), C(1)) * sqrtg(a * (C(2) * absg(x) - a)))',
  grad: ({ x, grad, params }) => {
    const limit = params.limit as number;
    const beyond = x
      .abs()
      .affine(2 / limit, -1)
      .clamp(1, Infinity)
      .rsqrt();
    return [grad.mul(beyond)];
  },
});

console.log(
  'gradients:',
  gradCheck((x) => gentle(x, { limit: 1 }), [randn([3, 4], { dtype: 'f64', seed: 1, std: 3 })]),
);
const names = process.argv.slice(2);
for (const name of names.length > 0 ? names : ['cpu']) {
  const x = randn([2, 4], { seed: 2, std: 3, device: Device.get(name) });
  console.log(`${name}:\n${x}\nbecomes\n${gentle(x, { limit: 1 })}`);
}
