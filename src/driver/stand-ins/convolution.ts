// Convolutions as the libraries define them, with plain loops on the host: forward and by either operand.
import type { DType } from '../../base/dtype.js';
import type { ConvSpec } from '../dnn.js';
import type { Address } from '../driver.js';
import { type HostedDevice, Misuse, Numbers } from './library.js';

type Four = readonly [number, number, number, number];
type Two = readonly [number, number];
/** A tensor of a call: contiguous, with its sizes in the order batch, channels, height, width. */
export interface Plane {
  readonly dtype: DType;
  readonly dims: Four;
}
export interface Convolution {
  readonly kind: ConvSpec['kind'];
  readonly x: Plane;
  readonly filter: Plane;
  readonly y: Plane;
  readonly padding: Two;
  readonly stride: Two;
  readonly dilation: Two;
  readonly groups: number;
}

export function checkConvolution(c: Convolution): void {
  const { x, filter, y } = c;
  if (x.dtype !== filter.dtype || x.dtype !== y.dtype)
    throw new Misuse(`types ${x.dtype}, ${filter.dtype}, ${y.dtype}`);
  for (const [name, p] of Object.entries({ x, filter, y }))
    if (p.dims.some((d) => d < 1)) throw new Misuse(`${name} is [${p.dims.join(', ')}]`);
  if (c.padding.some((p) => p < 0) || [...c.stride, ...c.dilation].some((s) => s < 1))
    throw new Misuse(`padding ${c.padding}, stride ${c.stride}, dilation ${c.dilation}`);
  if (x.dims[0] !== y.dims[0]) throw new Misuse(`batch ${x.dims[0]} of x, ${y.dims[0]} of y`);
  if (c.groups < 1 || x.dims[1] !== filter.dims[1] * c.groups || y.dims[1] !== filter.dims[0] || y.dims[1] % c.groups)
    throw new Misuse(`${x.dims[1]} channels by ${filter.dims.slice(0, 2)} in ${c.groups} groups to ${y.dims[1]}`);
  for (const i of [0, 1] as const) {
    const reach = c.dilation[i] * (filter.dims[2 + i] - 1) + 1;
    const out = Math.floor((x.dims[2 + i] + 2 * c.padding[i] - reach) / c.stride[i]) + 1;
    if (y.dims[2 + i] !== out) throw new Misuse(`y is ${y.dims[2 + i]} in spatial dimension ${i} where ${out} follow`);
  }
}

const sizeOf = (p: Plane): number => p.dims.reduce((a, b) => a * b, 1);
const WRITTEN = { forward: 'y', 'backward-data': 'x', 'backward-filter': 'filter' } as const;

/** With alpha 1 and beta 0. */
export function convolve(device: HostedDevice, c: Convolution, x: Address, filter: Address, y: Address): void {
  checkConvolution(c);
  const at = { x, filter, y };
  const read = (name: 'x' | 'filter' | 'y'): Numbers =>
    new Numbers(device, name, at[name], sizeOf(c[name]), c[name].dtype);
  const numbers = { x: read('x'), filter: read('filter'), y: read('y') };
  const out = numbers[WRITTEN[c.kind]];
  out.values.fill(0);
  const [vx, vw, vy] = [numbers.x.values, numbers.filter.values, numbers.y.values];
  const [k, cg, r, s] = c.filter.dims;
  const [n, , oh, ow] = c.y.dims;
  const [, channels, h, w] = c.x.dims;
  for (let b = 0; b < n; b++)
    for (let o = 0; o < k; o++)
      for (let q = 0; q < cg; q++)
        for (let i = 0; i < oh; i++)
          for (let j = 0; j < ow; j++)
            for (let u = 0; u < r; u++)
              for (let v = 0; v < s; v++) {
                const channel = Math.floor(o / (k / c.groups)) * cg + q;
                const row = i * c.stride[0] + u * c.dilation[0] - c.padding[0];
                const col = j * c.stride[1] + v * c.dilation[1] - c.padding[1];
                if (row < 0 || row >= h || col < 0 || col >= w) continue;
                const iy = ((b * k + o) * oh + i) * ow + j;
                const ix = ((b * channels + channel) * h + row) * w + col;
                const iw = ((o * cg + q) * r + u) * s + v;
                if (c.kind === 'forward') vy[iy] += vx[ix] * vw[iw];
                else if (c.kind === 'backward-data') vx[ix] += vy[iy] * vw[iw];
                else vw[iw] += vx[ix] * vy[iy];
              }
  out.write();
}
