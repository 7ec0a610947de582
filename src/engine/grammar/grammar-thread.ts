// The thread behind src/engine/grammar/grammar.ts: compiles grammars and keeps a matcher for every answer under way.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import { compileFunction } from 'node:vm';
import { parentPort } from 'node:worker_threads';
import type { CompiledGrammar, GrammarCompiler, GrammarMatcher, StructuralTagFormat } from '@mlc-ai/web-xgrammar';
import type { GrammarReply, GrammarTask } from './grammar-messages.js';
import { BEGINNING } from './grammar-queue.js';
import type { Grammar } from '../request.js';

type Xgrammar = typeof import('@mlc-ai/web-xgrammar');
const port = parentPort as NonNullable<typeof parentPort>;

/** What the library said last: it writes why it failed, and throws only that it did. */
let said = '';
for (const name of ['error', 'warn', 'log'] as const)
  console[name] = (...words: unknown[]) => {
    if (String(words[0]).includes('[FATAL]')) said = String(words[0]).replace(/^.*?\.cc:\d+: /s, '');
  };

/** A script for browsers and for require in a package that says it is a module: neither import nor require takes it. */
function load(): Xgrammar {
  const require = createRequire(import.meta.url);
  const path = require.resolve('@mlc-ai/web-xgrammar');
  const text = readFileSync(path, 'utf8').replaceAll("import('module')", "Promise.resolve(require('module'))");
  const module = { exports: {} };
  const names = ['exports', 'require', 'module', '__filename', '__dirname'];
  const run = compileFunction(text, names, { filename: path }) as (...given: unknown[]) => void;
  run.call(module.exports, module.exports, require, module, path, dirname(path));
  return module.exports as Xgrammar;
}

/**
 * Blanks and ends of lines in a row between the parts of a value: models that know no better would write nothing else.
 * They are counted here, since a grammar that counts takes some forty times as long to compile.
 */
const BLANKS = 16;
const LINES = 2;
/** Blanks as vocabularies write their bytes. */
const isBlank = (character: string): boolean => 'ĠĊĉč'.includes(character);
/** Where an answer in JSON stands: within a text, and how many blanks came last outside of one. */
class BlankCount {
  readonly #most: number;
  #within = false;
  #escaped = false;
  #row = 0;
  #lines = 0;
  constructor(most = BLANKS) {
    this.#most = most;
  }
  get full(): boolean {
    return this.#row >= this.#most || this.#lines >= LINES;
  }
  read(piece: string): void {
    for (const character of piece) {
      if (character === '"' && !this.#escaped) this.#within = !this.#within;
      this.#escaped = this.#within && character === '\\' && !this.#escaped;
      const blank = !this.#within && isBlank(character);
      this.#row = blank ? this.#row + 1 : 0;
      this.#lines = blank ? this.#lines + Number(character === 'Ċ') : 0;
    }
  }
}
/**
 * A grammar as the library prints it, with the name `root` for what it begins with: that is the last of its rules, and
 * schemas inside of it have roots of their own.
 */
function beginningAtRoot(printed: string): string {
  const last = [...printed.matchAll(/^(\w+) ::=/gm)].at(-1)?.[1] ?? 'root';
  const names: Readonly<Record<string, string>> = { root: last, [last]: 'root' };
  // Names, and no words within texts or sets of characters.
  return printed.replace(/"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\b[a-zA-Z_]\w*/g, (word) => names[word] ?? word);
}
/** Grammars as parts of a larger one. */
const PART: { readonly [K in Grammar['kind']]: (g: Grammar & { kind: K }) => Promise<StructuralTagFormat> } = {
  json: async () => ({ type: 'json_schema', json_schema: { type: 'object' } }),
  schema: async ({ schema }) => ({ type: 'json_schema', json_schema: schema as Record<string, unknown> }),
  ebnf: async ({ grammar }) => ({ type: 'grammar', grammar }),
  regex: async ({ pattern }) => ({ type: 'regex', pattern }),
  either: async ({ of }) => ({ type: 'or', elements: await Promise.all(of.map(partOf)) }),
  marked: async ({ texts, separator }) => {
    const tags = await Promise.all(
      texts.map(async ({ begin, content, end }) => ({
        ...{ type: 'tag' as const, begin, end },
        content: await partOf(content),
      })),
    );
    if (separator === undefined) return { type: 'or', elements: tags };
    // The library has no choice between such a list and anything else, but it has one between grammars.
    const list = { type: 'tags_with_separator' as const, tags, separator, at_least_one: true };
    const { Grammar: Parsed } = library as Xgrammar;
    const parsed = await Parsed.fromStructuralTag({ type: 'structural_tag', format: list });
    return { type: 'grammar', grammar: beginningAtRoot(parsed.toString()) };
  },
};
const partOf = (g: Grammar): Promise<StructuralTagFormat> => PART[g.kind](g as never);
const compileParts = async (c: GrammarCompiler, g: Grammar): Promise<CompiledGrammar> =>
  c.compileStructuralTag({ type: 'structural_tag', format: await partOf(g) });
/** Whether blanks between the parts of values are counted. */
const hasJson = (g: Grammar): boolean =>
  g.kind === 'json' ||
  g.kind === 'schema' ||
  (g.kind === 'either' && g.of.some(hasJson)) ||
  (g.kind === 'marked' && g.texts.some(({ content }) => hasJson(content)));
const COMPILE: {
  readonly [K in Grammar['kind']]: (c: GrammarCompiler, g: Grammar & { kind: K }) => Promise<CompiledGrammar>;
} = {
  json: (c) => c.compileBuiltinJSONGrammar(),
  schema: (c, { schema }) => c.compileJSONSchema(JSON.stringify(schema), true, undefined, undefined, true),
  ebnf: (c, { grammar }) => c.compileGrammar(grammar),
  regex: compileParts,
  either: compileParts,
  marked: compileParts,
};

let library: Xgrammar | undefined;
let compiler: GrammarCompiler | undefined;
let pieces: readonly string[] = [];
/** Tokens that begin with a blank. */
let blanks: readonly number[] = [];
interface Matched {
  readonly matcher: GrammarMatcher;
  readonly mask: Int32Array;
  readonly count: BlankCount | undefined;
}
const states = new Map<number, Matched>();
const reply = (r: GrammarReply): void => port.postMessage(r);

async function refresh(id: number): Promise<void> {
  const state = states.get(id);
  if (!state) return reply({ id, complete: true });
  const complete = state.matcher.isTerminated();
  if (!complete) state.mask.set((await state.matcher.getNextTokenBitmask()).subarray(0, state.mask.length));
  if (state.count?.full) for (const token of blanks) state.mask[token >> 5] &= ~(1 << (token & 31));
  reply({ id, complete });
}
function accept({ matcher, count }: Matched, token: number): void {
  matcher.acceptToken(token);
  count?.read(pieces[token] ?? '');
}
async function handle(task: GrammarTask): Promise<void> {
  if ('vocabulary' in task) {
    library = load();
    pieces = task.vocabulary;
    blanks = pieces.flatMap((piece, token) => (piece !== '' && isBlank(piece[0]) ? [token] : []));
    const { TokenizerInfo, GrammarCompiler: Compiler } = library;
    const info = await TokenizerInfo.createTokenizerInfo([...pieces], 'byte_level', false, task.vocabSize, []);
    compiler = await Compiler.createGrammarCompiler(info);
    reply({ id: BEGINNING, complete: false });
  } else if ('open' in task) {
    const { GrammarMatcher: Matcher } = library as Xgrammar;
    const compiled = await COMPILE[task.grammar.kind](compiler as GrammarCompiler, task.grammar as never);
    const ends = [...task.ends];
    const matcher = await Matcher.createGrammarMatcher(compiled, ends.length > 0 ? ends : undefined, ends.length === 0);
    const { grammar } = task;
    const count = hasJson(grammar) ? new BlankCount(grammar.kind === 'schema' ? grammar.blanks : undefined) : undefined;
    const state = { matcher, mask: new Int32Array(task.mask), count };
    states.set(task.open, state);
    for (const token of task.tokens) accept(state, token);
    await refresh(task.open);
  } else if ('accept' in task) {
    const state = states.get(task.accept);
    if (state) accept(state, task.token);
    await refresh(task.accept);
  } else {
    states.get(task.close)?.matcher.dispose();
    states.delete(task.close);
  }
}
/** One after another, in their order. */
let last = Promise.resolve();
port.on('message', (task: GrammarTask) => {
  last = last.then(async () => {
    said = '';
    try {
      await handle(task);
    } catch (e) {
      const error = said.trim() || (e instanceof Error ? e.message : String(e));
      if ('open' in task) reply({ id: task.open, complete: true, error });
      else if ('accept' in task) reply({ id: task.accept, complete: true, error });
      else throw e; // no vocabulary, no grammar: the thread ends, and whoever waits is told
    }
  });
});
