// Convolutions as the libraries define them, with plain loops on the host: forward and by either operand.
import type { DType } from '../base/dtype.js';
import type { ConvSpec } from '../driver/dnn.js';
import type { Address } from '../driver/driver.js';
import type { NativeArg } from '../driver/ffi.js';
import { type Handles, type HostedDevice, Misuse, Numbers, type Symbols, typeOf, useWorkspace } from './library.js';

type Four = readonly [number, number, number, number];
type Two = readonly [number, number];
/** A tensor of a call: contiguous, with its sizes in the order batch, channels, height, width. */
export interface Plane {
  readonly dtype: DType;
  readonly dims: Four;
}
/** How many answers a search is asked for, and where they go; the operands stand before. */
export type Offer = [wanted: number, found: NativeArg, results: NativeArg];
export type OfferCall = [a: number, b: number, conv: number, c: number, ...Offer];
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

// ---- what cuDNN and MIOpen have alike: handles with a stream, descriptors, operands by kind ----

export interface ConvolutionHandle {
  stream: number;
}
/** What a convolution descriptor was given so far. */
export type Setting = Partial<Pick<Convolution, 'padding' | 'stride' | 'dilation'>> & { groups: number };
export type Side = 'x' | 'filter' | 'y';
/** A library's word for a kind, and the order in which each call names its operands. */
export type Kinds = Readonly<Record<string, { readonly kind: ConvSpec['kind']; readonly order: readonly Side[] }>>;

export class ConvolutionLibrary {
  readonly #device: HostedDevice;
  readonly #handles: Handles;
  constructor(device: HostedDevice, handles: Handles) {
    this.#device = device;
    this.#handles = handles;
  }
  /** Symbols that differ in the library's prefix alone; `fresh` is a convolution descriptor before it is set. */
  symbols(prefix: string, fresh: Setting): Record<string, Symbols[string]> {
    const handles = this.#handles;
    return {
      [`${prefix}Create`]: (cell: NativeArg) => handles.make(cell, 'handle', { stream: 0 } satisfies ConvolutionHandle),
      [`${prefix}Destroy`]: (h: number) => handles.destroy(h, 'handle'),
      [`${prefix}SetStream`]: (h: number, stream: number) => {
        handles.get<ConvolutionHandle>(h, 'handle').stream = stream;
        return 0;
      },
      [`${prefix}CreateTensorDescriptor`]: (cell: NativeArg) => handles.make(cell, 'tensor', {}),
      [`${prefix}DestroyTensorDescriptor`]: (h: number) => handles.destroy(h, 'tensor'),
      [`${prefix}CreateConvolutionDescriptor`]: (cell: NativeArg) => handles.make(cell, 'convolution', { ...fresh }),
      [`${prefix}SetConvolutionGroupCount`]: (h: number, groups: number) => {
        handles.get<Setting>(h, 'convolution').groups = groups;
        return 0;
      },
      [`${prefix}DestroyConvolutionDescriptor`]: (h: number) => handles.destroy(h, 'convolution'),
    };
  }
  /** Sets a tensor's or filter's type and sizes. */
  setPlane(
    h: number,
    what: string,
    types: Parameters<typeof typeOf>[0],
    type: number,
    dims: readonly number[],
  ): number {
    Object.assign(this.#handles.get<object>(h, what), { dtype: typeOf(types, type), dims });
    return 0;
  }
  /** Sets padding, stride and dilation, given in pairs, and what else the library keeps with them. */
  setConvolution(h: number, pairs: readonly number[], more: object = {}): number {
    const [padH, padW, strideH, strideW, dilationH, dilationW] = pairs;
    const setting = { padding: [padH, padW], stride: [strideH, strideW], dilation: [dilationH, dilationW], ...more };
    Object.assign(this.#handles.get<object>(h, 'convolution'), setting);
    return 0;
  }
  /** The convolution that a call's descriptors mean; `filters` is what filters' descriptors are called. */
  read<S extends Setting>(
    { kind, order }: Kinds[string],
    h: number,
    operands: readonly number[],
    conv: number,
    filters: 'filter' | 'tensor',
  ): Convolution & S {
    this.#handles.get(h, 'handle');
    const setting = this.#handles.get<S>(conv, 'convolution');
    if (!setting.padding) throw new Misuse('the convolution was not set');
    const plane = (o: Side, i: number): Plane => this.#handles.get(operands[i], o === 'filter' ? filters : 'tensor');
    const c = { kind, ...Object.fromEntries(order.map((o, i) => [o, plane(o, i)])), ...setting };
    const convolution = c as unknown as Convolution & S;
    if (order.some((o) => !convolution[o].dims)) throw new Misuse('a tensor was not set');
    checkConvolution(convolution);
    return convolution;
  }
  /** Enqueues it with the pointers in the call's order; it writes to as much workspace as it needs. */
  run(
    h: number,
    order: readonly Side[],
    c: Convolution,
    pointers: readonly number[],
    workspace: { readonly at: number; readonly bytes: number; readonly need: number },
  ): number {
    const { stream } = this.#handles.get<ConvolutionHandle>(h, 'handle');
    if (stream === 0) throw new Misuse('no stream was set');
    const at = Object.fromEntries(order.map((o, i) => [o, pointers[i]])) as Record<Side, number>;
    this.#device.enqueue(stream, () => {
      useWorkspace(this.#device, workspace.at, workspace.bytes, workspace.need);
      convolve(this.#device, c, at.x, at.filter, at.y);
    });
    return 0;
  }
}
