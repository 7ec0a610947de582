// The thread of grammars, with one that it never comes to an end with: what was asked before is answered, nothing
// after.
import { parentPort } from 'node:worker_threads';
import type { GrammarTask } from '../src/engine/grammar/grammar-messages.js';

/** Patterns that begin so never compile. */
const ENDLESS = 'endless';
const port = parentPort as NonNullable<typeof parentPort>;
const listen = port.on.bind(port);
let stuck = false;
port.on = ((event: string, hear: (task: GrammarTask) => void) =>
  listen(event, (task: GrammarTask) => {
    stuck ||= 'open' in task && task.grammar.kind === 'regex' && task.grammar.pattern.startsWith(ENDLESS);
    if (!stuck) hear(task);
  })) as typeof port.on;
await import('../src/engine/grammar/grammar-thread.js');
