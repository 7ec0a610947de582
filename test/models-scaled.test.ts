// Folders whose weights are kept in 8 bits with scales beside them: the logits of the same weights in floats, and
// refusals of what is not read.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { DTYPE } from '../src/base/dtype.js';
import { Generator, noGrad, type Tensor, tensor } from '../src/index.js';
import { saveTensors } from '../src/io/index.js';
import { type CausalLM, Llama, type LlamaConfig, llamaJson, loadModel } from '../src/models/index.js';
import { VarBuilder, VarMap } from '../src/nn/index.js';
import { missingGolden } from '../src/parity/golden.js';
import { float4Experts, float8Mixture, type Folders, type Kind, scalesOf } from './scaled-support.js';

const TINY: LlamaConfig = {
  ...{ vocabSize: 40, hiddenSize: 48, intermediateSize: 80, layers: 2, heads: 3, kvHeads: 1, headDim: 16 },
  ...{ maxPositions: 32, normEps: 1e-5, ropeTheta: 10_000, tiedEmbeddings: false, eosTokenIds: [] },
};
/** Rows of whole groups of 128, as released models have them. */
const WIDE: LlamaConfig = { ...TINY, hiddenSize: 128, intermediateSize: 256, headDim: 64, heads: 2 };

/** A folder with scales, and one with the same weights in floats. */
function folders(
  kind: Kind,
  suffix: string,
  quantization: { weight_block_size?: readonly number[] },
  config = TINY,
): Folders {
  const vb = VarBuilder.fromVarMap(new VarMap(), { generator: new Generator(5) });
  const model = new Llama(config, vb);
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
    const { stored, spread } = scalesOf(kind, w.shape, seed++, quantization.weight_block_size ?? [32, 16]);
    const eight = w.div(spread).cast('f8e4m3');
    small.set(name, eight).set(`${name}${suffix}`, stored.contiguous());
    floats.set(name, eight.cast('f32').mul(spread).contiguous());
  }
  saveTensors(join(kept, 'model.safetensors'), small);
  saveTensors(join(plain, 'model.safetensors'), floats);
  const json = llamaJson(config, 'f32');
  writeFileSync(join(kept, 'config.json'), JSON.stringify({ ...json, quantization_config: quantization }));
  writeFileSync(join(plain, 'config.json'), JSON.stringify(json));
  return { kept, plain };
}

const group = (strategy: string): object => ({
  group_0: { targets: ['Linear'], weights: { num_bits: 8, type: 'float', symmetric: true, strategy } },
});
const CASES: readonly (readonly [string, Kind, string, object])[] = [
  ['fp8 in blocks', 'block', '_scale_inv', { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [32, 16] }],
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

for (const [name, kind, suffix, given] of CASES)
  test(`${name}, rows of whole groups: the weights stay 8-bit floats, with the logits of the floats`, () => {
    const quantization = kind === 'block' ? { ...given, weight_block_size: [128, 128] } : given;
    const { kept, plain } = folders(kind, suffix, quantization, WIDE);
    try {
      const ids = tensor(Int32Array.of(3, 1, 4, 1, 5, 9, 2, 6), { shape: [1, 8] });
      const [a, b, decoded] = [
        loadModel<CausalLM>(kept).model,
        loadModel<CausalLM>(plain).model,
        loadModel<CausalLM>(kept, { quantized: false }).model,
      ];
      const [got, want, floats] = [a, b, decoded].map((m) => noGrad(() => m.forward(ids)));
      const off = (t: Tensor): number => t.sub(want).abs().max().item() / want.abs().max().item();
      assert.ok(off(got) <= 2e-6 && off(floats) <= 2e-6, `${off(got)} ${off(floats)}`);
      const weights = (m: CausalLM): [string, Tensor][] => [...m.stateDict()].filter(([k]) => /mixer|mlp/.test(k));
      const bytes = (m: CausalLM): number => weights(m).reduce((n, [, t]) => n + t.size * DTYPE[t.dtype].bytes, 0);
      assert.ok(weights(a).some(([k, t]) => k.endsWith('F8_E4M3') && t.dtype === 'f8e4m3'));
      assert.ok(bytes(a) <= (bytes(b) / 4) * 1.04, `${bytes(a)} of ${bytes(b)} bytes`);
    } finally {
      for (const dir of [kept, plain]) rmSync(dir, { recursive: true });
    }
  });

test('fp8: experts that stand apart in files become one weight of 8-bit floats', () => {
  const { kept, plain } = float8Mixture({ inner: 128, experts: 3, headDim: 64 });
  try {
    const [a, b] = [kept, plain].map((dir) => loadModel<CausalLM>(dir).model);
    const names = [...a.stateDict().keys()];
    for (const part of ['gate_up', 'down'])
      assert.ok(
        names.some((k) => k.endsWith(`mlp.${part}.F8_E4M3`)),
        names.join(' '),
      );
    // Few rows choose their experts without the host, many are sorted by expert first.
    for (const tokens of [5, 50]) {
      const ids = tensor(
        Int32Array.from({ length: tokens }, (_, i) => (i * 7) % 40),
        { shape: [1, tokens] },
      );
      const [got, want] = [a, b].map((m) => noGrad(() => m.forward(ids)));
      const off = got.sub(want).abs().max().item() / want.abs().max().item();
      assert.ok(off <= 1e-5, `${tokens} tokens: ${off}`);
    }
  } finally {
    for (const dir of [kept, plain]) rmSync(dir, { recursive: true });
  }
});

test('mxfp4: experts of gpt-oss stay in their blocks, with the logits of the same weights in floats', {
  skip: missingGolden('hf/gpt_oss'),
}, () => {
  const { kept, plain } = float4Experts(32);
  try {
    const ids = tensor(Int32Array.of(3, 1, 4, 1, 5, 9, 2, 6), { shape: [1, 8] });
    const [a, b, c] = [kept, plain, kept].map((dir, i) => loadModel<CausalLM>(dir, { quantized: i !== 2 }).model);
    const [got, want, decoded] = [a, b, c].map((m) => noGrad(() => m.forward(ids)));
    for (const t of [got, decoded]) {
      const off = t.sub(want).abs().max().item() / want.abs().max().item();
      assert.ok(off <= 1e-5, `${off}`);
    }
    assert.ok(
      [...a.stateDict().keys()].some((k) => k.endsWith('down.MXFP4')),
      [...a.stateDict().keys()].join(' '),
    );
  } finally {
    for (const dir of [kept, plain]) rmSync(dir, { recursive: true });
  }
});

test('what is kept in another way is refused by name', () => {
  const refused = (quantization: object, says: RegExp, kind: Kind = 'row'): void => {
    const { kept, plain } = folders(kind, '_scale', quantization);
    try {
      assert.throws(() => loadModel(kept), says);
    } finally {
      for (const dir of [kept, plain]) rmSync(dir, { recursive: true });
    }
  };
  refused(
    { quant_method: 'gptq', bits: 4 },
    /quant_method is "gptq"; weights of fp8, fbgemm_fp8, compressed-tensors, mxfp4/,
  );
  refused({ quant_method: 'mxfp4' }, /quant_method is "mxfp4", and no tensor's name ends in _blocks/);
  refused({ quant_method: 'fbgemm_fp8', rotation: 'hadamard' }, /quantization_config\.rotation is "hadamard"/);
  refused({ quant_method: 'compressed-tensors', format: 'nvfp4-pack-quantized' }, /format is "nvfp4-pack-quantized"/);
  refused({ quant_method: 'fp8', fmt: 'e4m3' }, /there are no scales model\.layers\.0\.\S+_scale_inv/);
  refused({ quant_method: 'fbgemm_fp8' }, /scales \[\d+, \d+\] fit no weights of/, 'block');
});
