// What GGUF metadata says of layers that differ: windows, ropes of their own, mixtures.
import { GGUF_PARTIAL } from '../decoder/rope.js';
import type { Json } from '../files/config.js';
import type { Metadata } from './metadata.js';

/** Windows by layer: a list of flags, a period whose last layer is full, or the architecture's own rule. */
export function layerTypes(m: Metadata, layers: number, rule: (i: number) => boolean): string[] {
  const flags = m.list('attention.sliding_window_pattern');
  const period = flags ? undefined : m.optional('attention.sliding_window_pattern');
  const isFlag = (v: unknown): boolean => typeof v === 'boolean' || v === 0 || v === 1;
  if (
    flags ? flags.length < layers || !flags.every(isFlag) : period !== undefined && !(period >= 0 && period % 1 === 0)
  )
    throw m.wrong('attention.sliding_window_pattern', `a period or a flag for each of ${layers} layers`);
  const slides = (i: number): boolean =>
    flags ? Boolean(flags[i]) : period !== undefined ? (i + 1) % period !== 0 : rule(i);
  return Array.from({ length: layers }, (_, i) => (slides(i) ? 'sliding_attention' : 'full_attention'));
}

/** Ropes by kind of layer: those that slide have a base of their own, `unsaid` where a file gives none, unstretched. */
export function ropesByKind(m: Metadata, c: Json, unsaid?: number): { readonly rope_parameters: Json } {
  const theta = c.rope_parameters.rope_theta as number;
  return {
    rope_parameters: {
      full_attention: c.rope_parameters,
      sliding_attention: {
        rope_type: 'default',
        rope_theta: m.optional('rope.freq_base_swa') ?? unsaid ?? theta,
      },
    },
  };
}
/** The same with heads that turn in part, each kind's its own part. */
export function partialRopesByKind(m: Metadata, c: Json): Json {
  const { full_attention: full, sliding_attention: slid } = ropesByKind(m, c).rope_parameters;
  const turned = m.number('rope.dimension_count', c.head_dim);
  // A little more than the quotient, so that rounding takes no pair away.
  const share = (n: number): number => (n === c.head_dim ? 1 : (n + 1e-6) / c.head_dim);
  return {
    rope_parameters: {
      full_attention: { ...full, partial_rotary_factor: share(turned) },
      sliding_attention: {
        ...slid,
        partial_rotary_factor: share(m.optional('rope.dimension_count_swa') ?? turned),
      },
    },
    [GGUF_PARTIAL]: undefined,
  };
}

/** Which layers are mixtures, by the tensors that there are. */
export const sparseTypes = (m: Metadata, layers: number): string[] =>
  Array.from({ length: layers }, (_, i) => (m.source.has(`blk.${i}.ffn_gate_inp.weight`) ? 'sparse' : 'dense'));
