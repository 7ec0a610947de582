// The thread of one rank of runLocal.
import { parentPort, workerData } from 'node:worker_threads';
import '../tensor/methods.js';
import { ArgumentError } from '../base/errors.js';
import { Device } from '../tensor/device.js';
import { ExchangeTransport } from './exchange.js';
import { Group } from './group.js';
import { HubClient } from './hub-client.js';
import type { LocalStart } from './local.js';

const start = workerData as LocalStart;
const hub = new HubClient(start.rank, start.size, { port: start.port, signal: start.signal }, start.timeoutMs);
const members = Array.from({ length: start.size }, (_, i) => i);
// A thread that fails ends the others by its error.
const channels = { hub, members, name: 'world', fail: (): void => {} };
const world = new Group(new ExchangeTransport('local', hub, members), Device.default, channels);
const functions = (await import(start.module)) as Record<string, unknown>;
const f = functions[start.function];
if (typeof f !== 'function')
  throw new ArgumentError(`runLocal: ${start.module} exports no function ${JSON.stringify(start.function)}`);
const answer: unknown = await f(world, start.data);
parentPort?.postMessage(answer);
// Not closed: an engine that was just disposed of may end a turn later, and has to tell the other ranks then.
start.port.unref();
