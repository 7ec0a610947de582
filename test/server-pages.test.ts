// The pages in a real browser: chatting, stopping, regenerating, markdown that stays text, phones, the status plot.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { type Fixture, noModel, scripted } from './server-support.js';

const chromium = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
const playwright = await import('playwright-core').catch(() => undefined);
const skip = !chromium
  ? 'no Chromium here (Debian: apt install chromium)'
  : !playwright
    ? 'playwright-core is not installed'
    : noModel;

const RICH = `## A title

Some **bold** and *slanted* words, \`code\`, and a [link](https://example.org).
Bad: [x](javascript:alert(1)) <img src=x onerror="window.hacked=1"> <script>window.hacked=1</script>

1. first
   - inner
2. second

| identifier | b |
|---|---|
| 1 | ${'wide '.repeat(60)}|

\`\`\`ts
const x: number = 42; // the answer
console.log("<b>" + x);
\`\`\`
`;
function* answerTo(prompt: string): Generator<string | number | Error> {
  const asked = prompt.slice(prompt.lastIndexOf('<|im_start|>user\n') + 17, prompt.lastIndexOf('<|im_end|>'));
  if (asked === 'rich') yield* RICH.match(/[^]{1,7}/g) ?? [];
  else if (asked === 'think') yield* ['<think>let me see', '</think>', 'Done.'];
  else if (asked === 'broken') yield* ['So ', new Error('no')];
  else if (asked === 'endless') for (;;) yield* ['on ', 5];
  else yield* ['You said ', `“${asked}”`, prompt.includes('pirate') ? ', arr' : '', '.'];
}

describe('the pages', { skip }, () => {
  let browser: Browser;
  let server: Fixture;
  const problems: string[] = [];
  before(async () => {
    server = await scripted({ answer: (_, prompt) => answerTo(prompt) });
    browser = await playwright!.chromium.launch({ executablePath: chromium as string, args: ['--no-sandbox'] });
  });
  after(async () => {
    await browser?.close();
    await server?.server.close(0);
  });
  const open = async (path = '/', options: object = {}): Promise<Page> => {
    const page = await (await browser.newContext(options)).newPage();
    page.on('console', (m) => m.type() === 'error' && problems.push(m.text()));
    page.on('pageerror', (e) => problems.push(String(e)));
    page.on('request', (r) => r.url().startsWith(server.server.url) || problems.push(`asked for ${r.url()}`));
    await page.goto(server.server.url + path);
    return page;
  };
  const say = async (page: Page, text: string): Promise<void> => {
    await page.fill('#input', text);
    await page.press('#input', 'Enter');
  };
  const answered = (page: Page, text: string) =>
    page
      .locator('.message.assistant:not(.writing)')
      .last()
      .locator('.body', { hasText: text })
      .waitFor({ timeout: 60_000 });

  test('a conversation: figures, regenerate, edit, kept over a reload', async () => {
    const page = await open();
    await page.locator('#model', { hasText: 'scripted' }).waitFor();
    await say(page, 'hello');
    await answered(page, 'You said “hello”.');
    assert.match(
      (await page.locator('.under').last().textContent()) ?? '',
      /4 tokens · .* tokens\/s · first after \d+ ms/,
    );
    const before = server.engine.requests.length;
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await answered(page, 'You said “hello”.');
    assert.equal(server.engine.requests.length, before + 1);
    assert.equal(server.engine.requests.at(-1)?.maxTokens, undefined, 'an answer ends where the model ends it');
    await page.reload();
    await answered(page, 'You said “hello”.');
    assert.equal(await page.locator('#list .entry.current').textContent(), 'hello×');
    await page.getByRole('button', { name: 'Edit' }).click();
    assert.equal(await page.inputValue('#input'), 'hello');
    assert.equal(await page.locator('.message').count(), 0);
  });

  test('two tabs keep what either has, and a settings dialog that is closed stops no answer', async () => {
    const one = await open();
    const two = await one.context().newPage();
    await two.goto(server.server.url);
    await two.click('#new');
    await say(one, 'from the first');
    await answered(one, 'from the first');
    await two.locator('.entry', { hasText: 'from the first' }).waitFor();
    await two.click('#new');
    await say(two, 'endless');
    await two.locator('.message.assistant .body', { hasText: 'on on' }).waitFor();
    await two.click('#settings-open');
    await two.keyboard.press('Escape');
    assert.equal(await two.locator('.message.writing').count(), 1);
    await two.keyboard.press('Escape');
    await answered(two, 'on on');
    await one.locator('.entry', { hasText: 'endless' }).waitFor();
    await one.reload();
    for (const title of ['from the first', 'endless'])
      assert.equal(await one.locator('.entry', { hasText: title }).count(), 1, title);
  });

  test('the system prompt and parameters reach the model', async () => {
    const page = await open();
    await page.click('#settings-open');
    await page.fill('[name=system]', 'Talk like a pirate.');
    await page.fill('[name=temperature]', '0.25');
    await page.fill('[name=max_tokens]', '9');
    await page.click('dialog button');
    await say(page, 'hi');
    await answered(page, 'You said “hi”, arr.');
    const request = server.engine.requests.at(-1);
    assert.deepEqual([request?.temperature, request?.maxTokens], [0.25, 9]);
  });

  test('markdown becomes elements, and what a model writes never becomes HTML', async () => {
    const page = await open();
    await say(page, 'rich');
    await answered(page, 'the answer');
    const body = page.locator('.message.assistant .body');
    const count = (selector: string) => body.locator(selector).count();
    assert.equal(await body.locator('h3').textContent(), 'A title');
    assert.deepEqual(
      await Promise.all(['strong', 'em', 'ol > li', 'ol ul li', 'td', 'pre .t-keyword', 'pre .t-comment'].map(count)),
      [1, 1, 2, 1, 2, 1, 1],
    );
    assert.deepEqual(await Promise.all(['img', 'script', 'a[href^=javascript]'].map(count)), [0, 0, 0]);
    assert.equal(await count('a[href="https://example.org"]'), 1);
    assert.equal(await page.evaluate('window.hacked'), undefined);
    assert.match((await body.textContent()) ?? '', /<img src=x onerror/);
  });

  test('an answer is stopped by Esc, and the engine hears of it', async () => {
    const page = await open();
    await say(page, 'endless');
    await page.locator('.message.writing .body', { hasText: 'on on on' }).waitFor();
    assert.equal(await page.locator('#send').textContent(), 'Stop');
    await page.keyboard.press('Escape');
    await page.locator('.under', { hasText: 'stopped' }).waitFor();
    for (let i = 0; i < 6000 && server.engine.running > 0; i++) await new Promise((r) => setTimeout(r, 10));
    assert.equal(server.engine.running, 0);
  });

  test('reasoning is folded away', async () => {
    const page = await open();
    await say(page, 'think');
    await answered(page, 'Done.');
    assert.match((await page.locator('details.reasoning').textContent()) ?? '', /let me see/);
    assert.equal(await page.locator('details.reasoning').getAttribute('open'), null);
  });

  test('what went wrong is told with the id that the log has', async () => {
    const page = await open();
    await say(page, 'broken');
    const error = page.locator('.message.assistant .error');
    await error.waitFor();
    assert.match((await error.textContent()) ?? '', /^an error inside the server; .* request id: req_\w{32}$/);
  });

  test('a phone: nothing is wider than the screen, conversations slide in', async () => {
    const page = await open('/', { viewport: { width: 375, height: 700 }, hasTouch: true, colorScheme: 'dark' });
    await say(page, 'rich');
    await answered(page, 'the answer');
    assert.ok(await page.evaluate('document.documentElement.scrollWidth <= window.innerWidth'));
    const lines = await page.evaluate(
      "(() => { const r = new Range(); r.selectNodeContents(document.querySelector('th')); " +
        'return r.getClientRects().length; })()',
    );
    assert.equal(lines, 1, 'a word in the head of a table is not cut');
    assert.equal(await page.evaluate('document.documentElement.dataset.theme'), 'dark');
    const boxes = await Promise.all(['#input', '#send'].map((at) => page.locator(at).boundingBox()));
    assert.deepEqual([boxes[1]?.y, boxes[1]?.height], [boxes[0]?.y, boxes[0]?.height], 'side by side, equally high');
    const focused = (): Promise<string> => page.evaluate('document.activeElement.id');
    await page.focus('#menu');
    await page.keyboard.press('Shift+Tab');
    assert.notEqual(await focused(), 'theme', 'nothing takes the focus while it is away');
    await page.click('#menu');
    assert.equal(await focused(), 'new');
    await page.keyboard.press('Escape');
    assert.equal(await focused(), 'menu');
    assert.equal(await page.evaluate("document.body.classList.contains('side-open')"), false);
    await page.click('#menu');
    await page.locator('#list .entry').first().click();
  });

  test('an answer is copied, also where there is no clipboard to write to', async () => {
    const page = await open();
    await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })");
    await say(page, 'copy me');
    await answered(page, 'You said “copy me”.');
    await page.locator('.under button', { hasText: 'Copy' }).last().click();
    await page.locator('.under button', { hasText: 'Copied' }).waitFor();
    await page.focus('#input');
    await page.keyboard.press('Control+V');
    assert.equal(await page.inputValue('#input'), 'You said “copy me”.');
    assert.equal(await page.locator('textarea:not(#input)').filter({ visible: true }).count(), 0);
  });

  test('the status page draws what the engine says', async () => {
    const page = await open('/status');
    await page.locator('#rates path.series-0').first().waitFor({ state: 'attached', timeout: 60_000 });
    assert.match((await page.locator('.tiles').textContent()) ?? '', /0 \/ 64pages in use/);
    assert.deepEqual(await page.locator('#requests svg text:not([y="186"])').allTextContents(), ['0', '1']);
  });

  test('no errors, and nothing from elsewhere', () => assert.deepEqual(problems, []));
});
