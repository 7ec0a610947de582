// CSV files: records by the names of their columns, numbers where a whole column holds them.
import { readWhole, textOf } from '../base/read-file.js';
import { ArgumentError, FormatError } from '../base/errors.js';
import { requireOptions } from '../ops/kernel-row.js';
import { tensor } from '../tensor/create.js';
import type { DType } from '../base/dtype.js';
import type { Tensor } from '../tensor/tensor.js';
import { checkIndex, Dataset } from './dataset.js';

/** How a CSV file is read. */
export interface CsvOptions {
  /** Default ','. */
  readonly delimiter?: string;
  /** Whether the first line holds names, or the names themselves; default true. */
  readonly header?: boolean | readonly string[];
}

/** The fields of all lines: quotes around fields, doubled quotes and line breaks in them as RFC 4180 has it. */
export function parseCsv(text: string, delimiter = ',', where = 'csv'): string[][] {
  if (delimiter.length !== 1 || delimiter === '"')
    throw new ArgumentError(`csv: delimiter ${JSON.stringify(delimiter)} is not one character other than "`);
  const rows: string[][] = [];
  let row: string[] = [];
  let at = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  let line = 1;
  const endRow = (): void => {
    if (row.length > 1 || row[0] !== '') rows.push(row); // empty lines hold no record
    row = [];
  };
  while (at < text.length) {
    let field = '';
    if (text[at] === '"') {
      const opened = line;
      at++;
      for (;;) {
        const end = text.indexOf('"', at);
        if (end < 0) throw new FormatError(`${where}: line ${opened}: a quote is opened and never closed`);
        const part = text.slice(at, end);
        line += part.split('\n').length - 1;
        field += part;
        at = end + 1;
        if (text[at] !== '"') break;
        field += '"';
        at++;
      }
      if (at < text.length && text[at] !== delimiter && text[at] !== '\n' && text[at] !== '\r')
        throw new FormatError(`${where}: line ${line}: ${JSON.stringify(text[at])} stands after a closing quote`);
    } else {
      const start = at;
      while (at < text.length && text[at] !== delimiter && text[at] !== '\n' && text[at] !== '\r') at++;
      field = text.slice(start, at);
    }
    row.push(field);
    if (text[at] === delimiter) {
      at++;
      if (at === text.length) row.push('');
      continue;
    }
    if (text[at] === '\r') at++;
    if (text[at] === '\n') at++;
    line++;
    endRow();
  }
  if (row.length > 0) endRow();
  return rows;
}

/** A table of records; columns that hold nothing but numbers are numbers, empty fields in them NaN. */
export class CsvDataset extends Dataset<Record<string, number | string>> {
  /** The names of the columns. */
  readonly columns: readonly string[];
  readonly #byName: Readonly<Record<string, readonly (number | string)[]>>;
  readonly length: number;
  constructor(columns: readonly string[], rows: readonly (readonly string[])[]) {
    super();
    this.columns = columns;
    this.length = rows.length;
    this.#byName = Object.fromEntries(
      columns.map((name, c) => {
        const fields = rows.map((r) => r[c]);
        const isNumber = (f: string): boolean =>
          f.trim() === '' ||
          (/^\s*[+-]?(\d|\.\d|inf|nan)/i.test(f) && !Number.isNaN(toNumber(f))) ||
          /^\s*nan\s*$/i.test(f);
        // Whole numbers that no double holds, as long identifiers, stay what they are: text.
        const exact = (f: string): boolean => !/^\s*[+-]?\d+\s*$/.test(f) || Number.isSafeInteger(Number(f));
        const numbers = fields.some((f) => f.trim() !== '') && fields.every((f) => isNumber(f) && exact(f));
        return [name, numbers ? fields.map(toNumber) : fields];
      }),
    );
  }
  get(i: number): Record<string, number | string> {
    checkIndex(i, this.length);
    return Object.fromEntries(this.columns.map((name) => [name, this.#byName[name][i]]));
  }
  /** All values of a column. */
  column(name: string): readonly (number | string)[] {
    if (!Object.hasOwn(this.#byName, name))
      throw new ArgumentError(`csv: there is no column ${JSON.stringify(name)}; known are ${this.columns.join(', ')}`);
    return this.#byName[name];
  }
  /** Columns of numbers as one tensor, (rows, columns); a single name gives (rows). */
  tensor(names: string | readonly string[], dtype: DType = 'f32'): Tensor {
    const list = typeof names === 'string' ? [names] : names;
    const columns = list.map((name) => {
      const values = this.column(name);
      const bad = values.findIndex((v) => typeof v !== 'number');
      if (bad >= 0)
        throw new ArgumentError(`csv: column ${name} holds ${JSON.stringify(values[bad])} in record ${bad}, no number`);
      return values as readonly number[];
    });
    if (typeof names === 'string') return tensor([...columns[0]], { dtype, shape: [this.length] });
    const flat = new Array<number>(this.length * list.length);
    columns.forEach((values, c) => values.forEach((v, i) => (flat[i * list.length + c] = v)));
    return tensor(flat, { dtype, shape: [this.length, list.length] });
  }
}
const toNumber = (f: string): number => {
  const text = f.trim();
  if (text === '' || /^nan$/i.test(text)) return NaN;
  const infinite = /^([+-]?)inf(inity)?$/i.exec(text);
  return infinite ? (infinite[1] === '-' ? -Infinity : Infinity) : Number(text);
};

/** A file's text. */
function textIn(path: string): string {
  const bytes = readWhole(path);
  try {
    return textOf(bytes);
  } catch (cause) {
    throw new FormatError(`${path}: is not in UTF-8; parseCsv(text) takes a text that was decoded otherwise`, {
      cause,
    });
  }
}

/** A CSV file as records by the names of its columns. */
export function readCsv(path: string, options: CsvOptions = {}): CsvDataset {
  requireOptions('readCsv', options, ['delimiter', 'header']);
  const rows = parseCsv(textIn(path), options.delimiter ?? ',', path);
  const { header = true } = options;
  const named = header === true;
  if (named && rows.length === 0) throw new FormatError(`${path}: holds no line, not even the names of columns`);
  const columns = named ? rows[0] : header === false ? (rows[0] ?? []).map((_, i) => String(i)) : [...header];
  if (new Set(columns).size !== columns.length)
    throw new FormatError(`${path}: a column is named twice: ${columns.join(', ')}`);
  const body = named ? rows.slice(1) : rows;
  const odd = body.findIndex((r) => r.length !== columns.length);
  if (odd >= 0)
    throw new FormatError(
      `${path}: record ${odd} has ${body[odd].length} fields where there are ${columns.length} columns`,
    );
  return new CsvDataset(columns, body);
}
