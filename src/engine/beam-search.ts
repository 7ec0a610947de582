// Beam search over a decoder: a prompt once, then a token of every beam at a time over one cache.
import type { CausalLM, DecoderCache } from '../models/index.js';
import { type BeamOptions, type Hypothesis, searchBeams } from '../models/seq2seq/beams.js';
import { rowsOfData } from '../models/seq2seq/seq2seq.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { keep, scope } from '../tensor/scope.js';

/** Log-probabilities after the last token of each row. */
function logsAfter(model: CausalLM, rows: readonly (readonly number[])[], cache: DecoderCache): Float32Array[] {
  const [first] = rows;
  const logs = keep(
    scope(() => {
      const shape = [rows.length, first.length];
      const ids = tensor(Int32Array.from(rows.flat()), { shape, device: model.device });
      return model.forward(ids, cache, { last: true }).squeeze(1).cast('f32').logSoftmax(-1);
    }),
  );
  const data = rowsOfData(logs);
  logs.dispose();
  return data;
}

/** The answers that so many beams find, the best first. */
export function beamSearch(
  model: CausalLM,
  prompt: readonly number[],
  options: BeamOptions,
  maxTokens: number,
): readonly Hypothesis[] {
  const cache = model.newCache();
  let fresh = true;
  try {
    const [found] = noGrad(() =>
      searchBeams([prompt], options, model.config.eosTokenIds, maxTokens, (rows, from) => {
        if (!from) {
          const [logs] = logsAfter(model, [prompt], cache);
          return rows.map(() => logs);
        }
        // The prompt was run once for all.
        cache.reorder(fresh ? from.map(() => 0) : from, model.device);
        fresh = false;
        return logsAfter(
          model,
          rows.map((r) => r.slice(-1)),
          cache,
        );
      }),
    );
    return found;
  } finally {
    cache.dispose();
  }
}
