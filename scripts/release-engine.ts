// `npm run release:engine [-- --out DIR]`: the engine, built here, as the optional package for machines like this one.
// Publish it before the main package, whose optionalDependencies name the engines of the same version.
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { packageRoot } from '../src/base/paths.js';
import { hostArch } from '../src/backends/cpu/instruction-sets.js';
import { buildNative, enginePackage } from '../src/backends/native-build.js';

const { values } = parseArgs({ options: { out: { type: 'string', default: 'release' } } });
const arch = hostArch();
const { version, license } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as {
  version: string;
  license: string;
};
const name = enginePackage(arch);
const folder = resolve(values.out as string, name);
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
await buildNative({ everySet: true, copy: join(folder, 'libwick.so'), progress: process.stderr.fd });
if (existsSync(join(packageRoot, 'LICENSE'))) copyFileSync(join(packageRoot, 'LICENSE'), join(folder, 'LICENSE')); // a bundle for a test machine has none
const manifest = {
  name,
  version,
  description: `The CPU engine of wick for Linux ${arch}.`,
  license,
  os: ['linux'],
  cpu: [arch],
  libc: ['glibc'],
  files: ['libwick.so'],
};
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
console.log(
  `${folder}: ${name}@${version}. Publish it, then the main package with "optionalDependencies": { "${name}": ` +
    `"${version}" }.`,
);
