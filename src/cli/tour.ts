// `wick tour`: a short look around: devices, and a few lines of tensors.
import { parseArgs } from 'node:util';
import { Device, randn, Tensor } from '../index.js';
import { run as devices } from './devices.js';

function show(code: string, value: unknown): void {
  console.log(`> ${code}\n${String(value)}\n`);
}

const HELP = 'wick tour    a short look around: the devices, and a few lines of tensors with their results';

export function run(argv: readonly string[]): number {
  const { values } = parseArgs({ args: [...argv], options: { help: { type: 'boolean', short: 'h' } } });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  console.log('Devices\n');
  devices([]);
  console.log(`\nTensors on ${Device.default.name}\n`);
  const x = Tensor.from(
    [
      [1, 2],
      [3, 4],
    ],
    { requiresGrad: true },
  );
  show('const x = Tensor.from([[1, 2], [3, 4]], { requiresGrad: true })', x);
  show('x.matmul(x.t()).softmax(-1)', x.matmul(x.t()).softmax(-1));
  show('x.sqr().sum().backward().of(x)', x.sqr().sum().backward().of(x));
  show('randn([2, 3], { seed: 1 })', randn([2, 3], { seed: 1 }));
  return 0;
}
