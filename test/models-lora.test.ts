// Adapters beside every family: what PEFT's folder holds of them, added to the stored weights, makes the same model.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadTensors, saveTensors } from '../src/io/index.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { addLora, loadLora } from '../src/nn/index.js';
import { relativeError } from '../src/parity/model-checks.js';
import { noGrad } from '../src/tensor/autograd.js';
import { randn } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { scratch } from './io-support.js';
import { answerOf, families, familyFolder, skipFamilies } from './models-support.js';

const [RANK, ALPHA] = [2, 3];
/** Layers that files keep as one tensor, and those that they keep the other way round. */
const FUSED: Readonly<Record<string, readonly string[]>> = {
  gpt2: ['attn.c_attn', 'attn.c_proj', 'mlp.c_fc', 'mlp.c_proj'],
  gpt_bigcode: ['attn.c_attn'],
  'openai-gpt': ['attn.c_attn', 'mlp.c_fc'],
  gpt_neox: ['attention.query_key_value'],
  falcon: ['self_attention.query_key_value'],
  'falcon-c': ['self_attention.query_key_value'],
  bloom: ['self_attention.query_key_value'],
  mpt: ['attn.Wqkv'],
  phi3: ['self_attn.qkv_proj', 'mlp.gate_up_proj'],
  glm4: ['mlp.gate_up_proj'],
  persimmon: ['self_attn.query_key_value'],
  codegen: ['attn.qkv_proj'],
};
/** Of mixtures whose queries are experts', too. */
const WITHOUT = /^jetmoe/;

for (const name of Object.keys(families).filter((n) => !WITHOUT.test(n)))
  test(`${name}: adapters are those of the stored tensors that they are named by`, { skip: skipFamilies }, () =>
    scope(() =>
      noGrad(() => {
        const dir = familyFolder(name);
        const open = (at: string): CausalLM => loadModel<CausalLM>(at, { device: 'cpu', kind: 'decoder' }).model;
        const [model, ids] = [open(dir), answerOf(name, 'input_ids')];
        const plain = model.forward(ids);
        const adapters = addLora(model, { targets: 'all-linear', rank: RANK, alpha: ALPHA });
        for (const own of FUSED[name] ?? [])
          assert.ok(
            adapters.names.some((n) => n.endsWith(own)),
            own,
          );
        adapters.parameters().forEach((t, i) => t.assign(randn(t.shape, { seed: i, device: 'cpu' }).affine(0.2, 0)));
        const got = model.forward(ids);
        assert.ok(relativeError(got, plain) > 1e-3, 'they do something');
        const folder = scratch();
        adapters.save(folder);
        const config = JSON.parse(readFileSync(join(folder, 'adapter_config.json'), 'utf8')) as {
          fan_in_fan_out: boolean;
        };
        const saved = loadTensors(join(folder, 'adapter_model.safetensors'), { device: 'cpu' });
        const stored = loadTensors(join(dir, 'model.safetensors'), { device: 'cpu' });
        for (const at of adapters.names) {
          const of = (which: string): Tensor => saved.get(`base_model.model.${at}.lora_${which}.weight`) as Tensor;
          const delta = of('B')
            .matmul(of('A'))
            .affine(ALPHA / RANK, 0);
          const weight = stored.get(`${at}.weight`) as Tensor;
          const turned = config.fan_in_fan_out && weight.shape[0] === of('A').shape[1] && /\.c_|attn/.test(at);
          stored.set(`${at}.weight`, weight.add(turned ? delta.t() : delta));
        }
        saveTensors(join(dir, 'model.safetensors'), stored);
        const off = relativeError(open(dir).forward(ids), got);
        assert.ok(off <= 1e-3, `merged into the file: off by ${off}`);
        adapters.remove();
        assert.ok(relativeError(model.forward(ids), plain) <= 1e-5, 'taken away');
        loadLora(model, folder);
        assert.ok(relativeError(model.forward(ids), got) <= 1e-5, 'loaded again');
        model.dispose();
      }),
    ),
  );
