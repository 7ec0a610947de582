// What gathers and scatters have in common: types of indices and of elements, and how lanes are found.
import type { INT_TYPES } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import type { FamilyPlan } from './plan.js';

/** Element types in the order of Candle's own list. */
export const VALUE_TYPES = ['f32', 'f64', 'f16', 'bf16', 'f8e4m3', 'u8', 'u32', 'i16', 'i32', 'i64'] as const;
export type Ids = (typeof INT_TYPES)[number];

/** Where an index was out of range is said, and how dimensions lie. */
export const WALK = { fault: 'u32*', info: 'const u64*', rank: 'u32' } as const;

export type Plan = FamilyPlan<RowOf<'index'>, { readonly dim: number; readonly start?: number }>;
export const without = <T>(list: readonly T[], dim: number): T[] => list.filter((_, i) => i !== dim);
