// `wick env`: the environment variables that wick reads, with their values here.
import { parseArgs } from 'node:util';
import { env, GROUPS, type Group, unknownVariables, VARIABLES, type VariableName } from '../base/environment.js';
import { cacheDir, packageRoot } from '../base/paths.js';
import { wrap } from './table.js';

const HELP = `wick env           the environment variables that wick reads, what they mean and how they are set here
wick env --json    the same for programs`;
const INDENT = '      ';

export function run(argv: readonly string[]): number {
  const { values } = parseArgs({
    args: [...argv],
    options: { help: { type: 'boolean', short: 'h' }, json: { type: 'boolean' } },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const names = Object.keys(VARIABLES) as VariableName[];
  const rows = names.map((name) => ({ name, ...VARIABLES[name], value: env(name) }));
  const unknown = unknownVariables();
  if (values.json) {
    console.log(JSON.stringify({ package: packageRoot, cache: cacheDir(), variables: rows, unknown }, null, 2));
    return 0;
  }
  console.log(`the package: ${packageRoot}\nthe cache:   ${cacheDir()}`);
  for (const group of Object.keys(GROUPS) as Group[]) {
    console.log(`\n${GROUPS[group]}`);
    for (const r of rows.filter((row) => row.group === group)) {
      console.log(`  ${r.name}${r.value === undefined ? '' : ` = ${r.value}`}`);
      console.log(INDENT + wrap(r.meaning, INDENT));
      console.log(INDENT + wrap(`not set: ${r.default}`, INDENT));
    }
  }
  if (unknown.length > 0)
    console.log(`\nset here, but not known to wick (misspelt, or of another version): ${unknown.join(', ')}`);
  return 0;
}
