// RWKV (4): each stored block is two layers here, of which either remembers the token before.
import type { NormFeature } from '../decoder/features.js';
import { build } from './common.js';
import { NO_MLP } from './mamba-parts.js';
import { family } from './row.js';

export const rwkv = family({
  types: ['rwkv'],
  features: (c) => {
    const hidden = c.count('hidden_size', undefined, 1);
    const blocks = c.count('num_hidden_layers', undefined, 1);
    const inner = c.optional('attention_hidden_size') ?? hidden;
    c.only('attention_hidden_size', hidden);
    const fed = c.optional('intermediate_size') ?? 4 * hidden;
    const eps = c.number('layer_norm_epsilon', 1e-5);
    const every = c.count('rescale_every', 6);
    // Every few blocks transformers halves what goes on: norms see no difference but of their eps.
    const halvings = (block: number): number => (every > 0 ? Math.floor(block / every) : 0);
    const normOf = (eps: number, block: number): NormFeature => ({
      ...{ kind: 'layer', bias: true },
      eps: eps * 4 ** halvings(block),
    });
    // The length of texts in training: nothing ends there.
    c.ignore('context_length');
    const sizes = { hidden, layers: 2 * blocks, heads: 1, kvHeads: 1, headDim: hidden, maxPositions: 2 ** 20 };
    return build('rwkv', c, sizes, {
      norm: normOf(eps, 0),
      mixer: (i) => (i % 2 === 0 ? { kind: 'fading mean', inner } : { kind: 'fed back', inner: fed }),
      mlp: () => ({ kind: 'none' }),
      layer: (i) => ({ norm: normOf(eps, Math.floor(i / 2)) }),
      more: { norms: NO_MLP, embedNorm: true, finalNorm: normOf(1e-5, blocks) },
    });
  },
  names: {
    embed: 'rwkv.embeddings',
    embedNorm: 'rwkv.blocks.0.pre_ln',
    finalNorm: 'rwkv.ln_out',
    head: 'head',
    layer: 'rwkv.blocks.{half}',
    beforeMixer: 'ln{nth}',
    mixKey: { name: 'attention.time_mix_key', bare: true },
    mixValue: { name: 'attention.time_mix_value', bare: true },
    mixGate: { name: 'attention.time_mix_receptance', bare: true },
    stateKey: 'attention.key',
    stateValue: 'attention.value',
    stateGate: 'attention.receptance',
    stateDecay: { name: 'attention.time_decay', bare: true },
    stateSkip: { name: 'attention.time_first', bare: true },
    stateOut: 'attention.output',
    mixUp: { name: 'feed_forward.time_mix_key', bare: true },
    mixOpen: { name: 'feed_forward.time_mix_receptance', bare: true },
    up: 'feed_forward.key',
    gate: 'feed_forward.receptance',
    down: 'feed_forward.value',
  },
});
