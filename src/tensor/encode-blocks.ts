// Tensors of floats as rows of blocks, by the CPU engine; those of other devices go there and come back.
import { type EncodeOptions, feltImportance, requireEncodable, requireFinite } from '../base/blocks/encode.js';
import type { GgmlType } from '../base/blocks/types.js';
import { ENCODE_BLOCKS } from '../ops/encode-blocks.js';

import { type GradRow, noGrad } from './autograd.js';
import { tensor } from './create.js';
import { Device } from './device.js';
import { apply } from './dispatch.js';
import { keep, scope } from './scope.js';
import type { Tensor } from './tensor.js';

/** Bytes [..., rows, bytes of a row] on the tensor's device; refused where a value is not finite. */
export function encodeBlocks(
  x: Tensor,
  type: GgmlType,
  { importance }: Pick<EncodeOptions, 'importance'> = {},
): Tensor {
  requireEncodable(type, x.size, x.shape.at(-1) ?? 0, importance);
  return noGrad(() =>
    scope(() => {
      const device = x.device.name === 'reference' ? x.device : Device.cpu();
      const values = x.detach().to(device).cast('f32');
      if (values.size > 0 && values.isFinite().all().item() === 0)
        requireFinite(type, values.dataSync() as Float32Array);
      const weights = importance ? [tensor(feltImportance(importance), { dtype: 'f32', device })] : [];
      const [blocks] = apply(ENCODE_BLOCKS as GradRow, [values, ...weights], { type: type.name });
      return keep(blocks.to(x.device));
    }),
  );
}
