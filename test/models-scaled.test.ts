// Folders whose weights are kept in 8 bits with scales beside them: the logits of the same weights in floats, and
// refusals of what is not read.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Generator, noGrad, rand, type Tensor, tensor } from '../src/index.js';
import { saveTensors } from '../src/io/index.js';
import { type CausalLM, Llama, type LlamaConfig, llamaJson, loadModel } from '../src/models/index.js';
import { VarBuilder, VarMap } from '../src/nn/index.js';

const TINY: LlamaConfig = {
  ...{ vocabSize: 40, hiddenSize: 48, intermediateSize: 80, layers: 2, heads: 3, kvHeads: 1, headDim: 16 },
  ...{ maxPositions: 32, normEps: 1e-5, ropeTheta: 10_000, tiedEmbeddings: false, eosTokenIds: [] },
};
const BLOCK = [32, 16] as const;
type Kind = 'tensor' | 'row' | 'block';

/** Scales of a matrix, as they are stored and spread over its elements. */
function scalesOf(kind: Kind, [rows, columns]: readonly number[], seed: number): { stored: Tensor; spread: Tensor } {
  const [down, across] = { tensor: [1, 1], row: [rows, 1], block: [Math.ceil(rows / 32), Math.ceil(columns / 16)] }[
    kind
  ];
  const stored = rand([down, across], { seed }).affine(0.002, 0.001);
  const [h, w] = kind === 'block' ? BLOCK : [rows / down, columns];
  const spread = stored
    .reshape([down, 1, across, 1])
    .broadcastTo([down, h, across, w])
    .reshape([down * h, across * w])
    .narrow(0, 0, rows)
    .narrow(1, 0, columns);
  return { stored: kind === 'tensor' ? stored.reshape([1]) : stored, spread };
}

/** A folder with scales, and one with the same weights in floats. */
function folders(kind: Kind, suffix: string, quantization: object): { kept: string; plain: string } {
  const vb = VarBuilder.fromVarMap(new VarMap(), { generator: new Generator(5) });
  const model = new Llama(TINY, vb);
  const [kept, plain] = [0, 1].map(() => mkdtempSync(join(tmpdir(), 'wick-scaled-')));
  const [small, floats] = [new Map<string, Tensor>(), new Map<string, Tensor>()];
  let seed = 1;
  for (const [name, t] of model.hfTensors()) {
    const w = t.detach().contiguous();
    if (!/_proj\.weight$/.test(name)) {
      small.set(name, w);
      floats.set(name, w);
      continue;
    }
    const { stored, spread } = scalesOf(kind, w.shape, seed++);
    const eight = w.div(spread).cast('f8e4m3');
    small.set(name, eight).set(`${name}${suffix}`, stored.contiguous());
    floats.set(name, eight.cast('f32').mul(spread).contiguous());
  }
  saveTensors(join(kept, 'model.safetensors'), small);
  saveTensors(join(plain, 'model.safetensors'), floats);
  const json = llamaJson(TINY, 'f32');
  writeFileSync(join(kept, 'config.json'), JSON.stringify({ ...json, quantization_config: quantization }));
  writeFileSync(join(plain, 'config.json'), JSON.stringify(json));
  return { kept, plain };
}

const group = (strategy: string): object => ({
  group_0: { targets: ['Linear'], weights: { num_bits: 8, type: 'float', symmetric: true, strategy } },
});
const CASES: readonly (readonly [string, Kind, string, object])[] = [
  ['fp8 in blocks', 'block', '_scale_inv', { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: BLOCK }],
  ['fbgemm_fp8 by row', 'row', '_scale', { quant_method: 'fbgemm_fp8', activation_scale_ub: 1200 }],
  [
    'compressed-tensors by tensor',
    'tensor',
    '_scale',
    {
      quant_method: 'compressed-tensors',
      format: 'float-quantized',
      config_groups: group('tensor'),
      ignore: ['lm_head'],
    },
  ],
];
for (const [name, kind, suffix, quantization] of CASES) {
  test(`${name}: logits are those of the weights times their scales`, () => {
    const { kept, plain } = folders(kind, suffix, quantization);
    try {
      const ids = tensor(Int32Array.of(3, 1, 4, 1, 5, 9, 2, 6), { shape: [1, 8] });
      const [a, b] = [kept, plain].map((dir) => noGrad(() => loadModel<CausalLM>(dir).model.forward(ids)));
      const off = a.sub(b).abs().max().item();
      assert.ok(off <= 1e-6 * b.abs().max().item(), `${off}`);
    } finally {
      for (const dir of [kept, plain]) rmSync(dir, { recursive: true });
    }
  });
}

test('what is kept in another way is refused by name', () => {
  const refused = (quantization: object, says: RegExp, kind: Kind = 'row'): void => {
    const { kept, plain } = folders(kind, '_scale', quantization);
    try {
      assert.throws(() => loadModel(kept), says);
    } finally {
      for (const dir of [kept, plain]) rmSync(dir, { recursive: true });
    }
  };
  refused({ quant_method: 'gptq', bits: 4 }, /quant_method is "gptq"; weights of fp8, fbgemm_fp8, compressed-tensors/);
  refused({ quant_method: 'mxfp4' }, /quant_method is "mxfp4"/);
  refused({ quant_method: 'fbgemm_fp8', rotation: 'hadamard' }, /quantization_config\.rotation is "hadamard"/);
  refused({ quant_method: 'compressed-tensors', format: 'nvfp4-pack-quantized' }, /format is "nvfp4-pack-quantized"/);
  refused({ quant_method: 'fp8', fmt: 'e4m3' }, /there are no scales model\.layers\.0\.\S+_scale_inv/);
  refused({ quant_method: 'fbgemm_fp8' }, /scales \[\d+, \d+\] fit no weights of/, 'block');
});
