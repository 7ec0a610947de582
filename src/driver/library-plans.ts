// What libraries for products and for convolutions share: a plan is made once for a spec's values, or the sentence that
// says why there is none.
import { UnsupportedError } from '../base/errors.js';

export abstract class Planned<S, P extends object> {
  readonly #op: string;
  readonly #keyOf: (spec: S) => string;
  readonly #known = new Map<string, P | string>();

  constructor(op: string, keyOf: (spec: S) => string) {
    this.#op = op;
    this.#keyOf = keyOf;
  }
  protected abstract make(spec: S, key: string): P | string;

  #find(spec: S): P | string {
    const key = this.#keyOf(spec);
    let plan = this.#known.get(key);
    if (plan === undefined) this.#known.set(key, (plan = this.make(spec, key)));
    return plan;
  }
  supports(spec: S): true | string {
    const plan = this.#find(spec);
    return typeof plan === 'string' ? plan : true;
  }
  plan(spec: S): P {
    const plan = this.#find(spec);
    if (typeof plan === 'string') throw new UnsupportedError(`${this.#op}: ${plan}`);
    return plan;
  }
  protected clearPlans(release: (plan: P) => void = () => {}): void {
    for (const plan of this.#known.values()) if (typeof plan !== 'string') release(plan);
    this.#known.clear();
  }
}
