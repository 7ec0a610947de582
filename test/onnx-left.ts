/** Node tests that are not served, by name, and why. */
export const LEFT: Readonly<Record<string, string>> = {
  'linear_attention.*': 'LinearAttention: a recurrent layer of its own; models that need one have it in src/models',
  'causal_conv_with_state(?!.*expanded).*':
    'CausalConvWithState: a convolution that carries its state; models that need one have it in src/models',
  'flexattention(?!.*expanded).*': 'FlexAttention: its masks are graphs inside',
  'nonmaxsuppression.*': 'NonMaxSuppression: a loop over boxes, no op on tensors',
  'image_decoder.*': 'ImageDecoder: files are read by src/models/images.ts, not by an op',
  'tfidfvectorizer.*': 'TfIdfVectorizer: text becomes numbers in tokenizers',
  'ai_onnx_ml_(?!binarizer).*': 'trees and features of ai.onnx.ml are no ops on tensors',
  'optional_.*': 'optional values are undefined in JavaScript',
  '(?:basic_|)deform_conv.*': 'DeformConv: gridSample serves single windows; the whole op is not here',
  'roialign.*': 'RoiAlign: gridSample serves single boxes; the whole op is not here',
  qlinearconv: 'QLinearConv: blocks (QTensor) serve weights of few bits',
  melweightmatrix: 'MelWeightMatrix: src/models/audio.ts makes it for Whisper',
  '(?:training_dropout(?!_zero).*|bernoulli.*)': 'random numbers of another generator',
  '(?:momentum|nesterov_momentum|adam|adagrad).*': 'optimizers are classes of wick/nn, held against PyTorch',
  'cast(?:like)?_no_saturate_.*E4M3.*': 'casts to f8e4m3 saturate',
  'bitshift_.*_negative_shift': 'a shift by a negative count is refused',
  'reduce_(?:max|min)_empty_set.*': 'nothing has no maximum: it is refused',
  col2im_5d: 'fold is of two dimensions',
};
