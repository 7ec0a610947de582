// `npm run bundle [-- --arch x64]`: packs what a GPU host without Node or npm needs into one folder.
// There: bundle/node dist/scripts/test.js ... after `bundle/unpack`, which unpacks the Node binary beside it.
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { COMMIT_FILE, commitNow } from '../src/parity/provenance.js';

const { values } = parseArgs({
  options: {
    arch: { type: 'string', default: 'x64' },
    golden: { type: 'string', default: process.env.WICK_GOLDEN ?? '../shared/golden' },
    extra: { type: 'string', multiple: true, default: [] },
  },
});
const { arch, golden } = values as { arch: string; golden: string };
const NODE = '20.20.2';
const cache = resolve('.cache', `bundle-${arch}`);
const out = resolve('bundle');

function fetch(name: string, version: string): string {
  const folder = join(cache, 'node_modules', name);
  if (!existsSync(join(folder, 'package.json'))) {
    mkdirSync(cache, { recursive: true });
    const got = spawnSync(
      'npm',
      [
        'install',
        '--prefix',
        cache,
        '--no-save',
        '--no-package-lock',
        '--ignore-scripts',
        '--force',
        '--os',
        'linux',
        '--cpu',
        arch,
        `${name}@${version}`,
      ],
      { encoding: 'utf8' },
    );
    if (!existsSync(join(folder, 'package.json')))
      throw new Error(`${name}@${version} could not be fetched: ${got.stderr}`);
  }
  return folder;
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const koffiVersion = (JSON.parse(readFileSync('node_modules/koffi/package.json', 'utf8')) as { version: string })
  .version;
const packed = join(cache, `node-${NODE}.xz`);
if (!existsSync(packed)) {
  const binary = join(fetch(`node-linux-${arch}`, NODE), 'bin', 'node');
  const xz = spawnSync(
    'sh',
    [
      '-c',
      `strip -s -o '${binary}.s' '${binary}' 2>/dev/null || cp '${binary}' '${binary}.s'; xz -T2 -6 -c ` +
        `'${binary}.s' > '${packed}'`,
    ],
    { stdio: 'inherit' },
  );
  if (xz.status !== 0) throw new Error('xz failed: the package xz-utils is needed');
}
cpSync(packed, join(out, 'node.xz'));
const files = [
  'dist',
  'kernels',
  'native',
  'src/parity/pages',
  'package.json',
  'docs/parity',
  'scripts/mutants-equivalent.json',
  'models',
  'bench/peers',
  ...(values.extra as string[]),
];
for (const f of files)
  if (existsSync(f))
    cpSync(f, join(out, f), { recursive: true, filter: (p) => !p.endsWith('.map') && !p.endsWith('.d.ts') });
cpSync('node_modules/koffi', join(out, 'node_modules/koffi'), {
  recursive: true,
  filter: (p) => !/\/(build|vendor|doc)(\/|$)/.test(p),
});
cpSync(fetch(`@koromix/koffi-linux-${arch}`, koffiVersion), join(out, `node_modules/@koromix/koffi-linux-${arch}`), {
  recursive: true,
});
// The other run-time dependencies, and what those need, are plain JavaScript.
const needsOf = (folder: string): string[] =>
  Object.keys(
    (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { dependencies?: Record<string, string> })
      .dependencies ?? {},
  );
const withNeeds = (name: string): string[] => [name, ...needsOf(`node_modules/${name}`).flatMap(withNeeds)];
for (const p of new Set(
  needsOf('.')
    .filter((d) => d !== 'koffi')
    .flatMap(withNeeds),
))
  cpSync(`node_modules/${p}`, join(out, 'node_modules', p), {
    recursive: true,
    filter: (f) => !f.endsWith('.map') && !f.endsWith('.d.ts'),
  });
if (existsSync('node_modules/fast-check'))
  for (const p of ['fast-check', 'pure-rand'])
    cpSync(`node_modules/${p}`, join(out, 'node_modules', p), {
      recursive: true,
      filter: (f) => !f.endsWith('.map') && !f.endsWith('.d.ts') && !/\/lib\/cjs\//.test(f),
    });
if (existsSync(golden)) {
  // One compressed file: golden numbers pack well, and folders of small files travel slowly.
  const tar = spawnSync('tar', ['-C', golden, '-cJf', join(out, 'golden.tar.xz'), '.'], { stdio: 'inherit' });
  if (tar.status !== 0) throw new Error('tar failed');
}
// Reports made there name the commit.
writeFileSync(join(out, COMMIT_FILE), `${commitNow()}\n`);
writeFileSync(
  join(out, 'unpack'),
  '#!/bin/sh\n# Unpacks the Node binary and the golden numbers beside this file.\nset -e\ncd "$(dirname "$0")"\n[ ' +
    '-x node ] || { xz -dc node.xz > node.part; chmod +x node.part; mv node.part node; }\n[ ! -f golden.tar.xz ] ' +
    '|| [ -d golden ] || { mkdir golden.part; tar -C golden.part -xJf golden.tar.xz; mv golden.part golden; }\n',
);
chmodSync(join(out, 'unpack'), 0o755);
const du = spawnSync('du', ['-sm', out], { encoding: 'utf8' }).stdout.split('\t')[0];
console.log(
  `bundle/ is ready: ${du} MiB for linux-${arch}, Node ${NODE} ` +
    `(${(statSync(join(out, 'node.xz')).size / 2 ** 20).toFixed(0)} MiB packed)`,
);
