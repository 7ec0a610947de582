// `wick perplexity FILE.txt`: how well a language model foretells a text.
import { parseArgs } from 'node:util';
import { ArgumentError } from '../base/errors.js';
import type { DType } from '../base/dtype.js';
import { builtinModel } from '../engine/builtin-model.js';
import type { Perplexity } from '../engine/perplexity.js';
import { readText } from '../io/byte-source.js';
import { wholeOf } from './options.js';
import { progressBar } from './progress.js';

const HELP = `wick perplexity [options] FILE.txt

  --model NAME     a folder, a .gguf file or a model of the hub, as for wick generate (default: the built-in model)
  --context N      tokens that the model sees at once (default 512, or as many as it has positions)
  --stride N       tokens by which windows move on: each scores that many (default half of the context)
  --device NAME    cpu, cuda:0, rocm:0, ... (default: a GPU if there is one, else the CPU)
  --dtype T        f32, bf16, f16 (default: as stored; f32 on the CPU)
  --quick          round activations to 8 bits in products with quantized weights, as generating does
  --json           the result for programs

Every token but the first is scored once, given those before it in its window. Windows begin with the start token where
the tokenizer puts one before a text; the first token is scored then, too.`;
/** Texts are held as a whole. */
const MAX_TEXT = 2 ** 28;

export async function run(argv: readonly string[]): Promise<number> {
  const option = { type: 'string' } as const;
  const flag = { type: 'boolean' } as const;
  const { values: v, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      ...{ model: option, context: option, stride: option, device: option, dtype: option },
      ...{ quick: flag, json: flag, help: { ...flag, short: 'h' } },
    },
  });
  if (v.help) {
    console.log(HELP);
    return 0;
  }
  if (positionals.length !== 1)
    throw new ArgumentError(
      `perplexity: takes one text, not ${positionals.length}; wick perplexity FILE.txt --model NAME`,
    );
  const text = readText(positionals[0], MAX_TEXT);
  const context = wholeOf('perplexity', 'context', v.context);
  const stride = wholeOf('perplexity', 'stride', v.stride);
  const { LanguageModel, perplexity } = await import('../engine/index.js');
  const { Device } = await import('../tensor/device.js');
  const model = await LanguageModel.load(v.model ?? builtinModel, {
    device: v.device ? Device.get(v.device) : Device.best(),
    exact: !v.quick,
    ...(v.dtype && { dtype: v.dtype as DType }),
  });
  const bar = progressBar('tokens', 'scoring');
  try {
    const result = await perplexity(model, text, {
      ...(context !== undefined && { context }),
      ...(stride !== undefined && { stride }),
      onProgress: (done, total, so) => bar.show(done, total, `perplexity ${so.toFixed(4)} so far`),
    });
    bar.end();
    console.log(
      v.json
        ? JSON.stringify({ file: positionals[0], model: v.model ?? 'built-in', ...result }, null, 2)
        : report(result),
    );
    return 0;
  } catch (error) {
    bar.end();
    throw error;
  } finally {
    model.dispose();
  }
}

const report = (r: Perplexity): string =>
  `perplexity ${r.perplexity.toFixed(4)} ± ${r.uncertainty.toFixed(4)}, ${r.bitsPerByte.toFixed(4)} bits a byte\n` +
  `${r.scored} of ${r.tokens} tokens scored in ${r.windows} windows of up to ${r.context}, ${r.stride} apart`;
