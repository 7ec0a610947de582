// Paragraphs and lists of pages that are made, folded as they are on pages written by hand.
const WIDTH = 120;

/** Words in lines of at most 120 characters, all but the first moved in; a single longer word has its own. */
function folded(text: string, indent: string): string {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/)) {
    if (line !== '' && line.length + 1 + word.length > WIDTH) {
      lines.push(line);
      line = indent + word;
    } else line += line === '' ? word : ` ${word}`;
  }
  return [...lines, line].join('\n');
}

/** A page with its prose folded; headings, tables, comments and code stay as they are. */
export const withFoldedProse = (page: string): string =>
  page
    .split('\n\n')
    .map((block) => {
      if (/^( {4}|```|[|#<])/m.test(block) || block.split('\n').every((line) => line.length <= WIDTH)) return block;
      const items = block.startsWith('- ') ? block.trimEnd().split(/\n(?=- )/) : [block.trimEnd()];
      const lines = items.map((item) => folded(item, item.startsWith('- ') ? '  ' : ''));
      return lines.join('\n') + (block.endsWith('\n') ? '\n' : '');
    })
    .join('\n\n');
