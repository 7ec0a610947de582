// What a thread of threads.ts runs: the calls it is given, one after another, until it is told to end.
import { parentPort } from 'node:worker_threads';
import { koffi, type Native } from './ffi.js';
import { type SharedCall, takeCall } from './threads.js';

const functions = new Map<string, Native>();
const bound = ({ library, prototype }: SharedCall): Native => {
  const known = functions.get(prototype) ?? (koffi.load(library, { lazy: true }).func(prototype) as unknown as Native);
  functions.set(prototype, known);
  return known;
};
parentPort?.on('message', (call: SharedCall | undefined) => {
  if (call) takeCall(call, () => bound(call));
  else parentPort?.close();
});
