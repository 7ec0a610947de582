// xIELU's numbers, which folders keep as tensors of each layer and files in a list for each number.
import type { GgufValue } from '../../io/gguf-value.js';
import { floatRecord } from '../../io/derived-records.js';
import type { Features, Mlp } from '../decoder/features.js';
import type { Weights } from '../decoder/weights.js';
import type { ModelSource } from '../files/source.js';

/** As files call them, in the order of `curve`. */
export const CURVE = ['alpha_p', 'alpha_n', 'beta', 'eps'] as const;

/** The model with its curves as numbers. */
export function withCurves(f: Features, own: Weights, source: ModelSource): Features {
  const first = (name: string): number => new Float32Array(floatRecord(source.record(name)).read().slice().buffer)[0];
  const curved = (mlp: Mlp, i: number): Mlp => {
    if (mlp.kind !== 'dense' || mlp.activation !== 'xielu' || mlp.curve) return mlp;
    const stem = own.of(i).nameOf('activation');
    return { ...mlp, curve: CURVE.map((name) => first(`${stem}.${name}`)) };
  };
  return { ...f, layers: f.layers.map((layer, i) => ({ ...layer, mlp: curved(layer.mlp, i) })) };
}

/** The lists of a file; none where no layer has a curve. */
export function curveKeys({ layers }: Features): [string, GgufValue][] {
  const curves = layers.flatMap(({ mlp }) => (mlp.kind === 'dense' && mlp.curve ? [mlp.curve] : []));
  if (curves.length === 0) return [];
  return CURVE.map((name, k) => [
    `xielu.${name}`,
    { type: 'array', of: 'f32', value: Float32Array.from(curves, (curve) => curve[k]) },
  ]);
}
