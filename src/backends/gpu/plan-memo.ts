// Plans kept by all that they are made of: the row, dtypes and layouts of operands, how their addresses are aligned,
// parameters, and what libraries are set to. A plan that is kept is made of copies of these alone, with slots in the
// place of operands' memory, so that it cannot depend on anything that is not in its key.
import { Layout } from '../../base/layout.js';
import type { DeviceInfo } from '../../driver/driver.js';
import type { Params, RunRow } from '../../ops/op.js';
import type { View } from '../backend.js';
import { planRow } from './families.js';
import type { Libraries } from './libraries.js';
import { type Plan, Slot, type Step } from './plan.js';
import type { KeptPlan } from './run-plan.js';

/** Plans, and numbers of calls that came once, that are remembered; the oldest goes. */
const KEPT = 2048;
/** No kernel asks for more than addresses that are multiples of 256. */
const ALIGNMENT = 256;
/**
 * Chains find their kernels by layout as it is, users' functions may answer otherwise the next time, and no two draws
 * are of the same numbers.
 */
const NOT_KEPT: ReadonlySet<RunRow['family']> = new Set(['elementwise', 'cast', 'copy', 'custom', 'random']);

const isOurs = (row: RunRow): boolean => row.family === 'custom' && row.custom?.native === true;

interface Kept extends KeptPlan {
  readonly key: readonly unknown[];
}
const [OPEN, CLOSE] = [Symbol('['), Symbol(']')];

export class PlanMemo {
  readonly #device: DeviceInfo;
  readonly #libraries: Libraries;
  /** By a number made of the key, which is compared again: two may share a number. */
  readonly #plans = new Map<number, Kept | undefined>();
  readonly #rows = new Map<RunRow, number>();
  /** The key of the call at hand, of which so many parts are written; and the number made of them. */
  readonly #key: unknown[] = [];
  #parts = 0;
  #hash = 0;

  constructor(device: DeviceInfo, libraries: Libraries) {
    this.#device = device;
    this.#libraries = libraries;
  }

  /** The plan of a call that came before; it is made when the call comes for the second time. */
  find(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): KeptPlan | undefined {
    if ((NOT_KEPT.has(row.family) && !isOurs(row)) || !this.#write(row, inputs, outputs, params)) return undefined;
    const known = this.#plans.get(this.#hash);
    if (known !== undefined && this.#isKey(known.key)) return known;
    const hash = this.#hash;
    const again = this.#plans.delete(hash);
    if (this.#plans.size >= KEPT) this.#plans.delete(this.#plans.keys().next().value as number);
    const made = again ? this.#made(row, inputs, outputs, params) : undefined;
    this.#plans.set(hash, made);
    return made;
  }
  #made(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): Kept | undefined {
    const key = this.#key.slice(0, this.#parts);
    const slot = ({ memory, layout: { shape, strides, offset }, dtype }: View, operand: number): View => ({
      memory: new Slot(operand, memory.address & (ALIGNMENT - 1)),
      layout: new Layout(shape.slice(), strides.slice(), offset),
      dtype,
    });
    const { undecided } = this.#libraries;
    const steps = planRow(
      row,
      inputs.map(slot),
      outputs.map((v, i) => slot(v, inputs.length + i)),
      structuredClone(params),
      this.#device,
      this.#libraries,
    ).map(planningOnce);
    return undecided === this.#libraries.undecided ? { key, steps, packed: new Map() } : undefined;
  }

  /** Whether the call has a key: its parameters are plain data. */
  #write(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): boolean {
    let number = this.#rows.get(row);
    if (number === undefined) this.#rows.set(row, (number = this.#rows.size));
    this.#parts = this.#hash = 0;
    this.#number(number);
    this.#settings(this.#libraries);
    this.#views(inputs);
    this.#views(outputs);
    for (const name in params) {
      this.#key[this.#parts++] = name;
      if (!this.#value(params[name])) return false;
    }
    return true;
  }
  #settings(l: Libraries): void {
    this.#value(l.enabled);
    this.#value(l.tf32);
    this.#value(l.deterministic);
    this.#value(l.products);
    this.#value(l.ownFactors);
    this.#value(l.attentionTried);
    this.#number(l.attentionFrom);
    this.#number(l.attentionPatience);
    this.#number(l.refused);
  }
  #views(views: readonly View[]): void {
    this.#number(views.length);
    for (let i = 0; i < views.length; i++) {
      const { memory, layout, dtype } = views[i];
      const { shape, strides, offset } = layout;
      this.#text(dtype);
      this.#number(memory.address & (ALIGNMENT - 1));
      this.#number(offset);
      this.#number(shape.length);
      for (let d = 0; d < shape.length; d++) {
        this.#number(shape[d]);
        this.#number(strides[d]);
      }
    }
  }
  #value(v: unknown): boolean {
    if (typeof v === 'number') this.#number(v);
    else if (typeof v === 'string') this.#text(v);
    else if (typeof v === 'boolean') this.#text(v ? 'yes' : 'no', v);
    else if (Array.isArray(v)) {
      this.#key[this.#parts++] = OPEN;
      for (let i = 0; i < v.length; i++) if (!this.#value(v[i])) return false;
      this.#key[this.#parts++] = CLOSE;
    } else if (v === null || v === undefined || typeof v === 'bigint') this.#key[this.#parts++] = v;
    else return false;
    return true;
  }
  #number(v: number): void {
    this.#key[this.#parts++] = v;
    this.#hash = Math.imul(this.#hash ^ (v * 0x9e3779b1), 0x01000193) ^ (this.#hash >>> 15);
  }
  #text(v: string, part: unknown = v): void {
    this.#key[this.#parts++] = part;
    const ends = v.charCodeAt(0) * 31 + v.charCodeAt(v.length - 1) * 1009 + v.length;
    this.#hash = Math.imul(this.#hash ^ ends, 0x01000193);
  }
  #isKey(key: readonly unknown[]): boolean {
    if (key.length !== this.#parts) return false;
    for (let i = 0; i < key.length; i++) if (!Object.is(key[i], this.#key[i])) return false;
    return true;
  }
}

/** What runs in a library's place is planned once, too. */
function planningOnce(step: Step): Step {
  if (!('otherwise' in step)) return step;
  let plan: Plan | undefined;
  return { ...step, otherwise: () => (plan ??= step.otherwise()) };
}
