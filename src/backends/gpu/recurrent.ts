// Steps of recurrent nets behind their products, forwards and backwards: kernels/recurrent.hip.
import { CTYPE, type ParamType, KernelModule, REAL_TYPES } from '../../kernels/declare.js';
import type { RowOf } from '../../ops/op.js';
import { RECURRENT_KINDS, type RecurrentKind, type RecurrentParams, recurrentParts } from '../../ops/recurrent.js';
import type { View } from '../backend.js';
import { at, type FamilyPlan, launch, type Planner, single, strideGrid } from './plan.js';

export const RECURRENT = new KernelModule('recurrent');

const TEMPLATES: Readonly<Record<RecurrentKind, string>> = { lstm: 'lstm', gru: 'gru', tanh: 'plain', relu: 'plain' };
/** A matrix is two parameters: where it begins, and how far apart its rows are. */
const apart = (name: string): string => `${name}_row`;
const steps = RECURRENT.declare({
  each: { back: [false, true], kind: RECURRENT_KINDS, dtype: REAL_TYPES },
  symbol: ({ back, kind, dtype }) => `${kind}_${back ? 'back' : 'step'}_${dtype}`,
  body: ({ back, kind, dtype }) => {
    const S = CTYPE[dtype];
    const { inputs, outputs } = recurrentParts(back, { kind, kept: true });
    const params: Record<string, ParamType> = {};
    for (const [parts, type] of [[inputs, `const ${S}*`] as const, [outputs, `${S}*`] as const])
      for (const [name] of parts) Object.assign(params, { [name]: type, [apart(name)]: 'i64' });
    const matrix =
      (of: string) =>
      ([name]: readonly [string, number]): string =>
        `Rows<${of}>{${name}, ${apart(name)}}`;
    const given = [...inputs.map(matrix(`const ${S}`)), ...outputs.map(matrix(S)), 'batch', 'n'];
    const bend = TEMPLATES[kind] === 'plain' ? `${kind === 'relu'}, ` : '';
    return {
      threads: 256,
      params: { ...params, batch: 'u32', n: 'u32' },
      call: `${TEMPLATES[kind]}_${back ? 'back' : 'step'}<${bend}${S}>`,
      given: given.join(', '),
    };
  },
});

/** The view where its rows are in one piece each, else a copy. */
const inRows = (p: Planner, v: View): View => (v.layout.strides[1] === 1 || v.layout.shape[1] < 2 ? v : p.dense(v));

export const planRecurrent: FamilyPlan<RowOf<'recurrent'>, RecurrentParams> = (p, row, inputs, outputs, params) => {
  const { back } = row.kernel;
  const all = recurrentParts(back, { ...params, kept: true });
  const given = recurrentParts(back, params);
  const [batch, n] = outputs[0].layout.shape;
  if (outputs[0].layout.size === 0) return;
  const views: Record<string, View> = {};
  given.inputs.forEach(([name], i) => (views[name] = inRows(p, inputs[i])));
  given.outputs.forEach(([name], i) => (views[name] = outputs[i]));
  const args = Object.fromEntries(
    [...all.inputs, ...all.outputs].flatMap(([name]) => [
      [name, views[name] ? at(name) : 0],
      [apart(name), views[name]?.layout.strides[0] ?? 0],
    ]),
  );
  const variant = { back, kind: params.kind, dtype: outputs[0].dtype as (typeof REAL_TYPES)[number] };
  p.run(single(launch(steps, variant, strideGrid(batch * n), 256, { ...args, batch, n })), views);
};
