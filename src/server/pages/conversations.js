// Conversations and settings, kept in this browser and nowhere else.

const read = (key, fallback) => {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
};

export class Conversations {
  #all = read('wick.conversations', []);
  currentId = read('wick.current', null);

  /** `onOthers` is called when another tab of this browser has kept something. */
  constructor(onOthers) {
    addEventListener('storage', ({ key }) => {
      if (key !== 'wick.conversations') return;
      this.#take(read('wick.conversations', []));
      onOthers();
    });
  }
  /** What another tab has kept; of the conversation that is open here, whatever has more messages. */
  #take(theirs) {
    const mine = this.current;
    const same = theirs.find((c) => c.id === mine.id);
    if (same && same.messages.length > mine.messages.length) Object.assign(mine, same);
    this.#all = same ? theirs.map((c) => (c === same ? mine : c)) : [mine, ...theirs];
  }

  get list() {
    return this.#all;
  }
  get current() {
    return this.#all.find((c) => c.id === this.currentId) ?? this.begin();
  }
  /** A fresh one; one that is empty serves again. */
  begin() {
    let fresh = this.#all.find((c) => c.messages.length === 0);
    if (!fresh) {
      fresh = { id: crypto.randomUUID?.() ?? String(Math.random()), title: 'New conversation', messages: [] };
      this.#all.unshift(fresh);
    }
    this.currentId = fresh.id;
    this.save();
    return fresh;
  }
  open(id) {
    this.currentId = id;
    this.save();
  }
  drop(id) {
    this.#all = this.#all.filter((c) => c.id !== id);
    if (this.currentId === id) this.currentId = this.#all[0]?.id ?? null;
    this.save();
  }
  /** Kept; where the browser's room is spent the oldest go first. */
  save() {
    for (;;) {
      try {
        localStorage.setItem('wick.conversations', JSON.stringify(this.#all));
        localStorage.setItem('wick.current', JSON.stringify(this.currentId));
        return;
      } catch {
        if (this.#all.length <= 1) return;
        this.#all.pop();
      }
    }
  }
}

export const settings = {
  read: () => read('wick.settings', {}),
  write: (value) => localStorage.setItem('wick.settings', JSON.stringify(value)),
};
