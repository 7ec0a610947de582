// wick/io: tensor files of every format, as records or as tensors.
export { dequantize, canDequantize } from '../base/blocks/decode.js';
export { GGML_TYPES, ggmlType, ggmlTypeById, type GgmlType } from '../base/blocks/types.js';
export { Gguf, type GgufTensorInfo } from './gguf.js';
export { type GgufScalar, type GgufType, type GgufValue } from './gguf-value.js';
export { GgufWriter, ggufBytes, writeGguf, type GgufEntry, type GgufTensor } from './gguf-write.js';
export { readJsonFile } from './json-file.js';
export { describeFile, type FileDescription, type TensorDescription } from './describe.js';
export { fromTensor, loadTensors, saveTensors, toTensor, type LoadOptions, type SaveOptions } from './load.js';
export { npyBytes, npyHolds, npzBytes, openNpy, openNpz, writeNpy, writeNpz } from './npy.js';
export { openTensors, type OpenOptions, type TensorFile, type TensorFormat } from './open.js';
export { PickleDict, PickleGlobal, PickleObject } from './pickle.js';
export { canQuantize, quantize } from '../base/blocks/encode.js';
export { SafeTensors, safetensorsBytes, writeSafetensors, type SafeTensorInfo } from './safetensors.js';
export { memoryRecord, slices, type ReadOptions, type StoredDType, type TensorRecord } from './stored-dtype.js';
export { TorchFile, type TorchRecord } from './torch.js';
export { torchBytes, writeTorch } from './torch-write.js';
export { TorchStorage, TorchTensor } from './torch-types.js';
