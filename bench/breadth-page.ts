// docs/breadth.md from the record of bench/breadth.ts: every op and layer beside PyTorch, the slowest first.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../src/base/paths.js';
import { withFoldedProse } from '../scripts/prose.js';
import { breadthWorks } from './breadth-works.js';

export const BREADTH_PAGE = 'docs/breadth.md';
const RECORD = 'bench-h200-breadth.json';

interface Result {
  readonly name: string;
  readonly ms?: number | string;
  readonly torch?: number | string;
  readonly ratio?: number;
}
interface Record {
  readonly device: string;
  readonly date: string;
  readonly commit: string;
  readonly results: readonly Result[];
}
type Compared = Result & { readonly ms: number; readonly torch: number; readonly ratio: number };

const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
const time = (ms: number): string => (ms < 1 ? `${(1000 * ms).toPrecision(3)} us` : `${ms.toPrecision(3)} ms`);
/** How many hold, in words. */
const share = (all: readonly Compared[], holds: (r: Compared) => boolean): string =>
  `${all.filter(holds).length} of ${all.length}`;

/** The page as Markdown. */
export function breadthPage(): string {
  const { device, date, commit, results } = JSON.parse(
    readFileSync(join(packageRoot, 'docs', RECORD), 'utf8'),
  ) as Record;
  const works = new Map(breadthWorks().map((w) => [w.name, w]));
  const all = results
    .filter((r): r is Compared => r.ratio !== undefined && works.has(r.name))
    .sort((a, b) => a.ratio - b.ratio);
  const mean = Math.exp(all.reduce((sum, r) => sum + Math.log(r.ratio), 0) / all.length);
  const rows = all.map((r) => {
    const { inputs, grad } = works.get(r.name) as NonNullable<ReturnType<typeof works.get>>;
    const operands = [...new Set(Object.values(inputs).map((text) => text.split(' ').slice(1).join(' ')))].join(', ');
    return row([r.name, `${operands}${grad ? ', with gradients' : ''}`, time(r.ms), time(r.torch), r.ratio.toFixed(2)]);
  });
  const alone = results.filter((r) => typeof r.ms === 'number' && typeof r.torch !== 'number').map((r) => r.name);
  return withFoldedProse(
    `<!-- Made by \`npm run docs\` from docs/${RECORD}; do not edit. -->
# Every kind of op beside PyTorch

One call after another on one ${device}, ours and then PyTorch's, on ${date} at ${commit} (\`node dist/bench/breadth.js
--device cuda:0\`; rounds are short, so a ratio may be off by a tenth). A ratio is PyTorch's time through ours: above 1
we are faster. ${share(all, (r) => r.ratio >= 0.9)} works reach nine tenths of PyTorch's speed, and
${share(all, (r) => r.ratio >= 0.5)} reach half of it; the geometric mean is ${mean.toFixed(2)}. The slowest come first.

${row(['work', 'operands', 'ours', 'PyTorch', 'PyTorch / ours'])}
|---|---|---|---|---|
${rows.join('\n')}
${alone.length > 0 ? `\nPyTorch did not run ${alone.join(', ')} as they were asked for.\n` : ''}`,
  );
}
