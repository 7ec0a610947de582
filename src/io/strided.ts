// Copies strided elements of any width into row-major order.
import type { Layout } from '../base/layout.js';
import { allocate } from './byte-source.js';

/** The layout's elements, `width` bytes each, one after another in row-major order. */
export function gatherBytes(bytes: Uint8Array, layout: Layout, width: number): Uint8Array {
  const out = allocate(layout.size * width, 'strided copy');
  layout.forEach((at, index) => {
    for (let b = 0; b < width; b++) out[at * width + b] = bytes[index * width + b];
  });
  return out;
}
