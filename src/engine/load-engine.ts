// An engine by a model's name.
import { basename } from 'node:path';
import { builtinModel } from './builtin-model.js';
import type { EngineOptions } from './engine-options.js';
import { LanguageModel } from './language-model.js';
import type { ModelOptions } from './language-model-options.js';
import { TextEngine } from './text-engine.js';

/** An engine over a model of its own, by name or path; both end together. */
export async function loadEngine(
  name: string = builtinModel,
  options: EngineOptions & ModelOptions = {},
): Promise<TextEngine> {
  const { model, tokenizer } = await LanguageModel.load(name, options);
  try {
    const engine = new TextEngine(model, tokenizer, { name: basename(name), ...options });
    engine.owns = model;
    return engine;
  } catch (e) {
    model.dispose();
    throw e;
  }
}
