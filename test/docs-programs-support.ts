// What programs on the pages take for granted: models, pictures and sounds by names that stand for any, and what came
// before on the page in words alone.
import { readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { packageRoot } from '../src/base/paths.js';
import { findGolden } from '../src/parity/golden.js';
import { captions, chatFolder, familyFolder, hearing, prompted, scenes } from './models-support.js';
import { WHISPER_SOUND, withTokenizer } from './small-models.js';

/** Pages whose programs are one, from top to bottom. */
export const JOINED = ['docs/training.md'];

const RANKS = `import { init } from 'wick/distributed';
import { LanguageModel } from 'wick/engine';
`;
const WORLD = `${RANKS}const world = await init({ device: 'cuda' });
`;
/** What stands around a program of a page that is not whole by itself. */
export const AROUND: Readonly<Record<string, readonly [before: string, after?: string]>> = {
  'docs/distributed.md, program 1': ["import { tensor } from 'wick';\nconst x = tensor([1, 2]);\n"],
  'docs/distributed.md, program 3': [
    `import { mkdirSync } from 'node:fs';
import { tensor } from 'wick';
import { Llama } from 'wick/models';
import { AdamW, losses, VarBuilder, VarMap } from 'wick/nn';
${WORLD}const sizes =
  { vocabSize: 16, hiddenSize: 8, intermediateSize: 16, layers: 2, heads: 2, kvHeads: 2, headDim: 4 };
const config = { ...sizes, maxPositions: 16, normEps: 1e-5, ropeTheta: 1e4, tiedEmbeddings: true, eosTokenIds: [] };
const model = new Llama(config, VarBuilder.fromVarMap(new VarMap(), { device: world.device }));
const [ids, targets] = [1, 2].map((first) => tensor([[first, 3, 4]], { dtype: 'i64', device: world.device }));
const evaluate = async () => {};
mkdirSync('run');
`,
  ],
  'docs/distributed.md, program 4': [RANKS],
  'docs/distributed.md, program 5': [WORLD],
  'docs/distributed.md, program 6': [`${WORLD}const prompts = ['ROMEO:', 'JULIET:'];\n`],
  'docs/distributed.md, program 7': [
    `import { Device, type Tensor } from 'wick';
declare const x: Tensor, next: Tensor;
`,
  ],
  'docs/emulator.md, program 2': ['declare const values: Float32Array, packedArguments: Uint8Array;\n'],
  'docs/serving.md, program 1': [
    `import { LanguageModel } from 'wick/engine';
import { serve } from 'wick/server';
const engine = (await LanguageModel.load()).engine();
const { port } = new URL('http://127.0.0.1:8080/v1');
const server = await serve({ engine, aliases: ['wick-builtin'] }, { port: Number(port) });
`,
    'await server.close();\n',
  ],
};

/** Programs that are type-checked and not run, and why. */
export const ONLY_CHECKED: Readonly<Record<string, string>> = {
  'docs/distributed.md, program 7': 'it needs two GPUs',
  'docs/emulator.md, program 1': 'it needs hipRTC, and test/emulator-*.test.ts run such programs where it is',
  'docs/emulator.md, program 2': 'likewise',
};

const golden = (name: string): Record<string, never> =>
  JSON.parse(readFileSync(findGolden(name) as string, 'utf8')) as Record<string, never>;
function filled(dir: string, files: Readonly<Record<string, object>>): string {
  for (const [name, json] of Object.entries(files)) writeFileSync(join(dir, name), JSON.stringify(json));
  return dir;
}
/** A second of a tone as a WAV file of 16 bits. */
function tone(rate: number): Buffer {
  const file = Buffer.alloc(44 + 2 * rate);
  file.write('RIFF', 0);
  file.writeUInt32LE(36 + 2 * rate, 4);
  file.write('WAVEfmt ', 8);
  file.writeUInt32LE(16, 16);
  for (const [at, value] of [
    [20, 1],
    [22, 1],
    [32, 2],
    [34, 16],
  ])
    file.writeUInt16LE(value, at);
  file.writeUInt32LE(rate, 24);
  file.writeUInt32LE(2 * rate, 28);
  file.write('data', 36);
  file.writeUInt32LE(2 * rate, 40);
  for (let i = 0; i < rate; i++) file.writeInt16LE(Math.round(8000 * Math.sin(i / 9)), 44 + 2 * i);
  return file;
}

/** A port that nobody listens on. */
const freePort = (): Promise<number> =>
  new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });

/** Small models and files by the names that pages give. */
export async function standIns(folder: string): Promise<ReadonlyMap<string, string>> {
  const { resize } = golden('media.json') as unknown as { resize: { image: string }[] };
  const picture = join(folder, 'photo.png');
  writeFileSync(picture, Buffer.from(resize[0].image, 'base64'));
  const sound = join(folder, 'speech.wav');
  writeFileSync(sound, tone(16000));
  const heard = golden('families/heard.json') as Record<string, { files: Record<string, object> }>;
  const seen = golden('families/scenes-seen.json') as Record<string, { file: object }>;
  const hears = (name: string): string =>
    filled(
      familyFolder(name, (f) => f, hearing),
      heard[name].files,
    );
  const sees = (name: string): string =>
    filled(
      familyFolder(name, (f) => f, scenes),
      { 'preprocessor_config.json': seen[name].file },
    );
  const asked = golden('families/prompted-seen.json') as Record<string, { file: object; words?: readonly string[] }>;
  const answers = (name: string): string => {
    const { file, words } = asked[name];
    const vocab = words && Object.fromEntries(words.map((w, i) => [w, i]));
    const model = { type: 'WordLevel', vocab, unk_token: words?.[0] };
    return filled(
      familyFolder(name, (f) => f, prompted),
      {
        'preprocessor_config.json': file,
        ...(words && { 'tokenizer.json': { model, pre_tokenizer: { type: 'WhitespaceSplit' } } }),
      },
    );
  };
  /** What writes 96 words, of pictures of this size. */
  const writes = (name: string, image_processor_type: string, size: object): string =>
    filled(
      familyFolder(name, (f) => f, captions),
      {
        'preprocessor_config.json': { image_processor_type, size },
        'tokenizer.json': {
          ...{ version: '1.0', added_tokens: [], normalizer: null, pre_tokenizer: { type: 'WhitespaceSplit' } },
          model: {
            type: 'WordLevel',
            vocab: Object.fromEntries(Array.from({ length: 96 }, (_, i) => [`w${i}`, i])),
            unk_token: 'w0',
          },
        },
      },
    );
  const clip = { image_processor_type: 'CLIPImageProcessor', size: { shortest_edge: 32 }, crop_size: 32 };
  return new Map([
    ['cuda', 'cpu'], // alone, on a machine without a GPU
    ['http://127.0.0.1:8080/v1', `http://127.0.0.1:${await freePort()}/v1`],
    ['path/to/model', join(packageRoot, 'models/builtin')],
    ['path/to/minilm', withTokenizer('bert')],
    ['path/to/clip', withTokenizer('clip', clip)],
    ['path/to/whisper', withTokenizer('whisper', WHISPER_SOUND)],
    ['path/to/t5', withTokenizer('t5')],
    ['path/to/qwen2.5-vl', chatFolder('qwen2_5_vl')],
    ['HuggingFaceTB/SmolVLM-256M-Instruct', chatFolder('smolvlm')],
    ['hustvl/yolos-tiny', sees('yolos')],
    ['nvidia/segformer-b0-finetuned-ade-512-512', sees('segformer-s')],
    ['Intel/dpt-large', sees('dpt')],
    ['facebook/sam-vit-base', answers('sam')],
    ['google/owlv2-base-patch16-ensemble', answers('owlv2')],
    ['CIDAS/clipseg-rd64-refined', answers('clipseg')],
    ['microsoft/trocr-base-handwritten', writes('trocr', 'ViTImageProcessor', { height: 20, width: 20 })],
    ['naver-clova-ix/donut-base-finetuned-cord-v2', writes('donut', 'DonutImageProcessor', { height: 32, width: 24 })],
    ['facebook/wav2vec2-base-960h', hears('wav2vec2')],
    ['MIT/ast-finetuned-audioset-10-10-0.4593', hears('ast-b')],
    ...['photo.jpg', 'before.png', 'after.png', 'line.png', 'receipt.png'].map((name) => [name, picture] as const),
    ...['speech.wav', 'street.wav'].map((name) => [name, sound] as const),
  ]);
}
