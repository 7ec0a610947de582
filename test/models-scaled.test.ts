// Folders whose weights are kept in 8 bits with scales beside them: the logits of the same weights in floats, and
// refusals of what is not read.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { DTYPE } from '../src/base/dtype.js';
import { Generator, noGrad, QTensor, rand, randn, type Tensor, tensor } from '../src/index.js';
import { loadTensors, saveTensors } from '../src/io/index.js';
import { type CausalLM, Llama, type LlamaConfig, llamaJson, loadModel } from '../src/models/index.js';
import { VarBuilder, VarMap } from '../src/nn/index.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';

const TINY: LlamaConfig = {
  ...{ vocabSize: 40, hiddenSize: 48, intermediateSize: 80, layers: 2, heads: 3, kvHeads: 1, headDim: 16 },
  ...{ maxPositions: 32, normEps: 1e-5, ropeTheta: 10_000, tiedEmbeddings: false, eosTokenIds: [] },
};
/** Rows of whole groups of 128, as released models have them. */
const WIDE: LlamaConfig = { ...TINY, hiddenSize: 128, intermediateSize: 256, headDim: 64, heads: 2 };
type Kind = 'tensor' | 'row' | 'block';

/** Scales of a matrix, as they are stored and spread over its elements. */
function scalesOf(
  kind: Kind,
  [rows, columns]: readonly number[],
  seed: number,
  block: readonly number[],
): { stored: Tensor; spread: Tensor } {
  const blocks = [Math.ceil(rows / block[0]), Math.ceil(columns / block[1])];
  const [down, across] = { tensor: [1, 1], row: [rows, 1], block: blocks }[kind];
  const stored = rand([down, across], { seed }).affine(0.002, 0.001);
  const [h, w] = kind === 'block' ? block : [rows / down, columns];
  const spread = stored
    .reshape([down, 1, across, 1])
    .broadcastTo([down, h, across, w])
    .reshape([down * h, across * w])
    .narrow(0, 0, rows)
    .narrow(1, 0, columns);
  return { stored: kind === 'tensor' ? stored.reshape([1]) : stored, spread };
}

/** A folder with scales, and one with the same weights in floats. */
function folders(
  kind: Kind,
  suffix: string,
  quantization: { weight_block_size?: readonly number[] },
  config = TINY,
): { kept: string; plain: string } {
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
  const [hidden, inner, experts] = [128, 128, 3];
  const config = {
    ...{ model_type: 'qwen3_moe', hidden_size: hidden, num_hidden_layers: 1, vocab_size: 40, head_dim: 64 },
    ...{ num_attention_heads: 2, num_key_value_heads: 1, moe_intermediate_size: inner, num_experts: experts },
    ...{ num_experts_per_tok: 2, intermediate_size: 256, max_position_embeddings: 64, norm_topk_prob: true },
  };
  const shapes: Record<string, number[]> = {
    'model.embed_tokens.weight': [40, hidden],
    'model.norm.weight': [hidden],
    'lm_head.weight': [40, hidden],
  };
  const layer = (name: string, shape: number[]): void => void (shapes[`model.layers.0.${name}.weight`] = shape);
  for (const name of ['input_layernorm', 'post_attention_layernorm']) layer(name, [hidden]);
  for (const [name, rows] of [
    ['q', 128],
    ['k', 64],
    ['v', 64],
  ] as const)
    layer(`self_attn.${name}_proj`, [rows, hidden]);
  layer('self_attn.o_proj', [hidden, 128]);
  for (const name of ['q_norm', 'k_norm']) layer(`self_attn.${name}`, [64]);
  layer('mlp.gate', [experts, hidden]);
  for (let e = 0; e < experts; e++) {
    for (const name of ['gate', 'up']) layer(`mlp.experts.${e}.${name}_proj`, [inner, hidden]);
    layer(`mlp.experts.${e}.down_proj`, [hidden, inner]);
  }
  const [kept, plain] = [0, 1].map(() => mkdtempSync(join(tmpdir(), 'wick-fp8-')));
  try {
    const [small, floats] = [new Map<string, Tensor>(), new Map<string, Tensor>()];
    for (const [i, [name, shape]] of Object.entries(shapes).entries()) {
      const w = randn(shape, { seed: i + 1 }).affine(0.08, shape.length === 1 ? 1 : 0);
      const { stored, spread } = scalesOf('block', shape.length > 1 ? shape : [1, 128], i, [128, 128]);
      const eight = /_proj/.test(name) ? w.div(spread).cast('f8e4m3') : undefined;
      if (eight) small.set(`${name}_scale_inv`, stored.contiguous());
      small.set(name, eight ?? w);
      floats.set(name, eight ? eight.cast('f32').mul(spread).contiguous() : w);
    }
    saveTensors(join(kept, 'model.safetensors'), small);
    saveTensors(join(plain, 'model.safetensors'), floats);
    const quantization_config = { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [128, 128] };
    writeFileSync(join(kept, 'config.json'), JSON.stringify({ ...config, quantization_config }));
    writeFileSync(join(plain, 'config.json'), JSON.stringify(config));
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

/**
 * gpt-oss as it is released: experts in blocks of 4-bit floats, [experts, rows, groups, 16], two neighbours in a byte.
 */
test('mxfp4: experts of gpt-oss stay in their blocks, with the logits of the same weights in floats', {
  skip: missingGolden('hf/gpt_oss'),
}, () => {
  const golden = findGolden('hf', 'gpt_oss') as string;
  const config = JSON.parse(readFileSync(join(golden, 'config.json'), 'utf8')) as Record<string, unknown>;
  const [kept, plain] = [0, 1].map(() => mkdtempSync(join(tmpdir(), 'wick-mxfp4-')));
  try {
    const wide = { ...config, intermediate_size: 32 };
    const [small, floats] = [new Map<string, Tensor>(), new Map<string, Tensor>()];
    let seed = 1;
    for (const [name, t] of loadTensors(join(golden, 'model.safetensors'), { device: 'cpu' })) {
      const [experts] = t.shape;
      const shape = /gate_up_proj$/.test(name)
        ? [experts, 64, 64]
        : /down_proj$/.test(name)
          ? [experts, 64, 32]
          : undefined;
      if (shape) {
        const q = QTensor.quantize(randn(shape, { seed: seed++ }).affine(0.05, 0), 'mxfp4');
        const bytes = q.parts[0].blocks.dataSync() as Uint8Array;
        const count = bytes.length / 17;
        const [blocks, scales] = [new Uint8Array(count * 16), new Uint8Array(count)];
        for (let b = 0; b < count; b++) {
          scales[b] = bytes[b * 17];
          const nibble = (i: number): number => (bytes[b * 17 + 1 + (i % 16)] >> (i < 16 ? 0 : 4)) & 15;
          for (let j = 0; j < 16; j++) blocks[b * 16 + j] = nibble(2 * j) | (nibble(2 * j + 1) << 4);
        }
        const groups = [...shape.slice(0, -1), shape[2] / 32];
        small.set(`${name}_blocks`, tensor(blocks, { shape: [...groups, 16], dtype: 'u8' }));
        small.set(`${name}_scales`, tensor(scales, { shape: groups, dtype: 'u8' }));
        floats.set(name, q.dequantize().transpose(1, 2).contiguous());
        continue;
      }
      const same = /gate_up_proj_bias$/.test(name) ? randn([experts, 64], { seed: seed++ }) : t;
      small.set(name, same);
      floats.set(name, same);
    }
    saveTensors(join(kept, 'model.safetensors'), small);
    saveTensors(join(plain, 'model.safetensors'), floats);
    const quantization_config = { quant_method: 'mxfp4', modules_to_not_convert: ['lm_head'] };
    writeFileSync(join(kept, 'config.json'), JSON.stringify({ ...wide, quantization_config }));
    writeFileSync(join(plain, 'config.json'), JSON.stringify(wide));
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
