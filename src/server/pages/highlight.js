// Code in colours: comments, strings, numbers and the words that most languages share.

const WORDS =
  'abstract and as assert async await begin break case catch class const continue def default defer del do elif else end ' +
  'enum except export extends extern false final finally fn for from func function global go goto if impl implements ' +
  'import in include instanceof interface is lambda let loop match module mut namespace new nil None not null of or ' +
  'package pass private protected pub public raise readonly return self static struct super switch then this throw ' +
  'trait true True False try type typedef typeof union unsafe until use using var void when where while with yield';
const KEYWORDS = new Set(WORDS.split(' '));

const TOKEN =
  /(\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)|(?<=^|\s)#[^\n]*|--[ ][^\n]*)|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|`(?:\\.|[^`\\])*`?)|(\b\d[\w.]*)|([A-Za-z_$][\w$]*)/g;
const KINDS = ['comment', 'string', 'number'];

/** Pieces of text and elements, in order. */
export function highlighted(text) {
  const out = [];
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    const at = [1, 2, 3, 4].findIndex((i) => match[i] !== undefined);
    const kind = KINDS[at] ?? (KEYWORDS.has(match[0]) ? 'keyword' : undefined);
    if (!kind) continue;
    if (match.index > last) out.push(text.slice(last, match.index));
    const piece = document.createElement('span');
    piece.className = `t-${kind}`;
    piece.textContent = match[0];
    out.push(piece);
    last = match.index + match[0].length;
  }
  if (last < text.length) out.push(text.slice(last));
  return out;
}
