// What composites under PyTorch's names have in common: floats of 16 bits and more, moderate values, no kernel of
// Candle's.
import { REALS } from '../base/dtype.js';
import { type CompositeErrorSample, type CompositeRow, type CompositeSample, ulps } from './op.js';

/** The row of a composite but for what it does; `more` says where it differs. */
export const formulaRow = (
  formula: string,
  samples: readonly CompositeSample[],
  more: { errors?: readonly CompositeErrorSample[] } & Partial<
    Pick<CompositeRow, 'dtypes' | 'ulp' | 'domain' | 'noGrad' | 'without'>
  > = {},
) => ({
  formula,
  dtypes: REALS,
  without: 'defined for floats of 16 bits and more; cast first',
  domain: [-2, 2] as const,
  ulp: ulps(4),
  candle: { none: 'made of other ops' },
  ...more,
  samples: (): readonly CompositeSample[] => samples,
  errors: (): readonly CompositeErrorSample[] => more.errors ?? [],
});
