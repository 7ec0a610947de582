// The status page: what the engine does, once a second.
import { get } from './api.js';
import { element } from './markdown.js';
import { plot } from './plot.js';
import { themeButton } from './theme.js';

const byId = (id) => document.getElementById(id);
const SPAN = 300;
const history = { tokensPerSecond: [], promptTokensPerSecond: [], running: [], waiting: [] };

const bytes = (n) => (n >= 2 ** 30 ? `${(n / 2 ** 30).toFixed(1)} GiB` : `${(n / 2 ** 20).toFixed(0)} MiB`);
const duration = (s) => (s < 120 ? `${Math.floor(s)} s` : s < 7200 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`);
const tile = (value, label, more = []) => element('div', { class: 'tile' }, element('b', {}, String(value)), element('span', {}, label), ...more);

let last;
/** Tokens a second since the last look: what the engine itself tells is the mean of ten seconds. */
function ratesOf(status, now = performance.now()) {
  const seconds = last ? (now - last.now) / 1000 : Infinity;
  const rate = (name) => Math.max(0, status[name] - (last?.status[name] ?? 0)) / seconds;
  const rates = { tokensPerSecond: rate('tokens'), promptTokensPerSecond: rate('promptTokens') };
  last = { status, now };
  return rates;
}

function draw({ model, embedding_model, limits, status, memory, uptime }) {
  byId('model').textContent = model ?? embedding_model ?? '';
  if (!status) {
    byId('tiles').replaceChildren(tile(bytes(memory), 'memory of the process'), tile(duration(uptime), 'since the start'));
    return;
  }
  byId('context').textContent = `context of ${limits.contextTokens.toLocaleString('en')} tokens, ${limits.maxRunning} at a time`;
  const shown = { ...status, ...ratesOf(status) };
  for (const [name, values] of Object.entries(history)) {
    values.push(shown[name]);
    if (values.length > SPAN) values.shift();
  }
  const span = Math.min(SPAN, Math.max(60, history.running.length));
  const share = status.pagesTotal > 0 ? status.pagesUsed / status.pagesTotal : 0;
  const meter = element('meter', { min: '0', max: '1', value: String(share), 'aria-label': 'pages in use' });
  byId('tiles').replaceChildren(
    tile(status.running, 'running'),
    tile(status.waiting, 'waiting'),
    tile(shown.tokensPerSecond.toFixed(1), 'tokens a second'),
    tile(`${status.pagesUsed} / ${status.pagesTotal}`, 'pages in use', [meter]),
    tile(status.tokens.toLocaleString('en'), 'tokens written'),
    tile(status.prefixHits.toLocaleString('en'), 'prompt tokens from the cache'),
    tile(status.finished.toLocaleString('en'), 'answers'),
    tile(bytes(memory), `memory, up ${duration(uptime)}`),
  );
  plot(
    byId('rates'),
    'Tokens a second',
    [
      { name: 'written', values: history.tokensPerSecond },
      { name: 'read', values: history.promptTokensPerSecond },
    ],
    span,
  );
  plot(
    byId('requests'),
    'Requests',
    [
      { name: 'running', values: history.running },
      { name: 'waiting', values: history.waiting },
    ],
    span,
    { counts: true },
  );
}

async function look() {
  try {
    draw(await get('/status.json'));
  } catch (error) {
    byId('model').textContent =
      error.status === 401 ? 'a key is needed: it is set on the chat page' : 'the server does not answer';
  }
}
themeButton(byId('theme'));
look();
setInterval(look, 1000);
