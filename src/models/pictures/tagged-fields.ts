// What a text with tags says, as Donut writes it of a page: "<s_menu><s_nm>tea</s_nm></s_menu>" is { menu: { nm: 'tea' } }.

/** What stands between tags: a text, fields of its own, or several of these. */
export type TaggedValue = string | TaggedFields | readonly TaggedValue[];
/** Fields by the names of their tags. */
export interface TaggedFields {
  readonly [name: string]: TaggedValue;
}

const BETWEEN = '<sep/>';
const exactly = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');

interface Read {
  /** The fields between each two `<sep/>`. */
  readonly parts: readonly TaggedFields[];
  /** There was one, at least. */
  readonly parted: boolean;
  /** What stands behind all fields. */
  readonly left: string;
}
function read(text: string, isWord: (token: string) => boolean): Read {
  let [left, parted] = [text, false];
  const parts: TaggedFields[] = [];
  let fields = new Map<string, TaggedValue>();
  for (;;) {
    const from = left.search(/<s_/i);
    const until = from < 0 ? -1 : left.indexOf('>', from);
    if (until < 0) break;
    const begin = left.slice(from, until + 1);
    const name = begin.slice('<s_'.length, -1);
    const end = new RegExp(`</s_${exactly(name)}>`, 'i').exec(left)?.[0];
    if (end === undefined) {
      left = left.replaceAll(begin, ''); // a tag that nothing ends says nothing
      continue;
    }
    const content = new RegExp(`${exactly(begin)}([\\s\\S]*?)${exactly(end)}`, 'i').exec(left)?.[1].trim();
    if (content?.includes('<s_') && content.includes('</s_')) {
      const { parts: inner } = read(content, isWord);
      if (inner.length > 0) fields.set(name, inner.length === 1 ? inner[0] : inner);
    } else if (content !== undefined) {
      const leaves = content.split(BETWEEN).map((part) => {
        const leaf = part.trim();
        // A word of the model's own that stands for a choice: <yes/>.
        return leaf.startsWith('<') && leaf.endsWith('/>') && isWord(leaf) ? leaf.slice(1, -2) : leaf;
      });
      fields.set(name, leaves.length === 1 ? leaves[0] : leaves);
    }
    left = left.slice(left.indexOf(end) + end.length).trim();
    if (left.startsWith(BETWEEN)) {
      parts.push(Object.fromEntries(fields));
      [fields, left, parted] = [new Map(), left.slice(BETWEEN.length), true];
    }
  }
  if (fields.size > 0) parts.push(Object.fromEntries(fields));
  return { parts, parted, left };
}
/**
 * The fields of a text with tags, several where `<sep/>` parts them at the top; a text without tags is
 * { text_sequence }. `isWord` tells which tags, such as `<yes/>`, are words of the model's own.
 */
export function taggedFields(
  text: string,
  isWord: (token: string) => boolean = () => false,
): TaggedFields | readonly TaggedFields[] {
  const { parts, parted, left } = read(text, isWord);
  if (parted) return parts;
  return parts[0] ?? { text_sequence: left };
}
