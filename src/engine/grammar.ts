// What grammars are to an engine: compiled away from its loop, then a mask before each token and a step after it.
import type { TokenMask } from './choose.js';
import type { Grammar } from './request.js';

/** One answer's place in its grammar. */
export interface GrammarState {
  /** Tokens that may come next. */
  mask(): TokenMask;
  /** Moves on by a token; whether the text is complete and nothing may follow. */
  accept(token: number): boolean;
  close(): void;
}
export interface GrammarCompiler {
  /** `ends`: tokens that may stand where the grammar is complete. */
  open(grammar: Grammar, ends: readonly number[]): Promise<GrammarState>;
  dispose(): Promise<void>;
}
