// wick/distributed: several ranks that work together, by NCCL or RCCL, MPI, sockets or threads.
import '../tensor/methods.js';

export { Channel } from './channel.js';
export { DataParallel, type DataParallelOptions } from './data-parallel.js';
export {
  FullyShardedOptimizer,
  type FullyShardedOptions,
  FullyShardedParallel,
} from './fully-sharded.js';
export { Group } from './group.js';
export { type CollectiveName, COLLECTIVES, init, type InitOptions } from './init.js';
export { type Place, placeFromEnvironment } from './launcher.js';
export { type LocalOptions, runLocal } from './local.js';
export { type Reduction, REDUCTIONS, type Transport, type Work } from './transport.js';
export { ShardedOptimizer, type ShardedOptimizerOptions } from './sharded-optimizer.js';
export { ownStream, saveCheckpointOnce, shardIndices, type ShardIndicesOptions, shareOf } from './training.js';
