// Runs a few tensor lines on Node 24, whose binary comes in an npm package, to show that later releases work too.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';

const VERSION = '24';
const platform = `node-linux-${process.arch}`;
const folder = resolve('.cache', `node-${VERSION}`);
const binary = join(folder, 'node_modules', platform, 'bin', 'node');
if (!existsSync(binary)) {
  mkdirSync(folder, { recursive: true });
  const got = spawnSync(
    'npm',
    ['install', '--prefix', folder, '--no-save', '--no-package-lock', '--ignore-scripts', `${platform}@${VERSION}`],
    { encoding: 'utf8' },
  );
  if (got.status !== 0 || !existsSync(binary)) {
    console.log(`smoke test skipped: ${platform}@${VERSION} could not be fetched`);
    process.exit(0);
  }
}
const program = `
  import { Tensor, Device, randn } from './dist/src/index.js';
  const x = Tensor.from([[1, 2], [3, 4]], { requiresGrad: true });
  const g = x.matmul(x.t()).relu().sum().backward().of(x).toArray();
  if (JSON.stringify(g) !== '[[8,12],[8,12]]') throw new Error('wrong gradient ' + JSON.stringify(g));
  if (randn([4], { seed: 1 }).shape[0] !== 4) throw new Error('randn');
  console.log('Node ' + process.version + ' on ' + Device.default.name + ': ok');
`;
const run = spawnSync(binary, ['--input-type=module', '-e', program], { stdio: 'inherit' });
process.exit(run.status ?? 1);
