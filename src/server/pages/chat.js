// The chat page: messages, the composer, settings.
import { get, keyOf, ServerError, streamChat } from './api.js';
import { Conversations, settings } from './conversations.js';
import { copyText, element, markdown } from './markdown.js';
import { themeButton } from './theme.js';

const byId = (id) => document.getElementById(id);
const [messagesAt, input, send, composer] = ['messages', 'input', 'send', 'composer'].map(byId);
const conversations = new Conversations(() => {
  drawList();
  if (!writing) drawMessages();
});
let model = { id: null, max_model_len: 4096 };
/** The answer under way, and the way to stop it. */
let writing = null;

function button(label, act) {
  const made = element('button', { type: 'button', class: 'plain' }, label);
  made.addEventListener('click', () => act(made));
  return made;
}

/** What an answer took, in a line. */
function figures({ usage, firstMs, seconds, finish }) {
  if (!usage) return finish === 'stopped' ? 'stopped' : '';
  const n = usage.completion_tokens;
  const rate = n > 1 && seconds > 0 ? ` · ${((n - 1) / seconds).toFixed(1)} tokens/s` : '';
  const first = firstMs == null ? '' : ` · first after ${Math.round(firstMs)} ms`;
  const end = finish === 'length' ? ' · cut by the limit' : '';
  return `${n} tokens${rate}${first}${end}`;
}

function show(message, index, all) {
  const body = element('div', { class: 'body' });
  const under = element('div', { class: 'under' });
  const row = element('article', { class: `message ${message.role}`, 'aria-label': message.role }, body, under);
  if (message.role === 'user') {
    body.append(message.content);
    if (!writing)
      under.append(
        button('Edit', () => {
          input.value = message.content;
          conversations.current.messages.length = index;
          changed();
          input.focus();
        }),
      );
    return row;
  }
  const isWriting = writing?.message === message;
  row.classList.toggle('writing', isWriting);
  if (message.note) row.prepend(element('p', { class: 'note' }, message.note));
  if (message.reasoning) {
    const thought = element('details', { class: 'reasoning' }, element('summary', {}, 'Reasoning'), message.reasoning);
    thought.open = isWriting && message.content === '';
    row.insertBefore(thought, body);
  }
  body.append(...markdown(message.content));
  if (message.error) body.append(element('p', { class: 'error' }, message.error));
  if (isWriting) return row;
  const last = index === all.length - 1;
  under.append(
    button('Copy', (b) => copyText(message.content, b)),
    ...(last && !writing ? [button('Regenerate', regenerate)] : []),
    element('span', {}, message.figures ?? ''),
  );
  return row;
}

const atEnd = () => messagesAt.scrollHeight - messagesAt.scrollTop - messagesAt.clientHeight < 80;
function drawMessages() {
  const { messages } = conversations.current;
  const stay = atEnd();
  if (messages.length === 0)
    messagesAt.replaceChildren(
      element('div', { class: 'welcome' }, element('p', {}, `Say something to ${model.id ?? 'the model'}.`)),
    );
  else messagesAt.replaceChildren(...messages.map(show));
  if (stay) messagesAt.scrollTop = messagesAt.scrollHeight;
}
/** Only the answer under way, once a frame. */
let due = false;
function drawLast() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const { messages } = conversations.current;
    if (!writing || messages.at(-1) !== writing.message) return;
    const stay = atEnd();
    messagesAt.lastElementChild?.replaceWith(show(writing.message, messages.length - 1, messages));
    if (stay) messagesAt.scrollTop = messagesAt.scrollHeight;
  });
}
function drawList() {
  byId('list').replaceChildren(
    ...conversations.list.map((c) => {
      const open = element('button', { type: 'button', class: 'open' }, c.title);
      const drop = element('button', { type: 'button', class: 'drop', 'aria-label': `Delete ${c.title}` }, '×');
      open.addEventListener('click', () => {
        stop();
        conversations.open(c.id);
        side(false);
        changed();
      });
      drop.addEventListener('click', () => {
        stop();
        conversations.drop(c.id);
        changed();
      });
      return element('div', { class: `entry${c.id === conversations.currentId ? ' current' : ''}` }, open, drop);
    }),
  );
}
function changed() {
  conversations.save();
  drawMessages();
  drawList();
  send.textContent = writing ? 'Stop' : 'Send';
  send.setAttribute('aria-label', writing ? 'Stop' : 'Send');
}

/** The parameters of a request; what is left empty is the server's to choose. */
function parameters() {
  const s = settings.read();
  const number = (name) => (s[name] === undefined || s[name] === '' ? {} : { [name]: Number(s[name]) });
  return {
    ...(model.id && { model: model.id }),
    ...number('max_tokens'),
    ...number('temperature'),
    ...number('top_p'),
    ...number('seed'),
    ...(s.stop ? { stop: [s.stop] } : {}),
  };
}

function stop() {
  writing?.abort.abort();
}

/** Answers the last message. What no longer fits the context is left out from the oldest on, and said. */
async function answer() {
  const conversation = conversations.current;
  const history = conversation.messages.map(({ role, content }) => ({ role, content }));
  const { system } = settings.read();
  const message = { role: 'assistant', content: '', reasoning: '' };
  conversation.messages.push(message);
  writing = { message, abort: new AbortController() };
  changed();
  messagesAt.scrollTop = messagesAt.scrollHeight;
  let left = 0;
  try {
    for (;;) {
      const messages = [...(system ? [{ role: 'system', content: system }] : []), ...history.slice(left)];
      try {
        const result = await streamChat({ ...parameters(), messages }, writing.abort.signal, (delta) => {
          message.content += delta.content;
          message.reasoning += delta.reasoning;
          drawLast();
        });
        message.figures = figures(result);
        break;
      } catch (error) {
        const full = error instanceof ServerError && error.code === 'context_length_exceeded';
        if (full && left + 2 >= history.length) delete message.note; // the last message does not fit either
        if (!full || left + 2 >= history.length) throw error;
        left += 2;
        message.note = `The ${left} oldest messages no longer fit the model's context and were left out.`;
      }
    }
  } catch (error) {
    if (error.name === 'AbortError') message.figures = 'stopped';
    else message.error = error.status === 401 ? `${error.message} (Settings has a place for it)` : error.message;
  } finally {
    writing = null;
    changed();
    input.focus();
  }
}
function regenerate() {
  const { messages } = conversations.current;
  if (writing || messages.at(-1)?.role !== 'assistant') return;
  messages.pop();
  answer();
}

composer.addEventListener('submit', (event) => {
  event.preventDefault();
  if (writing) return stop();
  const text = input.value.trim();
  if (text === '') return;
  const conversation = conversations.current;
  if (conversation.messages.length === 0) conversation.title = text.split('\n')[0].slice(0, 60);
  conversation.messages.push({ role: 'user', content: text });
  input.value = '';
  grow();
  answer();
});
function grow() {
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
}
input.addEventListener('input', grow);
input.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!writing) composer.requestSubmit();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && document.body.classList.contains('side-open')) {
    side(false);
    byId('menu').focus();
  } else if (event.key === 'Escape' && writing && !dialog.open) stop();
  if (event.key.toLowerCase() === 'o' && event.shiftKey && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    byId('new').click();
  }
});
byId('new').addEventListener('click', () => {
  stop();
  conversations.begin();
  side(false);
  changed();
  input.focus();
});

function side(open) {
  document.body.classList.toggle('side-open', open);
  byId('veil').hidden = !open;
}
byId('menu').addEventListener('click', () => {
  side(true);
  byId('new').focus();
});
byId('veil').addEventListener('click', () => side(false));

const dialog = byId('settings');
const fields = dialog.querySelector('form').elements;
byId('settings-open').addEventListener('click', () => {
  const s = settings.read();
  for (const name of ['system', 'temperature', 'top_p', 'max_tokens', 'seed', 'stop']) fields[name].value = s[name] ?? '';
  fields.key.value = keyOf();
  dialog.showModal();
});
dialog.addEventListener('close', () => {
  const names = ['system', 'temperature', 'top_p', 'max_tokens', 'seed', 'stop'];
  settings.write(Object.fromEntries(names.map((name) => [name, fields[name].value])));
  if (fields.key.value) localStorage.setItem('wick.key', fields.key.value);
  else localStorage.removeItem('wick.key');
  loadModel();
});

async function loadModel() {
  try {
    const { data } = await get('/v1/models');
    model = data[0] ?? model;
    byId('model').textContent = model.id;
    byId('context').textContent = `context of ${model.max_model_len.toLocaleString('en')} tokens`;
  } catch (error) {
    byId('model').textContent = error.status === 401 ? 'a key is needed: Settings' : 'the server does not answer';
    if (error.status !== 401) setTimeout(loadModel, 3000);
  }
  if (!writing) drawMessages();
}

themeButton(byId('theme'));
changed();
loadModel();
