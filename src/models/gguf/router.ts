// What a file says of its router, held against what the family makes of it: most architectures have one kind, and a
// file of another would answer wrongly without a word.
import { UnsupportedError } from '../../base/errors.js';
import type { Experts, Features } from '../decoder/features.js';
import type { Metadata } from './metadata.js';

/** By the number that files give: softmax and that of the chosen come to the same once they are normalised. */
const GATINGS: Readonly<Record<number, 'softmax' | 'sigmoid'>> = { 1: 'softmax', 2: 'sigmoid', 3: 'softmax' };
export const gatingOf = ({ score, weights }: Experts): 'softmax' | 'sigmoid' =>
  score === 'sigmoid' || weights === 'sigmoid' ? 'sigmoid' : 'softmax';

/** What a key means, if the file's value is not what this family's experts do. */
const CHECKS: Readonly<Record<string, (v: unknown, e: Experts) => string | undefined>> = {
  expert_gating_func: (v, e) => (!v || GATINGS[Number(v)] === gatingOf(e) ? undefined : `a ${gatingOf(e)}`),
  expert_weights_norm: (v, { weights }) => {
    const told = v === true ? 'kept' : 'normalised';
    return v === undefined || weights !== told ? undefined : `weights that are ${told}`;
  },
  expert_weights_scale: (v, { factor = 1 }) =>
    !v || Math.abs(Number(v) - factor) <= 1e-6 * Math.abs(factor) ? undefined : `the factor ${factor}`,
};

/** Refuses a file whose router is not the family's. */
export function checkRouter(m: Metadata, { layers }: Features): void {
  const parts = layers.map(({ mlp }) => (mlp.kind === 'both' ? mlp.experts : mlp));
  const mixture = parts.find((p) => p.kind === 'experts');
  if (!mixture) return;
  for (const [key, differs] of Object.entries(CHECKS)) {
    const own = differs(m.get(key), mixture);
    if (own !== undefined)
      throw new UnsupportedError(
        `${m.source.path}: ${m.architecture}.${key} is ${String(m.get(key))}; routers of this family have ${own}`,
      );
  }
}
