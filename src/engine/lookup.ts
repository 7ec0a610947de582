// Guesses from the text itself: where the last few tokens stood before, what followed them may follow again.

/** The longest end that is looked for, and how many tokens are guessed. */
const LONGEST = 3;
const GUESSES = 8;

/** Tokens that may follow; none where the end of the text stands nowhere else. The latest place counts. */
export function lookUp(tokens: readonly number[], most: number): number[] {
  const n = tokens.length;
  for (let length = Math.min(LONGEST, n - 1); length >= 1; length--) {
    for (let at = n - length - 1; at >= 0; at--) {
      let same = 0;
      while (same < length && tokens[at + same] === tokens[n - length + same]) same++;
      if (same === length) return tokens.slice(at + length, Math.min(at + length + Math.min(GUESSES, most), n));
    }
  }
  return [];
}
