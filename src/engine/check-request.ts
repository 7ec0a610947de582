// What may be asked for: every field of a request with its rule. What is not known is refused by its name, since nobody
// would honour it.
import { ArgumentError, IndexError } from '../base/errors.js';
import type { GenerationRequest } from './request.js';

type Rule = readonly [fits: (v: unknown) => boolean, rule: string];
/** A rule about numbers. */
const number = (fits: (v: number) => boolean, rule: string): Rule => [(v) => typeof v === 'number' && fits(v), rule];
const whole = (v: unknown): v is number => Number.isSafeInteger(v);
const wholeOrAll = (v: number): boolean => v === Infinity || (whole(v) && v >= 0);
const share = (v: number): boolean => v > 0 && v <= 1;
const TRUTH: Rule = [(v) => typeof v === 'boolean', 'true or false'];
const TOKENS: Rule = [(v) => Array.isArray(v) || ArrayBuffer.isView(v), 'a list of token numbers'];
const TEXTS: Rule = [(v) => Array.isArray(v) && v.every((s) => typeof s === 'string'), 'a list of texts'];
const SIGNAL: Rule = [(v) => v instanceof AbortSignal, 'an AbortSignal'];
const GRAMMARS = ['json', 'schema', 'regex', 'ebnf', 'either', 'marked'];
const GRAMMAR: Rule = [
  (v) => typeof v === 'object' && v !== null && GRAMMARS.includes(String((v as { kind?: unknown }).kind)),
  `a grammar, whose kind is one of ${GRAMMARS.join(', ')}`,
];

/** Of requests. */
const FIELDS: { readonly [K in keyof Required<GenerationRequest>]: Rule } = {
  prompt: TOKENS,
  maxTokens: number(wholeOrAll, 'a whole number from 0, nor Infinity'),
  minTokens: number((v) => whole(v) && v >= 0, 'a whole number from 0'),
  n: number((v) => whole(v) && v >= 1 && v <= 128, 'a whole number from 1 to 128'),
  temperature: number((v) => v >= 0 && Number.isFinite(v), 'a number from 0'),
  topK: number((v) => whole(v) && v >= 0, 'a whole number from 0'),
  topP: number(share, 'in (0, 1]'),
  minP: number((v) => v >= 0 && v <= 1, 'in [0, 1]'),
  typicalP: number(share, 'in (0, 1]'),
  repetitionPenalty: number((v) => v > 0 && Number.isFinite(v), 'above 0'),
  repetitionWindow: number(wholeOrAll, 'a whole number from 0'),
  presencePenalty: number(Number.isFinite, 'a number'),
  frequencyPenalty: number(Number.isFinite, 'a number'),
  logitBias: [(v) => v instanceof Map, 'a Map of token numbers'],
  allowedTokens: TOKENS,
  seed: number(whole, 'a whole number'),
  logprobs: number((v) => whole(v) && v >= 0 && v <= 1024, 'a whole number from 0 to 1024'),
  promptLogprobs: TRUTH,
  stop: TEXTS,
  stopTokens: TOKENS,
  ignoreEnd: TRUTH,
  keepSpecial: TRUTH,
  grammar: GRAMMAR,
  speculate: [(v) => v === false || v === 'prompt-lookup' || v === 'draft', "'prompt-lookup', 'draft' or false"],
  priority: number(Number.isFinite, 'a number'),
  cacheSalt: [(v) => typeof v === 'string', 'a text'],
  signal: SIGNAL,
};
/** Of `generate` and `tokens`; the sampler has rules for the others. */
const PLAIN_FIELDS: Readonly<Record<string, Rule>> = {
  maxTokens: FIELDS.maxTokens,
  signal: SIGNAL,
  stop: TEXTS,
  onDone: [(v) => typeof v === 'function', 'a function'],
};
const SAMPLING = ['temperature', 'topK', 'topP', 'minP', 'repetitionPenalty', 'repetitionWindow', 'seed'];

function check(fields: Readonly<Record<string, Rule>>, given: object, others: readonly string[] = []): void {
  for (const [name, v] of Object.entries(given)) {
    if (v === undefined || others.includes(name)) continue;
    const rule = Object.hasOwn(fields, name) ? fields[name] : undefined;
    if (rule === undefined) {
      const elsewhere = fields === PLAIN_FIELDS && Object.hasOwn(FIELDS, name);
      throw new ArgumentError(
        `generate: there is no option ${name}${elsewhere ? ' here; reply, chat and batch have it' : ''}`,
      );
    }
    const [fits, wanted] = rule;
    if (!fits(v)) throw new ArgumentError(`generate: ${name} ${shown(v)} is not ${wanted}`);
  }
}
const shown = (v: unknown): string => {
  if (typeof v === 'number' || v === null) return String(v);
  const text = typeof v === 'object' ? Object.prototype.toString.call(v).slice(8, -1) : JSON.stringify(v);
  return String(text).slice(0, 100);
};

/** Throws what is wrong with the options of `generate` and `tokens`. */
export function checkGenerateOptions(options: object): void {
  check(PLAIN_FIELDS, options, SAMPLING);
}

/** Throws what is wrong with the parameters of a request; token numbers are held against the vocabulary. */
export function checkRequest(request: GenerationRequest, vocabSize: number): void {
  check(FIELDS, request);
  const { minTokens = 0, maxTokens = Infinity } = request;
  if (minTokens > maxTokens)
    throw new ArgumentError(`generate: minTokens ${minTokens} is more than maxTokens ${maxTokens}`);
  if (request.prompt.length === 0)
    throw new ArgumentError('generate: an empty prompt and no start token; give some text');
  const isKnown = (token: number): boolean => whole(token) && token >= 0 && token < vocabSize;
  const known = (token: number, where: string): void => {
    if (!isKnown(token)) throw new IndexError(`generate: token ${token} ${where} is none of the model's ${vocabSize}`);
  };
  // Prompts are long: where a token stands is said of bad ones only.
  const bad = request.prompt.findIndex((token) => !isKnown(token));
  if (bad >= 0) known(request.prompt[bad], `at position ${bad}`);
  for (const token of request.allowedTokens ?? []) known(token, 'in allowedTokens');
  for (const token of request.stopTokens ?? []) known(token, 'in stopTokens');
  for (const [token, bias] of request.logitBias ?? []) {
    known(token, 'in logitBias');
    if (Number.isNaN(bias) || typeof bias !== 'number')
      throw new ArgumentError(`generate: logitBias of token ${token} is ${String(bias)}, not a number`);
  }
  if (request.allowedTokens?.length === 0) throw new ArgumentError('generate: allowedTokens is empty');
}
