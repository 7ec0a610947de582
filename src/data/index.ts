// wick/data: datasets, loaders, readers of files.
import '../tensor/methods.js';

export { type CollatedBatch, pack, type Packed, type PackedBatch, unpack } from './collate.js';
export { CsvDataset, type CsvOptions, parseCsv, readCsv } from './csv.js';
export {
  type Batch,
  type BatchOf,
  Dataset,
  type Elements,
  type Sample,
  type Samples,
  type Shaped,
  TensorDataset,
  type Value,
} from './dataset.js';
export {
  JsonLines,
  loadPicture,
  PictureFolder,
  type PictureOptions,
  readIdx,
  readJsonLines,
  readMnist,
} from './files.js';
export { DataLoader, disposeBatch, type LoaderOptions, type WorkerOptions } from './loader.js';
export { permutation, randomNumbers, type Sampler, type WeightedOptions, weightedSampler } from './shuffle.js';
