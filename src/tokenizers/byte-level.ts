// Bytes as characters that print, the alphabet of byte-level vocabularies: those that print stand for themselves, the
// others follow from 256 on.

export const BYTE_CHARACTERS: readonly string[] = (() => {
  const plain = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(plain(b) ? b : next++));
})();
const BYTE_OF: ReadonlyMap<string, number> = new Map(BYTE_CHARACTERS.map((c, b) => [c, b]));

/** GPT-2's words: a space belongs to what follows it. */
export const GPT2_PATTERN = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

export function byteText(text: string): string {
  let out = '';
  for (const b of Buffer.from(text)) out += BYTE_CHARACTERS[b];
  return out;
}

/** Bytes of tokens that were asked for: texts are made of few of them again and again. */
const known = new Map<string, Uint8Array>();
const MOST_KNOWN = 1 << 18;

/**
 * The bytes that a token's characters stand for; a token with any other character stands for itself. They belong to all
 * who asked.
 */
export function bytesOfToken(token: string): Uint8Array {
  let bytes = known.get(token);
  if (bytes) return bytes;
  if (known.size >= MOST_KNOWN) known.clear();
  known.set(token, (bytes = spelled(token)));
  return bytes;
}
function spelled(token: string): Uint8Array {
  const bytes: number[] = [];
  for (const c of token) {
    const b = BYTE_OF.get(c);
    if (b === undefined) return Buffer.from(token);
    bytes.push(b);
  }
  return Uint8Array.from(bytes);
}

/** `<0x0A>` and its like. */
export const byteToken = (b: number): string => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`;
export function byteOfToken(token: string): number | undefined {
  return /^<0x[0-9A-Fa-f]{2}>$/.test(token) ? parseInt(token.slice(3, 5), 16) : undefined;
}
