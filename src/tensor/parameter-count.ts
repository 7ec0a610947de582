// How many parameters a function was written with: Function.length stops at the first one that has a default.

const OPEN = '([{';
const CLOSE = ')]}';
const QUOTES = '\'"`';

const COMMENTS = /\/\*[^]*?\*\/|\/\/[^\n]*/g;

/**
 * The number of a function's parameters, those with defaults included; Infinity where a rest parameter takes all, and
 * where a program was packed in a way that leaves no source to read.
 */
export function parameterCount(f: (...args: never[]) => unknown): number {
  const text = f.toString().replace(COMMENTS, '');
  if (/\{\s*\[native code\]\s*\}$/.test(text)) return Infinity;
  const start = text.indexOf('(');
  const arrow = text.indexOf('=>');
  if (arrow !== -1 && (start === -1 || arrow < start)) return 1; // x => ...
  let depth = 0;
  let count = 0;
  let parameter = '';
  for (let i = start; i < text.length; i++) {
    const c = text[i];
    if (QUOTES.includes(c)) {
      for (i++; i < text.length && text[i] !== c; i++) if (text[i] === '\\') i++;
      parameter += c;
    } else if (OPEN.includes(c)) depth++;
    else if (CLOSE.includes(c)) depth--;
    if (depth === 0 || (depth === 1 && c === ',')) {
      if (parameter.trim().startsWith('...')) return Infinity;
      if (parameter.trim() !== '') count++;
      parameter = '';
      if (depth === 0) break;
    } else if (i > start) parameter += c;
  }
  return count;
}
