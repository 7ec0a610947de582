// Files to a model of a family: it is found among rows, built, and nothing that the files say may be left over.
import type { DType } from '../base/dtype.js';
import { UnsupportedError, WickError } from '../base/errors.js';
import type { Module } from '../nn/module.js';
import { setProducts } from '../nn/quantize.js';
import type { BuilderOptions } from '../nn/var-builder.js';
import { noGrad } from '../tensor/autograd.js';
import { wholeOrNothing } from '../tensor/scope.js';
import { architecturesOf, Config, mattering } from './files/config.js';
import type { ModelKind, ModelOptions, ModelRow } from './model-row.js';
import { type LoadProgress, type ModelFormat, openModel, type OpenedModel } from './files/source.js';

/** Options of `loadModel`. */
export interface LoadModelOptions extends Omit<BuilderOptions, 'dtype'>, ModelOptions, LoadProgress {
  /** Default f32; 'stored': what the files say, where it is a float of 16 bits, else f32. */
  readonly dtype?: DType | 'stored';
  /** What the caller can use; a model of another kind is refused. */
  readonly kind?: ModelKind;
  /** Weights stored in ggml's blocks stay in them (the default) or are decoded to floats. */
  readonly quantized?: boolean;
  /**
   * Matrices stored in 16 bits stay so on the CPU while all else is computed in f32: half the memory, the same answers,
   * and no parameters to train. Default false: what is not in blocks becomes the dtype.
   */
  readonly keepFloats?: boolean;
  /** Products with quantized weights round activations to 8 bits (see QTensor.matmul); default false. */
  readonly quick?: boolean;
  /** The types that the caller is a class for: Llama.load takes llama alone. */
  readonly types?: readonly string[];
}
/** A loaded model, and the family's row that served it. */
export interface LoadedModel<M extends Module = Module> {
  /** The model, with its weights on the device. */
  readonly model: M;
  /** The row of the registry: its kind, its types, how its config is read. */
  readonly row: ModelRow;
  /** config.json's model_type, or GGUF's architecture. */
  readonly type: string;
}

/** The row for a model_type (or, for GGUF, an architecture), of the kind that is asked for where there are several. */
export type FindRow = (name: unknown, format: ModelFormat, where: string, kind?: ModelKind) => ModelRow;

/** What a row is called by files of a format. */
export const namesOf = (row: ModelRow, format: ModelFormat): readonly string[] =>
  format === 'gguf' ? (row.architectures ?? []) : row.types;

/** Which row serves a folder or file, without reading its tensors. */
export function familyBy(find: FindRow, opened: OpenedModel, kind?: ModelKind): { row: ModelRow; type: string } {
  const { json, source } = opened;
  const gguf = source.format === 'gguf';
  const type = gguf ? source.metadata.get('general.architecture') : json.model_type;
  return { row: find(type, source.format, source.path, kind), type: type as string };
}

/** Loads a model: a folder of the Hugging Face hub or a GGUF file. If that fails, no memory is held. */
export function loadBy<M extends Module>(find: FindRow, path: string, options: LoadModelOptions): LoadedModel<M> {
  return wholeOrNothing(() => loaded<M>(find, path, options));
}
function loaded<M extends Module>(find: FindRow, path: string, options: LoadModelOptions): LoadedModel<M> {
  const { dtype = 'f32', ...rest } = options;
  const opened = openModel(path, { ...rest, dtype });
  const { source } = opened;
  try {
    const { row, type } = familyBy(find, opened, options.kind);
    const where = source.format === 'gguf' ? path : `${path}/config.json`;
    const config = new Config(opened.json, where, '', {}, mattering(opened.json));
    const kind = row.kindOf?.(config, source) ?? row.kind;
    const classes = architecturesOf(config);
    if (options.kind && kind !== options.kind)
      throw new UnsupportedError(
        `${path}: is of type ${type}, a model of kind ${kind}, not ${options.kind}` +
          `${classes.length > 0 ? `; architectures names ${classes.join(', ')}` : ''}`,
      );
    if (options.types && !options.types.includes(type))
      throw new UnsupportedError(
        `${path}: is of type ${JSON.stringify(type)}; this class is for ${options.types.join(', ')}`,
      );
    if (Math.max(options.shard?.size ?? 1, options.stages?.size ?? 1) > 1 && kind !== 'decoder')
      throw new UnsupportedError(
        `${path}: is of type ${type}, a model of kind ${kind}; only decoders can be shared out among ranks`,
      );
    const model = noGrad(() => row.build(config, source, options)).eval();
    if (source.format === 'huggingface') config.refuseUnread();
    source.refuseUnused();
    if (options.quick) setProducts(model, { quick: true });
    return { model: model as M, row, type };
  } catch (e) {
    // A layer that cannot be made of a config's sizes knows of no file.
    if (e instanceof WickError && !e.message.includes(path)) e.retitle(`${path}: ${e.message}`);
    throw e;
  } finally {
    source.close();
  }
}
