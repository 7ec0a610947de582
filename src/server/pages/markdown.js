// Markdown as elements of the page. Nothing is ever put into the page as HTML: a model's words are text, whatever they say.
import { highlighted } from './highlight.js';

/** An element with children that are elements or text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Each kind of inline text: how it is found, and what it becomes. The first that is found earliest wins.
const INLINE = [
  { at: /(`+)([^]*?[^`])\1(?!`)/, make: (m) => element('code', {}, m[2].trim() || m[2]) },
  { at: /\*\*(\S(?:[^]*?\S)?)\*\*/, make: (m) => element('strong', {}, ...inline(m[1])) },
  { at: /__(\S(?:[^]*?\S)?)__(?!\w)/, make: (m) => element('strong', {}, ...inline(m[1])) },
  { at: /\*(\S(?:[^*]*?\S)?)\*/, make: (m) => element('em', {}, ...inline(m[1])) },
  { at: /(?<!\w)_(\S(?:[^_]*?\S)?)_(?!\w)/, make: (m) => element('em', {}, ...inline(m[1])) },
  { at: /~~(\S(?:[^]*?\S)?)~~/, make: (m) => element('del', {}, ...inline(m[1])) },
  { at: /\[([^\]]+)\]\(([^)\s]+)\)/, make: (m) => link(m[2], ...inline(m[1])) },
  { at: /https?:\/\/[^\s<>")\]]+[^\s<>")\].,;:!?]/, make: (m) => link(m[0], m[0]) },
];

/** Only addresses that open a page; any other stays text. */
function link(address, ...children) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return element('span', {}, ...children);
  return element('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow' }, ...children);
}

export function inline(text) {
  const out = [];
  let rest = text;
  while (rest !== '') {
    let best;
    for (const kind of INLINE) {
      const found = kind.at.exec(rest);
      if (found && (!best || found.index < best.found.index)) best = { found, kind };
    }
    if (!best) break;
    const { found, kind } = best;
    if (found.index > 0) out.push(rest.slice(0, found.index));
    out.push(kind.make(found));
    rest = rest.slice(found.index + found[0].length);
  }
  if (rest !== '') out.push(rest);
  return out;
}

/** Copies a text, and the button says so. Where another machine serves the page without TLS, only the old way works. */
export async function copyText(text, button) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else {
    const area = element('textarea', { readonly: '' });
    area.value = text;
    button.after(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  button.textContent = 'Copied';
}

function codeBlock(text, language) {
  const copy = element('button', { type: 'button', class: 'copy' }, 'Copy');
  copy.addEventListener('click', () => copyText(text, copy));
  const block = element('div', { class: 'block' }, element('pre', {}, element('code', {}, ...highlighted(text))), copy);
  if (language) block.append(element('span', { class: 'language' }, language));
  return block;
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const cells = (line) =>
  line
    .trim()
    .replace(/^\||\|$/g, '')
    .split('|')
    .map((c) => c.trim());

/** Lines as blocks. */
export function markdown(text) {
  return blocks(text.replaceAll('\r\n', '\n').split('\n'));
}
function blocks(lines) {
  const out = [];
  let paragraph = [];
  const flush = () => {
    if (paragraph.length === 0) return;
    const parts = paragraph.flatMap((line, i) => (i === 0 ? inline(line) : [element('br'), ...inline(line)]));
    out.push(element('p', {}, ...parts));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const fence = FENCE.exec(line);
    const heading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (fence) {
      flush();
      let end = i + 1;
      while (end < lines.length && !lines[end].trim().startsWith(fence[1])) end++;
      out.push(codeBlock(lines.slice(i + 1, end).join('\n'), fence[2]));
      i = end + 1;
    } else if (heading) {
      flush();
      out.push(element(`h${Math.min(6, heading[1].length + 1)}`, {}, ...inline(heading[2])));
      i++;
    } else if (RULE.test(line)) {
      flush();
      out.push(element('hr'));
      i++;
    } else if (/^ {0,3}>/.test(line)) {
      flush();
      let end = i;
      while (end < lines.length && /^ {0,3}>/.test(lines[end])) end++;
      out.push(element('blockquote', {}, ...blocks(lines.slice(i, end).map((l) => l.replace(/^ {0,3}> ?/, '')))));
      i = end;
    } else if (line.includes('|') && TABLE_RULE.test(lines[i + 1] ?? '') && lines[i + 1].includes('-')) {
      flush();
      let end = i + 2;
      while (end < lines.length && lines[end].includes('|')) end++;
      out.push(table(lines.slice(i, end)));
      i = end;
    } else if (ITEM.test(line)) {
      flush();
      const [list, end] = listFrom(lines, i);
      out.push(list);
      i = end;
    } else if (line.trim() === '') {
      flush();
      i++;
    } else {
      paragraph.push(line);
      i++;
    }
  }
  flush();
  return out;
}

function table([head, , ...rows]) {
  const row = (name, line) => element('tr', {}, ...cells(line).map((c) => element(name, {}, ...inline(c))));
  const body = element('tbody', {}, ...rows.map((line) => row('td', line)));
  return element('div', { class: 'scroll' }, element('table', {}, element('thead', {}, row('th', head)), body));
}

/** Items of one list, with what is moved in below them; where it ends. */
function listFrom(lines, start) {
  const [, indent, mark] = ITEM.exec(lines[start]);
  const ordered = /\d/.test(mark);
  const list = element(ordered ? 'ol' : 'ul', ordered ? { start: String(Number.parseInt(mark, 10)) } : {});
  let i = start;
  while (i < lines.length) {
    const item = ITEM.exec(lines[i]);
    if (!item || item[1].length > indent.length || /\d/.test(item[2]) !== ordered) break;
    if (item[1].length < indent.length) break;
    const inner = [item[3]];
    const depth = indent.length + 2;
    for (i++; i < lines.length; i++) {
      const line = lines[i];
      const next = ITEM.exec(line);
      if (next && next[1].length <= indent.length) break;
      if (line.trim() === '' && !/^\s{2,}\S/.test(lines[i + 1] ?? '')) break;
      if (!next && line.trim() !== '' && !/^\s/.test(line)) break;
      inner.push(line.slice(Math.min(depth, line.length - line.trimStart().length)));
    }
    const parts = blocks(inner);
    // One paragraph alone needs no room around it.
    if (parts[0]?.tagName === 'P') parts.splice(0, 1, ...parts[0].childNodes);
    list.append(element('li', {}, ...parts));
    if (lines[i]?.trim() === '' && ITEM.test(lines[i + 1] ?? '')) i++;
  }
  return [list, i];
}
