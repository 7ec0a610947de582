// What is asked of modules and optimizers in PyTorch's way: an answer with ours, in place of "is not a function", of an
// undefined value, or of an argument that nothing reads.
import { ArgumentError } from '../base/errors.js';

const snake = (name: string): string => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);

/** Makes names of other libraries, and the same with underscores, say what is written here: read or set. */
export function answerNames(prototype: object, owner: string, names: Readonly<Record<string, string>>): void {
  for (const [name, ours] of Object.entries(names)) {
    const refuse = (): never => {
      throw new ArgumentError(`${owner}.${name}: here it is ${ours}`);
    };
    for (const each of new Set([name, snake(name)]))
      if (!(each in prototype))
        Object.defineProperty(prototype, each, { get: refuse, set: refuse, configurable: true });
  }
}

/** Refuses arguments beyond those that are taken: they are meant as something, and would be ignored. */
export function refuseMore(name: string, more: readonly unknown[], takes: string): void {
  if (more.length > 0) throw new ArgumentError(`${name}: takes ${takes}, and no ${more.map(String).join(', ')} behind`);
}
