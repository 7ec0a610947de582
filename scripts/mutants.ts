// What a weak proof would let through: changed kernels, enumerated by rule from the kernel files and the op table's
// expressions.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { kernelsDir, packageRoot } from '../src/base/paths.js';
import type { ElementwiseRow } from '../src/ops/op.js';
import { elementwiseRows, opList } from '../src/ops/table.js';

export interface Mutant {
  /** 'kernels/reduce.hip:120 barrier dropped', 'expression of silu: / becomes *'. */
  readonly name: string;
  /** The kernel file, or the expression's own text, that is changed. */
  readonly file?: string;
  readonly text: string;
  /** The line that is changed as it was, and the function or macro around it as it becomes. */
  readonly line: string;
  readonly part: string;
  /** What must notice: ops run on the simulation, then test files. */
  readonly ops: readonly string[];
  readonly tests: readonly string[];
  /** Modules that the changed file is part of. */
  readonly modules: readonly string[];
}

interface Rule {
  readonly what: string;
  readonly find: RegExp;
  readonly put: string;
}
const RULES: readonly Rule[] = [
  { what: 'barrier dropped', find: /__syncthreads\(\);/g, put: ';' },
  { what: 'bound off by one', find: /; (\w+) < (\w+); /g, put: '; $1 + 1 < $2; ' },
  { what: 'shuffle reaches elsewhere', find: /\b(shfl_xor|shfl_up|shfl_down)\((\w+), (\w+)/g, put: '$1($2, $3 ^ 1' },
  { what: 'stride taken for a size', find: /\bstrides\[(\w+)\]/g, put: 'dims[$1]' },
  { what: 'sum becomes difference', find: /(\w+) \+ (\w+) \* (\w+)/g, put: '$1 - $2 * $3' },
  { what: 'accumulation lost', find: /(\b\w+) \+= /g, put: '$1 = ' },
  { what: 'comparison turned', find: /\bif \((\w+) < (\w+)\)/g, put: 'if ($1 > $2)' },
];

interface Guard {
  readonly ops?: readonly string[];
  readonly tests?: readonly string[];
}
/**
 * Who speaks for a file: ops that launch its kernels, then test files that launch them by name ('file: only tests whose
 * name holds this'). A file that is not listed has the ops of the family of its name: experts.hip those of 'experts'.
 */
const GUARDS: Readonly<Record<string, Guard>> = {
  'candle/affine.hip': { tests: ['kernels-golden'] },
  'attention.hip': { ops: ['sdpa', 'sdpaRun'], tests: ['kernels-attention'] },
  'attention-again.h': { tests: ['attention-nan', 'kernels-attention-nan'] },
  'attention.h': { ops: ['sdpa', 'sdpaRun', 'sdpaBackward'], tests: ['kernels-attention'] },
  'attention-backward.hip': { ops: ['sdpaBackward', 'sdpaDelta'], tests: ['kernels-attention'] },
  'attention-backward-matrix.hip': { tests: ['kernels-attention: matrix units in the layout of .*: gradients'] },
  'attention-matrix.hip': { tests: ['kernels-attention: matrix units in the layout of .*: output'] },
  'attention-matrix.h': { tests: ['kernels-attention: matrix units'] },
  'attention-split.h': { ops: ['sdpa', 'sdpaRun'], tests: ['kernels-attention', 'engine-decode'] },
  'attention-tile.h': { ops: ['sdpa', 'sdpaBackward'], tests: ['kernels-attention'] },
  'candle/binary.hip': { tests: ['kernels-golden'] },
  'factor.h': { tests: ['linalg-kernels'] },
  'lu.hip': { tests: ['linalg-kernels'] },
  'triangles.hip': { tests: ['linalg-kernels'] },
  'reflections.hip': { tests: ['linalg-kernels'] },
  'rotations.hip': { tests: ['linalg-kernels'] },
  'block-scan.h': { ops: ['cumsum', 'flagStarts'], tests: ['kernels-structured'] },
  'block.h': {
    ops: ['sum', 'max', 'argmax', 'softmax', 'layerNorm'],
    tests: ['kernels-structured', 'kernels-structured-golden'],
  },
  'candle/conv.hip': { tests: ['kernels-col2im', 'kernels-rest', 'kernels-structured-golden'] },
  'candle/fill.hip': { tests: ['kernels-golden', 'kernels-conversions'] },
  'candle/indexing.hip': { tests: ['kernels-structured-golden'] },
  'candle/sort.hip': { tests: ['kernels-long', 'kernels-structured-golden'] },
  'candle/reduce.hip': { tests: ['kernels-long', 'kernels-rest', 'kernels-structured-golden'] },
  'candle/cast.hip': { tests: ['kernels-golden', 'kernels-conversions'] },
  'conv.h': { ops: ['conv2d', 'convTranspose2d'], tests: ['kernels-structured', 'kernels-structured-golden'] },
  'conv.hip': { ops: ['conv1d', 'conv2d', 'convTranspose1d', 'convTranspose2d'], tests: ['kernels-structured'] },
  'decode.hip': { tests: ['engine-decode'] },
  'decode-attention.hip': { tests: ['engine-decode'] },
  'decode-attention-units.h': { tests: ['engine-decode', 'engine-few'] },
  'decode-experts.hip': { tests: ['models-decoders: mixtures on'] },
  'decode-latent.hip': { tests: ['models-decoders: mixtures on'] },
  'decode-rows.h': { tests: ['engine-decode'] },
  'decode-sample.hip': { tests: ['engine-decode'] },
  'decode-weights.hip': { tests: ['quantized-models'] },
  'sample.hip': { tests: ['engine-draws'] },
  'count.hip': { ops: ['countNumbers', 'countBins'], tests: ['tiles: counts', 'tiles: bins'] },
  'copies.h': { ops: ['qmatmul'], tests: ['quantized'] },
  'decode-few.hip': { tests: ['engine-few'] },
  'decode.h': { tests: ['engine-decode'] },
  'elementwise.hip': { ops: ['add', 'exp', 'where', 'castTo', 'affine'], tests: ['kernels-elementwise'] },
  'fill.hip': { ops: ['newFull', 'newArange'], tests: ['kernels-golden', 'kernels-conversions'] },
  'distance.hip': { ops: ['rowDistances', 'rowDistancesBackward'], tests: ['tiles: distances', 'distance'] },
  'fourier.hip': { ops: ['dft'], tests: ['fourier'] },
  'gemm.h': { ops: ['bmm', 'matmul'], tests: ['kernels-structured'] },
  'gemm.hip': { ops: ['bmm', 'matmul', 'matmulExperts'], tests: ['kernels-structured'] },
  'grouped.h': { ops: ['matmulExperts'] },
  'indexing.hip': {
    ops: ['gather', 'indexSelect'],
    tests: ['kernels-structured', 'kernels-structured-golden', 'gather-long'],
  },
  'scatter.hip': {
    ops: ['indexAdd', 'scatter', 'scatterAdd', 'sliceScatter'],
    tests: ['kernels-structured', 'kernels-structured-golden', 'scatter-long'],
  },
  'grid.hip': { ops: ['gridSampled', 'gridSampledInput', 'gridSampledMoved'], tests: ['resampled'] },
  'extremes.hip': { ops: ['scatterExtreme'], tests: ['scatter-long'] },
  'indexing.h': {
    ops: ['gather', 'indexAdd', 'scatterAdd'],
    tests: ['kernels-structured', 'kernels-structured-golden'],
  },
  'kept.h': { ops: ['castTo'], tests: ['kernels-conversions'] },
  'matrix.h': { ops: ['bmm', 'matmul'], tests: ['kernels-structured', 'kernels-attention'] },
  'new-token.h': { tests: ['engine-decode', 'engine-few'] },
  'norm.h': { ops: ['layerNorm', 'rmsNorm'], tests: ['kernels-structured', 'kernels-structured-golden'] },
  'norm-gradients.h': { ops: ['layerNormBackward', 'rmsNormBackward'], tests: ['kernels-structured'] },
  'norm.hip': { ops: ['layerNorm', 'rmsNorm'], tests: ['kernels-structured', 'kernels-structured-golden'] },
  'plane-norm.hip': { ops: ['planeNorm', 'planeNormBackward'], tests: ['plane-norm'] },
  'pool.h': { ops: ['avgPool2d', 'maxPool2d'], tests: ['kernels-structured', 'kernels-structured-golden'] },
  'pick.hip': {
    ops: ['flagStarts', 'flagPlaces', 'flagTake', 'flagPut', 'flagRuns'],
    tests: ['tiles: flags', 'tiles: distinct', 'kernels-long: flags'],
  },
  'pool.hip': { ops: ['avgPool2d', 'maxPool2d', 'maxPool2dBackward'], tests: ['kernels-structured', 'resampled'] },
  'portable.h': { ops: ['exp', 'sum'], tests: ['kernels-conversions', 'kernels-structured'] },
  'recurrent.hip': { tests: ['recurrent'] },
  'portable/access.h': { ops: ['sum', 'softmax'], tests: ['kernels-structured', 'kernels-quantized'] },
  'portable/atomics.h': { ops: ['scatterAdd', 'indexAdd'], tests: ['kernels-structured'] },
  'portable/conversions.h': { ops: ['castTo'], tests: ['kernels-conversions'] },
  'portable/layout.h': { ops: ['castTo'], tests: ['kernels-golden', 'kernels-structured'] },
  'portable/mathematics.h': { ops: ['exp', 'maximum', 'round'], tests: ['kernels-elementwise', 'kernels-golden'] },
  'portable/small.h': { ops: ['erf', 'log', 'mish', 'normcdf', 'powf', 'sin', 'tanh'], tests: ['small-floats'] },
  'portable/single.h': { ops: ['erfinv', 'lgamma', 'polygamma'], tests: ['whole-and-special'] },
  'portable/special.h': { ops: ['erfinv', 'polygamma', 'i0', 'i1'], tests: ['golden-torch'] },
  'portable/types.h': { ops: ['max', 'argmax'], tests: ['kernels-conversions', 'kernels-structured'] },
  'portable/waves.h': { ops: ['sum', 'softmax'], tests: ['kernels-long', 'kernels-structured'] },
  'quant-blocks.h': { tests: ['kernels-quantized'] },
  'candle/quantized.hip': { tests: ['kernels-quantized'] },
  'candle/mmvq_gguf.hip': { tests: ['kernels-quantized'] },
  'quotient.h': { ops: ['resampled', 'maxPool2d', 'gridSampled'], tests: ['resampled'] },
  'quant-vectors.h': { tests: ['kernels-quantized'] },
  'random.hip': { ops: ['randUniform', 'randNormal'], tests: ['kernels-conversions'] },
  'reduce.hip': {
    ops: ['sum', 'max', 'argmax', 'prod'],
    tests: ['kernels-structured'],
  },
  'resample.hip': {
    ops: ['upsampleNearest2d', 'upsampleBilinear2d', 'resampled'],
    tests: ['kernels-structured', 'kernels-structured-golden', 'resampled'],
  },
  'rope.hip': { ops: ['rope', 'ropeI', 'ropeThd'], tests: ['kernels-structured'] },
  'scan.hip': { ops: ['cumsum'], tests: ['kernels-structured'] },
  'settle.h': { ops: ['bmm'], tests: ['kernels-quantized'] },
  'softmax.hip': {
    ops: ['softmax', 'logSoftmax', 'softmaxBackward'],
    tests: ['kernels-structured', 'kernels-structured-golden'],
  },
  'sort-key.h': { ops: ['argsort'], tests: ['kernels-structured', 'kernels-structured-golden'] },
  'search.hip': { ops: ['searchsorted'], tests: ['tiles: sorted'] },
  'sort.hip': {
    ops: ['argsort', 'argTop', 'topk'],
    tests: ['kernels-long', 'kernels-structured', 'kernels-structured-golden'],
  },
  'radix.h': { ops: ['argsort'], tests: ['kernels-structured'] },
  'radix.hip': { ops: ['argsort', 'unique'], tests: ['kernels-structured', 'tiles: keys'] },
  'choose.hip': {
    ops: ['argTop', 'argRank', 'topk'],
    tests: ['kernels-structured', 'tiles: (larg|small)est', 'tiles: chosen'],
  },
  'stream.h': { ops: ['sum', 'softmax', 'layerNorm', 'rmsNorm'], tests: ['kernels-structured'] },
  'candle/ternary.hip': { tests: ['kernels-golden'] },
  'tile.h': { ops: ['bmm', 'matmul', 'conv2d'], tests: ['kernels-structured'] },
  'candle/unary.hip': { tests: ['kernels-golden'] },
  'training.hip': { tests: ['training-passes'] },
  'weight-matrix.h': { ops: ['qmatmul'], tests: ['quantized'] },
  'rounded.h': { ops: ['qmatmul'], tests: ['quantized'] },
  'weight-rows.h': { ops: ['qmatmul'], tests: ['quantized'] },
  'weight-stream.h': { ops: ['qmatmul'], tests: ['quantized'] },
  'weight-units.h': { ops: ['qmatmul'], tests: ['quantized'] },
  'weights.hip': { ops: ['dequantize', 'qrows', 'qmatmul', 'qmatmulExperts', 'f8matmul'], tests: ['quantized'] },
};
/**
 * Files for one GPU alone, as their names or first lines say: the simulation cannot run them, so the runs on that GPU
 * speak for them.
 */
const forOneGpu = (file: string): boolean =>
  file.includes('hopper') || /ompiled for sm_\w+/.test(readFileSync(join(kernelsDir, file), 'utf8'));
const kernelFiles = (): string[] =>
  readdirSync(kernelsDir, { recursive: true, encoding: 'utf8' })
    .filter((f) => /\.(hip|h)$/.test(f))
    .sort();
function guardOf(file: string): Guard | undefined {
  if (Object.hasOwn(GUARDS, file)) return GUARDS[file];
  const ops = opList.filter((r) => `${r.family}.hip` === file).map((r) => r.name);
  return ops.length > 0 && !forOneGpu(file) ? { ops } : undefined;
}
/** Files that nothing speaks for: a run says so and fails. */
export const unguarded = (): string[] => kernelFiles().filter((f) => !guardOf(f) && !forOneGpu(f));

/** At most `most` places, spread over all of them, so that a rule does not spend itself on one function. */
function spread<T>(all: readonly T[], most: number): T[] {
  if (all.length <= most) return [...all];
  return Array.from({ length: most }, (_, i) => all[Math.floor((i * all.length) / most)]);
}

/**
 * Whether the simulation compiles a branch: a condition that asks for a vendor is false there, one that asks for the
 * host is true, any other may be.
 */
const ofSim = (condition: string): boolean | undefined =>
  /WICK_(NVIDIA|AMD)|__HIP|__CUDA|__AMDGCN|__gfx|MATRIX_(MMA|WMMA|MFMA)|__clang__/.test(condition)
    ? false
    : /WICK_(SIM|HOST)/.test(condition)
      ? true
      : undefined;
/** By line: whether the simulation may compile it. */
function linesOfSim(text: string): boolean[] {
  const stack: { active: boolean; taken: boolean }[] = [];
  return text.split('\n').map((line) => {
    const [, word, condition = ''] = /^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)/.exec(line) ?? [];
    const top = stack.at(-1);
    if (word === 'endif') stack.pop();
    else if (word === 'else' && top) top.active = !top.taken;
    else if (word !== undefined) {
      const answer = ofSim(condition);
      const holds = word === 'ifndef' ? (answer === undefined ? undefined : !answer) : answer;
      const before = word === 'elif' && top ? top.taken : false;
      const next = { active: !before && holds !== false, taken: before || holds === true };
      if (word === 'elif' && top) Object.assign(top, next);
      else stack.push(next);
    }
    return stack.every((b) => b.active);
  });
}

/** The modules that a file is, or is included by, directly or not. */
function modulesOf(file: string): string[] {
  if (file.endsWith('.hip')) return [file.slice(0, -4)];
  const includers = kernelFiles().filter((f) =>
    readFileSync(join(kernelsDir, f), 'utf8').includes(`#include "${file}"`),
  );
  return [...new Set(includers.flatMap(modulesOf))].sort();
}

/** The function, struct or macro that holds a line: from the last line that begins one to the one that ends it. */
function partAround(text: string, line: number): string {
  const lines = text.split('\n');
  const begins = (l: string): boolean => /^(#define\b|[^\s#}/])/.test(l);
  let from = line;
  while (from > 0 && !begins(lines[from])) from--;
  // A template's head may stand on a line of its own.
  while (from > 0 && begins(lines[from - 1]) && lines[from - 1].startsWith('template')) from--;
  const ends = (i: number): boolean =>
    lines[from].startsWith('#define')
      ? !lines[i].endsWith('\\')
      : lines[i].startsWith('}') || (i === line && begins(lines[i]) && /[;}]$/.test(lines[i]));
  let to = line;
  while (to < lines.length - 1 && !ends(to)) to++;
  return lines.slice(from, to + 1).join('\n');
}

function ofFile(file: string, perRule: number): Mutant[] {
  const text = readFileSync(join(kernelsDir, file), 'utf8');
  const guard = guardOf(file) ?? {};
  const active = linesOfSim(text);
  const comments = [...text.matchAll(/\/\*[\s\S]*?\*\//g)].map((c) => [c.index, c.index + c[0].length] as const);
  const lineOf = (at: number): number => text.slice(0, at).split('\n').length;
  return RULES.flatMap((rule) => {
    const places = [...text.matchAll(rule.find)].filter(
      (m) =>
        !text.slice(text.lastIndexOf('\n', m.index) + 1, m.index).includes('//') &&
        active[lineOf(m.index) - 1] &&
        !comments.some(([from, to]) => m.index >= from && m.index < to),
    );
    return spread(places, perRule).map((m) => {
      const changed =
        text.slice(0, m.index) +
        m[0].replace(new RegExp(rule.find.source), rule.put) +
        text.slice(m.index + m[0].length);
      const line = lineOf(m.index);
      return {
        name: `kernels/${file}:${line} ${rule.what}`,
        file,
        text: changed,
        line: text.split('\n')[line - 1].trim(),
        part: partAround(changed, line - 1),
        ops: guard.ops ?? [],
        tests: guard.tests ?? [],
        modules: modulesOf(file),
      };
    });
  });
}

const SWAPS: readonly (readonly [RegExp, string, string])[] = [
  [/ \+ /, ' - ', '+ becomes -'],
  [/ \* /, ' + ', '* becomes +'],
  [/ \/ /, ' * ', '/ becomes *'],
  [/ < /, ' > ', '< becomes >'],
  [/ > /, ' < ', '> becomes <'],
  [/ == /, ' != ', '== becomes !='],
  [/\bmaxg\b/, 'ming', 'max becomes min'],
  [/\bming\b/, 'maxg', 'min becomes max'],
  [/\bsing\b/, 'cosg', 'sin becomes cos'],
  [/^-x$/, 'x', 'the sign is lost'],
];
function ofExpression(row: ElementwiseRow<any>): Mutant[] {
  const swap = SWAPS.find(([find]) => find.test(row.kernel));
  const text = swap && row.kernel.replace(swap[0], swap[1]);
  return swap && text
    ? [
        {
          name: `expression of ${row.name}: ${swap[2]}`,
          text,
          line: row.kernel,
          part: text,
          ops: [row.name],
          tests: [],
          modules: ['elementwise'],
        },
      ]
    : [];
}

const byTurns = <T>(lists: readonly (readonly T[])[]): T[] =>
  Array.from({ length: Math.max(...lists.map((l) => l.length)) }, (_, i) =>
    lists.flatMap((l) => (i < l.length ? [l[i]] : [])),
  ).flat();

/** Survivors that no result can tell apart, with the reason: by file, rule and the very line that is changed. */
interface Equivalent {
  readonly mutant: string;
  readonly line: string;
  readonly reason: string;
}
const EQUIVALENT = JSON.parse(
  readFileSync(join(packageRoot, 'scripts', 'mutants-equivalent.json'), 'utf8'),
) as readonly Equivalent[];
export const equivalence = (m: Pick<Mutant, 'name' | 'line'>): string | undefined =>
  EQUIVALENT.find((e) => e.mutant === m.name.replace(/:\d+/, '') && e.line === m.line)?.reason;

export function allMutants(perRule: number): Mutant[] {
  const files = kernelFiles().filter((f) => guardOf(f));
  // By turns, so that a run cut short has been everywhere.
  return byTurns([...files.map((f) => ofFile(f, perRule)), elementwiseRows.flatMap(ofExpression)]);
}
