// How GGUF names the pre-tokenizers of byte-level vocabularies (`tokenizer.ggml.pre`), and the expressions that each
// stands for.
import { GPT2_PATTERN } from './byte-level.js';

export interface PreType {
  /** One after another: what an expression matches and what lies between become pieces. */
  readonly patterns: readonly string[];
  /** A piece that is a token is taken whole. */
  readonly ignoreMerges?: boolean;
  /** A beginning token, where the file does not say. */
  readonly addBos?: boolean;
  /** Tokens are plain text with "\u2581" for spaces, not bytes as characters. */
  readonly plain?: boolean;
}

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
/** GPT-4's words, with numbers cut in a way of their own. */
const words = (numbers: string, spaces = SPACES): string =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${numbers}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${spaces}`;
/** GPT-4o's words: a change from small to capital letters begins a new one. */
const cased = (numbers: string, ending: string, but = '', breaks = '[\\r\\n/]*'): string => {
  const [upper, lower] = [`[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}${but}]`, `[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}${but}]`];
  const lead = '[^\\r\\n\\p{L}\\p{N}]?';
  return (
    `${lead}${upper}*${lower}+${ending}|${lead}${upper}+${lower}*${ending}|${numbers}| ` +
    `?[^\\s\\p{L}\\p{N}]+${breaks}|${SPACES}`
  );
};
const ASCII_MARKS = '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]';
const MARKED =
  `${ASCII_MARKS}[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ` + `?[\\p{P}\\p{S}]+[\\r\\n]*|${SPACES}`;
const KANA_HAN = '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+';
const HAN_HANGUL = '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+';
const NOT_MARKS = ' ?[^(\\s|.,!?…。，、।۔،)]+';
/** The letters with case of DeepSeek's first vocabularies; those that Unicode's normal form replaces are escaped. */
const CASED_LETTERS =
  'A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃';

const GPT2: PreType = { patterns: [GPT2_PATTERN] };
const DIGITS: PreType = { patterns: ['\\p{N}', GPT2_PATTERN] };
const LLAMA3: PreType = { patterns: [words('\\p{N}{1,3}')] };
const QWEN2: PreType = { patterns: [words('\\p{N}')] };
const DEEPSEEK3: PreType = { patterns: ['\\p{N}{1,3}', KANA_HAN, MARKED] };
const GPT4O: PreType = { patterns: [cased('\\p{N}{1,3}', `${CONTRACTIONS}?`)] };
const NEWLINES: PreType = { patterns: ['[^\\n]+|[\\n]+'], plain: true };
const BLOOM: PreType = { patterns: [NOT_MARKS] };

const named = (type: PreType, ...names: string[]): [string, PreType][] => names.map((name) => [name, type]);

export const PRE_TYPES: ReadonlyMap<string, PreType> = new Map([
  ...named({ patterns: ['[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2_PATTERN, '\\p{N}+', '[0-9][0-9][0-9]'] }, 'default'),
  ...named(
    { ...LLAMA3, ignoreMerges: true, addBos: true },
    ...['llama3', 'llama-v3', 'llama-bpe', 'falcon3', 'falcon-h1', 'pixtral', 'midm-2.0', 'lfm2', 'jina-v5-nano'],
  ),
  ...named(LLAMA3, 'dbrx', 'smaug-bpe', 'glm4', 'chatglm-bpe'),
  ...named({ patterns: ['\\p{N}{1,3}', words('\\p{N}+')], ignoreMerges: true }, 'minicpm5'),
  ...named(
    {
      patterns: [
        '[\\r\\n]',
        `\\s?[${CASED_LETTERS}]+`,
        '\\s?[!-/:-~！-／：-～‘-‟　-。]+',
        '\\s+$',
        HAN_HANGUL,
        '\\p{N}+',
      ],
    },
    'deepseek-llm',
  ),
  ...named({ patterns: ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', HAN_HANGUL, '\\p{N}'] }, 'deepseek-coder'),
  ...named(DEEPSEEK3, 'deepseek-v3', 'hunyuan-dense', 'joyai-llm'),
  ...named(
    {
      patterns: [
        `[\uac00-\ud7a3\u3131-\u318e]+|[！…“”‘’—：；，、-〿︰-﹏]+|[\u3105-\u312f]+|${KANA_HAN}`,
        cased('\\p{N}', `${CONTRACTIONS}?`),
      ],
      ignoreMerges: true,
    },
    'youtu',
  ),
  ...named({ patterns: ['[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2_PATTERN, '[0-9][0-9][0-9]'] }, 'falcon'),
  ...named(
    GPT2,
    ...['gpt-2', 'phi-2', 'jina-es', 'jina-de', 'gigachat', 'jina-v2-es', 'jina-v2-de', 'a.x-4.0', 'mellum'],
    ...['modern-bert', 'jina-v1-en', 'jina-v2-code', 'roberta-bpe', 'mpt', 'olmo', 'jais', 'trillion'],
    ...['granite-docling', 'exaone4'],
  ),
  ...named(DIGITS, 'starcoder', 'refact', 'command-r', 'smollm', 'codeshell', 'exaone', 'minerva-7b', 'mellum2'),
  ...named(
    QWEN2,
    ...['qwen2', 'deepseek-r1-qwen', 'kormo', 'f2llmv2', 'stablelm2', 'hunyuan', 'megrez', 'solar-open', 'grok-2'],
  ),
  ...named(
    {
      patterns: [
        `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`,
      ],
    },
    'qwen35',
  ),
  ...named(BLOOM, 'poro-chat', 'bloom', 'gpt3-finnish'),
  ...named({ patterns: [NOT_MARKS, '\\p{N}'] }, 'viking'),
  ...named({ patterns: [cased('\\p{N}', '')], ignoreMerges: true, addBos: true }, 'tekken'),
  ...named(GPT4O, 'gpt-4o', 'llama4', 'kanana2', 'talkie', 'minimax-m2'),
  ...named(
    { patterns: [`\\p{Han}+|${cased('\\p{N}{1,3}', `${CONTRACTIONS}?`, '&&[^\\p{Han}]', '[\\r\\n]*')}`] },
    'kimi-k2',
  ),
  ...named({ ...GPT4O, ignoreMerges: true }, 'granite-embed-multi-97m'),
  ...named({ patterns: ['\\d{1,3}(?=(?:\\d{3})*\\b)', ...GPT4O.patterns] }, 'tiny_aya', 'cohere2moe'),
  ...named(
    {
      patterns: [
        '<sentinel:[0-9]+>',
        '(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z',
        '([\\t\\n]|    |  )',
        '\\p{N}',
        '[\\p{P}!-/:-@\\[-`{-~]',
        GPT2_PATTERN,
      ],
      addBos: true,
    },
    'chameleon',
  ),
  ...named({ patterns: ['\\p{N}+', '(?=(\\d{3})+(?!\\d))'] }, 'superbpe'),
  ...named(
    {
      patterns: [
        "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| " +
          '?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+',
      ],
    },
    ...['bailingmoe', 'bailingmoe2', 'llada-moe'],
  ),
  ...named(
    {
      patterns: [`${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${SPACES}`],
    },
    'seed-coder',
  ),
  ...named(
    {
      patterns: [
        '\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))',
        '[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+',
        MARKED,
      ],
    },
    'afmoe',
  ),
  ...named({ patterns: ['[^\\n]+|[\\n]+', ...QWEN2.patterns] }, 'laguna'),
  ...named(
    {
      patterns: [
        `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ` +
          `?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+`,
      ],
    },
    'exaone-moe',
  ),
  ...named(
    {
      patterns: [
        words(
          '\\p{N}{1,3}',
          `\\s*[\\r\\n]+|${[512, 256, 128, 64, 32, 16, 8, 4].map((n) => `\\s{${n}}(?!\\S)`).join('|')}|\\s{1,2}(?!\\S)|\\s{1}`,
        ),
      ],
    },
    'jais-2',
  ),
  ...named(NEWLINES, 'gemma4', 'granite-embed-multi-311m', 'sarvam-moe'),
]);
