// Special tokens around one text or two, by the names of tokenizer.json's `post_processor` section.
import { FormatError } from '../base/errors.js';
import { type Component, component, type Kind } from './component.js';

/** Token numbers, and which of two texts each belongs to. */
export interface Encoded {
  /** The token numbers. */
  readonly ids: number[];
  /** 0 for the first text and its special tokens, 1 for the second's. */
  readonly typeIds: number[];
}
/** The order of special tokens and texts: 'A' and 'B' stand for the texts. */
export type Template = readonly { readonly part: 'A' | 'B' | readonly number[]; readonly type: number }[];
export interface PostProcessor {
  readonly single: Template;
  readonly pair: Template;
}
export const PLAIN: PostProcessor = {
  single: [{ part: 'A', type: 0 }],
  pair: [
    { part: 'A', type: 0 },
    { part: 'B', type: 1 },
  ],
};

export function applyTemplate(template: Template, a: readonly number[], b: readonly number[] = []): Encoded {
  const ids: number[] = [];
  const typeIds: number[] = [];
  for (const { part, type } of template)
    for (const id of part === 'A' ? a : part === 'B' ? b : part) {
      ids.push(id);
      typeIds.push(type);
    }
  return { ids, typeIds };
}
/** How many special tokens a template adds. */
export const addedBy = (template: Template): number =>
  template.reduce((n, { part }) => n + (typeof part === 'string' ? 0 : part.length), 0);

/** `[token, id]` as BertProcessing and RobertaProcessing write it. */
function tokenId(c: Component, key: string): number {
  const [, id] = c.list(key);
  if (!Number.isInteger(id)) throw new FormatError(`${c.where}: ${key} is not a token and its number`);
  return id as number;
}

interface TemplatePiece {
  readonly SpecialToken?: { readonly id: string; readonly type_id: number };
  readonly Sequence?: { readonly id: string; readonly type_id: number };
}
function template(c: Component, key: string): Template {
  const special = (c.value('special_tokens') ?? {}) as Record<string, { ids?: number[] } | undefined>;
  return (c.list(key) as (TemplatePiece | null)[]).map((given) => {
    const piece = given ?? {};
    const sequence = piece.Sequence;
    if (sequence && (sequence.id === 'A' || sequence.id === 'B')) return { part: sequence.id, type: sequence.type_id };
    const ids = piece.SpecialToken && special[piece.SpecialToken.id]?.ids;
    if (!piece.SpecialToken || !Array.isArray(ids) || !ids.every(Number.isSafeInteger))
      throw new FormatError(
        `${c.where}: ${key} has ${JSON.stringify(piece)}, neither a Sequence A or B nor a SpecialToken with ids`,
      );
    return { part: ids, type: piece.SpecialToken.type_id };
  });
}

/** A text between the tokens that stand for its class and its end. */
function wrapped(c: Component): { readonly single: Template; readonly sep: number[] } {
  const [cls, sep] = [[tokenId(c, 'cls')], [tokenId(c, 'sep')]];
  const single: Template = [
    { part: cls, type: 0 },
    { part: 'A', type: 0 },
    { part: sep, type: 0 },
  ];
  return { single, sep };
}

const KINDS: Readonly<Record<string, Kind<PostProcessor>>> = {
  TemplateProcessing: {
    keys: ['single', 'pair', 'special_tokens'],
    make: (c) => ({ single: template(c, 'single'), pair: template(c, 'pair') }),
  },
  BertProcessing: {
    keys: ['sep', 'cls'],
    make: (c) => {
      const { single, sep } = wrapped(c);
      return { single, pair: [...single, { part: 'B', type: 1 }, { part: sep, type: 1 }] };
    },
  },
  RobertaProcessing: {
    keys: ['sep', 'cls', 'trim_offsets', 'add_prefix_space'],
    make: (c) => {
      const { single, sep } = wrapped(c);
      return { single, pair: [...single, { part: sep, type: 0 }, { part: 'B', type: 0 }, { part: sep, type: 0 }] };
    },
  },
  // It moves offsets only, which are not kept.
  ByteLevel: { keys: ['add_prefix_space', 'trim_offsets', 'use_regex'], make: () => PLAIN },
  Sequence: {
    keys: ['processors'],
    make: (c) => {
      const all = c
        .list('processors')
        .map(postProcessor)
        .filter((p) => p !== PLAIN);
      if (all.length > 1) throw new FormatError(`${c.where}: ${all.length} processors that add tokens; one is known`);
      return all[0] ?? PLAIN;
    },
  },
};

export const postProcessor = (json: unknown): PostProcessor => component('post-processor', json, KINDS);
