// What an engine and a thread of grammars say to each other.
import type { Grammar } from '../request.js';

/** To the thread. */
export type GrammarTask =
  | { readonly vocabulary: readonly string[]; readonly vocabSize: number }
  | {
      readonly open: number;
      readonly grammar: Grammar;
      readonly ends: readonly number[];
      /** What was written before: a thread that takes over for another goes on from there. */
      readonly tokens: readonly number[];
      readonly mask: SharedArrayBuffer;
    }
  | { readonly accept: number; readonly token: number }
  | { readonly close: number };
/** From it, for every task but the last kind: the mask of a state is there, or what is wrong. */
export interface GrammarReply {
  readonly id: number;
  readonly complete: boolean;
  readonly error?: string;
}
