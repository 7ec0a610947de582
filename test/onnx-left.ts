/** Node tests that are not served, by name, and why. */
export const LEFT: Readonly<Record<string, string>> = {
  'image_decoder.*': 'ImageDecoder: files are read by src/models/vision/images.ts, not by an op',
  'tfidfvectorizer.*': 'TfIdfVectorizer: text becomes numbers in tokenizers',
  'ai_onnx_ml_tree.*': 'TreeEnsemble: trees are no ops on tensors',
  '(?:training_dropout(?!_zero).*|bernoulli.*)': 'random numbers of another generator',
  'bitshift_.*_negative_shift': 'a shift by a negative count is refused',
  'reduce_(?:max|min)_empty_set.*': 'nothing has no maximum: it is refused',
};
