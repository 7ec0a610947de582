// Stand-ins of cuBLASLt and hipBLASLt: layouts, descriptors and preferences are bags of attributes of known sizes; the
// numbers are the bindings' own.
import { CUBLASLT_NUMBERS } from '../cublaslt.js';
import type { NativeArg } from '../ffi.js';
import { HIPBLASLT_NUMBERS } from '../hipblaslt.js';
import { LT_TYPES, type LtNumbers } from '../lt.js';
import {
  Handles,
  hostMemory,
  type HostedDevice,
  Misuse,
  StandIn,
  type Symbols,
  textAddress,
  typeOf,
  useWorkspace,
} from './library.js';
import { checkProduct, type Matrices, multiply, type Product } from './product.js';

interface Layout {
  readonly type: number;
  readonly rows: number;
  readonly cols: number;
  readonly ld: number;
  batch: number;
  stride: number;
}
interface Description {
  readonly compute: number;
  readonly scale: number;
  readonly attributes: Map<number, number>;
}
interface Preference {
  workspace: number;
  readonly alignments: Map<number, number>;
}
/** What an algorithm was chosen for: it serves nothing else. */
interface Choice {
  readonly key: string;
  readonly alignment: number;
  readonly workspace: number;
}

const NOT_SUPPORTED = { cublasLt: 15, hipblasLt: 7 } as const;
const EPILOGUE_DEFAULT = 1;
/** A mark at the beginning of every algorithm, then its number. */
const MARK = 0x4f474c41;
const DEFAULT_ALIGNMENT = 256;
const WORKSPACE = 1 << 16;

/** `refused`: dtypes it has no algorithm for, as hipBLASLt has none for f64 on most GPUs; `version`: as it tells it. */
export function ltStandIn(
  prefix: 'cublasLt' | 'hipblasLt',
  device: HostedDevice,
  {
    refused = prefix === 'hipblasLt' ? ['f64'] : [],
    version = prefix === 'cublasLt' ? 130101 : 100202,
  }: { readonly refused?: readonly string[]; readonly version?: number } = {},
): StandIn {
  const numbers: LtNumbers = prefix === 'cublasLt' ? CUBLASLT_NUMBERS : HIPBLASLT_NUMBERS;
  const handles = new Handles();
  const choices: Choice[] = [];
  const layoutOf = (h: number): Layout => handles.get<Layout>(h, 'matrix layout');

  const product = (d: Description, a: Layout, b: Layout, c: Layout, out: Layout): Product => {
    if (a.batch !== b.batch || a.batch !== out.batch || c.batch !== out.batch)
      throw new Misuse(`batches of ${a.batch}, ${b.batch}, ${c.batch} and ${out.batch}`);
    if (c.type !== out.type) throw new Misuse('c and d are of different types');
    const op = (attribute: number): boolean => {
      const value = d.attributes.get(attribute);
      if (value !== numbers.opN && value !== numbers.opT)
        throw new Misuse(`operation ${value} of attribute ${attribute}`);
      return value === numbers.opT;
    };
    const matrices = (l: Layout): Matrices => ({ ...l, address: 0, dtype: typeOf(LT_TYPES, l.type) });
    const wide = matrices(a).dtype === 'f64';
    if (d.scale !== (wide ? LT_TYPES.f64 : LT_TYPES.f32))
      throw new Misuse(`scale type ${d.scale} of a product of ${matrices(a).dtype}`);
    const computes = wide
      ? [numbers.compute.f64]
      : matrices(a).dtype === 'f32'
        ? [numbers.compute.f32, numbers.compute.tf32]
        : [numbers.compute.f32];
    if (!computes.includes(d.compute))
      throw new Misuse(`compute type ${d.compute} of a product of ${matrices(a).dtype}`);
    const epilogue = d.attributes.get(numbers.desc.epilogue) ?? EPILOGUE_DEFAULT;
    if (epilogue !== EPILOGUE_DEFAULT && epilogue !== numbers.epilogueBias) throw new Misuse(`epilogue ${epilogue}`);
    const p = {
      batch: out.batch,
      a: matrices(a),
      b: matrices(b),
      d: matrices(out),
      transposedA: op(numbers.desc.transA),
      transposedB: op(numbers.desc.transB),
      alpha: 1,
      beta: 0,
      tf32: d.compute === numbers.compute.tf32,
    };
    checkProduct(p);
    return p;
  };

  const symbols: Symbols = {
    [`${prefix}GetVersion`]:
      prefix === 'cublasLt'
        ? () => version
        : (handle: number, cell: NativeArg) => {
            handles.get(handle, 'handle');
            hostMemory(cell, 4).setInt32(0, version, true);
            return 0;
          },
    [`${prefix}GetStatusName`]: (s: number) => textAddress(s === 0 ? 'CUBLAS_STATUS_SUCCESS' : `CUBLAS_STATUS_${s}`),
    [`${prefix}Create`]: (cell: NativeArg) => handles.make(cell, 'handle', {}),
    [`${prefix}Destroy`]: (h: number) => handles.destroy(h, 'handle'),
    [`${prefix}MatrixLayoutCreate`]: (cell: NativeArg, type: number, rows: number, cols: number, ld: number) => {
      typeOf(LT_TYPES, type);
      return handles.make(cell, 'matrix layout', { type, rows, cols, ld, batch: 1, stride: 0 } satisfies Layout);
    },
    [`${prefix}MatrixLayoutSetAttribute`]: (h: number, attribute: number, value: NativeArg, bytes: number) => {
      const layout = layoutOf(h);
      if (attribute === numbers.layout.batchCount) layout.batch = sized(value, bytes, 4);
      else if (attribute === numbers.layout.batchStride) layout.stride = sized(value, bytes, 8);
      else throw new Misuse(`attribute ${attribute}`);
      return 0;
    },
    [`${prefix}MatrixLayoutDestroy`]: (h: number) => handles.destroy(h, 'matrix layout'),
    [`${prefix}MatmulDescCreate`]: (cell: NativeArg, compute: number, scale: number) =>
      handles.make(cell, 'description', { compute, scale, attributes: new Map() } satisfies Description),
    [`${prefix}MatmulDescSetAttribute`]: (h: number, attribute: number, value: NativeArg, bytes: number) => {
      const { attributes } = handles.get<Description>(h, 'description');
      const size = attribute === numbers.desc.biasPointer ? 8 : 4;
      if (!Object.values(numbers.desc).includes(attribute)) throw new Misuse(`attribute ${attribute}`);
      attributes.set(attribute, sized(value, bytes, size));
      return 0;
    },
    [`${prefix}MatmulDescDestroy`]: (h: number) => handles.destroy(h, 'description'),
    [`${prefix}MatmulPreferenceCreate`]: (cell: NativeArg) =>
      handles.make(cell, 'preference', { workspace: 0, alignments: new Map() } satisfies Preference),
    [`${prefix}MatmulPreferenceSetAttribute`]: (h: number, attribute: number, value: NativeArg, bytes: number) => {
      const preference = handles.get<Preference>(h, 'preference');
      if (attribute === numbers.pref.maxWorkspace) preference.workspace = sized(value, bytes, 8);
      else if (numbers.pref.minAlignment.includes(attribute))
        preference.alignments.set(attribute, sized(value, bytes, 4));
      else throw new Misuse(`attribute ${attribute}`);
      return 0;
    },
    [`${prefix}MatmulPreferenceDestroy`]: (h: number) => handles.destroy(h, 'preference'),
    [`${prefix}MatmulAlgoGetHeuristic`]: (
      h: number,
      desc: number,
      a: number,
      b: number,
      c: number,
      d: number,
      pref: number,
      wanted: number,
      results: NativeArg,
      found: NativeArg,
    ) => {
      handles.get(h, 'handle');
      if (wanted !== 1) throw new Misuse(`${wanted} algorithms asked for where room for one is made`);
      const preference = handles.get<Preference>(pref, 'preference');
      const p = product(handles.get(desc, 'description'), layoutOf(a), layoutOf(b), layoutOf(c), layoutOf(d));
      hostMemory(found, 4).setInt32(0, 0, true);
      if (refused.includes(p.a.dtype)) return NOT_SUPPORTED[prefix];
      // Without a word about alignment the library takes its own memory's; hipBLASLt has no such attribute and takes
      // any.
      const alignment =
        numbers.pref.minAlignment.length === 0
          ? 1
          : Math.max(...numbers.pref.minAlignment.map((n) => preference.alignments.get(n) ?? DEFAULT_ALIGNMENT));
      const workspace = Math.min(preference.workspace, WORKSPACE);
      choices.push({ key: keyOf(p), alignment, workspace });
      const out = hostMemory(results, numbers.result.size);
      out.setUint32(0, MARK, true);
      out.setUint32(4, choices.length - 1, true);
      out.setBigUint64(numbers.result.workspaceSize, BigInt(workspace), true);
      hostMemory(found, 4).setInt32(0, 1, true);
      return 0;
    },
    [`${prefix}Matmul`]: (
      h: number,
      desc: number,
      alpha: number,
      a: number,
      aLayout: number,
      b: number,
      bLayout: number,
      beta: number,
      c: number,
      cLayout: number,
      d: number,
      dLayout: number,
      algo: number,
      workspace: number,
      workspaceBytes: number,
      stream: number,
    ) => {
      handles.get(h, 'handle');
      if (stream === 0) throw new Misuse('the default stream');
      const description = handles.get<Description>(desc, 'description');
      const p = product(description, layoutOf(aLayout), layoutOf(bLayout), layoutOf(cLayout), layoutOf(dLayout));
      const chosen = hostMemory(algo, 8);
      const choice = chosen.getUint32(0, true) === MARK ? choices[chosen.getUint32(4, true)] : undefined;
      if (choice?.key !== keyOf(p)) throw new Misuse('the algorithm is none that was chosen for this product');
      const bias = description.attributes.get(numbers.desc.biasPointer);
      const wantsBias = description.attributes.get(numbers.desc.epilogue) === numbers.epilogueBias;
      if (wantsBias && !bias) throw new Misuse('the epilogue adds a bias, and there is no address of one');
      for (const [name, address] of Object.entries({ a, b, c, d, ...(wantsBias && { bias: bias as number }) }))
        if (address % choice.alignment !== 0)
          throw new Misuse(
            `${name} at ${address} is not aligned to ${choice.alignment}, what the algorithm was chosen for`,
          );
      if (c !== d) throw new Misuse('c and d are different addresses');
      const scalar = (at: number): number =>
        p.a.dtype === 'f64' ? hostMemory(at, 8).getFloat64(0, true) : hostMemory(at, 4).getFloat32(0, true);
      const run: Product = {
        ...p,
        a: { ...p.a, address: a },
        b: { ...p.b, address: b },
        d: { ...p.d, address: d },
        alpha: scalar(alpha),
        beta: scalar(beta),
        ...(wantsBias && { bias: bias as number }),
      };
      device.enqueue(stream, () => {
        useWorkspace(device, workspace, workspaceBytes, choice.workspace);
        multiply(device, run);
      });
      return 0;
    },
  };
  return new StandIn(prefix, symbols);
}

/** What an algorithm is good for: shapes, types and strides, not addresses. */
const keyOf = (p: Product): string => JSON.stringify({ ...p, alpha: 0, beta: 0 });

function sized(value: NativeArg, bytes: number, want: 4 | 8): number {
  if (bytes !== want) throw new Misuse(`${bytes} bytes where the attribute has ${want}`);
  const view = hostMemory(value, want);
  return want === 4 ? view.getInt32(0, true) : Number(view.getBigInt64(0, true));
}
