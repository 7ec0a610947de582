// Everything under docs/ that is made from something else, in one go: `npm run docs` writes it, `npm run docs:check`
// says what is stale, and fails. --models runs every golden model for docs/models.md first (some minutes); --strict fails
// for evidence that is older than what it speaks of, too.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { spawnSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { type Kept, estimatesPage } from '../bench/amd-page.js';
import { BREADTH_PAGE, breadthPage } from '../bench/breadth-page.js';
import { CURVES, growthPicture } from '../bench/curves.js';
import { PICTURE, picture } from '../bench/picture.js';
import { packageRoot } from '../src/base/paths.js';
import { namesMarkdown } from '../src/nn/names.js';
import { checkDocs, pages } from '../src/parity/docs.js';
import { MODELS_PAGE, modelsPage, typesNotRun } from './model-docs.js';
import { withFoldedProse } from './prose.js';
import { namesPage } from './pytorch-table.js';
import { scalingPage } from './scaling.js';

const at = (file: string): string => join(packageRoot, file);
const kept = (): Kept => JSON.parse(readFileSync(at('docs/amd-estimates.json'), 'utf8')) as Kept;

/** Pages and pictures by their path, each with what makes it. */
export const PAGES: Readonly<Record<string, () => string>> = {
  ...Object.fromEntries([...pages()].map(([file, text]) => [file, () => text])),
  'docs/amd-estimates.md': () => estimatesPage(kept()),
  [MODELS_PAGE]: modelsPage,
  'docs/nn.md': () => withFoldedProse(namesMarkdown()),
  'docs/pytorch-names.md': namesPage,
  'docs/scaling.md': scalingPage,
  [PICTURE]: picture,
  [CURVES]: growthPicture,
  [BREADTH_PAGE]: breadthPage,
};

/** Pages that are not what they are made from, and models that were never run. */
export function stalePages(): string[] {
  const differ = Object.entries(PAGES)
    .filter(([file, make]) => readFileSync(at(file), 'utf8') !== make())
    .map(([file]) => `${file}: npm run docs`);
  const types = typesNotRun();
  const models =
    types.length > 0 ? [`${MODELS_PAGE}: node dist/scripts/model-docs.js --sim --only ${types.join(',')}`] : [];
  return [...differ, ...models];
}

function check(strict: boolean): number {
  const stale = stalePages();
  const { evidence } = checkDocs();
  if (stale.length > 0) console.error(`stale, and the command that writes it:\n  ${stale.join('\n  ')}`);
  if (evidence.length > 0) {
    const files = [...new Set(evidence.map((line) => line.slice(0, line.indexOf(': '))))];
    console.error(`older than what they speak of:\n  ${(strict ? evidence : files).join('\n  ')}`);
    console.error(
      `${strict ? '' : '--strict says of what; '}npm run evidence measures the CPU and the simulation anew, ` +
        'wick parity evidence --device NAME others',
    );
  }
  if (stale.length + evidence.length === 0) console.log('pages and evidence are up to date');
  return stale.length > 0 || (strict && evidence.length > 0) ? 1 : 0;
}
function write(): number {
  for (const [file, make] of Object.entries(PAGES)) {
    const text = make();
    if (readFileSync(at(file), 'utf8') === text) continue;
    writeFileSync(at(file), text);
    console.log(`wrote ${file}`);
  }
  const left = stalePages();
  for (const line of left) console.log(`left: ${line}`);
  return left.length > 0 ? 1 : 0;
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const flag = { type: 'boolean' } as const;
  const { values } = parseArgs({ options: { check: flag, strict: flag, models: flag } });
  if (values.models) spawnSync(process.execPath, [at('dist/scripts/model-docs.js'), '--sim'], { stdio: 'inherit' });
  process.exitCode = values.check ? check(values.strict === true) : write();
}
