// Values of Jinja programs as Python writes and compares them.

/** A value of the library's interpreter; its own types do not resolve from ES modules. */
export interface Value {
  readonly type: string;
  readonly value?: unknown;
}

/** Quotes as Python chooses them: single ones unless a text holds these and no double ones. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };
  const hex = (c: string): string => `\\x${(c.codePointAt(0) as number).toString(16).padStart(2, '0')}`;
  const inside = text.replace(/[\\\n\r\t'"]|[\0-\x1f\x7f-\xa0\xad]/g, (c) =>
    c === "'" || c === '"' ? (c === quote ? `\\${c}` : c) : (escapes[c] ?? hex(c)),
  );
  return `${quote}${inside}${quote}`;
}
/** Floats have a point or an exponent of two digits, which begins at 1e16 and 1e-5. */
function float(x: number): string {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? 'nan' : x > 0 ? 'inf' : '-inf';
  const plain = x !== 0 && (Math.abs(x) >= 1e16 || Math.abs(x) < 1e-4) ? x.toExponential() : String(x);
  if (plain.includes('e')) return plain.replace(/e([+-])(\d)$/, 'e$10$2');
  return plain.includes('.') ? plain : `${plain}.0`;
}
const NAMED: Readonly<Record<string, (v: unknown) => string>> = {
  BooleanValue: (v) => (v ? 'True' : 'False'),
  NullValue: () => 'None',
  FloatValue: (v) => float(v as number),
  ArrayValue: (v) => `[${(v as readonly Value[]).map(represented).join(', ')}]`,
  TupleValue: (v) => {
    const items = (v as readonly Value[]).map(represented);
    return items.length === 1 ? `(${items[0]},)` : `(${items.join(', ')})`;
  },
  ObjectValue: (v) =>
    `{${[...(v as ReadonlyMap<string, Value>)].map(([k, x]) => `${quoted(k)}: ${represented(x)}`).join(', ')}}`,
};
/** A value as it stands within another. */
function represented(v: Value): string {
  if (v.type === 'StringValue') return quoted(v.value as string);
  return v.type === 'UndefinedValue' ? 'Undefined' : shown(v);
}
/** A value as a template prints it. */
export function shown(v: Value): string {
  if (v.type === 'UndefinedValue') return '';
  const name = NAMED[v.type];
  return name ? name(v.value) : String(v.type === 'IntegerValue' || v.type === 'StringValue' ? v.value : v);
}

const isNumber = ({ type }: Value): boolean => /^(Integer|Float|Boolean)Value$/.test(type);
/** Whether two values are equal: numbers by their value, lists and objects by what they hold, others of one type. */
export function equal(a: Value, b: Value): boolean {
  if (isNumber(a) && isNumber(b)) return Number(a.value) === Number(b.value);
  if (a.type !== b.type) return false;
  if (a.type === 'NullValue' || a.type === 'UndefinedValue') return true;
  if (a.type === 'ArrayValue' || a.type === 'TupleValue') {
    const [x, y] = [a.value, b.value] as readonly (readonly Value[])[];
    return x.length === y.length && x.every((v, i) => equal(v, y[i]));
  }
  if (a.type !== 'ObjectValue') return a.value === b.value;
  const [x, y] = [a.value, b.value] as readonly ReadonlyMap<string, Value>[];
  return x.size === y.size && [...x].every(([key, v]) => y.has(key) && equal(v, y.get(key) as Value));
}
