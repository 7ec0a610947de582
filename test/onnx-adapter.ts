// ONNX's operators as calls of tensors, for the node tests of the onnx package: a thin adapter, no part of the product.
// Its table is made of those in onnx/, a file a subject.
import { ELEMENTWISE } from './onnx/elementwise.js';
import { INDEXING } from './onnx/indexing.js';
import { NORMS } from './onnx/norms.js';
import { OTHERS } from './onnx/others.js';
import { RECURRENT } from './onnx/recurrent.js';
import { REDUCTIONS } from './onnx/reductions.js';
import { SIGNALS } from './onnx/signals.js';
import { WINDOWS } from './onnx/windows.js';
import type { Handler } from './onnx/node.js';

export { type Attribute, list, type Node, NotServed } from './onnx/node.js';

export const HANDLERS: Readonly<Record<string, Handler>> = {
  ...WINDOWS,
  ...RECURRENT,
  ...INDEXING,
  ...NORMS,
  ...ELEMENTWISE,
  ...REDUCTIONS,
  ...SIGNALS,
  ...OTHERS,
};
