// A text as a vector, by a model that writes texts.
import type { CausalLM } from '../models/index.js';
import { BatchStep } from '../models/decoder/step.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { scope } from '../tensor/scope.js';
import { offThread } from './off-thread.js';

/** The last token's hidden state after the final norm, at length 1. */
export async function embedText(model: CausalLM, ids: readonly number[]): Promise<Float32Array> {
  const { device } = model;
  const last = await offThread(model, () =>
    scope(() =>
      noGrad(() => {
        const given = tensor(Int32Array.from(ids), { shape: [1, ids.length], device });
        const x = model.hidden(given, new BatchStep(device, ids.length, undefined, undefined));
        return model.norm
          .forward(x.narrow(1, ids.length - 1, 1))
          .reshape([-1])
          .cast('f32');
      }),
    ),
  );
  const data = (await last.data()) as Float32Array;
  last.dispose();
  const length = Math.hypot(...data) || 1;
  return data.map((v) => v / length);
}
