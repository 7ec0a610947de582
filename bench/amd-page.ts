// docs/amd-estimates.md from the counts that are kept: formulas, rates, a table for each GPU, and what lies under 0.7
// of the memory bound.
import { estimate, type LaunchCounts, RESOURCES } from './amd-estimate.js';
import { ATTAINED, RATES, type Rates } from './amd-rates.js';
import { amdWorks } from './amd-works.js';

export interface Kept {
  readonly targets: Readonly<
    Record<string, { readonly date: string; readonly counts: Readonly<Record<string, readonly LaunchCounts[]>> }>
  >;
}
/** Under this share of the memory bound a kernel is listed. */
const LOW = 0.7;
const time = (us: number): string => (us >= 1000 ? `${(us / 1000).toPrecision(3)} ms` : `${us.toPrecision(3)} us`);
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((r) => `| ${r.join(' | ')} |`).join('\n');

function estimatesOf(rates: Rates, kept: Kept) {
  const counts = kept.targets[rates.target]?.counts ?? {};
  return amdWorks().flatMap((w) =>
    counts[w.name] ? [{ work: w, ...estimate(counts[w.name], w.bytes / w.scale, w.scale, rates) }] : [],
  );
}

export function estimatesPage(kept: Kept): string {
  const parts = RATES.map((rates) => {
    const rows = estimatesOf(rates, kept);
    if (rows.length === 0) return `## ${rates.name} (${rates.target})\n\nNot counted yet.`;
    return `## ${rates.name} (${rates.target})\n\n${rates.source}. Checked: ${rates.compared}. Counted ${kept.targets[rates.target].date}.\n\n${table(
      ['work', 'estimate', 'limit', 'of the memory bound', 'TFLOP/s', 'waves a SIMD', ...RESOURCES],
      rows.map((r) => [
        r.work.name,
        time(r.total),
        r.limit,
        r.work.flops ? '' : r.ofMemory.toFixed(2),
        r.work.flops ? (r.work.flops / r.total / 1e6).toFixed(0) : '',
        r.waves.toFixed(0),
        ...RESOURCES.map((x) => time(r.us[x])),
      ]),
    )}`;
  });
  const low = RATES.flatMap((rates) =>
    estimatesOf(rates, kept)
      .filter((r) => !r.work.flops && r.ofMemory < LOW)
      .map((r) => `- ${r.work.name} on ${rates.name}: ${r.ofMemory.toFixed(2)}, limited by ${r.limit}`),
  );
  const waiting = RATES.flatMap((rates) =>
    estimatesOf(rates, kept)
      .filter((r) => r.us.latency > r.total)
      .map(
        (r) => `- ${r.work.name} on ${rates.name}: up to ${time(r.us.latency)}; waves a SIMD: ${r.waves.toFixed(0)}`,
      ),
  );
  return `<!-- Made by \`npm run docs\` from docs/amd-estimates.json; do not edit. -->
# AMD speed on paper

**Estimates: no AMD GPU has run this.** The emulator runs the machine code that AMD's compiler makes and counts what it executes; published
rates turn the counts into time. What is not in the model (bank conflicts of LDS, misses of caches between work-groups, launch overhead,
clocks that fall) makes real times longer; a cache that holds a whole tensor makes them shorter.

Counts are of a small run of each benchmark, multiplied by how many times its work the benchmark is. A time for each resource, as if the
others cost nothing; the largest of the rates is the estimate:

| resource | microseconds |
|---|---|
| memory | bytes that must move / (published bandwidth x ${ATTAINED}) |
| cache | bytes that instructions read and write / (64 bytes a clock and compute unit) |
| vector | (wave instructions + 4 x slow ones: transcendentals, doubles, 32-bit integer products) / (1 a clock and compute unit on CDNA, 2 on RDNA) |
| scalar | scalar instructions / (1 a clock and compute unit on CDNA, 2 on RDNA) |
| LDS | bytes of full waves / (128 bytes a clock and compute unit) |
| matrix | operations of matrix units / published rate |
| latency | waits for loads x latency of memory / waves resident on the GPU, which registers and LDS limit: the time if no load were asked for early. Not part of the estimate; where it is longer, time depends on how early loads are asked for |

Calibration: a plain copy on the H200 reaches ${ATTAINED} of the published bandwidth ([bench-h200.json](bench-h200.json)), and the memory-bound
kernels of this list reach 0.91 to 1.06 of that copy there; the same share is taken for AMD. Counts like these cannot be taken of NVIDIA's
machine code here, so the other rates are not calibrated.

${parts.join('\n\n')}

## Under ${LOW} of the memory bound
${low.join('\n') || 'None of the works that memory bounds.'}

## Where waits could cost more than the estimate
${waiting.join('\n') || 'Nowhere.'}
`;
}
