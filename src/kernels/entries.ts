// Finds the kernels of a .hip file with their parameters, and splits the file into what all kernels share and one text per kernel.
import { CompileError } from '../base/errors.js';
import type { Entry, Param } from './declare.js';
import { closing, expand, type Macro, readMacros, splitArgs, stripComments } from './macros.js';

export interface ModuleSource {
  readonly name: string;
  /** Everything but the kernels, headers included. */
  readonly shared: string;
  readonly entries: ReadonlyMap<string, Entry>;
}

const SIZES: Record<string, number> = {
  u8: 1,
  i8: 1,
  fp8: 1,
  bool: 1,
  char: 1,
  u16: 2,
  i16: 2,
  half: 2,
  bfloat: 2,
  u32: 4,
  i32: 4,
  int: 4,
  unsigned: 4,
  float: 4,
  u64: 8,
  i64: 8,
  size_t: 8,
  double: 8,
};
interface CType {
  readonly size: number;
  readonly align: number;
}

/** Sizes of plain structs, which may be passed by value: members of known types, arrays of constant length. */
function readStructs(code: string): Map<string, CType> {
  const types = new Map<string, CType>(Object.entries(SIZES).map(([k, size]) => [k, { size, align: size }]));
  const constants = new Map(
    [...code.matchAll(/\bconstexpr\s+\w+\s+(\w+)\s*=\s*(\d+)\s*;/g)].map((m) => [m[1], Number(m[2])]),
  );
  for (const m of code.matchAll(/\bstruct\s+(?:alignas\((\d+)\)\s*)?(\w+)\s*\{/g)) {
    const body = code.slice(m.index + m[0].length, closing(code, m.index + m[0].length - 1) - 1);
    // Methods hold no storage: drop them with their bodies and initialisers.
    const fields = body.replace(/[^;{}]*\([^;{}]*(\{[^{}]*(\{[^{}]*\}[^{}]*)*\}|;)/g, '');
    let size = 0;
    let align = Number(m[1] ?? 1);
    let known = true;
    for (const field of fields
      .split(';')
      .map((f) => f.trim())
      .filter((f) => f && !f.startsWith('static'))) {
      const [, type, list] = /^(?:const\s+)?(\w+)\b\s*(.*)$/s.exec(field) ?? [];
      for (const item of splitArgs(list ?? '')) {
        const t = item.startsWith('*') ? { size: 8, align: 8 } : types.get(type ?? '');
        if (!t) {
          known = false;
          break;
        }
        let count = 1;
        for (const [, n] of item.matchAll(/\[\s*(\w+)\s*\]/g))
          count *= Number.isNaN(Number(n)) ? (constants.get(n) ?? NaN) : Number(n);
        size = Math.ceil(size / t.align) * t.align + t.size * count;
        align = Math.max(align, t.align);
      }
    }
    if (known && Number.isFinite(size)) types.set(m[2], { size: Math.ceil(size / align) * align, align });
  }
  return types;
}

/** compute_t of portable.h: what an element type is computed in. */
const computeType = (type: string): string =>
  type.replace(/^compute_t<\s*(\w+)\s*>$/, (_, s: string) => (['half', 'bfloat', 'fp8'].includes(s) ? 'float' : s));

function readParams(
  symbol: string,
  text: string,
  types: ReadonlyMap<string, CType>,
): { params: Param[]; size: number } {
  let at = 0;
  const params = splitArgs(text, true)
    .filter(Boolean)
    .map((p): Param => {
      const clean = p
        .replace(/\b(const|__restrict__|volatile)\b/g, ' ')
        .replace(/\s+/g, ' ')
        .trim();
      const [, named, name = ''] = /^(.*\*|[\w:]+(?:<.*>)?)\s*(\w*)$/.exec(clean) ?? [];
      const pointer = named?.endsWith('*') ?? false;
      const base = computeType(named ?? '');
      const known = pointer ? { size: 8, align: 8 } : types.get(base);
      if (!known)
        throw new CompileError(
          `kernel ${symbol}: the size of parameter "${p}" is not known; scalars, pointers and plain structs are`,
        );
      const offset = Math.ceil(at / known.align) * known.align;
      at = offset + known.size;
      return { name, type: base.replace(/\s*\*$/, '*'), pointer, ...known, offset };
    });
  return { params, size: at };
}

/** Macros whose use at file scope makes kernels: those with KERNEL( in them, directly, through others, or through a macro given by name. */
function kernelMacros(macros: ReadonlyMap<string, Macro>): Set<string> {
  const made = new Set<string>();
  for (let grown = true; grown; ) {
    grown = false;
    for (const m of macros.values()) {
      if (made.has(m.name) || m.name === 'KERNEL') continue;
      const calls = [...m.body.matchAll(/\b([A-Za-z_]\w*)\s*\(/g)].map((c) => c[1]);
      if (!calls.some((c) => c === 'KERNEL' || made.has(c) || m.params.includes(c))) continue;
      made.add(m.name);
      grown = true;
    }
  }
  return made;
}

/** Splits a module whose headers are already part of the text. */
export function parseModule(name: string, text: string): ModuleSource {
  const code = stripComments(text);
  const macros = readMacros(code);
  const makers = kernelMacros(macros);
  const types = readStructs(code.replace(/\\\n/g, '  '));
  const entries = new Map<string, Entry>();

  const addAll = (made: string): void => {
    const head = /\bKERNEL\s*\(\s*(\w+)\s*\)\s*(\w+)\s*\(/g;
    for (let m = head.exec(made); m; m = head.exec(made)) {
      const open = m.index + m[0].length - 1;
      const close = closing(made, open);
      const end = closing(made, made.indexOf('{', close));
      const symbol = m[2];
      if (entries.has(symbol)) throw new CompileError(`${name}.hip: kernel ${symbol} is defined twice`);
      const constant =
        new RegExp(`\\bconstexpr\\s+\\w+\\s+${m[1]}\\s*=\\s*(\\d+)(\\s*/\\s*64\\s*\\*\\s*WICK_WAVE)?`).exec(code) ??
        new RegExp(`#define\\s+${m[1]}\\s+(\\d+)`).exec(code);
      const threads = /^\d+$/.test(m[1]) ? Number(m[1]) : Number(constant?.[1] ?? NaN);
      if (!Number.isInteger(threads))
        throw new CompileError(`kernel ${symbol}: KERNEL(${m[1]}) must be a number or a constexpr of the file`);
      entries.set(symbol, {
        symbol,
        threads,
        byWaves: constant?.[2] !== undefined,
        ...readParams(symbol, made.slice(open + 1, close - 1), types),
        text: made.slice(m.index, end),
      });
      head.lastIndex = end;
    }
  };

  // Walk the file scope: skip directives and braces, take out whatever makes kernels.
  let shared = '';
  let from = 0;
  for (let i = 0; i < code.length; ) {
    if (code[i] === '#') {
      while (i < code.length && !(code[i] === '\n' && code[i - 1] !== '\\')) i++;
    } else if (code[i] === '{') i = closing(code, i);
    else if (code[i] === '"') i = code.indexOf('"', i + 1) + 1;
    else if (/[A-Za-z_]/.test(code[i])) {
      const word = /^\w+/.exec(code.slice(i, i + 100))?.[0] ?? '';
      const open = i + word.length;
      if (code[open] === '(' && (word === 'KERNEL' || makers.has(word))) {
        let end = closing(code, open);
        if (word === 'KERNEL') {
          end = closing(code, code.indexOf('(', end));
          end = closing(code, code.indexOf('{', end));
        }
        const use = code.slice(i, end);
        const made = word === 'KERNEL' ? use : expand(use, macros, (n) => makers.has(n));
        if (made.includes('KERNEL')) {
          addAll(made);
          shared += text.slice(from, i);
          from = end;
        }
        i = end;
      } else i = open;
    } else i++;
  }
  return { name, shared: shared + text.slice(from), entries };
}
