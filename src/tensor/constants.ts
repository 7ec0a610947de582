// Numbers that a device keeps as tensors: who reads one can have the number itself.
import type { DType, Value } from '../base/dtype.js';
import type { Storage } from './storage.js';
import type { Tensor } from './tensor.js';

interface Constant {
  readonly number: Value;
  readonly dtype: DType;
}
const constants = new WeakMap<Storage, Constant>();
export const noteConstant = (storage: Storage, number: Value, dtype: DType): void =>
  void constants.set(storage, { number, dtype });
/** The number in a tensor that is a constant of its device. */
export function constantIn({ storage, dtype }: Tensor): Constant | undefined {
  const known = constants.get(storage);
  return known?.dtype === dtype ? known : undefined;
}
