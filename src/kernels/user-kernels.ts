// Kernels that users write: their sources declare nothing, so heads of the form KERNEL(threads) name(parameters) are
// read from the text.
import { ArgumentError, CompileError } from '../base/errors.js';
import { type Entry, layOut } from './declare.js';
import { closing, splitArgs, stripComments } from './macros.js';

const HEAD = /\bKERNEL\s*\(\s*(\d+)\s*\)\s*(\w+)\s*\(/g;
/** compute_t of portable.h: what an element type is computed in. */
const computeType = (type: string): string =>
  type.replace(/^compute_t<\s*(\w+)\s*>$/, (_, s: string) => (['half', 'bfloat', 'fp8'].includes(s) ? 'float' : s));

function paramsOf(symbol: string, text: string): Pick<Entry, 'params' | 'size'> {
  const list = splitArgs(text, true).filter(Boolean);
  const params = list.map((p, i): readonly [string, string] => {
    const clean = p.replace(/\b(const|__restrict__|volatile)\b/g, ' ').replace(/\s+/g, ' ');
    const [, type = '', name = `${i}`] = /^(.*\*|[\w:]+(?:<.*>)?)\s*(\w+)?$/.exec(clean.trim()) ?? [];
    return [name, computeType(type).replace(/\s*\*$/, '*')];
  });
  try {
    return layOut(symbol, Object.fromEntries(params));
  } catch (cause) {
    if (!(cause instanceof ArgumentError)) throw cause;
    throw new CompileError(`${cause.message}; users' kernels take scalars and pointers`, { cause });
  }
}

/** The kernels of a source, and the source without them. */
export function readKernels(
  name: string,
  source: string,
): { readonly shared: string; readonly entries: readonly Entry[] } {
  const code = stripComments(source); // as long as the source
  const entries: Entry[] = [];
  let shared = '';
  let from = 0;
  for (const m of code.matchAll(HEAD)) {
    const open = m.index + m[0].length - 1;
    const close = closing(code, open);
    const end = closing(code, code.indexOf('{', close));
    const symbol = m[2];
    if (entries.some((e) => e.symbol === symbol)) throw new CompileError(`${name}: kernel ${symbol} is defined twice`);
    const params = paramsOf(symbol, code.slice(open + 1, close - 1));
    entries.push({ symbol, threads: Number(m[1]), byWaves: false, ...params, text: code.slice(m.index, end) });
    shared += source.slice(from, m.index);
    from = end;
  }
  return { shared: shared + source.slice(from), entries };
}
