// One rank as a process: node distributed-program.js FUNCTION [JSON]; writes its answer as a line of JSON. WORLD_SIZE
// and the like, or mpirun, say which rank it is.
import '../src/index.js';
import { init, type InitOptions } from '../src/distributed/index.js';
import * as engines from './distributed-engine-ranks.js';
import * as models from './distributed-models-ranks.js';
import * as ranks from './distributed-ranks.js';
import * as sharded from './distributed-sharded-ranks.js';

const [name, data = '{}'] = process.argv.slice(2);
const { options, ...rest } = JSON.parse(data) as { options?: InitOptions; data?: unknown };
const world = await init(options);
const f = (
  { ...ranks, ...sharded, ...models, ...engines } as unknown as Record<
    string,
    (g: typeof world, data: unknown) => unknown
  >
)[name];
const answer = await f(world, rest.data);
process.stdout.write(`${JSON.stringify({ rank: world.rank, answer })}\n`);
