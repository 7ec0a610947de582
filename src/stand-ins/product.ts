// Matrix products as the libraries define them, column by column on the host, with every operand checked against its
// block.
import type { DType } from '../base/dtype.js';
import type { Address } from '../driver/driver.js';
import { type HostedDevice, Misuse, Numbers } from './library.js';

/** A batch of matrices stored by columns. */
export interface Matrices {
  readonly address: Address;
  readonly dtype: DType;
  /** As stored, before any transposition. */
  readonly rows: number;
  readonly cols: number;
  readonly ld: number;
  readonly stride: number;
}

export interface Product {
  readonly batch: number;
  readonly a: Matrices;
  readonly b: Matrices;
  readonly d: Matrices;
  readonly transposedA: boolean;
  readonly transposedB: boolean;
  readonly alpha: number;
  readonly beta: number;
  /** The address of what beta times is added, laid out as d is; d's own unless given. */
  readonly c?: number;
  /** A vector added to every column. */
  readonly bias?: Address;
  readonly tf32: boolean;
}

/** Rounds to the ten bits of mantissa that matrix units keep of an f32. */
const cell = new DataView(new ArrayBuffer(4));
function toTf32(x: number): number {
  cell.setFloat32(0, x);
  const bits = cell.getUint32(0);
  if ((bits & 0x7f800000) === 0x7f800000) return x;
  cell.setUint32(0, (bits + 0x0fff + ((bits >>> 13) & 1)) & 0xffffe000);
  return cell.getFloat32(0);
}

const spanOf = (m: Matrices, batch: number): number => (batch - 1) * m.stride + (m.cols - 1) * m.ld + m.rows;

export function checkProduct(p: Product): void {
  const { a, b, d } = p;
  for (const [name, m] of Object.entries({ a, b, d })) {
    if (m.rows < 1 || m.cols < 1) throw new Misuse(`${name} is ${m.rows} by ${m.cols}`);
    if (m.ld < m.rows) throw new Misuse(`leading dimension of ${name} is ${m.ld}, less than its ${m.rows} rows`);
    if (p.batch > 1 && m.stride < 0) throw new Misuse(`batch stride of ${name} is ${m.stride}`);
  }
  if (p.batch < 1) throw new Misuse(`batch of ${p.batch}`);
  if (p.batch > 1 && d.stride < (d.cols - 1) * d.ld + d.rows)
    throw new Misuse(`batch stride of d is ${d.stride}: its matrices overlap`);
  const [m, ka] = p.transposedA ? [a.cols, a.rows] : [a.rows, a.cols];
  const [kb, n] = p.transposedB ? [b.cols, b.rows] : [b.rows, b.cols];
  if (m !== d.rows || n !== d.cols || ka !== kb)
    throw new Misuse(`a is ${m} by ${ka}, b ${kb} by ${n}, d ${d.rows} by ${d.cols}`);
  if (a.dtype !== b.dtype) throw new Misuse(`a is ${a.dtype}, b ${b.dtype}`);
  if (d.dtype !== a.dtype && !(d.dtype === 'f32' && (a.dtype === 'f16' || a.dtype === 'bf16')))
    throw new Misuse(`a product of ${a.dtype} into ${d.dtype}`);
}

export function multiply(device: HostedDevice, p: Product): void {
  checkProduct(p);
  const { a, b, d } = p;
  const k = p.transposedA ? a.rows : a.cols;
  const read = (name: string, m: Matrices): Numbers =>
    new Numbers(device, name, m.address, spanOf(m, p.batch), m.dtype);
  const [na, nb, nd] = [read('a', a), read('b', b), read('d', d)];
  const nc = p.c === undefined || p.c === d.address ? nd : read('c', { ...d, address: p.c });
  const bias = p.bias === undefined ? undefined : new Numbers(device, 'bias', p.bias, d.rows, d.dtype).values;
  const round = p.tf32 && a.dtype === 'f32' ? toTf32 : (x: number) => x;
  for (let z = 0; z < p.batch; z++)
    for (let j = 0; j < d.cols; j++)
      for (let i = 0; i < d.rows; i++) {
        let sum = 0;
        for (let x = 0; x < k; x++)
          sum +=
            round(na.values[z * a.stride + (p.transposedA ? i * a.ld + x : x * a.ld + i)]) *
            round(nb.values[z * b.stride + (p.transposedB ? x * b.ld + j : j * b.ld + x)]);
        const at = z * d.stride + j * d.ld + i;
        // With beta 0 what was there is not looked at, were it NaN.
        nd.values[at] = p.alpha * sum + (p.beta === 0 ? 0 : p.beta * nc.values[at]) + (bias?.[i] ?? 0);
      }
  nd.write();
}
