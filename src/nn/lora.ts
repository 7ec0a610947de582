// Low-rank adapters: small matrices beside frozen Linear layers, trained instead of them, in the folders that PEFT
// writes and reads.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError, FormatError, ShapeError, UnsupportedError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { requireOptions, requireShare } from '../ops/kernel-row.js';
import { loadTensors, saveTensors } from '../io/load.js';
import { noGrad } from '../tensor/autograd.js';
import { rand, tensor, zeros } from '../tensor/create.js';
import { QTensor, type Weight } from '../tensor/qtensor.js';
import type { Generator } from '../tensor/random.js';
import { keep, scope, wholeOrNothing } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { dropout, Linear, type StoredPart, storedParts } from './layers.js';
import { readLoraConfig } from './lora-config.js';
import { Module } from './module.js';

/** Which layers get adapters, how wide they are and how much they count. */
export interface LoraOptions {
  /**
   * Names of stored layers, by their ends: ['q_proj', 'v_proj']; or all Linear layers, of numbered blocks if there are.
   */
  readonly targets: readonly string[] | 'all-linear';
  /** Width of the small matrices; default 8. */
  readonly rank?: number;
  /** The adapters' share is multiplied by alpha / rank; default 16. */
  readonly alpha?: number;
  /** ... by alpha / sqrt(rank) instead. */
  readonly rankStabilized?: boolean;
  /** Share of the input dropped while training; default 0. */
  readonly dropout?: number;
  /** The stream that the first matrices are drawn from; default the device's own. */
  readonly generator?: Generator;
}

/** One adapter: what is added to some rows of a layer is scale * B (A x). */
class Adapter extends Module {
  readonly part: StoredPart;
  /** Where its rows begin in the layer. */
  readonly start: number;
  readonly scale: number;
  /** (rank, in). */
  a: Tensor;
  /** (rows, rank), in the layer's own order of rows. */
  b: Tensor;
  constructor(part: StoredPart, start: number, scale: number, a: Tensor, b: Tensor) {
    super();
    this.part = part;
    this.start = start;
    this.scale = scale;
    this.a = a;
    this.b = b;
  }
  /** What merging adds to the weight's rows. */
  delta(): Tensor {
    return this.b.cast('f32').matmul(this.a.cast('f32')).affine(this.scale, 0);
  }
}

/** A Linear layer with adapters beside it. */
export class LoraLinear extends Linear {
  /** The adapters, each beside some rows of the weight. */
  readonly adapters: Adapter[];
  /** Share of the input dropped while training. */
  readonly dropout: number;
  /** The adapters' share is in the weight. */
  merged = false;
  constructor(base: Linear, adapters: Adapter[], share: number) {
    super(base.weight, base.bias);
    this.adapters = adapters;
    this.dropout = share;
    this.training = base.training;
  }
  override forward(x: Tensor): Tensor {
    const y = super.forward(x);
    if (this.merged) return y;
    const input = this.training ? dropout(x, this.dropout) : x;
    const total = y.shape.at(-1) as number;
    const lead = y.shape.slice(0, -1);
    const gap = (rows: number): Tensor[] =>
      rows > 0 ? [zeros([...lead, rows], { dtype: y.dtype, device: y.device })] : [];
    const pieces: Tensor[] = [];
    let at = 0;
    for (const { a, b, start, scale, part } of this.adapters) {
      pieces.push(...gap(start - at), input.matmul(a.t()).matmul(b.t()).affine(scale, 0));
      at = start + part.rows;
    }
    pieces.push(...gap(total - at));
    return y.add(pieces.length === 1 ? pieces[0] : pieces[0].cat(pieces.slice(1), -1));
  }
}

interface Place {
  readonly owner: Record<string, unknown>;
  readonly key: string;
  readonly layer: Linear;
  /** Its name in the model. */
  readonly name: string;
}
function* linearsOf(value: unknown, owner: Record<string, unknown>, key: string, name = ''): Iterable<Place> {
  const within = (part: string): string => (name && part ? `${name}.${part}` : name || part);
  if (value instanceof Linear) yield { owner, key, layer: value as Linear, name };
  else if (value instanceof Module)
    for (const field of value.fields()) yield* linearsOf(field.value, field.owner, field.key, within(field.name));
  else if (Array.isArray(value))
    for (const [k, v] of Object.entries(value))
      yield* linearsOf(v, value as unknown as Record<string, unknown>, k, within(k));
}
const allLinears = (model: Module): Place[] => [...linearsOf(model, {}, '')];
/** What adapters belong to: the tensors that a layer was loaded from, or itself where it was made by its sizes. */
const partsOf = ({ layer, name }: Place): readonly StoredPart[] =>
  (storedParts(layer) ?? []).map((part) => (part.name === '' ? { ...part, name } : part));

/** Whether a layer of that name is meant; beside numbered blocks stand heads, which 'all-linear' leaves alone. */
const matches = (name: string, targets: LoraOptions['targets'], blocks = true): boolean =>
  targets === 'all-linear' ? !blocks || inBlocks(name) : targets.some((t) => name === t || name.endsWith(`.${t}`));
const inBlocks = (name: string): boolean => /\.\d+\./.test(name);

/** Where each row of the file stands in the layer, or the way back. */
function reordered(t: Tensor, { rows, order }: StoredPart, back: boolean): Tensor {
  if (!order) return t;
  const index = new Uint32Array(rows);
  for (let i = 0; i < rows; i++) {
    const from = i - (i % order.length) + order[i % order.length];
    if (back) index[from] = i;
    else index[i] = from;
  }
  return t.indexSelect(0, tensor(index, { device: t.device }));
}

/** Gives the matrices of an adapter, or undefined where a layer has none. */
type Source = (
  part: StoredPart,
  inputs: number,
) => { readonly a: Tensor; readonly b: Tensor; readonly scale: number } | undefined;

/** Puts adapters beside layers; the model is as it was until all of them are made and `complete` has said nothing. */
function attach(model: Module, source: Source, share: number, complete: (found: number) => void): LoraAdapters {
  for (const { layer } of allLinears(model))
    if (layer instanceof LoraLinear)
      throw new ArgumentError('lora: the model has adapters already; merge or remove them first');
  const replaced: { place: Place; lora: LoraLinear }[] = [];
  for (const place of allLinears(model)) {
    const parts = partsOf(place);
    let start = 0;
    const adapters: Adapter[] = [];
    for (const part of parts) {
      // Values that are the keys have the keys' adapter.
      const same = adapters.find((x) => x.part.name === part.name);
      if (same && (same.part.order ?? part.order))
        throw new UnsupportedError(`lora: ${part.name} is read twice, in two orders of its rows; it takes no adapter`);
      const made = same ?? source(part, place.layer.weight.shape[1]);
      if (made) adapters.push(new Adapter(part, start, made.scale, made.a, made.b));
      start += part.rows;
    }
    if (adapters.length > 0) replaced.push({ place, lora: new LoraLinear(place.layer, adapters, share) });
  }
  complete(replaced.length);
  model.requireGrad(false);
  for (const { place, lora } of replaced) {
    for (const { a, b } of lora.adapters) for (const t of [a, b]) t.requireGrad();
    place.owner[place.key] = lora;
  }
  return new LoraAdapters(
    model,
    replaced.map(({ place, lora }) => ({ lora, restore: () => (place.owner[place.key] = place.layer) })),
    share,
  );
}

/**
 * The adapters of a model: `addLora` makes new ones, `loadLora` reads PEFT's folders. They can be trained, saved,
 * merged into the weights and taken off again.
 */
export class LoraAdapters {
  /** The model that they stand in. */
  readonly model: Module;
  readonly #layers: readonly { readonly lora: LoraLinear; readonly restore: () => void }[];
  readonly #dropout: number;
  constructor(
    model: Module,
    layers: readonly {
      /** The layer with adapters. */
      readonly lora: LoraLinear;
      /** Puts the plain layer back in its place. */
      readonly restore: () => void;
    }[],
    share: number,
  ) {
    this.model = model;
    this.#layers = layers;
    this.#dropout = share;
  }
  get #all(): Adapter[] {
    return this.#layers.flatMap(({ lora }) => lora.adapters);
  }
  /** What an optimizer trains. */
  parameters(): Tensor[] {
    return [...new Set(this.#all.flatMap(({ a, b }) => [a, b]))];
  }
  /** The names of the layers that have one. */
  get names(): string[] {
    return [...new Set(this.#all.map(({ part }) => part.name))];
  }
  /** Puts the adapters' share into the weights: the model is then as fast as before, recorded decoding included. */
  merge(): this {
    return this.#into(true);
  }
  /** Takes it out again, up to the rounding of the weights' dtype. */
  unmerge(): this {
    return this.#into(false);
  }
  #into(merged: boolean): this {
    noGrad(() => {
      if (this.#layers.some(({ lora }) => (lora.weight as Weight) instanceof QTensor))
        throw new UnsupportedError(
          'lora: adapters cannot be merged into quantized weights or those kept as they were stored; they serve ' +
            "beside them, and weights loaded with { dtype: 'f32' } take them",
        );
      for (const { lora } of this.#layers) {
        if (lora.merged === merged) continue;
        for (const adapter of lora.adapters)
          scope(() => {
            const rows = lora.weight.narrow(0, adapter.start, adapter.part.rows);
            const delta = adapter.delta();
            rows.assign(
              rows
                .cast('f32')
                .add(merged ? delta : delta.neg())
                .cast(rows.dtype),
            );
          });
        lora.merged = merged;
      }
    });
    return this;
  }
  /** Takes the adapters away; what was merged stays. */
  remove(): void {
    for (const { lora, restore } of this.#layers) {
      restore();
      for (const { a, b } of lora.adapters) {
        a.dispose();
        b.dispose();
      }
    }
  }
  /** A folder that PEFT loads: adapter_config.json and adapter_model.safetensors. */
  save(
    dir: string,
    about: {
      /** The name of the base model that PEFT's config shall hold. */
      readonly baseModel?: string;
      /** PEFT's task type; default 'CAUSAL_LM'. */
      readonly taskType?: string;
    } = {},
  ): void {
    mkdirSync(dir, { recursive: true });
    const all = this.#all;
    const [{ a, scale }] = all;
    const ranks = new Set(all.map((x) => x.a.shape[0]));
    if (ranks.size > 1)
      throw new UnsupportedError(`lora: adapters of ranks ${[...ranks].join(', ')} are not saved together`);
    const rank = a.shape[0];
    const config = {
      peft_type: 'LORA',
      task_type: about.taskType ?? 'CAUSAL_LM',
      base_model_name_or_path: about.baseModel ?? null,
      inference_mode: true,
      r: rank,
      lora_alpha: Number((scale * rank).toFixed(9)),
      lora_dropout: this.#dropout,
      target_modules: [...new Set(all.map((x) => x.part.name.split('.').at(-1)))].sort(),
      bias: 'none',
      fan_in_fan_out: all.some((x) => x.part.turned),
      init_lora_weights: true,
      use_rslora: false,
      use_dora: false,
      modules_to_save: null,
      layers_to_transform: null,
      rank_pattern: {},
      alpha_pattern: {},
    };
    writeFileSync(join(dir, 'adapter_config.json'), `${JSON.stringify(config, null, 2)}\n`);
    noGrad(() =>
      scope(() => {
        const tensors = new Map<string, Tensor>();
        for (const x of all) {
          tensors.set(`base_model.model.${x.part.name}.lora_A.weight`, x.a.detach());
          tensors.set(`base_model.model.${x.part.name}.lora_B.weight`, reordered(x.b.detach(), x.part, true));
        }
        saveTensors(join(dir, 'adapter_model.safetensors'), tensors, { metadata: { format: 'pt' } });
      }),
    );
  }
}

/** Adapters to train: A random, B zero, so that the model begins as it was; everything else is frozen. */
export function addLora(model: Module, options: LoraOptions): LoraAdapters {
  requireOptions('addLora', options, ['targets', 'rank', 'alpha', 'rankStabilized', 'dropout', 'generator']);
  const { rank = 8, alpha = 16, targets, generator, rankStabilized = false } = options;
  if (targets !== 'all-linear' && !Array.isArray(targets))
    throw new ArgumentError("addLora: targets are a list of layers' names, as ['q_proj', 'v_proj'], or 'all-linear'");
  if (!Number.isInteger(rank) || rank < 1)
    throw new ArgumentError(`lora: the rank ${rank} is not a whole number from 1`);
  const share = options.dropout ?? 0;
  requireShare('addLora', 'dropout', share);
  if (!Number.isFinite(alpha)) throw new ArgumentError(`lora: alpha is ${alpha}, not a number`);
  const like = model.parameters()[0];
  const scale = alpha / (rankStabilized ? Math.sqrt(rank) : rank);
  const blocks = allLinears(model).some(({ name }) => inBlocks(name));
  const source: Source = (part, inputs) => {
    if (!matches(part.name, targets, blocks)) return undefined;
    const where = { device: like.device, dtype: like.dtype };
    // Kaiming's uniform distribution with slope sqrt(5), as PEFT begins.
    const bound = 1 / Math.sqrt(inputs);
    const a = scope(() =>
      rand([rank, inputs], { ...where, ...(generator && { generator }) }).affine(2 * bound, -bound),
    );
    return { a: keep(a), b: keep(zeros([part.rows, rank], where)), scale };
  };
  const complete = (found: number): void => {
    if (found > 0) return;
    const known = allLinears(model).flatMap((place) => partsOf(place).map((p) => p.name.split('.').at(-1)));
    throw new ArgumentError(
      `lora: no layer is named ${String(targets)}; there are ` +
        `${[...new Set(known)].join(', ') || 'none that adapters can be added to'}`,
    );
  };
  return wholeOrNothing(() => attach(model, source, share, complete));
}

/** The tensors of an adapter's folder; older ones of PEFT have them in a file of PyTorch. */
function storedAdapters(dir: string, model: Module): Map<string, Tensor> {
  const files = ['adapter_model.safetensors', 'adapter_model.bin'];
  const file = files.find((name) => existsSync(join(dir, name)));
  if (!file) throw new FormatError(`lora: ${dir} holds neither ${files.join(' nor ')}`);
  return loadTensors(join(dir, file), { device: model.parameters()[0].device });
}

/** Adapters from a folder that PEFT or `save` wrote. A tensor that finds no layer is an error. */
export function loadLora(model: Module, dir: string): LoraAdapters {
  const config = readLoraConfig(dir);
  const like = model.parameters()[0];
  const stored = storedAdapters(dir, model);
  const left = new Set(stored.keys());
  const take = (name: string): Tensor => {
    const t = stored.get(name) as Tensor;
    left.delete(name);
    return t;
  };
  const source: Source = (part, inputs) => {
    const at = `base_model.model.${part.name}`;
    if (!stored.has(`${at}.lora_A.weight`) || !stored.has(`${at}.lora_B.weight`)) {
      if (config.targets && matches(part.name, config.targets))
        throw new FormatError(`lora: ${dir}: ${part.name} is one of target_modules, and has no adapter in the file`);
      return undefined;
    }
    const [a, b] = [take(`${at}.lora_A.weight`), take(`${at}.lora_B.weight`)];
    const rank = a.shape[0];
    if (!sameShape(a.shape, [rank, inputs]) || !sameShape(b.shape, [part.rows, rank]))
      throw new ShapeError(
        `lora: ${at} has A ${formatShape(a.shape)} and B ${formatShape(b.shape)}; the layer is ` +
          `${formatShape([part.rows, inputs])}`,
      );
    if (!config.ranks.has(rank))
      throw new FormatError(
        `lora: ${at} has the rank ${rank}; r and rank_pattern say ${[...config.ranks].join(' or ')}`,
      );
    const ready = (made: () => Tensor): Tensor => keep(scope(() => made().cast(like.dtype).copy()));
    return { a: ready(() => a), b: ready(() => reordered(b, part, false)), scale: config.scale(rank) };
  };
  const complete = (found: number): void => {
    if (left.size > 0)
      throw new UnsupportedError(
        `lora: ${dir}: no layer of the model takes ${[...left].slice(0, 4).join(', ')}${left.size > 4 ? ', ...' : ''}`,
      );
    if (found === 0) throw new FormatError(`lora: ${dir}: holds no adapter`);
  };
  try {
    return noGrad(() => wholeOrNothing(() => attach(model, source, config.dropout, complete)));
  } finally {
    for (const t of stored.values()) t.dispose();
  }
}

/** Whether some layer's adapters are beside its weight, which programs that read the weight itself would overlook. */
export const hasLooseAdapters = (model: Module): boolean =>
  allLinears(model).some(({ layer }) => layer instanceof LoraLinear && !layer.merged);
