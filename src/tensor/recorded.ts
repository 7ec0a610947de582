// Steps that no backend runs but that gradients must travel back through: copies between devices, talk between ranks.
import { DTYPES } from '../base/dtype.js';
import type { Call, GradContext, Grads, Sig } from '../ops/op.js';
import { gradEnabled, type GradRow, isRemaking, NOT_KEPT } from './autograd.js';
import type { Tensor } from './tensor.js';

export interface Step {
  /** What errors call it. */
  readonly name: string;
  readonly formula: string;
  /** The gradient of the input from that of the result, or the sentence that says why there is none. */
  readonly grad: ((grad: Tensor, input: Tensor) => Tensor) | string;
  /** Makes the result again, where that is quick. */
  readonly again?: (input: Tensor) => Tensor;
}

const rowOf = ({ name, formula, grad }: Step): GradRow => ({
  name,
  family: 'copy',
  formula,
  dtypes: DTYPES,
  ulp: 0,
  candle: { none: 'no op of the table' },
  args: (x: Tensor): Call => ({ inputs: [x], params: {} }),
  infer: ([x]: readonly Sig[]): readonly Sig[] => [x],
  reference: (): void => {},
  samples: () => [],
  errors: () => [],
  ...(typeof grad === 'string'
    ? { noGrad: grad }
    : { grad: (c: GradContext): Grads => [grad(c.grad as Tensor, c.x as Tensor)] }),
});

/** Puts the step that made `out` of `input` into the graph, where one is recorded. */
export function recorded(step: Step, input: Tensor, out: Tensor): Tensor {
  if (!gradEnabled() || !input.requiresGrad) return out;
  out.requiresGrad = true;
  const inputs = [input.alias()];
  const outputs = [out.alias()];
  const versions = [inputs[0].storage.version, NOT_KEPT];
  outputs[0].dispose(); // rules read the input alone
  const { again } = step;
  const remake = again && isRemaking() ? { remake: () => again(inputs[0]) } : {};
  out.node = { row: rowOf(step), params: {}, inputs, outputs, versions, ...remake };
  outputs[0].node = out.node;
  return out;
}
