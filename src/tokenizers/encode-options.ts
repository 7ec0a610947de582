// How a text is encoded, and what a tokenizer and its thread say to each other.
import type { SentError } from '../base/sent-error.js';

/** Options of `encode`. */
export interface EncodeOptions {
  /** Add the special tokens that belong around a text; default true. */
  readonly special?: boolean;
  /** Read special tokens written in the text as such; default true. */
  readonly parseSpecial?: boolean;
  /** A second text, for models that compare two. */
  readonly pair?: string;
  /** At most so many tokens, special ones included; the end of the text is cut off. */
  readonly maxLength?: number;
}
/** Options of `encodeLater`. */
export interface EncodeLaterOptions extends EncodeOptions {
  /** Who waits no more: a text whose turn has not come is left out. */
  readonly signal?: AbortSignal | undefined;
}

/** To the thread, which answers in this order. Texts are moved as UTF-8: copying a string takes far longer. */
export interface EncodeTask {
  readonly text: Uint8Array<ArrayBuffer>;
  readonly options: EncodeOptions;
}
/** From it. */
export type EncodeReply = { readonly ids: Int32Array<ArrayBuffer> } | { readonly error: SentError };
