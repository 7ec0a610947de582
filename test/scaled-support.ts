// Folders whose weights are kept in fewer bits with scales beside them, and the same weights in floats.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { QTensor, rand, randn, type Tensor, tensor } from '../src/index.js';
import { loadTensors, saveTensors } from '../src/io/index.js';
import { findGolden } from '../src/parity/golden.js';

export type Kind = 'tensor' | 'row' | 'block';
/** A folder with scales, and one with the same weights in floats. */
export interface Folders {
  readonly kept: string;
  readonly plain: string;
}

/** Scales of a matrix, as they are stored and spread over its elements. */
export function scalesOf(
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

/** A mixture with experts that stand apart, in 8-bit floats with a scale for every 128 x 128. */
export function float8Mixture({
  inner,
  experts,
  headDim,
}: {
  inner: number;
  experts: number;
  headDim: number;
}): Folders {
  const hidden = 128;
  const config = {
    ...{ model_type: 'qwen3_moe', hidden_size: hidden, num_hidden_layers: 1, vocab_size: 40, head_dim: headDim },
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
    ['q', 2 * headDim],
    ['k', headDim],
    ['v', headDim],
  ] as const)
    layer(`self_attn.${name}_proj`, [rows, hidden]);
  layer('self_attn.o_proj', [hidden, 2 * headDim]);
  for (const name of ['q_norm', 'k_norm']) layer(`self_attn.${name}`, [headDim]);
  layer('mlp.gate', [experts, hidden]);
  for (let e = 0; e < experts; e++) {
    for (const name of ['gate', 'up']) layer(`mlp.experts.${e}.${name}_proj`, [inner, hidden]);
    layer(`mlp.experts.${e}.down_proj`, [hidden, inner]);
  }
  const [kept, plain] = [0, 1].map(() => mkdtempSync(join(tmpdir(), 'wick-fp8-')));
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
  return { kept, plain };
}

/**
 * gpt-oss as it is released: experts in blocks of 4-bit floats, [experts, rows, groups, 16], two neighbours in a byte.
 */
export function float4Experts(inner: number): Folders {
  const golden = findGolden('hf', 'gpt_oss') as string;
  const config = JSON.parse(readFileSync(join(golden, 'config.json'), 'utf8')) as Record<string, unknown>;
  const [kept, plain] = [0, 1].map(() => mkdtempSync(join(tmpdir(), 'wick-mxfp4-')));
  const wide = { ...config, intermediate_size: inner };
  const [small, floats] = [new Map<string, Tensor>(), new Map<string, Tensor>()];
  let seed = 1;
  for (const [name, t] of loadTensors(join(golden, 'model.safetensors'), { device: 'cpu' })) {
    const [experts] = t.shape;
    const shape = /gate_up_proj$/.test(name)
      ? [experts, 2 * inner, 64]
      : /down_proj$/.test(name)
        ? [experts, 64, inner]
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
    const same = /gate_up_proj_bias$/.test(name) ? randn([experts, 2 * inner], { seed: seed++ }) : t;
    small.set(name, same);
    floats.set(name, same);
  }
  saveTensors(join(kept, 'model.safetensors'), small);
  saveTensors(join(plain, 'model.safetensors'), floats);
  const quantization_config = { quant_method: 'mxfp4', modules_to_not_convert: ['lm_head'] };
  writeFileSync(join(kept, 'config.json'), JSON.stringify({ ...wide, quantization_config }));
  writeFileSync(join(plain, 'config.json'), JSON.stringify(wide));
  return { kept, plain };
}
