// Waiting for a GPU without stopping JavaScript: an event is asked after, first at every turn of the event loop, then every millisecond.
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { Device, Event } from './driver.js';

/** Turns before sleeping: short waits end within microseconds, long ones leave the processor alone. */
const TURNS = 2000;

export async function eventDone(device: Device, event: Event): Promise<void> {
  for (let turn = 0; !device.queryEvent(event); turn++) await (turn < TURNS ? nextTurn() : sleep(1));
}
