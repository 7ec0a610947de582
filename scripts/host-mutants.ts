// Changed TypeScript: launch code, library glue, gradient rules, file formats and the engine, by rule from what the
// compiler made of them.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../src/base/paths.js';
import { opList } from '../src/ops/table.js';

/** One question to the suite: a test file, with the cases and devices of the matrix where it is that. */
export interface Question {
  readonly test: string;
  readonly cases?: string;
  readonly devices?: string;
  /** Some cases of each op only. */
  readonly sample?: number;
  /** Of the tests of kernels, those of this module. */
  readonly module?: string;
}
export interface HostMutant {
  readonly name: string;
  readonly area: Area;
  /** The file that is changed, from the package's folder, and its changed text. */
  readonly path: string;
  readonly text: string;
  readonly line: string;
  readonly part: string;
  readonly questions: readonly Question[];
}
export const AREAS = ['kernels', 'host launch code', 'library glue', 'autograd', 'io', 'engine'] as const;
export type Area = (typeof AREAS)[number];

interface Rule {
  readonly what: string;
  readonly find: RegExp;
  readonly put: string;
}
/** Mistakes a person makes; each is looked for in the compiled text, whose lines are the source's without types. */
const RULES: readonly Rule[] = [
  { what: 'two exchanged', find: /\[(\w+(?:\.\w+)?), (\w+(?:\.\w+)?)\](?! =)(?=[;,)])/g, put: '[$2, $1]' },
  { what: 'product becomes sum', find: /(\w+(?:\.\w+|\[\w+\])*) \* (\w+)/g, put: '$1 + $2' },
  { what: 'one too many', find: /(\w+(?:\.\w+)*) - 1\b/g, put: '$1' },
  { what: 'bound off by one', find: /if \((\w+(?:\.\w+)*) < (\w+(?:\.\w+)*)/g, put: 'if ($1 <= $2' },
  { what: 'equality turned', find: /(?<!typeof \w+ )=== ('\w+'|\d+|true)/g, put: '!== $1' },
  { what: 'and becomes or', find: / && (?=[\w!(])/g, put: ' || ' },
  { what: 'branches exchanged', find: / \? (\w+(?:\.\w+)*|\d+) : (\w+(?:\.\w+)*|\d+)(?=[;,)\]])/g, put: ' ? $2 : $1' },
  { what: 'largest becomes smallest', find: /Math\.max\(/g, put: 'Math.min(' },
  { what: 'rounded the other way', find: /Math\.(?:ceil)\(/g, put: 'Math.floor(' },
];

/** Who speaks for a file: the first that fails ends the questioning. */
type Guard = readonly Question[];
const tests = (...names: string[]): Guard => names.map((test) => ({ test }));
const part = (cases: string, devices = 'sim:32'): Question => ({ test: 'matrix', cases, devices, sample: 12 });
const launches = (cases: string): Question => ({ test: 'launches', cases });
const matrix = (cases: string, devices = 'sim:32'): Question => ({ test: 'matrix', cases, devices });
/** What the stateful side of GPU work does about time and trouble. */
const STATE = 'streams,uploads,reads,copies,recordings,failures,plans';
/** Tests of single files of generation on GPUs. */
const OWN_TEST: Readonly<Record<string, string>> = { 'run-plan': 'attention-library', sample: 'engine-draws' };
/**
 * What plans launch, which costs seconds; a few cases of each op, which notice most and cost a tenth; kernels by name
 * with long rows; then all cases.
 */
const asked = (cases: string, module: string): Guard => [
  launches(cases),
  part(cases),
  { test: 'kernels-structured', module },
  matrix(cases),
];
const GLUE = tests('stand-ins', 'driver-libraries');
/** Calls of drivers, each of which can fail, and the bytes of arguments. */
const DRIVERS = tests('driver-fake', 'driver-args');
const GUARDS: Readonly<Partial<Record<Area, Readonly<Record<string, Guard>>>>> = {
  'library glue': {
    ...Object.fromEntries(
      [
        'blas',
        'lt',
        'cublaslt',
        'hipblaslt',
        'rocblas',
        'workspace',
        'dnn',
        'cudnn',
        'cudnn-convolution',
        'miopen',
      ].map((f) => [`src/driver/${f}`, GLUE]),
    ),
    ...Object.fromEntries(
      ['cudnn-graph', 'cudnn-nodes', 'cudnn-attention', 'attention'].map((f) => [
        `src/driver/${f}`,
        tests('stand-ins', 'attention-library'),
      ]),
    ),
    ...Object.fromEntries(
      ['vendor', 'cuda', 'hip', 'checked-calls', 'args', 'cuda-version'].map((f) => [`src/driver/${f}`, DRIVERS]),
    ),
  },
  'host launch code': {
    'src/backends/gpu/matmul': [
      ...asked('bmm/f32,bmm/f64,matmul/f32,matmul/f64', 'gemm'),
      part('bmm,matmul', 'sim:32+cublaslt'),
      matrix('bmm/f32', 'sim:32+cublaslt'),
      ...tests('stand-ins'),
    ],
    'src/backends/gpu/conv': [
      ...asked('conv', 'conv'),
      part('conv', 'sim:32+cudnn'),
      ...tests('launch-conv', 'conv-gradients'),
    ],
    'src/backends/gpu/pool': asked('avgPool,maxPool', 'pool'),
    'src/backends/gpu/resample': asked('upsample', 'resample'),
    'src/backends/gpu/softmax': asked('softmax,logSoftmax', 'softmax'),
    'src/backends/gpu/norm': asked('layerNorm,rmsNorm', 'norm'),
    'src/backends/gpu/rope': asked('rope', 'rope'),
    'src/backends/gpu/scan': asked('cumsum', 'scan'),
    'src/backends/gpu/row-shapes': asked('softmax,layerNorm,sum', 'softmax'),
    'src/backends/gpu/reduce': asked('sum,max,min,argmax,prod,mean', 'reduce'),
    'src/backends/gpu/indexing': [
      ...asked('gather,index,storeRows', 'indexing'),
      ...tests('gather-long', 'trust-indices'),
    ],
    'src/backends/gpu/scatter': [...asked('scatter,indexAdd', 'scatter'), ...tests('scatter-long', 'trust-indices')],
    'src/backends/gpu/extremes': [...asked('scatterExtreme', 'extremes'), ...tests('scatter-long')],
    'src/backends/gpu/sort': [...asked('sort,argsort', 'sort'), ...tests('tiles')],
    'src/backends/gpu/radix': [...asked('sort,argsort', 'radix'), ...tests('tiles')],
    'src/backends/gpu/choose': [...asked('argTop,argRank,topk', 'choose'), ...tests('tiles')],
    ...Object.fromEntries(
      Object.entries({ pick: 'flag', count: 'count', search: 'searchsorted', distance: 'rowDistances' }).map(
        ([f, cases]) => [`src/backends/gpu/${f}`, [launches(cases), part(cases), ...tests('tiles'), matrix(cases)]],
      ),
    ),
    ...Object.fromEntries(
      ['fourier', 'fourier-steps', 'fourier-tables'].map((f) => [
        `src/backends/gpu/${f}`,
        [launches('dft'), part('dft'), ...tests('fourier'), matrix('dft')],
      ]),
    ),
    'src/backends/gpu/movement': [
      launches('copy,cat,place,new,castTo'),
      part('copy,cat,place,new,castTo'),
      matrix('copy,cat,place,new,castTo'),
    ],
    'src/backends/gpu/elementwise': [
      launches('elementwise,castTo'),
      part('add,exp,where,castTo,affine,powf'),
      ...tests('fuse', 'kernels-elementwise'),
      matrix('add,exp,where,castTo,affine,powf'),
    ],
    'src/kernels/elementwise': tests('kernels-elementwise', 'fuse', 'waiting'),
    'src/tensor/fuse': tests('fuse'),
    ...Object.fromEntries(['waiting', 'composing'].map((f) => [`src/tensor/${f}`, tests('waiting')])),
    'src/backends/gpu/attention': [launches('sdpa'), part('sdpa'), ...tests('attention-grid'), matrix('sdpa')],
    ...Object.fromEntries(
      Object.entries({
        'decode,decode-experts,decode-few,decode-latent,decode-sample,decode-tiles': 'decoding',
        'sample,attention-prompts,side-stream,uploads,run-plan,context': `decoding,drawing,prompts,${STATE}`,
        'grouped,experts': 'matmulExperts',
        quantized: 'qmatmul,dequantize,q8Blocks,qrows,f8matmul,decoding',
      }).flatMap(([files, cases]) =>
        files
          .split(',')
          .map((f) => [
            `src/backends/gpu/${f}`,
            [launches(cases), ...tests(OWN_TEST[f] ?? 'decode-limits', 'engine-decode', 'engine-few')],
          ]),
      ),
    ),
    'src/backends/gpu/allocator': [launches(STATE), ...tests('gpu-memory', 'leaks', 'sim-driver')],
    ...Object.fromEntries(
      ['gpu', 'touched'].map((f) => [
        `src/backends/gpu/${f}`,
        [launches(STATE), ...tests('gpu-memory', 'captured', 'devices')],
      ]),
    ),
    'src/backends/gpu/random': [launches('rand'), ...tests('random-ops')],
    'src/backends/gpu/training': [
      launches('adam,classLosses,crossEntropyLoss,classSlopes,nllLoss,swigluGrad,squareSums'),
      ...tests('training-passes', 'train'),
    ],
    'src/backends/gpu/attention-kernels': [launches('sdpa'), part('sdpa'), ...tests('attention-grid'), matrix('sdpa')],
  },
  io: {
    'src/io/safetensors': tests('io-safetensors', 'io-load'),
    'src/io/safetensors-header': tests('io-safetensors', 'io-load'),
    'src/io/npy': tests('io-npy', 'io-bombs'),
    'src/io/gguf': tests('io-gguf', 'io-bombs'),
    'src/io/gguf-value': tests('io-gguf', 'io-bombs'),
    'src/io/gguf-write': tests('io-gguf', 'cli-quantize'),
    'src/io/pickle': tests('io-torch', 'io-bombs'),
    'src/io/torch': tests('io-torch', 'io-bombs'),
    'src/io/torch-types': tests('io-torch', 'io-bombs'),
    'src/io/torch-flatten': tests('io-torch', 'io-bombs'),
    'src/io/zip': tests('io-torch', 'io-npy'),
    'src/io/tar': tests('io-torch'),
    'src/io/strided': tests('io-torch', 'io-npy'),
    'src/io/byte-source': tests('io-safetensors', 'io-gguf', 'io-npy'),
    'src/io/stored-dtype': tests('io-safetensors', 'io-npy', 'io-torch'),
    'src/io/load': tests('io-load'),
  },
  engine: {
    ...Object.fromEntries(
      ['scheduler', 'pages', 'sequence'].map((f) => [`src/engine/${f}`, tests('engine-pages', 'engine-requests')]),
    ),
    'src/engine/sampler': tests('engine-text', 'engine-decode'),
    'src/engine/bpe': tests('engine-text'),
    'src/engine/tokenizer': tests('engine-text'),
    'src/engine/decoder': tests('engine-text', 'engine-decode'),
    'src/engine/steps/graph-decoder': tests('engine-decode'),
    'src/engine/language-model': tests('engine-text', 'engine-decode'),
    'src/engine/lone-answers': tests('engine-text', 'engine-decode'),
    'src/nn/kv-cache': tests('engine-text', 'nn-layers', 'models-llama'),
  },
};

/** At most `most` places, spread over all of them. */
const spread = <T>(all: readonly T[], most: number): T[] =>
  all.length <= most
    ? [...all]
    : Array.from({ length: most }, (_, i) => all[Math.floor(((2 * i + 1) * all.length) / (2 * most))]);

/** Text that is shown to people or never runs: imports, errors, descriptions, comments. */
const idle = (line: string): boolean =>
  /^\s*(import|export \{|\/\/|\*|\/\*)|throw |Error\(|\.fail\(|bad\(|description|console\.|`[^`]*\$\{/.test(line);

function ofFile(area: Area, source: string, questions: Guard, perRule: number): HostMutant[] {
  const path = `dist/${source}.js`;
  if (!existsSync(join(packageRoot, path))) return [];
  const text = readFileSync(join(packageRoot, path), 'utf8');
  const lines = text.split('\n');
  return RULES.flatMap((rule) => {
    const places = [...text.matchAll(rule.find)].filter((m) => {
      const line = lines[text.slice(0, m.index).split('\n').length - 1];
      return !idle(line);
    });
    return spread(places, perRule).map((m): HostMutant => {
      const changed =
        text.slice(0, m.index) +
        rule.put.replace(/\$(\d)/g, (_, k: string) => m[Number(k)]) +
        text.slice(m.index + m[0].length);
      const at = text.slice(0, m.index).split('\n').length - 1;
      return {
        name: `${source}.ts:${at + 1} ${rule.what}`,
        area,
        path,
        text: changed,
        line: lines[at].trim(),
        part: changed
          .split('\n')
          .slice(Math.max(0, at - 2), at + 3)
          .join('\n'),
        questions,
      };
    });
  });
}

/** What is done to a gradient rule: every third row gets the same. */
const GRADIENTS = [
  ['its sign is turned', '(t) => t.neg()', 'first'],
  ['it is a ten-thousandth too large', '(t) => t.mul(1.0001)', 'first'],
  ['it is lost for the last input', '() => undefined', 'last'],
] as const;
function gradientMutants(): HostMutant[] {
  const path = 'dist/src/ops/table.js';
  const text = readFileSync(join(packageRoot, path), 'utf8');
  const guarded = opList.filter((r) => 'grad' in r && r.grad && !r.noGrad && r.dtypes.includes('f64'));
  return guarded.map((row, i): HostMutant => {
    const [what, change, which] = GRADIENTS[i % GRADIENTS.length];
    const wrapped = `{ const grad = OPS.${row.name}.grad; const change = ${change};
  OPS.${row.name}.grad = (ctx) => { const g = [...grad(ctx)]; const at = g.map((t) => t !== undefined);
    const i = at.${which === 'first' ? 'indexOf' : 'lastIndexOf'}(true); if (i >= 0) g[i] = change(g[i]); return g; }; }`;
    return {
      name: `gradient of ${row.name}: ${what}`,
      area: 'autograd',
      path,
      text: `${text}\n${wrapped}\n`,
      line: row.name,
      part: wrapped,
      questions: [{ test: 'gradients', cases: `${row.name}/`, devices: 'reference' }, ...tests('golden-torch')],
    };
  });
}
/** The machinery under the rules. */
const AUTOGRAD: Guard = [{ test: 'gradients', cases: 's', devices: 'reference' }, ...tests('properties', 'leaks')];

export function hostMutants(perRule: number): HostMutant[] {
  const byFile = Object.entries(GUARDS).flatMap(([area, files]) =>
    Object.entries(files).flatMap(([source, guard]) =>
      ofFile(area as Area, source, guard, perRule * (area === 'library glue' ? 2 : 1)),
    ),
  );
  const machinery = ['autograd', 'backward'].flatMap((f) => ofFile('autograd', `src/tensor/${f}`, AUTOGRAD, perRule));
  return [...byFile, ...machinery, ...gradientMutants()];
}
