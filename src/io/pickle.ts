// A pickle reader that runs no code: it builds data, and keeps every global and object it meets as an inert record.
import type { Cursor } from './byte-source.js';
import { MAX_ENTRIES } from './limits.js';

/** A class or function the stream names; never looked up. */
export class PickleGlobal {
  /** The Python module that it names. */
  readonly module: string;
  /** The name in that module. */
  readonly name: string;
  constructor(module: string, name: string) {
    this.module = module;
    this.name = name;
  }
  /** Both, joined by a dot: 'torch.FloatStorage'. */
  get id(): string {
    return `${this.module}.${this.name}`;
  }
}

/** What calling a global would have made: the parts it would have been made of. */
export class PickleObject {
  /** The class or function that would have been called. */
  readonly global: PickleGlobal;
  /** What it would have been called with. */
  readonly args: unknown;
  /** What its state would have been set to. */
  state: unknown;
  /** What would have been appended to it. */
  readonly items: unknown[] = [];
  /** What would have been set in it by key. */
  readonly entries = new Map<unknown, unknown>();
  constructor(global: PickleGlobal, args: unknown) {
    this.global = global;
    this.args = args;
  }
}

/** A dict; `attributes` is what was set on the dict object itself. */
export class PickleDict extends Map<unknown, unknown> {
  /** Attributes that were set on the dict, where it was an object. */
  attributes: unknown;
}

const MAX_KEY_PARTS = 16;
const MAX_KEY_PART = 256;
const isShort = (k: unknown): boolean => typeof k !== 'object' && !(typeof k === 'string' && k.length > MAX_KEY_PART);

/** A key as text; never walks into containers, which may be deep or hold themselves, nor copies long ones. */
export function keyText(key: unknown): string {
  if (key === null) return 'None';
  if (typeof key !== 'object') return String(key);
  const isPlain = Array.isArray(key) && key.length <= MAX_KEY_PARTS && key.every(isShort);
  return isPlain ? `(${(key as unknown[]).join(', ')})` : '(object)';
}

export interface PickleHooks {
  /** Makes data of a call; undefined keeps it as a PickleObject. What it copies it pays for with the cursor. */
  call?: (callable: PickleGlobal, args: readonly unknown[], cursor: Cursor) => unknown;
  /** Resolves a persistent id; without it such ids are an error. */
  persistent?: (id: unknown) => unknown;
}

/** What things take in memory, in bytes, roughly and rather more than less. */
const COST = { slot: 8, list: 48, entry: 48, dict: 250, set: 250, global: 120, object: 640, number: 16 } as const;
const MAX_INT_BYTES = 1024;
const MAX_LINE = 8192;
const MAX_PROTOCOL = 5;

interface Machine {
  readonly in: Cursor;
  readonly hooks: PickleHooks;
  readonly memo: Map<number, unknown>;
  readonly outer: unknown[][];
  stack: unknown[];
}

/** Reads one pickle and leaves the cursor after its STOP. */
export function unpickle(cursor: Cursor, hooks: PickleHooks = {}): unknown {
  const m: Machine = { in: cursor, hooks, memo: new Map(), outer: [], stack: [] };
  for (;;) {
    const at = cursor.at;
    const code = cursor.u8('pickle opcode');
    if (code === 0x2e) return pop(m); // STOP
    const run = OPCODES.get(code);
    if (!run) throw cursor.fail(`pickle opcode 0x${code.toString(16).padStart(2, '0')} is not known`, at);
    run(m);
  }
}

const fail = (m: Machine, message: string) => m.in.fail(`pickle: ${message}`);

function pop(m: Machine): unknown {
  if (m.stack.length === 0) throw fail(m, 'the stack is empty');
  return m.stack.pop();
}

function top(m: Machine): unknown {
  if (m.stack.length === 0) throw fail(m, 'the stack is empty');
  return m.stack[m.stack.length - 1];
}

/** The items since the last mark; what was below becomes the stack again. */
function popMark(m: Machine): unknown[] {
  const items = m.stack;
  const below = m.outer.pop();
  if (!below) throw fail(m, 'no mark on the stack');
  m.stack = below;
  return items;
}

/** Pays for what is made. */
function made<T>(m: Machine, bytes: number, thing: T): T {
  m.in.pay(bytes);
  return thing;
}

function push(m: Machine, value: unknown): void {
  m.in.pay(typeof value === 'number' || typeof value === 'bigint' ? COST.number : COST.slot);
  m.stack.push(value);
}

/** A Map or Set that has room for so many more. */
function room<T extends { readonly size: number }>(m: Machine, into: T, more: number): T {
  if (into.size + more > MAX_ENTRIES) throw fail(m, `more than ${MAX_ENTRIES} entries`);
  m.in.pay(more * COST.entry, more);
  return into;
}

const text = (m: Machine, length: number): string => m.in.text(length, 'pickle string');

function line(m: Machine): string {
  let out = '';
  for (let c = m.in.u8('pickle line'); c !== 10; c = m.in.u8('pickle line')) {
    if (out.length >= MAX_LINE) throw fail(m, `a line is longer than ${MAX_LINE} bytes`);
    out += String.fromCharCode(c);
  }
  return out;
}

/** Python's whole numbers: numbers where exact, else bigint. */
const whole = (v: bigint): number | bigint =>
  v >= Number.MIN_SAFE_INTEGER && v <= Number.MAX_SAFE_INTEGER ? Number(v) : v;

function long(m: Machine, length: number): number | bigint {
  if (length > MAX_INT_BYTES) throw fail(m, `a number of ${length} bytes, at most ${MAX_INT_BYTES} are read`);
  const bytes = m.in.bytes(length, 'pickle number');
  if (length === 0) return 0;
  const value = BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`);
  return whole(BigInt.asIntN(length * 8, value));
}

function parseWhole(m: Machine, s: string): number | bigint {
  if (!/^-?\d{1,2400}$/.test(s)) throw fail(m, `${JSON.stringify(s.slice(0, 40))} is not a whole number`);
  return whole(BigInt(s));
}

const ESCAPES: Record<string, string> = { n: '\n', t: '\t', r: '\r' };
const unescape = (s: string): string =>
  s.replace(/\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|(.))/gi, (_, x?: string, u?: string, c?: string) =>
    (x ?? u) ? String.fromCharCode(parseInt((x ?? u)!, 16)) : (ESCAPES[c!] ?? c!),
  );

function toDict(m: Machine, items: readonly unknown[]): PickleDict {
  return setItems(m, made(m, COST.dict, new PickleDict()), items) as PickleDict;
}

function setItems(m: Machine, target: unknown, items: readonly unknown[]): unknown {
  if (items.length % 2) throw fail(m, 'a key without a value');
  const map = target instanceof Map ? target : target instanceof PickleObject ? target.entries : undefined;
  if (!map) throw fail(m, 'items are set on something that is not a dict');
  room(m, map, items.length / 2);
  for (let i = 0; i < items.length; i += 2) map.set(items[i], items[i + 1]);
  return target;
}

function append(m: Machine, items: readonly unknown[]): void {
  const target = top(m);
  const list = Array.isArray(target) ? target : target instanceof PickleObject ? target.items : undefined;
  if (!list) throw fail(m, 'items are appended to something that is not a list');
  m.in.pay(items.length * COST.slot, items.length);
  for (const item of items) list.push(item);
}

function addToSet(m: Machine): void {
  const items = popMark(m);
  const target = top(m);
  if (!(target instanceof Set)) throw fail(m, 'items are added to something that is not a set');
  room(m, target, items.length);
  for (const item of items) target.add(item);
}

function global(m: Machine, module: unknown, name: unknown): void {
  if (typeof module !== 'string' || typeof name !== 'string') throw fail(m, 'a global needs two strings');
  push(m, made(m, COST.global, new PickleGlobal(module, name)));
}

function call(m: Machine, callable: unknown, args: unknown, named?: unknown): void {
  if (!(callable instanceof PickleGlobal)) throw fail(m, 'only a global can be called');
  if (!Array.isArray(args)) throw fail(m, `${callable.id}: arguments must be a tuple`);
  const known = named === undefined ? m.hooks.call?.(callable, args, m.in) : undefined;
  const object = known ?? made(m, COST.object, new PickleObject(callable, args));
  if (named !== undefined && object instanceof PickleObject) object.state = named;
  push(m, object);
}

function build(m: Machine): void {
  const state = pop(m);
  const target = top(m);
  if (target instanceof PickleObject) target.state = state;
  else if (target instanceof PickleDict) target.attributes = state;
}

function persistent(m: Machine, id: unknown): void {
  if (!m.hooks.persistent) throw fail(m, 'a persistent id, which only PyTorch files have');
  push(m, m.hooks.persistent(id));
}

function remember(m: Machine, key: number): void {
  room(m, m.memo, 1).set(key, top(m));
}

function recall(m: Machine, key: number): void {
  if (!m.memo.has(key)) throw fail(m, `nothing is remembered as ${key}`);
  push(m, m.memo.get(key));
}

const tuple =
  (count: number) =>
  (m: Machine): void => {
    if (m.stack.length < count) throw fail(m, 'the stack is empty');
    push(m, made(m, COST.list, m.stack.splice(m.stack.length - count)));
  };

const number = (m: Machine, s: string): number => Number(parseWhole(m, s));
type Step = (m: Machine) => void;
const STEPS: readonly (readonly [code: string | number, step: Step])[] = [
  [
    0x80,
    (m) => {
      // PROTO
      const version = m.in.u8();
      if (version > MAX_PROTOCOL)
        throw fail(m, `protocol ${version} is not known, ${MAX_PROTOCOL} is the last that is`);
    },
  ],
  [0x95, (m) => m.in.need(m.in.size('frame'), 'pickle frame')], // FRAME
  [
    '(',
    (m) => {
      m.outer.push(made(m, COST.list + COST.slot, m.stack));
      m.stack = [];
    },
  ],
  ['0', (m) => void (m.stack.length ? pop(m) : popMark(m))],
  ['1', (m) => void popMark(m)],
  ['2', (m) => push(m, top(m))],
  ['N', (m) => push(m, null)],
  [0x88, (m) => push(m, true)],
  [0x89, (m) => push(m, false)],
  [
    'I',
    (m) => {
      const s = line(m);
      push(m, s === '01' ? true : s === '00' ? false : parseWhole(m, s));
    },
  ],
  ['J', (m) => push(m, m.in.i32())],
  ['K', (m) => push(m, m.in.u8())],
  ['M', (m) => push(m, m.in.u16())],
  ['L', (m) => push(m, parseWhole(m, line(m).replace(/L$/, '')))],
  [0x8a, (m) => push(m, long(m, m.in.u8()))],
  [0x8b, (m) => push(m, long(m, m.in.u32()))],
  ['F', (m) => push(m, Number(line(m)))],
  ['G', (m) => push(m, m.in.f64('pickle float', false))],
  ['S', (m) => push(m, unescape(line(m).replace(/^(['"])(.*)\1$/, '$2')))],
  ['T', (m) => push(m, text(m, m.in.u32()))],
  ['U', (m) => push(m, text(m, m.in.u8()))],
  ['V', (m) => push(m, unescape(line(m)))],
  ['X', (m) => push(m, text(m, m.in.u32()))],
  [0x8c, (m) => push(m, text(m, m.in.u8()))],
  [0x8d, (m) => push(m, text(m, m.in.size('pickle string')))],
  ['B', (m) => push(m, made(m, COST.list, m.in.bytes(m.in.u32(), 'pickle bytes')))],
  ['C', (m) => push(m, made(m, COST.list, m.in.bytes(m.in.u8(), 'pickle bytes')))],
  [0x8e, (m) => push(m, made(m, COST.list, m.in.bytes(m.in.size('pickle bytes'), 'pickle bytes')))],
  [0x96, (m) => push(m, made(m, COST.list, m.in.bytes(m.in.size('pickle bytes'), 'pickle bytes')))],
  [')', (m) => push(m, made(m, COST.list, []))],
  ['t', (m) => push(m, made(m, COST.list, popMark(m)))],
  [0x85, tuple(1)],
  [0x86, tuple(2)],
  [0x87, tuple(3)],
  [']', (m) => push(m, made(m, COST.list, []))],
  ['l', (m) => push(m, made(m, COST.list, popMark(m)))],
  [
    'a',
    (m) => {
      const item = pop(m);
      append(m, [item]);
    },
  ],
  [
    'e',
    (m) => {
      const items = popMark(m);
      append(m, items);
    },
  ],
  ['}', (m) => push(m, made(m, COST.dict, new PickleDict()))],
  ['d', (m) => push(m, toDict(m, popMark(m)))],
  [
    's',
    (m) => {
      const value = pop(m);
      const key = pop(m);
      setItems(m, top(m), [key, value]);
    },
  ],
  [
    'u',
    (m) => {
      const items = popMark(m);
      setItems(m, top(m), items);
    },
  ],
  [0x8f, (m) => push(m, made(m, COST.set, new Set()))],
  [0x90, addToSet],
  [
    0x91,
    (m) => {
      const items = popMark(m);
      const set = room(m, made(m, COST.set, new Set<unknown>()), items.length);
      for (const item of items) set.add(item);
      push(m, set);
    },
  ],
  [
    'c',
    (m) => {
      const module = line(m);
      global(m, module, line(m));
    },
  ],
  [
    0x93,
    (m) => {
      const name = pop(m);
      global(m, pop(m), name);
    },
  ],
  [
    'R',
    (m) => {
      const args = pop(m);
      call(m, pop(m), args);
    },
  ],
  [
    0x81,
    (m) => {
      const args = pop(m);
      call(m, pop(m), args);
    },
  ],
  [
    0x92,
    (m) => {
      const named = pop(m);
      const args = pop(m);
      call(m, pop(m), args, named);
    },
  ],
  [
    'o',
    (m) => {
      const args = popMark(m);
      m.in.pay(0, args.length / 8);
      call(m, args.shift(), args);
    },
  ],
  [
    'i',
    (m) => {
      const module = line(m);
      const name = line(m);
      const args = popMark(m);
      call(m, made(m, COST.global, new PickleGlobal(module, name)), args);
    },
  ],
  ['b', build],
  ['P', (m) => persistent(m, line(m))],
  ['Q', (m) => persistent(m, pop(m))],
  ['g', (m) => recall(m, number(m, line(m)))],
  ['h', (m) => recall(m, m.in.u8())],
  ['j', (m) => recall(m, m.in.u32())],
  ['p', (m) => remember(m, number(m, line(m)))],
  ['q', (m) => remember(m, m.in.u8())],
  ['r', (m) => remember(m, m.in.u32())],
  [0x94, (m) => remember(m, m.memo.size)],
  [0x98, () => {}], // READONLY_BUFFER
];
const OPCODES = new Map(STEPS.map(([code, step]) => [typeof code === 'string' ? code.charCodeAt(0) : code, step]));
