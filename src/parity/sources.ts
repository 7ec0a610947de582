// Which outside program vouches for an op: the golden sets of the repository by row, and a sentence where there is
// none.
import { join } from 'node:path';
import { packageRoot } from '../base/paths.js';
import { opList } from '../ops/table.js';
import { candleCall } from './candle-calls.js';
import { Golden, hasGolden } from './golden.js';
import { torchRow } from './torch.js';

/** Ops without cases of an outside program in the golden sets, and what speaks for them instead. */
export const UNVOUCHED: Readonly<Record<string, string>> = {
  randUniform: "its stream is its own; its blocks are Philox's published ones, tested by themselves",
  randNormal: "its stream is its own; its blocks are Philox's published ones, its quantile is tested by itself",
  dequantize: 'blocks by gguf-py and ggml in the tests of files and quantized types',
  q8Blocks: "its reference is the encoder of Q8_0, which ggml's own blocks vouch for byte by byte",
  qrows: 'made of dequantized blocks, which gguf-py and ggml vouch for',
  qmatmul: 'made of dequantized blocks, which gguf-py and ggml vouch for',
  matmulExperts: 'made of products, which PyTorch vouches for; whole mixtures by transformers in the tests of models',
  geluGrad: "gelu's gradient, which PyTorch vouches for in the cases of gelu",
  bmmWidened: 'made of products and casts, which PyTorch vouches for',
  matmulWidened: 'made of products and casts, which PyTorch vouches for',
  euclid: 'norms of two, which PyTorch vouches for in the cases of norm and std',
  convFilter: 'a gradient of convolutions, for which PyTorch vouches in their cases',
  argTop: 'the places of topk, whose numbers PyTorch vouches for',
  sortPairs: 'both results of sort, which PyTorch vouches for',
  argRank: 'the places of median and kthvalue, whose numbers PyTorch vouches for',
  takeWrapped: 'what take is, which PyTorch vouches for',
  indexSelectOr: 'what indexCopy is made of, which PyTorch vouches for',
  scatterExtreme: 'what scatterReduce is made of, which PyTorch vouches for',
  flagStarts: 'a part of nonzero, maskedSelect and unique; their numbers in the tests of picking',
  flagPlaces: 'a part of nonzero; its numbers in the tests of picking',
  flagTake: 'a part of maskedSelect; its numbers in the tests of picking',
  flagPut: "maskedSelect's gradient; its numbers in the tests of picking",
  flagRuns: 'a part of unique, which PyTorch vouches for',
  countNumbers: 'a part of bincount, which PyTorch vouches for',
  countBins: 'a part of histc, which PyTorch vouches for',
  dft: 'what fft, rfft and stft are made of, which PyTorch vouches for',
  cube: 'what powf(3) is, which PyTorch vouches for',
  deviations: 'what variance is made of, which PyTorch vouches for',
  spread: 'what std is made of, which PyTorch vouches for',
  runningProduct: 'what cumprod is made of, which PyTorch vouches for',
  runningLogSum: 'what logcumsumexp is made of, which PyTorch vouches for',
  runningLargest: 'the places of cummax, which PyTorch vouches for',
  runningSmallest: 'the places of cummin, which PyTorch vouches for',
  huberEach: 'what huber and smoothL1 are means of, which PyTorch vouches for',
  bceEach: 'what bce is a mean of, which PyTorch vouches for',
  rowDistances: 'what cdist is made of, which PyTorch vouches for',
  rowDistancesBackward: 'what gradients of cdist are made of, which PyTorch vouches for',
  f8matmul: 'made of products, which PyTorch vouches for, with weights decoded from 8 bits as its casts decode them',
  qmatmulExperts: 'made of dequantized blocks, which gguf-py and ggml vouch for',
  gridSampled: 'what gridSample is on GPUs, which PyTorch vouches for',
  gridSampledInput: 'a gradient of gridSample, which PyTorch vouches for',
  gridSampledMoved: 'a gradient of gridSample, which PyTorch vouches for',
  planeNorm: 'what batchNorm and groupNorm are on GPUs, which PyTorch vouches for',
  planeNormBackward: 'a gradient of batchNorm, which PyTorch vouches for',
  resampled: 'what interpolate and padMode are made of on GPUs, which PyTorch vouches for',
  maxPool2dBackward: 'the gradient of maxPool2d, which PyTorch vouches for',
  maxPool2dWithIndices: "the places that maxPool2d's gradient goes to, which PyTorch vouches for",
  maxUnpool2d: 'made of scatter, which PyTorch vouches for',
  solveTriangular: 'made of solve, which PyTorch vouches for',
  lu: 'what solve is made of, which PyTorch vouches for; its numbers in the tests of linear algebra',
  luFactor: 'the factors of lu in one matrix; its numbers in the tests of linear algebra',
  luSolve: 'made of solve, which PyTorch vouches for; its numbers in the tests of linear algebra',
  choleskySolve: 'made of solve, which PyTorch vouches for',
  eigvalsh: 'a result of eigh, which PyTorch vouches for',
  svdvals: 'a result of svd, which PyTorch vouches for',
  matrixNorm: 'made of svd, norm and sums, which PyTorch vouches for; its numbers in the tests of linear algebra',
  cond: 'made of svd, inv and norms, which PyTorch vouches for; its numbers in the tests of linear algebra',
  multiDot: 'made of products, which PyTorch vouches for',
  vecdot: 'made of products and sums, which PyTorch vouches for',
};

const program = (by: string | undefined): string => /^\w+/.exec(by ?? '')?.[0] ?? 'PyTorch';

/**
 * Programs with cases for each row, in the order Candle, PyTorch, others; empty where the repository's golden sets are
 * absent.
 */
export function vouchers(): Map<string, readonly string[]> {
  const dir = join(packageRoot, 'test/golden');
  const found = new Map<string, Set<string>>();
  const add = (row: string | undefined, by: string): void => {
    if (row === undefined) return;
    found.set(row, (found.get(row) ?? new Set()).add(by));
  };
  if (hasGolden(dir, 'candle-cuda.json'))
    for (const c of new Golden(dir, 'candle-cuda').cases) add(candleCall(c.op)?.row, 'Candle');
  for (const c of new Golden(dir, 'torch', 'ops', 'breadth').cases) add(torchRow(c.op), program(c.by));
  return new Map([...found].map(([row, names]) => [row, [...names]]));
}

/** The sentence of the ops page: how many ops have outside numbers, and why the others have none. */
export function vouchersText(all: ReadonlyMap<string, readonly string[]>): string {
  const without = opList.filter((r) => !all.has(r.name));
  const reasons = without.map((r) => `- \`${r.name}\`: ${UNVOUCHED[r.name] ?? 'no outside program gives it'}`);
  return (
    `${opList.length - without.length} of ${opList.length} ops are held against numbers of an outside ` +
    `program${without.length ? `; the others:\n\n${reasons.join('\n')}` : '.'}`
  );
}
