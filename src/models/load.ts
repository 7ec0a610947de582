// Files to a model through the registry of all families.
import type { Module } from '../nn/module.js';
import type { OpenedModel } from './files/source.js';
import { familyBy, loadBy, type LoadedModel, type LoadModelOptions } from './load-by.js';
import type { ModelKind, ModelRow } from './model-row.js';
import { rowFor } from './registry.js';

export type { LoadedModel, LoadModelOptions } from './load-by.js';

/** Which row serves a folder or file, without reading its tensors. */
export const familyOf = (opened: OpenedModel, kind?: ModelKind): { row: ModelRow; type: string } =>
  familyBy(rowFor, opened, kind);

/**
 * Loads a model of any registered family: a folder of the Hugging Face hub or a GGUF file. If that fails, no memory is
 * held.
 */
export function loadModel<M extends Module = Module>(path: string, options: LoadModelOptions = {}): LoadedModel<M> {
  return loadBy(rowFor, path, options);
}
