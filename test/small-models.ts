// Folders of golden models with what surrounds them in the wild, so that whole pipelines run on them.
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { findGolden } from '../src/parity/golden.js';
import { scratch } from './io-support.js';

/** What the golden Whisper hears. */
export const WHISPER_SOUND = {
  feature_size: 16,
  chunk_length: 1,
  hop_length: 160,
  n_samples: 9600,
  sampling_rate: 16000,
};

/** A golden model's folder with a small tokenizer beside it, and what its pictures or sounds become. */
export function withTokenizer(family: string, preprocessor?: object): string {
  const dir = scratch();
  cpSync(findGolden(`hf/${family}`) as string, dir, { recursive: true });
  const words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', ...'the cat sat on a mat and dog ran [MASK]'.split(' ')];
  const special = (id: number): object => ({ id, content: words[id], special: true, normalized: false });
  const json = {
    model: { type: 'WordLevel', vocab: Object.fromEntries(words.map((w, i) => [w, i])), unk_token: '[UNK]' },
    added_tokens: [0, 1, 2, 3, words.length - 1].map(special),
    pre_tokenizer: { type: 'WhitespaceSplit' },
    post_processor: { type: 'BertProcessing', sep: ['[SEP]', 3], cls: ['[CLS]', 2] },
    decoder: { type: 'Fuse' },
  };
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(json));
  writeFileSync(join(dir, 'tokenizer_config.json'), JSON.stringify({ pad_token: '[PAD]', mask_token: '[MASK]' }));
  if (preprocessor) writeFileSync(join(dir, 'preprocessor_config.json'), JSON.stringify(preprocessor));
  return dir;
}
