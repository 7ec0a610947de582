// A chat about pictures: a model that reads them, with its tokenizer, its chat template and what its folder says about
// pictures.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import { readJsonFile } from '../../io/json-file.js';
import { type Picture, readPicture } from '../../media/pictures.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import { scope, wholeOrNothing } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';
import { type ChatMessage, type ChatOptions, loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import { Config } from '../files/config.js';
import { loadModel } from '../load.js';
import { PictureLanguage } from './picture-language.js';
import { pictureTiles, type Prepared } from './picture-tiles.js';
import { PixtralEye } from './pixtral-eye.js';
import { processorConfig } from '../vision/images.js';

/** A PNG or JPEG file's path or bytes, or bytes of colours as a tensor u8 (3, height, width). */
export type PictureInput = string | Uint8Array | Tensor;

/** How a chat about pictures is answered. */
export interface PictureChatOptions extends ChatOptions {
  /** The pictures that a question in one string is about, in front of it. */
  readonly images?: readonly PictureInput[];
  /** The longest answer; default 256 tokens. */
  readonly maxTokens?: number;
}

/** What stands in a prompt for a picture, and what it becomes there. */
interface Wording {
  /** The token that a template writes for a picture; default: the model's own for a place of one. */
  readonly mark?: string;
  /** A picture's tokens, one `token` a place of it; `count`: of the picture, or of each of its tiles. */
  readonly written?: (token: string, count: number, picture: Prepared) => string;
  /** Tokens that are written and that the tokenizer must have. */
  readonly needs?: readonly string[];
  /** A question without a chat template. */
  readonly plain?: (pictures: string, question: string, begin: string) => string;
}
const AROUND = '<fake_token_around_image>';
/** Each tile has its place in front, and the whole picture comes last. */
function tilesWritten(token: string, count: number, { grid: [rows, columns] }: Prepared): string {
  const tile = (tag: string): string => `${AROUND}${tag}${token.repeat(count)}`;
  const row = (y: number): string =>
    `${Array.from({ length: columns }, (_, x) => tile(`<row_${y + 1}_col_${x + 1}>`)).join('')}\n`;
  const all = Array.from({ length: rows }, (_, y) => row(y)).join('');
  return `${all}${rows > 0 ? '\n' : ''}${tile('<global-img>')}${AROUND}`;
}
/** Tokens of all tiles between two others (InternVL). */
const tilesBetween = (token: string, count: number, { shape: [tiles] }: Prepared): string =>
  `<img>${token.repeat(tiles * count)}</img>`;
const [BEGIN, END] = ['<start_of_image>', '<end_of_image>'];
const WORDINGS: Readonly<Record<string, Wording>> = {
  gemma3: { mark: BEGIN, written: (token, count) => `\n\n${BEGIN}${token.repeat(count)}${END}\n\n` },
  paligemma: { plain: (pictures, question, begin) => `${pictures}${begin}${question}\n` },
  internvl: { written: tilesBetween, needs: ['<img>', '</img>'] },
  idefics3: { written: tilesWritten },
  smolvlm: { written: tilesWritten },
};

/** What holds for pictures of any size: rows end with a token, and the last one with another (Pixtral). */
function rowsWording(both: Config, { imageToken }: PictureLanguage, tokenizer: Tokenizer): Wording {
  both.ignore('processor_class', 'image_processor', 'tokenizer', 'chat_template', 'image_token_id');
  const named = (name: string, unsaid: string): string => {
    const token = both.text(name, unsaid);
    const id = tokenizer.id(token);
    if (id === undefined || (name === 'image_token' && id !== imageToken))
      throw new UnsupportedError(
        `${both.where}: ${name} is ${token}, ` +
          (id === undefined ? 'which the tokenizer has not' : `token ${id}; the model's for pictures is ${imageToken}`),
      );
    return token;
  };
  named('image_token', '[IMG]');
  const [row, end] = [named('image_break_token', '[IMG_BREAK]'), named('image_end_token', '[IMG_END]')];
  both.refuseUnread();
  return {
    written: (token, _, { grid: [rows, columns] }) =>
      Array<string>(rows).fill(token.repeat(columns)).join(row).concat(end),
  };
}

/** processor_config.json, which is about pictures and texts together; empty where there is none. */
function jointConfig(dir: string): Config {
  const file = join(dir, 'processor_config.json');
  return new Config(existsSync(file) ? readJsonFile(file) : {}, file);
}
/** What the folder says of pictures. */
function pictureConfig(dir: string): Config {
  const c = processorConfig(dir);
  if (!c)
    throw new UnsupportedError(`${dir}: neither preprocessor_config.json nor processor_config.json tells of pictures`);
  return c;
}

/** A picture's bytes as a file would have them. */
function pictureOf(image: PictureInput): Picture {
  if (!(image instanceof Tensor)) return readPicture(image);
  const [channels, height, width] = image.shape;
  if (image.rank !== 3 || channels !== 3 || image.dtype !== 'u8' || height * width === 0)
    throw new ArgumentError(
      `image: a tensor ${image.dtype} [${image.shape.join(', ')}]; a picture is u8 (3, height, width)`,
    );
  const { rgb } = scope(() => ({ rgb: image.permute([1, 2, 0]).contiguous().dataSync() as Uint8Array }));
  return { width, height, rgb };
}

interface Part {
  readonly type?: string;
  readonly image?: PictureInput;
}
const partsOf = ({ content }: ChatMessage): readonly Part[] => (Array.isArray(content) ? (content as Part[]) : []);

/** Questions about pictures, answered in text (Qwen-VL, InternVL, Pixtral, LLaVA, Gemma 3, PaliGemma and others). */
export class PictureChat {
  /** The network itself. */
  readonly model: PictureLanguage;
  /** How texts become tokens, with the chat template. */
  readonly tokenizer: Tokenizer;
  readonly #prepare: ReturnType<typeof pictureTiles>;
  readonly #wording: Wording;
  constructor(
    model: PictureLanguage,
    tokenizer: Tokenizer,
    prepare: ReturnType<typeof pictureTiles>,
    wording: Wording,
  ) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.#prepare = prepare;
    this.#wording = wording;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<PictureChat> {
    const dir = await modelPath(name, options);
    const both = jointConfig(dir);
    both.ignore('image_processor');
    const config = pictureConfig(dir);
    const prepare = pictureTiles(config, both);
    config.refuseUnread();
    return wholeOrNothing(() => {
      const { model, type } = loadModel(dir, { ...options, kind: 'image-text-to-text' });
      if (!(model instanceof PictureLanguage))
        throw new UnsupportedError(`${dir}: models of type ${type} read a picture and no chat; load them by loadModel`);
      const tokenizer = loadTokenizer(dir);
      const anySize = model.eye instanceof PixtralEye;
      const wording = anySize ? rowsWording(both, model, tokenizer) : (WORDINGS[type] ?? {});
      const missing = wording.needs?.find((token) => tokenizer.id(token) === undefined);
      if (missing !== undefined)
        throw new UnsupportedError(`${dir}: the tokenizer has no token ${missing}, which stands around pictures`);
      return new PictureChat(model, tokenizer, prepare, wording);
    });
  }

  /** A prompt's text, with one mark for each picture. */
  #rendered(messages: readonly ChatMessage[], options: PictureChatOptions): string {
    const { plain } = this.#wording;
    const templates = this.tokenizer.chatTemplates;
    // Templates tell pictures by the type of a part.
    const told = messages.map((m) =>
      Array.isArray(m.content) ? { ...m, content: partsOf(m).map(({ image: _, ...part }) => part) } : m,
    );
    if (templates) return templates.render(told, options);
    const [only] = messages;
    if (!plain || messages.length !== 1)
      throw new UnsupportedError(
        plain
          ? 'chat: this model answers one question, and has no template for a chat'
          : 'chat: the folder has no chat template; add chat_template.jinja',
      );
    const texts = partsOf(only).map((p) => (p as { text?: string }).text ?? '');
    const pictures = partsOf(only).filter((p) => p.type === 'image');
    const question = typeof only.content === 'string' ? only.content : texts.join('');
    return plain(this.#mark.repeat(pictures.length), question, this.tokenizer.role('bos') ?? '');
  }
  get #imageToken(): string {
    const { imageToken } = this.model;
    const token = this.tokenizer.token(imageToken);
    if (token === undefined)
      throw new UnsupportedError(`chat: the tokenizer has no token ${imageToken}, which stands for pictures`);
    return token;
  }
  get #mark(): string {
    return this.#wording.mark ?? this.#imageToken;
  }
  /** Token numbers of a prompt, each mark replaced by the tokens of its picture. */
  #ids(text: string, pictures: readonly Prepared[]): number[] {
    const [token, mark] = [this.#imageToken, this.#mark];
    const { written = (t: string, n: number): string => t.repeat(n) } = this.#wording;
    const parts = text.split(mark);
    if (parts.length - 1 !== pictures.length)
      throw new ArgumentError(
        `chat: the prompt has ${parts.length - 1} places for pictures (${mark}); ${pictures.length} were given`,
      );
    const grown = pictures.map((p) => written(token, this.model.eye.tokensOf(p.place), p));
    const whole = parts.reduce((all, next, i) => all + grown[i - 1] + next);
    const begin = this.tokenizer.role('bos');
    return this.tokenizer.encode(whole, { special: begin === undefined || !whole.startsWith(begin) });
  }
  /**
   * The model's answer: to a question about `images`, or to messages whose content is a text or a list of parts, `{
   * type: 'text', text }` and `{ type: 'image', image }`. The likeliest tokens are taken.
   */
  async chat(said: string | readonly ChatMessage[], options: PictureChatOptions = {}): Promise<string> {
    const { images = [], maxTokens = 256 } = options;
    if (typeof said !== 'string' && images.length > 0)
      throw new ArgumentError('chat: pictures of messages stand in their content, not beside them');
    const asked = [...images.map((image) => ({ type: 'image', image })), { type: 'text', text: said }];
    const messages = typeof said === 'string' ? [{ role: 'user', content: asked }] : said;
    const given = messages.flatMap((m) => partsOf(m).filter((p) => p.type === 'image'));
    const missing = given.findIndex((p) => p.image === undefined);
    if (missing >= 0) throw new ArgumentError(`chat: picture ${missing} of the messages has no image`);
    const pictures = given.map((p) => this.#prepare(pictureOf(p.image as PictureInput), given.length === 1));
    const ids = this.#ids(this.#rendered(messages, options), pictures);
    const { text } = this.model;
    const places = pictures.map((p) => p.place).filter((place) => place.length > 0);
    const [answer] = scope(() => {
      const pixels = pictures.map((p) => tensor(p.data, { shape: [...p.shape], device: text.device }).cast(text.dtype));
      const prompt = tensor(Int32Array.from(ids), { shape: [1, ids.length], device: text.device });
      const end = text.config.eosTokenIds;
      const all = pixels.length > 0 ? pixels[0].cat(pixels.slice(1), 0) : undefined;
      return this.model.answer(prompt, all, { maxTokens, end, places });
    });
    return this.tokenizer.decode(answer.filter((id) => !text.config.eosTokenIds.includes(id))).trim();
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
