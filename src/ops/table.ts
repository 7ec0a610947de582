// THE TABLE: every op, by name. Its readers are dispatch, autograd, kernels, Tensor's methods, tests, parity, benches
// and docs.
import { arrangeOps } from './arrange.js';
import { assembleOps } from './assemble.js';
import { attention } from './attention.js';
import { attentionCalls } from './attention-calls.js';
import { binaryOps, choiceOps, compareOps } from './binary.js';
import { compositeOps } from './composites.js';
import { conv } from './conv.js';
import { countOps } from './count.js';
import { distanceOps } from './distance.js';
import { experts } from './experts.js';
import { formulaOps } from './formulas.js';
import { fourierOps } from './fourier.js';
import { functional } from './functional.js';
import { fusedOps } from './fused.js';
import { gridOps } from './grid.js';
import { imageOps } from './image.js';
import { indexing } from './indexing.js';
import { integerOps } from './integer.js';
import { linalgOps } from './linalg.js';
import { matmulOps } from './matmul.js';
import { matrixOps } from './matrices.js';
import { movementOps } from './movement.js';
import { norm } from './norm.js';
import { numericOps } from './numeric.js';
import type { ElementwiseRow, MethodsOf, Row } from './op.js';
import { pickOps } from './pick.js';
import { placingOps } from './placing.js';
import { planeNormOps } from './plane-norm.js';
import { pool } from './pool.js';
import { quantized } from './quantized.js';
import { random } from './random.js';
import { reduceOps, scanOps } from './reduce.js';
import { resample } from './resample.js';
import { resampledOps } from './resampled.js';
import { rope } from './rope.js';
import { runningOps } from './running.js';
import { searchOps } from './search.js';
import { shorthandOps } from './shorthand.js';
import { softmax } from './softmax.js';
import { sort } from './sort.js';
import { specialOps } from './special.js';
import { spectralOps } from './spectral.js';
import { statisticsOps } from './statistics.js';
import { unaryOps } from './unary.js';
import { viewOps } from './views.js';
import { windowOps } from './window.js';

export const OPS = {
  ...unaryOps,
  ...binaryOps,
  ...compareOps,
  ...choiceOps,
  ...specialOps,
  ...integerOps,
  ...movementOps,
  ...viewOps,
  ...assembleOps,
  ...reduceOps,
  ...scanOps,
  ...runningOps,
  ...matmulOps,
  ...indexing,
  ...conv,
  ...pool,
  ...resample,
  ...resampledOps,
  ...sort,
  ...pickOps,
  ...countOps,
  ...searchOps,
  ...random,
  ...softmax,
  ...norm,
  ...planeNormOps,
  ...rope,
  ...attention,
  ...attentionCalls,
  ...quantized,
  ...experts,
  ...fusedOps,
  ...functional,
  ...arrangeOps,
  ...numericOps,
  ...statisticsOps,
  ...windowOps,
  ...imageOps,
  ...gridOps,
  ...linalgOps,
  ...matrixOps,
  ...fourierOps,
  ...distanceOps,
  ...spectralOps,
  ...shorthandOps,
  ...placingOps,
  ...formulaOps,
  ...compositeOps,
};
export type OpName = keyof typeof OPS;
/** Tensor's methods, one a row. */
export type TableMethods = MethodsOf<typeof OPS>;

export const opList: readonly Row[] = Object.values(OPS) as unknown as readonly Row[];
export const elementwiseRows: readonly ElementwiseRow<any>[] = opList.filter(
  (r): r is ElementwiseRow<any> => r.family === 'elementwise',
);
