// The programs that the pages show: README.md, the guide and the other pages. Each is type-checked as it stands, runs
// in a process of its own and prints what the comment behind a console.log says. What a page takes for granted (a
// model, a picture, the tensor x) is in docs-programs-support.ts.
import assert from 'node:assert/strict';
import { spawn, spawnSync, type SpawnSyncReturns } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { packageRoot } from '../src/base/paths.js';
import { AROUND, JOINED, ONLY_CHECKED, standIns } from './docs-programs-support.js';

const PAGES = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'kernels/README.md'].concat(
  readdirSync(join(packageRoot, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((f) => f.endsWith('.md'))
    .map((f) => `docs/${f.replaceAll('\\', '/')}`)
    .sort(),
);
/** A program, and what each of its console.logs is to print; undefined where nobody says. */
interface Program {
  readonly name: string;
  readonly text: string;
  readonly prints: readonly (string | undefined)[];
}
/** Calls of console.log tell which they are, so that a loop may print a line as often as it likes. */
function program(name: string, text: string): Program {
  const prints: (string | undefined)[] = [];
  const counted = text
    .split('\n')
    .map((line) => {
      const calls = line.split('console.log(').length - 1;
      const comment = calls > 0 ? /\);(?: \})? +\/\/ (.*)$/.exec(line)?.[1] : undefined;
      return line.replaceAll('console.log(', () => `said(${prints.push(comment) - 1}, `);
    })
    .join('\n');
  return { name, text: counted, prints };
}
const programs = PAGES.flatMap((page) => {
  const text = readFileSync(join(packageRoot, page), 'utf8');
  const blocks = [...text.matchAll(/^```(?:ts|js|typescript|javascript)\n([\s\S]*?)^```$/gm)].map((m) => m[1]);
  if (JOINED.includes(page)) return [program(page, blocks.join('\n'))];
  return blocks.map((block, i) => {
    const name = `${page}, program ${i + 1}`;
    const [above, below] = AROUND[name] ?? [];
    return program(name, `${above ?? ''}${block}${below ?? ''}`);
  });
});

// Inside the package, so that programs find it by its name.
const folder = mkdtempSync(join(packageRoot, 'dist', 'programs-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const replaced = await standIns(folder);
const fileOf = (i: number): string => join(folder, `p${i}`);

let compiled: SpawnSyncReturns<string>;
before(() => {
  writeFileSync(join(folder, 'said.d.ts'), 'declare function said(place: number, ...values: unknown[]): void;\n');
  writeFileSync(
    join(folder, 'say.mjs'),
    `import { writeFileSync } from 'node:fs';
import { formatWithOptions } from 'node:util';
const all = [];
globalThis.said = (place, ...values) => {
  all.push([place, formatWithOptions({ colors: false }, ...values)]);
};
process.on('exit', () => writeFileSync(process.argv[2], JSON.stringify(all)));
`,
  );
  const config = {
    compilerOptions: {
      ...{ target: 'es2022', module: 'nodenext', lib: ['es2023', 'dom', 'esnext.disposable'], strict: true },
      ...{ skipLibCheck: true, types: ['node'], typeRoots: [join(packageRoot, 'node_modules/@types')] },
    },
    include: ['.'],
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  programs.forEach(({ text }, i) => {
    const found = text.replaceAll(/'([^'\n]+)'/g, (all, path: string) => {
      const by = replaced.get(path);
      return by === undefined ? all : JSON.stringify(by);
    });
    writeFileSync(`${fileOf(i)}.ts`, `${found}\nexport {};\n`);
  });
  const tsc = join(packageRoot, 'node_modules/typescript/bin/tsc');
  compiled = spawnSync(process.execPath, [tsc, '-p', folder, '--pretty', 'false'], {
    encoding: 'utf8',
  });
});

test('programs on the pages are TypeScript without a fault', () => {
  const named = compiled.stdout.replaceAll(/^.*?\bp(\d+)\.ts/gm, (_, i: string) => programs[Number(i)].name);
  assert.equal(compiled.status, 0, named);
});

const run = (i: number): Promise<{ code: number | null; errors: string }> =>
  new Promise((resolve, reject) => {
    const cwd = join(folder, `cwd-${i}`);
    mkdirSync(cwd);
    const args = ['--import', join(folder, 'say.mjs'), `${fileOf(i)}.js`, `${fileOf(i)}.json`];
    const child = spawn(process.execPath, args, { cwd, stdio: ['ignore', 'ignore', 'pipe'] });
    let errors = '';
    child.stderr.on('data', (part: Buffer) => (errors += part.toString()));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, errors }));
  });

describe('programs on the pages run and print what they say', { concurrency: 2 }, () => {
  programs.forEach(({ name, prints }, i) =>
    test(name, { skip: ONLY_CHECKED[name] ?? false }, async () => {
      const { code, errors } = await run(i);
      assert.equal(code, 0, errors);
      const said = JSON.parse(readFileSync(`${fileOf(i)}.json`, 'utf8')) as [place: number, text: string][];
      prints.forEach((line, place) => {
        const own = said.filter(([at]) => at === place);
        if (line === undefined) return;
        assert.ok(own.length > 0, `"${line}" was not printed`);
        for (const [, text] of own) assert.equal(text, line);
      });
    }),
  );
});

test('what pages take for granted is said of pages and programs that are there', () => {
  const names = programs.map((p) => p.name);
  assert.ok(names.length > 25, `${names.length} programs were found`);
  const told = [...JOINED, ...Object.keys(AROUND), ...Object.keys(ONLY_CHECKED)];
  assert.deepEqual(
    told.filter((name) => !names.includes(name)),
    [],
  );
});
