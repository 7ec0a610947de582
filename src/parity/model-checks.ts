// Encoders, encoder-decoders and models of images against transformers' numbers: what `wick parity` compares for each
// kind.
import type { ImageText } from '../models/vision/clip.js';
import type { TextEncoder } from '../models/encoders/encoder.js';
import type { Seq2Seq } from '../models/seq2seq/seq2seq.js';
import type { Vit } from '../models/vision/vit.js';
import type { Module } from '../nn/module.js';
import type { Tensor } from '../tensor/tensor.js';

/** Largest error of a logit, as a share of the largest logit. */
export const MODEL_TOLERANCE = 1e-4;

/** The golden tensors of a model; one that is missing is an error by name. */
export type Golden = (key: string) => Tensor;
export interface ModelCheck {
  readonly what: string;
  /** The largest error as a share of the largest number; undefined where the check is about tokens. */
  readonly error?: number;
  readonly ok: boolean;
}

export const relativeError = (got: Tensor, want: Tensor): number =>
  got.sub(want).abs().max().item() / want.abs().max().item();

type Has = (key: string) => boolean;
/** A result against the golden tensor of a name; vectors at padding mean nothing. */
function close(golden: Golden, what: string, got: Tensor, mask?: Tensor): ModelCheck {
  const real = mask?.ne(0).cast('f32').unsqueeze(-1);
  const want = golden(what);
  const error = real ? relativeError(got.mul(real), want.mul(real)) : relativeError(got, want);
  return { what, error, ok: error <= MODEL_TOLERANCE };
}

export function checkEncoder(model: Module, golden: Golden, has: Has): ModelCheck[] {
  const mask = golden('attention_mask');
  const out = (model as TextEncoder).forward({ ids: golden('input_ids'), mask });
  const hidden = close(golden, 'last_hidden_state', out.hidden, mask);
  return out.pooled && has('pooler') ? [hidden, close(golden, 'pooler', out.pooled)] : [hidden];
}

export function checkSeq2Seq(module: Module, golden: Golden, has: Has): ModelCheck[] {
  const model = module as Seq2Seq;
  const input = golden(has('input_ids') ? 'input_ids' : 'input_features');
  const mask = has('attention_mask') ? golden('attention_mask') : undefined;
  const encoded = model.encode(input, mask);
  const { crossed } = model.begin(encoded);
  const seen = model.begin(encoded, mask).mask;
  const logits = model.decode(golden('decoder_input_ids'), { crossed, ...(seen && { mask: seen }) });
  const greedy = (golden('greedy').toArray() as (number | bigint)[][]).map((r) => r.map(Number));
  const answer = model.answer(input, { start: [greedy[0][0]], end: [], maxTokens: greedy[0].length - 1 }, mask);
  return [
    close(golden, 'encoder_last_hidden_state', encoded, mask),
    close(golden, 'logits', logits),
    { what: 'greedy tokens', ok: answer.map((r) => [...r]).join() === greedy.join() },
  ];
}

export function checkVision(model: Module, golden: Golden): ModelCheck[] {
  const vit = model as Vit;
  return [
    close(golden, 'last_hidden_state', vit.hidden(golden('pixel_values'))),
    close(golden, 'logits', vit.forward(golden('pixel_values'))),
  ];
}

export function checkImageText(module: Module, golden: Golden): ModelCheck[] {
  const model = module as ImageText;
  const [ids, mask, pixels] = ['input_ids', 'attention_mask', 'pixel_values'].map(golden);
  const [texts, images] = [model.embedText(ids, mask), model.embedImage(pixels)];
  return [
    close(golden, 'text_embeds', texts),
    close(golden, 'image_embeds', images),
    close(golden, 'logits_per_image', model.logits(images, texts)),
  ];
}
