// The report page in a real browser: what it shows, the keyboard, a narrow screen, and what a screen reader is told.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import '../src/index.js';
import { reportPage } from '../src/parity/html.js';
import { runParity } from '../src/parity/run.js';
import type { Report } from '../src/parity/report.js';

const chromium = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
const playwright = await import('playwright-core').catch(() => undefined);
const skip = !chromium
  ? 'no Chromium here (Debian: apt install chromium)'
  : !playwright
    ? 'playwright-core is not installed'
    : false;

let report: Report;
let dir: string;
let url: string;
let browser: Awaited<ReturnType<NonNullable<typeof playwright>['chromium']['launch']>>;

before(async () => {
  if (skip) return;
  report = await runParity({
    devices: ['cpu', 'reference'],
    against: ['reference', 'candle', 'torch'],
    ops: ['relu', 'exp', 'sum', 'argmax', 'matmul', 'permute'],
  });
  // A failure and hostile text: neither may break the page.
  report.cells.push({
    ...report.cells[0],
    op: 'exp',
    dtype: 'u8',
    verdict: 'failed',
    error: null,
    why: ['</script><b>bold</b> & "quotes"'],
  });
  dir = mkdtempSync(join(tmpdir(), 'wick-page-'));
  const file = join(dir, 'report.html');
  writeFileSync(
    file,
    reportPage(report, {
      benches: [
        {
          device: 'a device',
          date: '2026-01-01',
          results: [
            { name: 'add 64 MiB', gbPerSecond: 100, ofCopy: 0.9 },
            { name: 'exp 64 MiB', gbPerSecond: 50, ofCopy: 0.45 },
          ],
        },
      ],
      mutation: {
        commit: 'abc',
        date: '2026-01-01',
        killed: 1,
        total: 2,
        notRun: 0,
        results: [
          { name: 'a', hash: '1', commit: 'abc', killed: true, by: 'sum' },
          { name: 'b', hash: '2', commit: 'abc', killed: false, reason: 'it is the same' },
        ],
      },
    }),
  );
  url = pathToFileURL(file).href;
  browser = await playwright!.chromium.launch({ executablePath: chromium as string, args: ['--no-sandbox'] });
});
after(async () => {
  await browser?.close();
  if (dir) rmSync(dir, { recursive: true });
});

async function open(width: number, height: number) {
  const context = await browser.newContext({ viewport: { width, height } });
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('pageerror', (e) => problems.push(String(e)));
  page.on('console', (m) => {
    if (m.type() === 'error') problems.push(m.text());
  });
  page.on('request', (r) => {
    if (!r.url().startsWith('file:')) problems.push(`asked the network for ${r.url()}`);
  });
  await page.goto(url);
  return { page, problems, close: () => context.close() };
}

test('the page shows every measured cell, in words and signs, without the network', { skip }, async () => {
  const { page, problems, close } = await open(1280, 900);
  const cells = new Set(report.cells.map((c) => `${c.op} ${c.dtype}`));
  const labels = await page
    .locator('#matrix button')
    .evaluateAll((all) => all.map((b) => b.getAttribute('aria-label') as string));
  assert.equal(labels.length, cells.size);
  for (const l of labels)
    assert.match(
      l,
      /^\w+ \w+: (bit for bit|within the bound|closer to the exact result|deliberate difference|unsupported|failed), \d+ cases/,
    );
  assert.match(await page.locator('#about').innerText(), /cases on cpu, reference/);
  assert.match(await page.locator('#unproved').innerText(), /AMD/);
  assert.equal(await page.locator('#bench').isVisible(), true);
  assert.match(await page.locator('#mutants').innerText(), /noticed 1 of 2[^]*b: it is the same/);
  assert.equal((await page.locator('main svg[role=img] circle').count()) > 0, true);
  assert.deepEqual(problems, []);
  await close();
});

test('filters narrow the matrix and say so', { skip }, async () => {
  const { page, close } = await open(1280, 900);
  await page.getByLabel('Op', { exact: true }).fill('relu');
  assert.deepEqual(await page.locator('#matrix tbody tr:not(.family) th').allInnerTexts(), ['relu']);
  assert.match(await page.locator('#shown').innerText(), /^1 of \d+ ops shown/);
  await page.getByLabel('Op', { exact: true }).fill('');
  for (const words of ['bit for bit', 'within the bound', 'closer', 'deliberate', 'unsupported'])
    await page.getByLabel(new RegExp(words)).first().uncheck();
  assert.equal(await page.locator('#matrix button').count(), 1);
  await close();
});

test('a cell opens by keyboard, tells its source and origin, and gives the focus back', { skip }, async () => {
  const { page, problems, close } = await open(1280, 900);
  await page.locator('#matrix button[tabindex="0"]').focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  const label = await page.evaluate(
    () => (globalThis as any).document.activeElement.getAttribute('aria-label') as string,
  );
  assert.match(label, /^relu f32/);
  await page.keyboard.press('Enter');
  const text = await page.getByRole('dialog').innerText();
  assert.match(text, /relu in f32/);
  assert.match(text, /candle-kernels\/src\/unary\.cu, lines \d+ to \d+: .*urelu_f32/);
  assert.match(text, /op_relu/);
  assert.match(text, /contiguous[\s\S]*transposed/);
  await page.keyboard.press('Escape');
  assert.equal(await page.evaluate(() => (globalThis as any).document.activeElement.getAttribute('aria-label')), label);
  assert.deepEqual(problems, []);
  await close();
});

test('hostile text stays text', { skip }, async () => {
  const { page, problems, close } = await open(1280, 900);
  await page.locator('#matrix button[aria-label^="exp u8"]').click();
  assert.match(await page.getByRole('dialog').innerText(), /<\/script><b>bold<\/b> & "quotes"/);
  assert.equal(await page.locator('dialog b').count(), 0);
  assert.deepEqual(problems, []);
  await close();
});

test('on a phone nothing is cut off, and cells are large enough to touch', { skip }, async () => {
  const { page, close } = await open(390, 844);
  const { scroll, client } = await page.evaluate(() => {
    const d = (globalThis as any).document.documentElement;
    return { scroll: d.scrollWidth as number, client: d.clientWidth as number };
  });
  assert.ok(scroll <= client, `the page is ${scroll} wide on a screen of ${client}`);
  const box = await page.locator('#matrix button').first().boundingBox();
  assert.ok(box && box.width >= 40 && box.height >= 36, JSON.stringify(box));
  await page.locator('#matrix button[aria-label^="exp f32"]').click();
  const dialog = await page.getByRole('dialog').boundingBox();
  assert.ok(dialog && dialog.x >= 0 && dialog.x + dialog.width <= 390);
  await close();
});

test('headings, landmarks and names are there for screen readers', { skip }, async () => {
  const { page, close } = await open(1280, 900);
  assert.deepEqual(await page.getByRole('heading', { level: 1 }).allInnerTexts(), ['wick parity']);
  for (const name of ['Summary', 'Ops by dtype', 'Error against the bound', 'Devices', 'Unproved'])
    assert.equal(await page.getByRole('region', { name }).count(), 1, name);
  assert.equal(await page.getByRole('search').count(), 1);
  const unnamed = await page
    .locator('button, select, input, svg[role=img]')
    .evaluateAll(
      (all) =>
        (all as any[]).filter((e) => !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()))
          .length,
    );
  assert.equal(unnamed, 0);
  assert.equal(await page.locator('th:not([scope])').count(), 0);
  await close();
});
