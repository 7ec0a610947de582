// `wick quantize IN OUT --type T`: a model as GGUF, in fewer bits. Progress on stderr, the table of errors on stdout.
import { parseArgs } from 'node:util';
import { CpuBackend } from '../backends/cpu.js';
import { ArgumentError } from '../base/errors.js';
import { quantizeGguf, type QuantizedModel } from '../models/gguf/quantize-gguf.js';
import { QUANTIZE_TYPES } from '../models/gguf/quantize-plan.js';
import { Device } from '../tensor/device.js';
import { wholeOf } from './options.js';
import { progressBar } from './progress.js';
import { bytes, fit, printable, wrap } from './table.js';

const HELP = `wick quantize IN OUT.gguf --type T [options]

  --type T             ${wrap(QUANTIZE_TYPES.join(' '), ' '.repeat(23), 90)}
                       q4_k_m and its like are mixtures: more bits where errors cost most. Other names mean one type
                       for all matrices.
  --imatrix FILE       an importance matrix (GGUF or .dat): how much the error of each column counts
  --threads N          (default: those of the CPU device)
  --allow-requantize   also from a model that is quantized already, which loses twice
  --json               the table for programs

IN is a GGUF model, one file or the first of several, or a Hugging Face folder with config.json, safetensors files and a
tokenizer. A folder whose model or tokenizer a GGUF file cannot express is refused by name. Tensors of one dimension
stay as they are. Rows that are not whole blocks get a type that fits; the table says so. The error is that of the root
mean square, relative to the original.`;

function useThreads(text: string | undefined): void {
  const n = wholeOf('quantize', 'threads', text, 1, 1024);
  const { backend } = Device.cpu();
  if (n !== undefined && backend instanceof CpuBackend) backend.threads = n;
}

export async function run(argv: readonly string[]): Promise<number> {
  const option = { type: 'string' } as const;
  const { values: v, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      type: option,
      imatrix: option,
      threads: option,
      'allow-requantize': { type: 'boolean' },
      json: { type: 'boolean' },
      help: { type: 'boolean', short: 'h' },
    },
  });
  if (v.help) {
    console.log(HELP);
    return 0;
  }
  const [from, to] = positionals;
  if (positionals.length !== 2)
    throw new ArgumentError(
      `quantize: two files are needed, ${positionals.length} given; wick quantize IN OUT --type T`,
    );
  if (v.type === undefined) throw new ArgumentError(`quantize: give --type, one of ${QUANTIZE_TYPES.join(', ')}`);
  useThreads(v.threads);
  const bar = progressBar('values', 'encoding');
  const begin = performance.now();
  const abort = new AbortController();
  const stop = (): void => abort.abort();
  process.once('SIGINT', stop);
  try {
    const made = await quantizeGguf(from, to, {
      type: v.type,
      requantize: v['allow-requantize'] === true,
      ...(v.imatrix !== undefined && { imatrix: v.imatrix }),
      signal: abort.signal,
      onProgress: (done, total, tensor) => bar.show(done, total, tensor),
    });
    bar.end();
    console.log(v.json ? JSON.stringify({ file: to, ...made }, null, 2) : report(made));
    for (const note of made.notes) console.error(`note: ${note}`);
    console.error(`${to}: written in ${((performance.now() - begin) / 1000).toFixed(1)} s`);
    return 0;
  } catch (error) {
    bar.end();
    if (!abort.signal.aborted) throw error;
    console.error(`stopped: ${to} is not written`);
    return 130;
  } finally {
    process.removeListener('SIGINT', stop);
  }
}

function report({ tensors, bytesBefore, bytesAfter, elements }: QuantizedModel): string {
  const rows = tensors.map((t) => [
    ...[printable(t.name), t.from, t.to, `[${t.shape.join(', ')}]`, t.bytes],
    ...[t.error === undefined ? '' : t.error.toPrecision(3), t.note],
  ]);
  const bits = elements > 0 ? `, ${((bytesAfter * 8) / elements).toFixed(2)} bits a weight` : '';
  return (
    `${fit(['tensor', 'from', 'to', 'shape', 'bytes', 'error', 'note'], rows, 0)}\n\n${bytes(bytesBefore)} ` +
    `became ${bytes(bytesAfter)}${bits}`
  );
}
