// What a weak proof would let through: changed kernels, enumerated by rule from the kernel files and the op table's expressions.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { kernelsDir } from '../src/kernels/source.js';
import type { ElementwiseRow } from '../src/ops/op.js';
import { elementwiseRows } from '../src/ops/table.js';

export interface Mutant {
  /** 'kernels/reduce.hip:120 barrier dropped', 'expression of silu: / becomes *'. */
  readonly name: string;
  /** The kernel file, or the expression's own text, that is changed. */
  readonly file?: string;
  readonly expression?: string;
  readonly text: string;
  /** What must notice: ops run on the simulation, then test files. */
  readonly ops: readonly string[];
  readonly tests: readonly string[];
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

/** Who speaks for a file. */
const GUARDS: Readonly<Record<string, { ops?: readonly string[]; tests?: readonly string[] }>> = {
  'reduce.hip': { ops: ['sum', 'max', 'argmax', 'prod'], tests: ['kernels-structured-golden'] },
  'softmax.hip': { ops: ['softmax', 'logSoftmax', 'softmaxBackward'], tests: ['kernels-structured-golden'] },
  'norm.hip': { ops: ['layerNorm', 'rmsNorm', 'layerNormBackward', 'rmsNormBackward'], tests: ['kernels-structured-golden'] },
  'rope.hip': { ops: ['rope', 'ropeI', 'ropeThd'], tests: ['kernels-structured-golden'] },
  'indexing.hip': { ops: ['gather', 'indexSelect', 'indexAdd', 'scatter', 'scatterAdd', 'sliceScatter'], tests: ['kernels-structured-golden'] },
  'gemm.hip': { ops: ['bmm', 'matmul'], tests: ['kernels-structured'] },
  'conv.hip': { ops: ['conv1d', 'conv2d', 'convTranspose1d', 'convTranspose2d', 'avgPool2d', 'maxPool2d', 'upsampleNearest2d', 'upsampleBilinear2d'], tests: ['kernels-structured-golden'] },
  'sort.hip': { ops: ['argsort', 'topk'], tests: ['kernels-structured', 'kernels-structured-golden'] },
  'scan.hip': { ops: ['cumsum'], tests: ['kernels-structured'] },
  'transpose.hip': { ops: ['copy', 'cat'], tests: ['kernels-structured'] },
  'elementwise.hip': { ops: ['add', 'exp', 'where', 'castTo', 'affine'], tests: ['kernels-elementwise'] },
  'random.hip': { ops: ['randUniform', 'randNormal'], tests: ['kernels-conversions'] },
  'attention.hip': { ops: ['sdpa', 'sdpaRun'], tests: [] },
  'attention-backward.hip': { ops: ['sdpaGrad', 'sdpaDelta'], tests: [] },
  'quantized.hip': { tests: ['kernels-quantized'] },
  'block.h': { ops: ['sum', 'max', 'argmax', 'softmax', 'layerNorm'], tests: ['kernels-structured'] },
};

/** At most `most` places, spread over all of them, so that a rule does not spend itself on one function. */
function spread<T>(all: readonly T[], most: number): T[] {
  if (all.length <= most) return [...all];
  return Array.from({ length: most }, (_, i) => all[Math.floor((i * all.length) / most)]);
}

function ofFile(file: string, perRule: number): Mutant[] {
  const text = readFileSync(join(kernelsDir, file), 'utf8');
  const guard = GUARDS[file];
  return RULES.flatMap((rule) => {
    const places = [...text.matchAll(rule.find)].filter((m) => !text.slice(text.lastIndexOf('\n', m.index) + 1, m.index).includes('//'));
    return spread(places, perRule).map((m) => ({
      name: `kernels/${file}:${text.slice(0, m.index).split('\n').length} ${rule.what}`, file,
      text: text.slice(0, m.index) + m[0].replace(new RegExp(rule.find.source), rule.put) + text.slice(m.index + m[0].length),
      ops: guard.ops ?? [], tests: guard.tests ?? [],
    }));
  });
}

const SWAPS: readonly (readonly [RegExp, string, string])[] = [
  [/ \+ /, ' - ', '+ becomes -'], [/ \* /, ' + ', '* becomes +'], [/ \/ /, ' * ', '/ becomes *'], [/ < /, ' > ', '< becomes >'], [/ > /, ' < ', '> becomes <'],
  [/ == /, ' != ', '== becomes !='], [/\bmaxg\b/, 'ming', 'max becomes min'], [/\bming\b/, 'maxg', 'min becomes max'], [/\bsing\b/, 'cosg', 'sin becomes cos'], [/^-x$/, 'x', 'the sign is lost'],
];
function ofExpression(row: ElementwiseRow<any>): Mutant[] {
  const swap = SWAPS.find(([find]) => find.test(row.gpu));
  return swap ? [{ name: `expression of ${row.name}: ${swap[2]}`, expression: row.gpu, text: row.gpu.replace(swap[0], swap[1]), ops: [row.name], tests: [] }] : [];
}

export function allMutants(perRule: number): Mutant[] {
  const files = readdirSync(kernelsDir).filter((f) => Object.hasOwn(GUARDS, f)).sort();
  return [...files.flatMap((f) => ofFile(f, perRule)), ...elementwiseRows.flatMap(ofExpression)];
}
