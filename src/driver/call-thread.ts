// What a thread of threads.ts runs: the calls it is given, one after another, until it is told to end.
import { parentPort } from 'node:worker_threads';
import { koffi, type Native } from './ffi.js';
import { type NativeCall, type SharedCall, takeCall } from './threads.js';

const functions = new Map<string, Native>();
const bound = ({ library, prototype }: NativeCall): Native => {
  const known = functions.get(prototype) ?? (koffi.load(library, { lazy: true }).func(prototype) as unknown as Native);
  functions.set(prototype, known);
  return known;
};
function ready(call: SharedCall): Native {
  const { before } = call;
  const status = before ? bound(before)(...before.args) : 0;
  return status === 0 ? bound(call) : () => status;
}
parentPort?.on('message', (call: SharedCall | undefined) => {
  if (call) takeCall(call, () => ready(call));
  else parentPort?.close();
});
