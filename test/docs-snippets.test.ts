// What the pages name is there: links, npm scripts, compiled programs, records. docs-programs.test.ts runs the programs
// they show.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { test } from 'node:test';
import { docsDir, packageRoot } from '../src/base/paths.js';

const manifest = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
};
/** A link of Markdown to a file of ours. */
const LINK = /\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)/g;

test('records under docs are JSON', () => {
  const records = readdirSync(join(packageRoot, 'docs'), { recursive: true, encoding: 'utf8' });
  const json = records.filter((f) => f.endsWith('.json'));
  assert.ok(json.length > 20);
  for (const file of json)
    assert.doesNotThrow(() => JSON.parse(readFileSync(join(packageRoot, 'docs', file), 'utf8')), file);
});
test('links between pages lead to files that are there', () => {
  const pages = [
    ...['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md', 'kernels/README.md'].map((f) =>
      join(packageRoot, f),
    ),
    ...readdirSync(docsDir, { recursive: true, encoding: 'utf8' })
      .filter((f) => f.endsWith('.md'))
      .map((f) => join(docsDir, f)),
  ];
  const dead = pages.flatMap((page) =>
    [...readFileSync(page, 'utf8').matchAll(LINK)]
      .filter((m) => !existsSync(join(dirname(page), decodeURIComponent(m[1]))))
      .map((m) => `${page}: ${m[1]}`),
  );
  assert.deepEqual(dead, []);
});

test('the index of docs/ lists every page, and the site has them in its order, decisions aside', () => {
  const pages = readdirSync(docsDir, { recursive: true, encoding: 'utf8' }).filter(
    (f) => f.endsWith('.md') && f !== 'README.md',
  );
  const index = readFileSync(join(docsDir, 'README.md'), 'utf8');
  const listed = [...new Set([...index.matchAll(LINK)].map((m) => m[1]))];
  assert.deepEqual([...listed].sort(), pages.sort());
  const site = readFileSync(join(packageRoot, 'site/typedoc.json'), 'utf8');
  const { projectDocuments } = JSON.parse(site) as { projectDocuments: string[] };
  assert.deepEqual(
    projectDocuments.map((f) => f.replace('../docs/', '')),
    ['README.md', ...listed.filter((f) => !f.startsWith('decisions/'))],
  );
});

test('the changelog has a section a release, and every entry stands under an area', () => {
  const lines = readFileSync(join(packageRoot, 'CHANGELOG.md'), 'utf8').split('\n');
  const headings = lines.filter((line) => line.startsWith('## '));
  assert.deepEqual([...new Set(headings)], headings, 'a release has one section');
  const beside = lines.filter((line, i) => {
    const above = lines.slice(0, i).findLast((l) => l.startsWith('#'));
    return line.startsWith('- ') && !above?.startsWith('### ');
  });
  assert.deepEqual(beside, [], 'these entries stand under no area');
  const long = headings.filter((heading) => {
    const from = lines.indexOf(heading);
    const next = lines.findIndex((line, i) => i > from && line.startsWith('## '));
    return (next < 0 ? lines.length : next) - from > 140;
  });
  assert.deepEqual(long, [], 'a release is told in 140 lines: what there is, by area, no diary');
});

test('pages name npm scripts and compiled programs that are there', () => {
  const pages = ['README.md', 'SECURITY.md', 'CHANGELOG.md', 'kernels/README.md'].map((f) => join(packageRoot, f));
  for (const f of readdirSync(docsDir, { recursive: true, encoding: 'utf8' }))
    if (f.endsWith('.md')) pages.push(join(docsDir, f));
  const wrong = pages.flatMap((page) => {
    const text = readFileSync(page, 'utf8');
    const scripts = [...text.matchAll(/npm run (?:--silent )?([\w:-]+)/g)].map((m) => m[1]);
    const programs = [...text.matchAll(/\bdist\/([\w/-]+)\.js/g)].map((m) => `${m[1]}.ts`);
    return [
      ...scripts.filter((name) => !Object.hasOwn(manifest.scripts, name)),
      ...programs.filter((path) => !existsSync(join(packageRoot, path))),
    ].map((name) => `${page}: ${name}`);
  });
  assert.deepEqual(wrong, []);
});

test('CONTRIBUTING names files, scripts and tests that are there', () => {
  const page = readFileSync(join(packageRoot, 'CONTRIBUTING.md'), 'utf8');
  // NAME and FILE stand for others, `mirror` is the example; compiled files are named by dist/, one source each.
  const paths = [
    ...page.matchAll(/(?<![\w@/.-])((?:dist|src|native|kernels|scripts|test|docs|bench|\.ci)\/[\w./-]*\w\/?)/g),
  ]
    .map((m) => m[1].replace(/^dist\/(.*)\.js$/, '$1.ts'))
    .filter((path) => !/[A-Z]{4}|mirror|prebuilt/.test(path));
  assert.ok(paths.length > 40, `${paths.length} paths were found`);
  // Decisions are named by their numbers.
  const found = (path: string): boolean =>
    existsSync(join(packageRoot, path)) ||
    (/\/\d{4}$/.test(path) && readdirSync(join(packageRoot, dirname(path))).some((f) => f.startsWith(basename(path))));
  assert.deepEqual(
    [...new Set(paths)].filter((path) => !found(path)),
    [],
  );
  const scripts = [...page.matchAll(/npm run (?:--silent )?([\w:-]+)/g)].map((m) => m[1]);
  assert.deepEqual(
    [...new Set(scripts)].filter((name) => !Object.hasOwn(manifest.scripts, name)),
    [],
  );
  const tests = readdirSync(join(packageRoot, 'test'));
  const prefixes = [...page.matchAll(/npm test -- ([a-z][\w-]*)/g)].map((m) => m[1]);
  assert.deepEqual(
    [...new Set(prefixes)].filter((prefix) => !tests.some((f) => f.startsWith(prefix) && f.endsWith('.test.ts'))),
    [],
  );
  assert.deepEqual(
    page.split('\n').filter((line) => line.length > 120),
    [],
  );
});

test('links of the documentation site lead to files, not to folders, of which it has no pages', () => {
  const site = join(packageRoot, 'site');
  const { readme, projectDocuments } = JSON.parse(readFileSync(join(site, 'typedoc.json'), 'utf8')) as {
    readme: string;
    projectDocuments: string[];
  };
  const dead = [readme, ...projectDocuments].flatMap((page) =>
    [...readFileSync(join(site, page), 'utf8').matchAll(LINK)]
      .filter(
        (m) => !statSync(join(site, dirname(page), decodeURIComponent(m[1])), { throwIfNoEntry: false })?.isFile(),
      )
      .map((m) => `${page}: ${m[1]}`),
  );
  assert.deepEqual(dead, []);
});
