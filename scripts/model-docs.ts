// docs/models.md: families by what was run for each: node dist/scripts/model-docs.js [--sim] [--only TYPE,...].
// Runs every golden family; a minute or two on the CPU, more with --sim, which records each on the simulation. With
// --only, lines of other types stay as they are. The text around the lines is written without a run by `npm run docs`.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../src/base/paths.js';
import { GraphDecoder } from '../src/engine/index.js';
import { type CausalLM, loadModel, MODELS } from '../src/models/index.js';
import { KINDS } from '../src/models/model-row.js';
import { PROCESSORS } from '../src/models/vision/processors.js';
import { ggufTypeName } from '../src/models/gguf/metadata.js';
import { MODEL_TOLERANCE, relativeError } from '../src/parity/model-checks.js';
import { greedyRows } from '../src/parity/models.js';
import { noGrad } from '../src/tensor/autograd.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { answerOf, families, familyFolder } from '../test/models-support.js';
import { withFoldedProse } from './prose.js';

const rows = (t: Tensor): number[][] => (t.toArray() as (number | bigint)[][]).map((r) => r.map(Number));
const load = (name: string, device: string): CausalLM =>
  loadModel<CausalLM>(familyFolder(name), { device, kind: 'decoder' }).model;

interface Line {
  readonly configs: number;
  logits: number;
  cached: number;
  plain: number;
  padded: number;
  recorded: string;
}
/** Counts of configs that hold, by model_type. */
const lines = new Map<string, Line>();
const typeOf = (name: string): string => families[name].config.model_type as string;

function run(name: string): void {
  const type = typeOf(name);
  const line: Line = lines.get(type) ?? {
    configs: Object.keys(families).filter((n) => typeOf(n) === type).length,
    ...{ logits: 0, cached: 0, plain: 0, padded: 0, recorded: '' },
  };
  lines.set(type, line);
  scope(() => {
    const model = load(name, 'cpu');
    const of = (key: string): Tensor => answerOf(name, key);
    const close = (a: Tensor, b: Tensor): number => (relativeError(a, b) <= MODEL_TOLERANCE ? 1 : 0);
    line.logits += noGrad(() => close(model.forward(of('input_ids')), of('logits')));
    const [prompt, want] = [rows(of('prompt')), rows(of('greedy'))];
    const same = (cached: boolean): number =>
      greedyRows(model, prompt, want[0].length, cached).join() === want.join() ? 1 : 0;
    line.cached += same(true);
    line.plain += same(false);
    const pads = rows(of('padded_mask')).map((r) => r.indexOf(1));
    const tokens = rows(of('padded_greedy'));
    const padded = noGrad(() => model.forward(of('padded_ids'), undefined, { pads }).narrow(1, 14, 2));
    const agree = greedyRows(model, rows(of('padded_ids')), tokens[0].length, true, pads).join() === tokens.join();
    line.padded += agree ? close(padded, of('padded_last')) : 0;
    model.dispose();
  });
}

async function record(name: string): Promise<string> {
  const model = load(name, 'sim:32');
  if (!GraphDecoder.serves(model)) return 'op by op';
  const decoder = new GraphDecoder(model, 48);
  const [[prompt], [want]] = [rows(answerOf(name, 'prompt')), rows(answerOf(name, 'greedy'))];
  const got = [...prompt];
  for (let i = 0; i < 6; i++) got.push(await decoder.runGreedy(i === 0 ? prompt : got.slice(-1)));
  decoder.dispose();
  model.dispose();
  return got.join() === want.slice(0, got.length).join() ? 'yes' : 'DIFFERS';
}

/** What all configs of a type have in common, or how many are recorded. */
async function recordAll(type: string): Promise<string> {
  const found: string[] = [];
  for (const name of Object.keys(families)) if (typeOf(name) === type) found.push(await record(name));
  if (found.includes('DIFFERS')) return 'DIFFERS';
  const yes = found.filter((f) => f === 'yes').length;
  return yes === 0 || yes === found.length ? found[0] : `${yes} of ${found.length}, else op by op`;
}

export const MODELS_PAGE = 'docs/models.md';
const page = join(packageRoot, MODELS_PAGE);
/** Lines as they stand on the page, by type. */
const linesOnPage = (): Map<string, string> =>
  new Map(Array.from(readFileSync(page, 'utf8').matchAll(/^\| ([\w-]+) \| \d.*$/gm), ([line, type]) => [type, line]));
const share = (n: number, of: number): string => (n === of ? `${n}` : `${n} of ${of}`);
/**
 * Architectures whose files may hold a type; those that stand for one type are named as it is or in the family's row.
 */
const SHARED: Readonly<Record<string, readonly string[]>> = {
  llama: ['llama', 'mistral', 'mixtral'],
  granitemoe: ['granitemoe', 'granitemoeshared'],
  deepseek2: ['deepseek_v2', 'deepseek_v3'],
  olmo2: ['olmo2', 'olmo3'],
  mamba: ['mamba', 'falcon_mamba'],
  // Those that are read and not written.
  ...{ gemma3n: ['gemma3n_text'], gemma4: ['gemma4_text'], apertus: ['apertus'], minicpm3: ['minicpm3'] },
  ...{ dbrx: ['dbrx'], jais2: ['jais2'], 'exaone-moe': ['exaone_moe'], cohere2moe: ['cohere2_moe'] },
  ...{ afmoe: ['afmoe'], laguna: ['laguna'], mellum: ['mellum'], mimo2: ['mimo_v2_flash'], phimoe: ['phimoe'] },
  ...{ 'glm-dsa': ['glm_moe_dsa'], deepseek32: ['deepseek_v32'], mistral4: ['mistral4'] },
  ...{ 'kimi-linear': ['kimi_linear'], granitehybrid: ['granitemoehybrid', 'bamba'] },
  granite_swa: ['granite_swa', 'granitemoe_swa'],
  bitnet: ['bitnet'],
};
const architectures = (type: string): string =>
  MODELS.flatMap((r) => r.architectures ?? [])
    .filter((a) => (SHARED[a] ?? [ggufTypeName(a) ?? '']).includes(type))
    .map((a) => `\`${a}\``)
    .join(' ');
function lineOf(type: string, l: Line): string {
  const counts = [l.logits, l.cached, l.plain, l.padded].map((n) => share(n, l.configs));
  return `| ${type} | ${l.configs} | ${counts.join(' | ')} | ${l.recorded} | ${architectures(type)} |`;
}
const measured = new Set(Object.keys(families).map(typeOf));
const also = MODELS.filter((r) => r.kind === 'decoder')
  .flatMap((r) => r.types)
  .filter((type) => !measured.has(type))
  .sort();
const others = KINDS.filter((kind) => kind !== 'decoder').map((kind) => {
  const types = MODELS.filter((r) => r.kind === kind).flatMap((r) => r.types);
  return `| ${kind} | ${types
    .sort()
    .map((t) => `\`${t}\``)
    .join(', ')} |`;
});
/** The page with these lines, or with those that it has. */
export function modelsPage(by: ReadonlyMap<string, string> = linesOnPage()): string {
  const body = [...by].sort(([a], [b]) => a.localeCompare(b)).map(([, line]) => line);
  return withFoldedProse(`# Language models by family

Generated by \`node dist/scripts/model-docs.js --sim\`. For every family, small random models of several configs (test/golden/families) were run by
transformers 5.18 and by wick in f32: how many configs agree in logits (within 1e-4 of the largest), in greedy tokens with and without a cache, in a
batch padded in front, and whether they decode as a recorded graph on the simulated GPU ("op by op": this kind of layer is not recorded; nor are
heads wider than 256, as the full layers of the released Gemma 4 have, ropes that change with the length, and heads behind a product of their own).
The last column names the GGUF architectures of the row (files of \`qwen2vl\`, \`qwen3vl\` and \`qwen3vlmoe\` are read as
their text, those of \`internlm2\`, \`exaone\`, \`xverse\`, \`baichuan\`, \`refact\`, \`pangu-embedded\`, \`qwen\`, \`orion\`, \`codeshell\`,
\`bailingmoe2\` and \`minicpm\` as the layers of other rows that they are); llama and qwen3 files (f32, Q8_0, Q4_K) and one of
Seed-OSS are part of the tests. A dynamic rope past its
border, and a step of Mamba 2 whose limits hold for whole prompts alone, answer with a cache as transformers does, and otherwise as it does without one: there
the two differ by design. A longrope past its border runs the text again: its answers with a cache are those without one. There transformers keeps
keys that were turned for short texts, or (Phi) drops them, and answers otherwise with a cache.

| model_type | configs | logits | greedy, cached | greedy, not cached | padded batch | recorded on sim | GGUF |
|---|---|---|---|---|---|---|---|
${body.join('\n')}

Of models whose attention is sparse by an indexer (DeepSeek V3.2, GLM-5, MiniMax M3) texts of up to \`index_topk\` tokens (or so many blocks of them) are served, where all
keys are chosen; longer ones are refused. So are texts for Doge of more than \`keep_window_size\` tokens, and its mixtures, whose choice hangs on the text's length. A padded
batch of RWKV answers as its rows do alone (transformers reads the padding there); FNet's encoder reads padding, as transformers' does.
Config fields that change the result and are not honoured, tensors that nothing uses and tensors that are missing are refused by name.
The text of Qwen2-VL, Qwen2.5-VL, Qwen3-VL (and its mixture), Qwen3.5, Gemma 3, 3n and 4, Mistral 3, Llama 4, LLaVA, Idefics, SmolVLM, InternVL,
Llama 3.2 Vision, GLM-4.5V, PaddleOCR-VL and others that name the family of their text loads from the folder of the whole model.

Further types that these rows serve: ${also.map((t) => `\`${t}\``).join(', ')}.

Not served, and refused by their name: \`blt\`, \`cpmant\`, \`inkling_text\`, \`qwen4_exp_text\`, \`reformer\`, \`xlnet\`.

## Other models

Small models of each were compared with transformers, too (test/models-encoders.test.ts, models-vision, models-scenes, models-captions,
models-sound, models-pictures). Of T5 and its kin the half that reads makes vectors by itself; \`TextToText\` takes GGUF files of \`t5\`, and \`loadModel\` those of
\`t5encoder\` (test/models-gguf-t5.test.ts). GGUF files of \`bert\` (BERT, DistilBERT, RoBERTa and XLM-RoBERTa: bge, E5, MiniLM),
\`nomic-bert\`, \`nomic-bert-moe\`, \`modern-bert\`, \`eurobert\`, \`jina-bert-v2\` and \`jina-bert-v3\` are encoders, too (test/models-gguf-encoders.test.ts); \`EmbeddingModel\` takes them,
\`gemma-embedding\`, \`llama-embed\` and decoders' files that name a \`pooling_type\`, and gives vectors of length 1, as llama.cpp's programs do.
\`TextClassifier\` takes rerankers' files (RoBERTa's, ModernBERT's, Qwen3's) and folders of decoders with a head for whole texts.

Pictures become numbers by the image processor that a folder names, the older feature extractors and those called Fast included, or else by that of its
type of model: ${Object.keys(PROCESSORS)
    .map((name) => `\`${name}\``)
    .join(', ')}. They are those of transformers with Pillow, bit for bit (test/image-processors.test.ts); DINOv3's
are resized as PyTorch does it. A folder without a word on pictures takes tensors alone.

| kind | types |
|---|---|
${others.join('\n')}
`);
}
/** Types whose golden configs are more, fewer or others than their lines say; a run tells of them. */
export function typesNotRun(): string[] {
  const told = new Map([...linesOnPage()].map(([type, line]) => [type, Number(line.split('|')[2])]));
  const counts = new Map<string, number>();
  for (const name of Object.keys(families)) counts.set(typeOf(name), (counts.get(typeOf(name)) ?? 0) + 1);
  return [...new Set([...told.keys(), ...counts.keys()])].filter((t) => told.get(t) !== counts.get(t));
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const at = process.argv.indexOf('--only');
  const only = at < 0 ? undefined : process.argv[at + 1].split(',');
  for (const name of Object.keys(families)) if (!only || only.includes(typeOf(name))) run(name);
  if (process.argv.includes('--sim')) for (const [type, line] of lines) line.recorded = await recordAll(type);
  const told = [...lines].map(([type, line]) => [type, lineOf(type, line)] as const);
  writeFileSync(page, modelsPage(new Map([...(only ? linesOnPage() : []), ...told])));
}
