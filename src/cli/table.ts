// Plain text for the terminal: tables, sizes, wrapped lines.

/** Columns padded to their widest cell; numbers to the right. */
export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const cells = rows.map((r) => r.map(String));
  const width = head.map((h, i) => Math.max(h.length, ...cells.map((r) => (r[i] ?? '').length)));
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
export function wrap(text: string, indent = '  ', width = 100): string {
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
