// The README's picture: what was measured on an H200 beside PyTorch, as bars around "as fast as PyTorch", from the
// records in docs. `node dist/bench/picture.js` writes docs/pictures/beside-pytorch.svg; a test holds it to them.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '../src/base/paths.js';

export const PICTURE = 'docs/pictures/beside-pytorch.svg';
/** What is drawn, good and bad alike: the record, the name there, and words for the reader. */
const BARS: readonly (readonly [record: string, name: string, words: string])[] = [
  ['bench-h200', 'softmax 16384x16384 bf16', 'softmax, 16384 rows of 16384'],
  ['bench-h200', 'layerNorm 16384x16384 bf16', 'layer norm, 16384 rows of 16384'],
  ['bench-h200', 'gelu 1 GiB bf16', 'gelu, 1 GiB'],
  ['bench-h200', 'matmul 8192 bf16', 'matrix product, 8192 cubed'],
  ['bench-h200', 'conv2d 32x64x56x56 k3 f16', 'convolution 3x3, f16'],
  ['bench-h200-attention', 'forward bf16 4x32x4096x128 causal', 'attention, 4096 tokens, heads of 128'],
  ['bench-h200-attention', 'backward bf16 4x32x4096x128 causal', 'its gradient, the same bits in every run'],
  ['bench-h200-attention-any-order', 'backward bf16 4x32x4096x128 causal', "its gradient in any order, as PyTorch's"],
  ['bench-h200-attention', 'forward bf16 16x16x1024x64 causal', 'attention, 1024 tokens, heads of 64'],
  ['bench-h200-nn', 'training step of 29.1M parameters bf16, 32x1024 tokens', 'training step, 29M parameters'],
  ['bench-h200-nn', 'prefill 2048 tokens, Llama 8b bf16', 'reading a prompt, Llama 8B'],
  ['bench-h200-prefill', 'prefill 2048 tokens, qwen3-8b bf16', 'reading a prompt, Qwen3 8B'],
  ['bench-h200-prefill', 'prefill 2048 tokens, gemma3-4b bf16', 'reading a prompt, Gemma 3 4B'],
  ['bench-h200-prefill', 'prefill 2048 tokens, qwen3-30b-a3b bf16', 'reading a prompt, Qwen3 30B-A3B'],
];
interface Row {
  readonly name: string;
  /** How many times as fast as PyTorch: one bench writes it by the first name, others by the second. */
  readonly speedup?: number;
  readonly ofTorch?: number;
}
function timesAsFast(record: string, name: string): number {
  const { results } = JSON.parse(readFileSync(join(packageRoot, `docs/${record}.json`), 'utf8')) as { results: Row[] };
  const row = results.find((r) => r.name === name);
  const times = row?.speedup ?? row?.ofTorch;
  if (times === undefined) throw new Error(`docs/${record}.json has no "${name}" beside PyTorch`);
  return times;
}

const [WIDTH, ROW, TOP, LEFT, RIGHT] = [820, 26, 66, 290, 60];
/** The picture as the text of an SVG file, on a ground of its own so that it reads on dark pages, too. */
export function picture(): string {
  const bars = BARS.map(([record, name, words]) => ({ words, times: timesAsFast(record, name) }));
  const most = Math.max(...bars.map((b) => b.times));
  const x = (times: number): number => LEFT + (times / most) * (WIDTH - LEFT - RIGHT);
  const height = TOP + bars.length * ROW + 16;
  const rows = bars.map(({ words, times }, i) => {
    const y = TOP + i * ROW;
    const colour = times >= 0.995 ? '#2f7d5b' : '#c4692f';
    return (
      `<text x="${LEFT - 10}" y="${y + 14}" text-anchor="end">${words}</text>` +
      `<rect x="${LEFT}" y="${y}" width="${(x(times) - LEFT).toFixed(1)}" height="18" rx="2" fill="${colour}"/>` +
      `<text x="${(x(Math.max(times, 1)) + 6).toFixed(1)}" y="${y + 14}" font-weight="600">${times.toFixed(2)}</text>`
    );
  });
  const one = x(1).toFixed(1);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="system-ui, sans-serif" ` +
      'font-size="13" fill="#222">',
    `<rect width="${WIDTH}" height="${height}" fill="#fff"/>`,
    '<text x="20" y="26" font-size="16" font-weight="600">wick beside PyTorch 2.11 on one H200: times as fast, each ' +
      'pair in one run</text>',
    ...rows,
    `<line x1="${one}" x2="${one}" y1="${TOP - 12}" y2="${height - 10}" stroke="#222" stroke-dasharray="3 3"/>`,
    `<text x="${one}" y="${TOP - 16}" text-anchor="middle" font-size="12">PyTorch</text>`,
    '</svg>\n',
  ].join('\n');
}
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(join(packageRoot, PICTURE), picture());
  console.log(`${PICTURE} is written`);
}
