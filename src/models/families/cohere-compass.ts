// Cohere Compass's text: Cohere 2 whose layers have a rope by their kind or none, its pairs in the order that pictures'
// directions want.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import { inverseFrequencies, type RopeFeature } from '../decoder/rope.js';
import {
  ATTENTION_BIAS,
  biasesBy,
  build,
  full,
  gated,
  LLAMA_NAMES,
  layerNorm,
  layerTypes,
  ropeOf,
  type Sizes,
  sizesOf,
  windowsBy,
} from './common.js';
import { family } from './row.js';

/** Frequencies of height and width take turns before those of time; here they stand one after the other. */
function inSections(c: Config, rope: RopeFeature, sections: readonly number[]): RopeFeature {
  const { inv } = inverseFrequencies(rope);
  const [high, wide, time] = sections;
  const flat = high + wide;
  if (flat + time !== inv.length || high < wide || high > wide + 1)
    throw new FormatError(
      `${c.where}: mrope_section is ${sections.join(', ')}; a head has ${inv.length} pairs, of which as many must be ` +
        'for height as for width',
    );
  const from = (i: number): number => (i >= flat ? i : i < high ? 2 * i : 2 * (i - high) + 1);
  return { ...rope, divisors: inv.map((f, i) => f / inv[from(i)]) };
}
/** Layers of a kind whose parameters are null turn nothing. */
function ropeBy(c: Config, s: Sizes, layerType: string): RopeFeature | undefined {
  const all = c.inner('rope_parameters');
  if (!all || !Object.hasOwn(all.json, layerType))
    throw new FormatError(`${c.where}: rope_parameters say nothing of ${layerType}`);
  const own = all.inner(layerType);
  if (!own) return undefined;
  const sections = own.has('mrope_section') ? own.numbers('mrope_section', 3) : [22, 22, 20];
  own.ignore('mrope_interleaved');
  const rope = ropeOf(c, s, { layerType, apart: true, within: true });
  // Stretched ropes keep the usual order: all three directions of a text's token are its place.
  return rope.type === 'default' ? inSections(c, rope, sections) : rope;
}

const compass = family({
  types: ['cohere_compass_text'],
  features: (c) => {
    c.ignore('pooling'); // of those that make vectors
    const s = sizesOf(c);
    const types = layerTypes(c, s.layers, full);
    const windows = windowsBy(c, types, c.optional('sliding_window') ?? 4096);
    const ropes = new Map([...new Set(types)].map((t) => [t, ropeBy(c, s, t)]));
    c.inner('rope_parameters')?.ignore('full_attention', 'sliding_attention');
    const factor = c.optional('logit_scale');
    return build('cohere_compass', c, s, {
      norm: { ...layerNorm(c, 'layer_norm_eps'), bias: false },
      attention: (i) => ({ window: windows[i], rope: ropes.get(types[i]) }),
      mlp: () => gated(c),
      tied: true,
      biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
      more: { parallel: 'shared', ...(factor !== undefined && { logitFactor: factor }) },
    });
  },
  names: LLAMA_NAMES,
});

export const COMPASS_FAMILIES = [compass];
