// How a language model finds its family: those of all other kinds are a hundred files, which are read only where no
// decoder's row serves.
import { DECODER_FAMILIES } from './families/index.js';
import { type FindRow, namesOf } from './load-by.js';

/** No decoder has the name that the files say. */
class NoDecoder extends Error {}
const decoderFor: FindRow = (name, format) => {
  const named = (r: (typeof DECODER_FAMILIES)[number]): boolean =>
    (namesOf(r, format) as readonly unknown[]).includes(name);
  const row = DECODER_FAMILIES.find((r) => r.kind === 'decoder' && named(r));
  if (!row) throw new NoDecoder();
  return row;
};

/** Loads by decoders' rows alone; where none of them serves, once more by all rows. */
export async function byDecoders<T>(load: (find: FindRow) => T): Promise<T> {
  try {
    return load(decoderFor);
  } catch (e) {
    if (!(e instanceof NoDecoder)) throw e;
    return load((await import('./registry.js')).rowFor);
  }
}
