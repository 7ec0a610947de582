// The parts that tensors play in a decoder: of the whole model, and of a layer.

/** Parts of the whole model. */
export const MODEL_ROLES = [
  ...['embed', 'positions', 'embedNorm', 'layerEmbed', 'layerInputs', 'layerInputNorm'],
  ...['embedIn', 'embedOut', 'streamsIn', 'streamsOut', 'finalNorm', 'headLayer', 'headNorm', 'head'],
  ...['fastBegin', 'embedShift', 'embedScale', 'hyperMix', 'hyperBase', 'hyperScale'],
] as const;
/** Parts of a layer. */
export const LAYER_ROLES = [
  ...['beforeMixer', 'afterMixer', 'beforeMlp', 'afterMlp'],
  ...['q', 'k', 'v', 'o', 'qNorm', 'kNorm', 'sinks', 'qRouter', 'oSum', 'expertsSum'],
  ...['pairQuery1', 'pairKey1', 'pairQuery2', 'pairKey2'],
  ...['qA', 'qANorm', 'qB', 'kvA', 'kvANorm', 'kvB'],
  ...['gate', 'up', 'down', 'activation'],
  ...['router', 'choiceBias', 'expertGate', 'expertUp', 'expertDown'],
  ...['sharedGate', 'sharedUp', 'sharedDown', 'sharedSwitch', 'expertsIn', 'expertsOut'],
  ...['routerNorm', 'expertScale', 'afterDense', 'beforeExperts', 'afterExperts', 'outNorm', 'innerNorm'],
  ...['inputGate', 'inputUp', 'inputNorm', 'layerFactor', 'besideDown', 'besideUp', 'besideNorm'],
  ...['streamNorm', 'streamRouter', 'streamPredict', 'streamCorrect', 'streamScale'],
  ...['convIn', 'conv', 'convOut'],
  ...['qGate', 'stateIn', 'stateGate', 'stateRate', 'stateStep', 'stateConv', 'stateDecay', 'stateShift', 'stateSkip'],
  ...['stateNorm', 'stateOut', 'stateSteps', 'stateStepNorm', 'stateKeyNorm', 'stateQueryNorm', 'stateParts'],
  ...['stateQuery', 'stateKey', 'stateValue', 'stateStepIn', 'stateGateIn'],
  ...['keyStep', 'keyRate', 'mixerResidual', 'mlpResidual'],
  ...['mixerShift', 'mixerScale', 'mixerResidualShift', 'mlpShift', 'mlpScale', 'mlpResidualShift'],
  ...['mixerMix', 'mixerMixBase', 'mixerMixScale', 'mlpMix', 'mlpMixBase', 'mlpMixScale', 'tokenExperts'],
  ...['beforeMixerIn', 'beforeMixerOut', 'beforeMlpIn', 'beforeMlpOut'],
  ...['kv', 'kvNorm', 'oA', 'oB', 'sumValue', 'sumGate', 'sumPlace', 'sumNorm'],
  ...['indexQuery', 'indexWeights', 'indexValue', 'indexGate', 'indexPlace', 'indexNorm'],
  ...['routerIn', 'routerFirst', 'routerSecond', 'routerCarry', 'lateValue', 'convByHead', 'keyScale'],
  ...['mixKey', 'mixValue', 'mixGate', 'mixUp', 'mixOpen'],
  ...['fadeRate', 'fadeQuery', 'fadeKey', 'fadePair'],
] as const;
/** The part that a tensor plays in a decoder. */
export type Role = (typeof MODEL_ROLES)[number] | (typeof LAYER_ROLES)[number];
