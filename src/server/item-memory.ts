// Items of answers at /v1/responses that clients may name instead of sending them: those of the AI SDK do so by default
// wherever an answer has called tools. They are kept in memory while there is room, and by this process alone.

export type KeptItem = Readonly<Record<string, unknown>> & { readonly id: string };

export class ItemMemory {
  /** Oldest first. */
  readonly #items = new Map<string, { readonly json: string; readonly caller: string }>();
  readonly #most: number;
  #characters = 0;
  /** The most characters that all of them may have. */
  constructor(most = 2 ** 24) {
    this.#most = most;
  }
  keep(caller: string, items: readonly KeptItem[]): void {
    for (const item of items) {
      const json = JSON.stringify(item);
      this.#items.set(item.id, { json, caller });
      this.#characters += json.length;
    }
    for (const [id, { json }] of this.#items) {
      if (this.#characters <= this.#most) break;
      this.#items.delete(id);
      this.#characters -= json.length;
    }
  }
  /** What was answered to the same caller under this id. */
  find(caller: string, id: string): unknown {
    const kept = this.#items.get(id);
    return kept?.caller === caller ? (JSON.parse(kept.json) as unknown) : undefined;
  }
}
