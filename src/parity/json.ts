// Reports as JSON: a line a cell, so that evidence in the repository shows small changes as small differences.
import { FormatError } from '../base/errors.js';
import type { Cell, Report } from './report.js';
import { VERDICTS } from './verdict.js';

/** Zero counts are left out; three digits say enough about an error. */
export function slim(c: Cell): object {
  const round = (v: number | null | undefined): number | null | undefined =>
    typeof v === 'number' ? Number(v.toPrecision(3)) : v;
  return {
    ...c,
    error: round(c.error),
    ...(c.theirs !== undefined && { theirs: round(c.theirs) }),
    counts: Object.fromEntries(VERDICTS.filter((v) => c.counts[v] > 0).map((v) => [v, c.counts[v]])),
    ...(c.layouts && {
      layouts: Object.fromEntries(
        Object.entries(c.layouts).map(([k, l]) => [k, { cases: l.cases, ulp: round(l.ulp) }]),
      ),
    }),
  };
}

export function reportJson(report: Report): string {
  const { cells, ...head } = report;
  const text = JSON.stringify(head, null, 1);
  return `${text.slice(0, -2)},\n "cells": [\n${cells.map((c) => `  ${JSON.stringify(slim(c))}`).join(',\n')}\n ]\n}\n`;
}

/** Reads one back; counts left out are zero. */
export function parseReport(text: string, name: string): Report {
  const r = JSON.parse(text) as Report;
  if (r.version !== 1 || !Array.isArray(r.cells)) throw new FormatError(`${name}: not a parity report of version 1`);
  r.uses ??= {};
  const none = Object.fromEntries(VERDICTS.map((v) => [v, 0]));
  for (const c of r.cells) c.counts = { ...none, ...c.counts } as Cell['counts'];
  return r;
}
