// What TypeScript reads of C++. Kernels declare themselves (declare.ts), so none of this says what a kernel takes.
// Three things no declaration can say: which parts of the headers a kernel reaches, some of them made by macros
// (needed.ts); what a user's own kernel takes (user-kernels.ts); and what Candle's files hold
// (src/parity/candle-source.ts). They share comments, brackets, lists of arguments and function-like macros here.

export interface Macro {
  readonly name: string;
  readonly params: readonly string[];
  readonly variadic: boolean;
  readonly body: string;
}

/** Comments become blanks (line structure stays), so that later scans see code only. */
export function stripComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:\\.|[^"\\\n])*"/g, (m) =>
    m[0] === '"' ? m : m.replace(/[^\n]/g, ' '),
  );
}

/** All function-like macros of a text; continued lines are joined. */
export function readMacros(text: string): Map<string, Macro> {
  const macros = new Map<string, Macro>();
  for (const [, name, list, body] of text
    .replace(/\\\n/g, ' ')
    .matchAll(/^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)]*)\)(.*)$/gm)) {
    const params = list
      .split(',')
      .map((p) => p.trim())
      .filter(Boolean);
    const variadic = params.at(-1) === '...';
    macros.set(name, {
      name,
      params: variadic ? params.slice(0, -1) : params,
      variadic,
      body: body.trim().replace(/\s+/g, ' '),
    });
  }
  return macros;
}

/** The index just after the bracket that closes the one at `open`. */
export function closing(text: string, open: number): number {
  const pairs: Record<string, string> = { '(': ')', '{': '}', '[': ']' };
  const stack: string[] = [];
  for (let i = open; i < text.length; i++) {
    const c = text[i];
    if (c === '"' || c === "'") {
      for (i++; i < text.length && text[i] !== c; i++) if (text[i] === '\\') i++;
    } else if (pairs[c]) stack.push(pairs[c]);
    else if (c === stack.at(-1)) {
      stack.pop();
      if (stack.length === 0) return i + 1;
    }
  }
  throw new SyntaxError(`kernel source: no closing bracket for ${JSON.stringify(text.slice(open, open + 60))}`);
}

/**
 * Splits at commas outside brackets. Template brackets count only where asked: C's own preprocessor does not know them.
 */
export function splitArgs(text: string, templates = false): string[] {
  const out: string[] = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i < text.length; i++) {
    if ('([{'.includes(text[i]) || (templates && text[i] === '<')) depth++;
    else if (')]}'.includes(text[i]) || (templates && text[i] === '>')) depth--;
    else if (text[i] === ',' && depth === 0) {
      out.push(text.slice(from, i));
      from = i + 1;
    }
  }
  out.push(text.slice(from));
  return out.map((a) => a.trim());
}

/** A macro's body with its arguments in place and ## carried out. */
function substitute(macro: Macro, args: readonly string[]): string {
  const values = new Map(macro.params.map((p, i) => [p, args[i] ?? '']));
  let body = macro.body;
  if (macro.variadic) {
    const rest = args.slice(macro.params.length).join(', ');
    // GNU's ", ##__VA_ARGS__": the comma goes where nothing follows it.
    body = body.replace(/,\s*##\s*__VA_ARGS__/g, rest === '' ? '' : ', __VA_ARGS__');
    values.set('__VA_ARGS__', rest);
  }
  return body.replace(/\b[A-Za-z_]\w*\b/g, (word) => values.get(word) ?? word).replace(/\s*##\s*/g, '');
}

/** Expands uses of those macros that `wanted` names, over and over; everything else stays as it is. */
export function expand(
  text: string,
  macros: ReadonlyMap<string, Macro>,
  wanted: (name: string) => boolean,
  depth = 0,
): string {
  if (depth > 50) throw new SyntaxError('kernel source: macros expand without end');
  const use = /\b([A-Za-z_]\w*)\s*\(/g;
  let out = '';
  let from = 0;
  for (let m = use.exec(text); m; m = use.exec(text)) {
    const macro = macros.get(m[1]);
    if (!macro || !wanted(m[1])) continue;
    const open = m.index + m[0].length - 1;
    const end = closing(text, open);
    const args = splitArgs(text.slice(open + 1, end - 1));
    out += text.slice(from, m.index) + expand(substitute(macro, args), macros, wanted, depth + 1);
    from = use.lastIndex = end;
  }
  return out + text.slice(from);
}
