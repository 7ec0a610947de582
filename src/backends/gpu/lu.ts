// LU factors, and solutions, inverses and determinants by them: kernels/lu.hip.
import { CTYPE, KernelModule, typed } from '../../kernels/declare.js';
import { Layout } from '../../base/layout.js';
import type { View } from '../backend.js';
import {
  BLOCK,
  computedIn,
  FLOATS,
  type Float,
  givenArgs,
  givenParams,
  type Matrices,
  matricesOf,
  noneGiven,
  room,
  sidesOf,
  type Tile,
  TILES,
  tileFor,
  together,
  troubleWord,
} from './matrices.js';
import { at, ceilDiv, launch, type Launch, type Planner, places, single, strideGrid, viewOf } from './plan.js';
import { planTriangle } from './triangles.js';

export const LU = new KernelModule('lu');
const sizes = { ...typed('i32', 'm', 'n', 'columns') } as const;
/** Columns of a right-hand side to a thread: none, one, as many as of the matrix. */
type Right = 'none' | 'few' | 'many';
const SOLVES = { none: '', few: 'solve_', many: 'solve_many_' } as const;
const eachOf = (tile: Tile, right: Right): number => ({ none: 0, few: 1, many: sidesOf(tile)[1] })[right];
const small = LU.declare({
  each: { tile: TILES, right: ['none', 'few', 'many'], dtype: FLOATS },
  only: ({ tile, right }) => right !== 'many' || sidesOf(tile)[1] > 1,
  symbol: ({ tile, right, dtype }) => `lu_${SOLVES[right]}${tile}_${dtype}`,
  body: ({ tile, right, dtype }) => ({
    threads: BLOCK,
    params: {
      ...givenParams('a', CTYPE[dtype]),
      ...givenParams('b', CTYPE[dtype]),
      ...typed(`${CTYPE[dtype]}*`, 'x', 'lu', 'swaps', 'order', 'value', 'size'),
      ...{ trouble: 'u64*', ...sizes, batch: 'i64' },
    },
    call: `lu_small<${CTYPE[dtype]}, ${computedIn(tile, dtype)}, ${sidesOf(tile).join(', ')}, ${eachOf(tile, right)}>`,
  }),
});
const begin = LU.forTypes(FLOATS, 'lu_begin', (T) => ({
  threads: BLOCK,
  params: {
    ...givenParams('a', T),
    ...givenParams('b', T),
    ...{ work: `${T}*`, place: 'i32*', state: 'LuState*', ...sizes, batch: 'i64' },
  },
  call: `lu_begin<${T}>`,
}));
/** Rows of a panel to a thread, and its columns. */
const PANELS = ['2x32', '4x16'] as const;
const panel = LU.declare({
  each: { held: PANELS, dtype: FLOATS },
  symbol: ({ held, dtype }) => `lu_panel_${held}_${dtype}`,
  body: ({ held, dtype }) => ({
    threads: BLOCK,
    params: {
      ...{ work: `${CTYPE[dtype]}*`, done: `${CTYPE[dtype]}*`, place: 'i32*', order: 'i32*', state: 'LuState*' },
      ...{ swaps: `${CTYPE[dtype]}*`, trouble: 'u64*', ...sizes, ...typed('i32', 'first', 'width') },
    },
    call: `lu_panel<${CTYPE[dtype]}, ${held.replace('x', ', ')}>`,
  }),
});
const update = LU.declare({
  each: { width: [32, 16], dtype: FLOATS },
  symbol: ({ width, dtype }) => `lu_update_${width}_${dtype}`,
  body: ({ width, dtype }) => ({
    threads: BLOCK,
    params: {
      ...{ work: `${CTYPE[dtype]}*`, done: `${CTYPE[dtype]}*`, place: 'const i32*', order: 'const i32*' },
      ...{ ...sizes, ...typed('i32', 'first', 'width') },
    },
    call: `lu_update<${CTYPE[dtype]}, ${width}>`,
  }),
});
const finish = LU.forTypes(FLOATS, 'lu_finish', (T) => ({
  threads: BLOCK,
  params: {
    ...{ work: `const ${T}*`, done: `const ${T}*`, place: 'const i32*', state: 'const LuState*' },
    ...{ ...typed(`${T}*`, 'lu', 'order', 'value', 'size'), ...typed('i32', 'm', 'n', 'panel'), batch: 'i64' },
  },
  call: `lu_finish<${T}>`,
}));
const rowOrder = LU.forTypes(FLOATS, 'row_order', (T) => ({
  threads: 64,
  params: {
    ...{ swaps: `const ${T}*`, ...typed('i64', 'step', 'each'), order: `${T}*`, trouble: 'u64*', n: 'i32' },
  },
  call: `row_order<${T}>`,
}));

const TILE = 64;
/** Rows that a panel holds at most. */
export const MOST_ROWS = 4 * BLOCK;

/** What a call wants: names are those of the kernels' parameters. */
export interface Wanted {
  readonly b?: View | undefined;
  readonly x?: View;
  readonly lu?: View;
  readonly swaps?: View;
  readonly order?: View;
  readonly value?: View;
  readonly size?: View;
}
/** Arguments for what is wanted; null for what is not. */
const asked = <K extends keyof Wanted>(wanted: Wanted, ...names: readonly K[]) =>
  Object.fromEntries(names.map((name) => [name, wanted[name] ? at(name) : 0])) as {
    readonly [N in K]: ReturnType<typeof at> | 0;
  };

/**
 * Factors matrices and what is wanted of them; X of A X = B, or of A X = 1 without b. Answers where trouble is told.
 */
export function planLu(p: Planner, of: View, wanted: Wanted): View | undefined {
  const a = matricesOf(p, of);
  const b = wanted.b && matricesOf(p, wanted.b);
  const columns = wanted.x ? wanted.x.layout.shape[wanted.x.layout.shape.length - 1] : 0;
  const trouble = wanted.x && troubleWord(p);
  const tile = tileFor(Math.max(a.m, a.n));
  if (tile) planSmall(p, tile, a, b, columns, wanted, trouble);
  else planLarge(p, a, b, columns, wanted, trouble);
  return trouble;
}

function planSmall(
  p: Planner,
  tile: Tile,
  a: Matrices,
  b: Matrices | undefined,
  columns: number,
  wanted: Wanted,
  trouble: View | undefined,
): void {
  const [side, each] = sidesOf(tile);
  const right = !wanted.x ? 'none' : columns <= side || each === 1 ? 'few' : 'many';
  const grid = [ceilDiv(a.batch, together(tile)), wanted.x ? ceilDiv(columns, side * eachOf(tile, right)) : 1];
  const args = {
    ...givenArgs('a', a),
    ...(b ? givenArgs('b', b) : noneGiven('b')),
    ...asked(wanted, 'x', 'lu', 'swaps', 'order', 'value', 'size'),
    ...{ trouble: trouble ? at('trouble') : 0, m: a.m, n: a.n, columns, batch: a.batch },
  };
  const l = launch(small, { tile, right, dtype: a.view.dtype as Float }, grid, BLOCK, args);
  p.run({ launches: [l], scratch: 0 }, { ...wanted, a: a.view, b: b?.view, trouble });
}

function planLarge(
  p: Planner,
  a: Matrices,
  b: Matrices | undefined,
  columns: number,
  wanted: Wanted,
  trouble: View | undefined,
): void {
  const { m, n, batch } = a;
  const dtype = a.view.dtype as Float;
  const pitch = n + columns;
  const [work, done] = [room(p, batch * m * pitch, dtype), room(p, batch * m * pitch, dtype)];
  const [place, rows] = [room(p, batch * m, 'i32'), room(p, batch * m, 'i32')];
  const state = room(p, 3 * batch, 'f64');
  const all = { m, n, columns };
  const launches: Launch[] = [
    launch(begin, { dtype }, strideGrid(batch * m * pitch), BLOCK, {
      ...givenArgs('a', a),
      ...(b ? givenArgs('b', b) : noneGiven('b')),
      ...{ ...places('work', 'place', 'state'), ...all, batch },
    }),
  ];
  const held = m <= 2 * BLOCK ? '2x32' : '4x16';
  const width = m <= 2 * BLOCK ? 32 : 16;
  const steps = Math.min(m, n);
  for (let first = 0; first < steps; first += width) {
    const here = { ...all, first, width: Math.min(width, steps - first) };
    const order = at('rows');
    launches.push(
      launch(panel, { held, dtype }, batch, BLOCK, {
        ...{ ...places('work', 'done', 'place', 'state'), order },
        ...{ ...asked(wanted, 'swaps'), trouble: trouble ? at('trouble') : 0, ...here },
      }),
    );
    const right = pitch - first - here.width;
    if (right > 0)
      launches.push(
        launch(update, { width, dtype }, [batch, ceilDiv(right, TILE), ceilDiv(m, TILE)], BLOCK, {
          ...{ ...places('work', 'done', 'place'), order, ...here },
        }),
      );
  }
  if (wanted.lu || wanted.value)
    launches.push(
      launch(finish, { dtype }, strideGrid(wanted.lu ? batch * m * n : batch), BLOCK, {
        ...places('work', 'done', 'place', 'state'),
        ...{ ...asked(wanted, 'lu', 'order', 'value', 'size'), m, n, panel: width, batch },
      }),
    );
  p.run({ launches, scratch: 0 }, { ...wanted, a: a.view, b: b?.view, work, done, place, rows, state, trouble });
  if (!wanted.x || !trouble) return;
  const part = (from: number, many: number): Matrices => ({
    view: { ...viewOf(done), layout: new Layout([batch, m, many], [m * pitch, pitch, 1], from) },
    ...{ batch, m, n: many, step: m * pitch, row: pitch, column: 1 },
  });
  planTriangle(p, part(0, n), part(n, columns), wanted.x, trouble, { upper: true, transpose: false, unit: false });
}

/** The row that becomes each row by exchanges, which are one row of a matrix; answers where trouble is told. */
export function planRowOrder(p: Planner, of: View, order: View): View {
  const { view, batch, n, step, column } = matricesOf(p, of);
  const trouble = troubleWord(p);
  const args = { ...places('swaps', 'order', 'trouble'), step, each: column, n };
  p.run(single(launch(rowOrder, { dtype: view.dtype as Float }, batch, 64, args, 4 * n)), {
    ...{ swaps: view, order, trouble },
  });
  return trouble;
}
