// Layers whose weights stay in floats where a module is quantized: models read them otherwise than by `forward`.
import type { Layer } from './module.js';

const FLOATS = new WeakMap<Layer, string>();
/** Says that a layer's weight stays as it is, and why. */
export function keepFloats<L extends Layer>(layer: L, why: string): L {
  FLOATS.set(layer, why);
  return layer;
}
/** Why a layer's weight stays in floats; undefined where it need not. */
export const keptFloats = (layer: Layer): string | undefined => FLOATS.get(layer);
