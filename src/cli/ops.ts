// `wick ops`: the op table, and everything it knows about one op.
import { parseArgs } from 'node:util';
import '../index.js';
import { DTYPES, EVERY_DTYPE, NUMBERS } from '../base/dtype.js';
import { boundFor, type Row } from '../ops/op.js';
import { opList } from '../ops/table.js';
import { type Evidence, readEvidence, staleReason } from '../parity/evidence.js';
import { originOf, originText, sourceOf } from '../parity/origin.js';
import { fit } from './table.js';

let kept: readonly Evidence[] | undefined;
/** The committed records: megabytes, read once however many ops are told of. */
const evidence = (): readonly Evidence[] => (kept ??= readEvidence());

const HELP = `wick ops            lists the ops
wick ops NAME ...   formula, dtypes, bounds, gradient, Candle's kernel, our source, deliberate differences,
                    measured errors`;

export function run(argv: readonly string[]): number {
  const { values, positionals: names } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: { help: { type: 'boolean', short: 'h' } },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  if (names.length === 0) {
    console.log(
      fit(
        ['op', 'family', 'dtypes', 'what it computes'],
        opList.map((r) => [r.name, r.family, dtypesOf(r), r.formula]),
        [3, 2],
      ),
    );
    return 0;
  }
  const known = names.map((name) => opList.find((r) => r.name === name) ?? name);
  const unknown = known.find((row) => typeof row === 'string');
  if (unknown !== undefined) {
    const near = opList.filter((r) => r.name.toLowerCase().includes(unknown.toLowerCase())).map((r) => r.name);
    console.error(
      `wick ops: there is no op ${JSON.stringify(unknown)}${near.length ? `; near are ${near.join(', ')}` : ''}`,
    );
    return 1;
  }
  console.log((known as Row[]).map(describe).join('\n\n'));
  return 0;
}

/** An op's dtypes in a few words. */
function dtypesOf({ dtypes }: Row): string {
  const several = [EVERY_DTYPE, DTYPES, NUMBERS].findIndex((list) => list.every((d) => dtypes.includes(d)));
  return ['all', 'bool and numbers', 'numbers'][several] ?? dtypes.join(' ');
}

/** The kernel files that GPUs of any kind launched for the op, as runs recorded them. */
function kernelFiles(row: Row): string | undefined {
  const modules = new Set(evidence().flatMap((e) => e.report.uses?.[row.name] ?? []));
  return modules.size > 0
    ? `on GPUs by ${[...modules]
        .sort()
        .map((m) => `kernels/${m}.hip`)
        .join(', ')}`
    : undefined;
}

export function describe(row: Row): string {
  const bounds = row.dtypes.map((d) => `${d} ${boundFor(row.ulp, d)}`).join(', ');
  const lines: (readonly [string, string | undefined])[] = [
    ['computes', row.formula],
    ['family', row.family],
    ['dtypes', row.dtypes.join(', ')],
    ['without', row.without],
    ['bound', typeof row.ulp === 'number' ? (row.ulp === 0 ? 'bit for bit' : `${row.ulp} ulp`) : `ulp: ${bounds}`],
    [
      'gradient',
      row.noGrad
        ? `none: ${row.noGrad}`
        : row.family === 'composite'
          ? 'yes, by the ops it is made of'
          : 'grad' in row && row.grad
            ? 'yes, a rule in the row'
            : 'none',
    ],
    ['candle', originText(row)],
    ['differs', row.differs ?? 'in nothing on purpose'],
    ['runs', kernelFiles(row)],
  ];
  const origin = originOf(row);
  const source = sourceOf(row);
  const parts = [
    row.name,
    lines
      .filter(([, v]) => v)
      .map(([k, v]) => `  ${k.padEnd(9)} ${v}`)
      .join('\n'),
    typeof origin === 'string' ? '' : `  kernels   ${origin.symbols.join(' ')}`,
    source
      ? `\n  ${source.file}:\n${source.text
          .split('\n')
          .map((l) => `    ${l}`)
          .join('\n')}`
      : '',
    measured(row),
  ];
  return parts.filter(Boolean).join('\n');
}

/** What committed evidence says of the op; numbers older than what they speak of are marked. */
function measured(row: Row): string {
  const cells = evidence().flatMap(({ report }) =>
    report.cells
      .filter((c) => c.op === row.name)
      .map((c) => ({ ...c, date: report.date.slice(0, 10), stale: staleReason(report, c.device, c.op) })),
  );
  if (cells.length === 0) return '';
  const error = (e: number | null): string => (e === null ? 'different' : e.toPrecision(3));
  return `\n${fit(
    ['device', 'against', 'dtype', 'cases', 'verdict', 'largest error', 'bound', 'measured'],
    cells.map((c) => [
      c.device,
      c.against,
      c.dtype,
      c.cases,
      c.verdict,
      error(c.error),
      c.bound,
      c.stale ? `${c.date}, before ${c.stale} changed` : c.date,
    ]),
    [7, 1],
  )}`;
}
