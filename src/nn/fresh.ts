// Where a layer's tensors come from when it is made by its sizes: new ones, or those of a VarBuilder.
import type { DType } from '../base/dtype.js';
import type { Device } from '../tensor/device.js';
import type { Generator } from '../tensor/random.js';
import { VarBuilder } from './var-builder.js';

/** Options of every layer with parameters. */
export interface MakeOptions {
  /** The dtype of new parameters; default f32. */
  readonly dtype?: DType;
  /** The device of new parameters, itself or by name; default the default device. */
  readonly device?: Device | string;
  /** The random stream that new parameters are drawn from; default the one that manualSeed starts. */
  readonly generator?: Generator;
  /** Takes the parameters from a VarBuilder (a file, a VarMap) instead of making new ones. */
  readonly from?: VarBuilder;
}
/** The names of MakeOptions, for checks of options. */
export const MAKE_OPTIONS = ['dtype', 'device', 'generator', 'from'] as const;

/** The builder that a layer asks for its tensors. */
export const builderOf = ({ from, dtype, device, generator }: MakeOptions): VarBuilder =>
  from ?? VarBuilder.fresh({ ...(dtype && { dtype }), ...(device && { device }), ...(generator && { generator }) });

/** The options that a part of a layer is made with: the same, inside `name` of a builder. */
export const within = (options: MakeOptions, name: string): MakeOptions => ({
  ...(options.dtype && { dtype: options.dtype }),
  ...(options.device && { device: options.device }),
  ...(options.generator && { generator: options.generator }),
  ...(options.from && { from: options.from.pp(name) }),
});
