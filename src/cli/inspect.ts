// `wick inspect FILE`: what a tensor file holds, as tables that fit the terminal or as JSON.
import { parseArgs } from 'node:util';
import { ArgumentError, FormatError } from '../base/errors.js';
import { describeFile, elementsOf, type FileDescription } from '../io/describe.js';
import { pathKind } from '../io/byte-source.js';
import { sniff } from '../io/open.js';
import { bytes, fit, printable, table } from './table.js';

const HELP = `wick inspect FILE           metadata and tensors of a GGUF, safetensors, PyTorch, npz or npy file;
                            FILE may also be a folder of safetensors or its index
wick inspect FILE --json    the same for programs, with every value in full`;

export function run(argv: readonly string[]): number {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: { help: { type: 'boolean', short: 'h' }, json: { type: 'boolean' } },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  if (positionals.length !== 1)
    throw new ArgumentError(`inspect: takes one file, not ${positionals.length}; wick inspect FILE`);
  const [path] = positionals;
  const file = described(path);
  console.log(values.json ? json(path, file) : report(path, file));
  return 0;
}

/** What has no mark of its own is read as safetensors: where it is none, and is not called so, it may be anything. */
function described(path: string): FileDescription {
  try {
    return describeFile(path);
  } catch (error) {
    if (!(error instanceof FormatError) || /\.(safetensors|json)$/.test(path)) throw error;
    if (pathKind(path)?.isFile() !== true || sniff(path) !== 'safetensors') throw error;
    throw new FormatError(`${path}: is no GGUF, safetensors, PyTorch, npz or npy file by its first bytes`);
  }
}

interface Totals {
  readonly tensors: number;
  readonly elements: number;
  readonly bytes: number;
  /** Of each type: how many tensors, elements, bytes. */
  readonly types: ReadonlyMap<string, { tensors: number; elements: number; bytes: number }>;
}

function totalsOf({ tensors }: FileDescription): Totals {
  const types = new Map<string, { tensors: number; elements: number; bytes: number }>();
  for (const t of tensors) {
    const row = types.get(t.type) ?? { tensors: 0, elements: 0, bytes: 0 };
    types.set(t.type, row);
    row.tensors++;
    row.elements += elementsOf(t);
    row.bytes += t.bytes ?? 0;
  }
  const sum = (key: 'elements' | 'bytes'): number => [...types.values()].reduce((n, r) => n + r[key], 0);
  return { tensors: tensors.length, elements: sum('elements'), bytes: sum('bytes'), types };
}

/** Numbers that JSON does not hold become text; maps become objects, things of the pickle their own text. */
function jsonValue(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint' || (typeof value === 'number' && !Number.isFinite(value))) return String(value);
  if (value instanceof Map) return Object.fromEntries([...value].map(([k, v]) => [String(k), v as unknown]));
  return value;
}

function json(file: string, { format, version, metadata, tensors }: FileDescription): string {
  const totals = totalsOf({ format, metadata, tensors });
  return JSON.stringify({ file, format, version, metadata, tensors, totals }, jsonValue, 2);
}

const SHOWN_ITEMS = 6;
/** A value in a few words: long arrays by their length and first elements. */
function shown(value: unknown): string {
  if (Array.isArray(value) && value.length > SHOWN_ITEMS)
    return `${value.length} values: ${value.slice(0, SHOWN_ITEMS).map(shown).join(', ')}, ...`;
  if (Array.isArray(value)) return `[${value.map(shown).join(', ')}]`;
  return printable(typeof value === 'object' ? (JSON.stringify(value, jsonValue) ?? '') : String(value));
}

function report(path: string, file: FileDescription): string {
  const totals = totalsOf(file);
  const parts = [`${path}: ${file.format}${file.version === undefined ? '' : ` version ${file.version}`}`];
  if (file.metadata.size > 0) {
    const rows = [...file.metadata].map(([key, value]) => [printable(key), shown(value)]);
    parts.push(fit(['metadata', 'value'], rows, 1));
  }
  if (totals.tensors > 0)
    parts.push(
      fit(
        ['tensor', 'type', 'shape', 'bytes'],
        file.tensors.map((t) => [
          printable(t.name),
          printable(t.type),
          t.shape ? `[${t.shape.join(', ')}]` : '?',
          t.bytes ?? '?',
        ]),
        0,
      ),
      table(
        ['type', 'tensors', 'elements', 'bytes'],
        [...totals.types].map(([type, r]) => [printable(type), r.tensors, r.elements, r.bytes]),
      ),
    );
  const perElement = totals.elements > 0 ? `, ${((totals.bytes * 8) / totals.elements).toFixed(2)} bits each` : '';
  parts.push(
    `${totals.tensors} ${totals.tensors === 1 ? 'tensor' : 'tensors'} of ${totals.elements} elements in ` +
      `${bytes(totals.bytes)}${perElement}`,
  );
  return parts.join('\n\n');
}
