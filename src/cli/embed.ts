// `wick embed`: vectors of texts.
import { text as readAll } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { ArgumentError } from '../base/errors.js';
import { wholeOf } from './options.js';
import { fit } from './table.js';

const HELP = `wick embed --model NAME [options] TEXT ...
wick embed --model NAME [options] < FILE       one text per line

  --model NAME     a folder, a .gguf file or a model of the hub: an encoder, or a decoder that makes vectors
  --device NAME    cpu, cuda:0, rocm:0, ... (default: a GPU if there is one, else the CPU)
  --prompt NAME    one of the model's own prompts, by its name, before every text
  --normalize      vectors of length 1, even if the model's files do not ask for it
  --batch N        texts at once (default 32)
  --json           a list of vectors for programs; otherwise one JSON object per line
  --compare        no vectors: how similar the texts are, as a table of cosines`;

export async function run(argv: readonly string[]): Promise<number> {
  const option = { type: 'string' } as const;
  const flag = { type: 'boolean' } as const;
  const { values: v, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      ...{ model: option, device: option, prompt: option, batch: option },
      ...{ normalize: flag, json: flag, compare: flag, help: { ...flag, short: 'h' } },
    },
  });
  if (v.help) {
    console.log(HELP);
    return 0;
  }
  if (v.model === undefined) throw new ArgumentError('embed: which model? wick embed --model NAME TEXT ...');
  const texts = positionals.length > 0 ? positionals : await linesOf(process.stdin);
  if (texts.length === 0) throw new ArgumentError('embed: there is no text');
  const batchSize = wholeOf('embed', 'batch', v.batch) ?? 32;
  if (batchSize === 0) throw new ArgumentError('embed: --batch is at least 1');
  const { EmbeddingModel } = await import('../models/index.js');
  const { Device } = await import('../tensor/device.js');
  const model = await EmbeddingModel.load(v.model, { device: v.device ? Device.get(v.device) : Device.best() });
  try {
    const vectors = await model.embed(texts, {
      batchSize,
      normalize: v.normalize ?? v.compare ?? false,
      ...(v.prompt !== undefined && { promptName: v.prompt }),
    });
    if (v.compare) console.log(likeness(texts, vectors));
    else if (v.json) console.log(JSON.stringify(vectors.map((x) => Array.from(x))));
    else
      for (const [i, text] of texts.entries()) console.log(JSON.stringify({ text, embedding: Array.from(vectors[i]) }));
    return 0;
  } finally {
    model.dispose();
  }
}
async function linesOf(stream: NodeJS.ReadStream): Promise<string[]> {
  if (stream.isTTY) throw new ArgumentError('embed: give texts, or lines on the standard input');
  return (await readAll(stream)).split('\n').filter((line) => line.trim() !== '');
}
function likeness(texts: readonly string[], vectors: readonly Float32Array[]): string {
  const dot = (a: Float32Array, b: Float32Array): number => a.reduce((sum, x, i) => sum + x * b[i], 0);
  return fit(
    ['text', ...texts.map((_, i) => String(i + 1))],
    texts.map((text, i) => [`${i + 1} ${text}`, ...vectors.map((other) => dot(vectors[i], other).toFixed(3))]),
    0,
  );
}
