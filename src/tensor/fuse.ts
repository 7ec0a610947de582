// Functions of elementwise ops as one kernel: traced once per dtypes and device, then launched whole.
import type { ChainStep, RowStep } from '../backends/backend.js';
import { kernelDType } from '../base/dtype.js';
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { broadcastShapes } from '../base/shape.js';
import type { RunRow } from '../ops/op.js';
import { gradEnabled } from './autograd.js';
import { constantIn } from './constants.js';
import { broadcast, sameDevice, type Tracer, withTracer } from './dispatch.js';
import { launchChain } from './guard.js';
import { keep, scope } from './scope.js';
import { innermost } from './levels.js';
import { Tensor } from './tensor.js';

/**
 * What a call of the function does: steps over its arguments and what else it reads (numbers, tensors it closes over).
 */
interface Traced {
  readonly steps: readonly ChainStep[];
  readonly captured: readonly Tensor[];
  readonly result: Tensor['dtype'];
}

/** Notes the steps instead of running them. */
class Recorder implements Tracer {
  readonly values: Tensor[];
  readonly arguments: number;
  readonly made: {
    readonly row: RunRow;
    readonly inputs: readonly Tensor[];
    readonly out: Tensor;
    readonly params: RowStep['params'];
  }[] = [];
  constructor(inputs: readonly Tensor[]) {
    this.values = [...inputs];
    this.arguments = inputs.length;
  }
  run(row: RunRow, inputs: readonly Tensor[], out: Tensor, params: RowStep['params']): void {
    if (row.family !== 'elementwise' && row.family !== 'cast')
      throw new UnsupportedError(`fuse: ${row.name} is not an elementwise op; call it outside the fused function`);
    this.made.push({ row, inputs, out, params });
  }

  /**
   * The steps that the result needs, with values numbered as a chain wants them: arguments, captured tensors, results
   * in order.
   */
  traced(result: Tensor): Traced | undefined {
    const needed = new Set<Tensor>([result]);
    const used = [...this.made]
      .reverse()
      .filter((s) => needed.has(s.out) && s.inputs.every((t) => needed.add(t)))
      .reverse();
    if (used.length === 0 || used[used.length - 1].out !== result) return undefined;
    const results = new Set(used.map((s) => s.out));
    const others = [...new Set(used.flatMap((s) => s.inputs))].filter(
      (t) => !this.values.includes(t) && !results.has(t),
    );
    // Numbers are passed as such and no operands.
    const numbers = others.flatMap((t) => {
      const constant = constantIn(t);
      return constant && t.rank === 0 && !t.requiresGrad
        ? [{ t, step: { constant: constant.number, dtype: constant.dtype } }]
        : [];
    });
    const captured = others.filter((t) => !numbers.some((n) => n.t === t));
    const order = [...this.values, ...captured, ...numbers.map((n) => n.t), ...used.map((s) => s.out)];
    const rows = used.map(
      (s): RowStep => ({
        row: s.row,
        dtype: s.row.family === 'cast' ? s.out.dtype : kernelDType(s.inputs[s.inputs.length - 1].dtype),
        args: s.inputs.map((t) => order.indexOf(t)),
        params: s.params,
      }),
    );
    return { steps: [...numbers.map((n) => n.step), ...rows], captured, result: result.dtype };
  }
}

/**
 * f as one kernel where the device has kernels to fuse (GPUs with a run-time compiler); elsewhere, and where gradients
 * are recorded, f itself runs. The results are the same bit for bit: every step is rounded to its dtype. f is made of
 * elementwise ops and casts of up to four tensors, numbers not counted; it is called once per device and dtypes to see
 * what it does, so numbers it closes over stay what they were then.
 */
export function fuse<A extends readonly Tensor[]>(f: (...inputs: A) => Tensor): (...inputs: A) => Tensor {
  const known = new WeakMap<object, Map<string, Traced | undefined>>();
  const trace = (inputs: A): Traced | undefined =>
    scope(() => {
      const stand = inputs.map((t) => Tensor.empty([1], t.dtype, t.device)) as unknown as A;
      const recorder = new Recorder(stand);
      const result = withTracer(recorder, () => f(...stand));
      if (!(result instanceof Tensor)) throw new ArgumentError('fuse: the function must answer one tensor');
      const traced = recorder.traced(result);
      for (const t of traced?.captured ?? []) keep(t);
      return traced as never;
    }) as Traced | undefined;

  return (...inputs: A): Tensor => {
    if (inputs.length === 0) throw new ArgumentError('fuse: the function was called without tensors');
    const { backend } = sameDevice('fuse', inputs);
    if (
      !backend.runChain ||
      !backend.makesChains ||
      innermost() ||
      (gradEnabled() && inputs.some((t) => t.requiresGrad))
    )
      return f(...inputs);
    let plans = known.get(backend);
    if (!plans) known.set(backend, (plans = new Map()));
    const key = inputs.map((t) => t.dtype).join();
    if (!plans.has(key)) plans.set(key, trace(inputs));
    const traced = plans.get(key);
    if (!traced || (gradEnabled() && traced.captured.some((t) => t.requiresGrad))) return f(...inputs);
    const all = [...inputs, ...traced.captured];
    const shape = broadcastShapes('fuse', ...all.map((t) => t.shape));
    const out = Tensor.empty(shape, traced.result, inputs[0].device);
    if (out.size > 0)
      launchChain(
        backend,
        traced.steps,
        all.map((t) => broadcast(t, 'fuse', shape)),
        out,
      );
    return out;
  };
}
