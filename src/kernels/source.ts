// From symbols to source text: what a compiler is given holds the headers, the module's templates and only the kernels
// asked for.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError } from '../base/errors.js';
import { kernelsDir } from '../base/paths.js';
import type { ElementwiseRow } from '../ops/op.js';
import { elementwiseRows } from '../ops/table.js';
import type { Entry, KernelModule } from './declare.js';
import { rowFunction } from './expressions.js';
import { needed, stripped } from './needed.js';
import { readKernels } from './user-kernels.js';

/** A compilation unit: portable source text and the kernels it defines. */
export interface Unit {
  /** For error messages and cache folders. */
  readonly name: string;
  readonly source: string;
  /** All that the source is made of, known before the making, which takes longer than to look compiled code up. */
  readonly whole?: string;
  readonly entries: readonly Entry[];
  /** The only GPU it is for, where its module says so. */
  readonly needs?: string | undefined;
  /** What it was put together from, so that units can be joined: text common to many, and definitions of its own. */
  readonly parts?: { readonly shared: string; readonly own: string };
}

const INCLUDE = /^[ \t]*#include[ \t]+"([^"]+)"[^\n]*$/gm;

/** A file with our own headers in place, each once; table.h stays a mark, since every unit gets its own. */
export function inlined(file: string, folder = kernelsDir, seen = new Set<string>()): string {
  const text = readFileSync(join(folder, file), 'utf8').replace(/^#pragma once$/gm, '');
  return text.replace(INCLUDE, (_, part: string) => {
    if (part === 'table.h') return TABLE_MARK;
    if (part === 'simt.h' || seen.has(part)) return '';
    seen.add(part);
    return inlined(part, folder, seen);
  });
}
const TABLE_MARK = '//@table';

const texts = new Map<string, string>();

/** The text of kernels/NAME with its headers. */
export function moduleText(file: string): string {
  const known = texts.get(file) ?? inlined(file);
  texts.set(file, known);
  return known;
}

const rowByName = new Map<string, ElementwiseRow<any>>(elementwiseRows.map((r) => [r.name, r]));

/** Makes a user's elementwise op known to the generator. */
export function addRow(row: ElementwiseRow<any>): void {
  if (rowByName.has(row.name)) throw new ArgumentError(`there is already an elementwise op called ${row.name}`);
  rowByName.set(row.name, row);
}

const SMALL = /^(half|bfloat|fp8)$/;
const OTHER = /^(float|double|[iu]\d+)$/;

/**
 * table.h for a text: only the expressions it uses, in the forms for the element types it names (a template's parameter
 * may be any).
 */
function tableFor(text: string): string {
  const used = new Map<string, { small: boolean; general: boolean }>();
  for (const [, name, type = ''] of text.matchAll(/\bop_(\w+)(?:<(\w+))?/g)) {
    const forms = used.get(name) ?? { small: false, general: false };
    used.set(name, { small: forms.small || !OTHER.test(type), general: forms.general || !SMALL.test(type) });
  }
  return [...used]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, forms]) => {
      const row = rowByName.get(name);
      if (!row) throw new ArgumentError(`kernel source: op_${name} names no elementwise row of the op table`);
      return rowFunction(row, forms);
    })
    .join('\n');
}

/** The source that defines kernels of a declared module. */
export const declaredUnit = (module: KernelModule, entries: readonly Entry[]): Unit =>
  assemble(module.name, moduleText(`${module.name}.hip`), entries, { needs: module.needs });

/** Op_##OP in macros names no row. */
const withoutMacros = (text: string): string => text.replace(/^[ \t]*#[ \t]*define(?:.*\\\n)*.*$/gm, '');
/** What is asked of a shared text for each of its units. */
const commons = new Map<string, { readonly digest: string; readonly plain: string }>();
function readCommon(text: string): { readonly digest: string; readonly plain: string } {
  let known = commons.get(text);
  if (!known) {
    const digest = createHash('sha256').update(text).digest('hex');
    commons.set(text, (known = { digest, plain: withoutMacros(text.replaceAll(TABLE_MARK, '')) }));
  }
  return known;
}

/**
 * Joins shared text, expressions, definitions of its own and kernels; expressions go where the text includes table.h,
 * and what no kernel uses is left out.
 */
export function assemble(
  name: string,
  common: string,
  entries: readonly Entry[],
  { own = '', needs }: { readonly own?: string; readonly needs?: string | undefined } = {},
): Unit {
  const kernels = entries.map((e) => e.text).join('\n');
  const { digest, plain } = readCommon(common);
  const table = tableFor(`${plain}\n${withoutMacros(own)}${kernels}`);
  let source: string | undefined;
  return {
    ...{ name, entries, needs, parts: { shared: common, own } },
    whole: [digest, table, own, kernels].join('\0'),
    get source() {
      const [before, ...after] = common.split(TABLE_MARK);
      const texts = [before, table, after.join('\n'), own];
      return (source ??= `${needed(texts, kernels)}\n${stripped(kernels)}\n`);
    },
  };
}

/** Units of one text as few units of at most `most` kernels: a compiler that is slow to start is called less often. */
export function joinUnits(units: readonly Unit[], most: number): Unit[] {
  const groups = new Map<string, Unit[]>();
  const alone: Unit[] = [];
  for (const u of units) {
    const group = u.parts ? groups.get(u.parts.shared) : alone;
    if (group) group.push(u);
    else groups.set(u.parts!.shared, [u]);
  }
  const joined = [...groups.values()].flatMap((group) => {
    const bySymbol = new Map(
      group.flatMap((u) => u.entries.map((entry) => [entry.symbol, { entry, own: u.parts!.own }] as const)),
    );
    const all = [...bySymbol.values()];
    return Array.from({ length: Math.ceil(all.length / most) }, (_, k): Unit => {
      const some = all.slice(k * most, (k + 1) * most);
      const own = [...new Set(some.map((s) => s.own))].join('\n');
      const { name, parts, needs } = group[0];
      const together = some.map((s) => s.entry);
      return assemble(name, parts!.shared, together, { own, needs });
    });
  });
  return [...alone, ...joined];
}

/** A unit of a user's source, with portable.h before it. */
export function customUnit(name: string, source: string): Unit {
  const { shared, entries } = readKernels(name, source);
  return assemble(name, `${moduleText('portable.h')}\n${shared}`, entries);
}
