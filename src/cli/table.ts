// Plain text for the terminal: tables, sizes, wrapped lines.

/** Columns padded to their widest cell; numbers to the right. */
export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const cells = rows.map((r) => r.map(String));
  const width = head.map((h, i) => cells.reduce((n, r) => Math.max(n, (r[i] ?? '').length), h.length));
  const right = head.map(
    (_, i) =>
      rows.length > 0 &&
      rows.every((r) => typeof r[i] === 'number' || r[i] === '' || /^[\d.,%x-]+$/.test(String(r[i]))),
  );
  const line = (r: readonly string[]): string =>
    r
      .map((c, i) => (right[i] ? c.padStart(width[i]) : c.padEnd(width[i])))
      .join('  ')
      .trimEnd();
  return [line(head), width.map((w) => '-'.repeat(w)).join('  '), ...cells.map(line)].join('\n');
}

/** Bytes as people read them. */
export function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const i = n > 0 ? Math.min(units.length - 1, Math.floor(Math.log2(n) / 10)) : 0;
  return `${i === 0 ? n : (n / 1024 ** i).toFixed(1)} ${units[i]}`;
}

/** Lines of at most `width` characters, all but the first moved in. */
export function wrap(text: string, indent = '  ', width = Math.min(100, terminalColumns() ?? 100)): string {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/)) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = indent;
    }
    line += line === '' || line === indent ? word : ` ${word}`;
  }
  return [...lines, line].join('\n');
}

/** Text of files in one line, without the characters that would move a terminal's cursor. */
export const printable = (text: string): string =>
  text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) =>
    JSON.stringify(c)
      .slice(1, -1)
      .replace(/^[^\\]$/u, '\ufffd'),
  );

/** How wide the terminal is; nothing where there is none, or where it was never told its size and says 0. */
const terminalColumns = (): number | undefined => (process.stdout.isTTY && process.stdout.columns) || undefined;

/** Cells that give way keep as many characters. */
const FEWEST = 8;
/**
 * A table as wide as the terminal: the cells of one column give way, or of several, one after another. Without a
 * terminal, cells stay whole.
 */
export function fit(
  head: readonly string[],
  rows: readonly (readonly (string | number)[])[],
  giveWay: number | readonly number[],
  columns: number | undefined = terminalColumns(),
): string {
  if (columns === undefined) return table(head, rows);
  const width = head.map((h, i) => rows.reduce((n, r) => Math.max(n, String(r[i]).length), h.length));
  for (const i of [giveWay].flat()) {
    const excess = width.reduce((n, w) => n + w + 2, -2) - columns;
    if (excess > 0) width[i] = Math.max(FEWEST, head[i].length, width[i] - excess);
  }
  // Names differ at their ends more than in their middle.
  const short = (cell: string | number, room: number): string => {
    const text = String(cell);
    const keep = Math.floor((room - 1) / 2);
    return text.length <= room ? text : `${text.slice(0, room - 1 - keep)}…${text.slice(text.length - keep)}`;
  };
  return table(
    head,
    rows.map((r) => r.map((cell, i) => (String(cell).length > width[i] ? short(cell, width[i]) : cell))),
  );
}
