// Every public name of candle-nn 0.11 and where it is here: Tensor methods begin with a dot, the others are exports of
// wick/nn.
export interface CandleName {
  readonly module: string;
  /** Candle's names that one answer serves. */
  readonly names: string;
  /** Ours: '.method' of Tensor or an export, several with spaces; empty where there is none. */
  readonly ours: string;
  /** What differs, or why there is none. */
  readonly note?: string;
}

const list = (module: string, rows: readonly (readonly [names: string, ours: string, note?: string])[]): CandleName[] =>
  rows.map(([names, ours, note]) => ({ module, names, ours, ...(note && { note }) }));

export const CANDLE_NAMES: readonly CandleName[] = [
  ...list('activation', [
    ['Activation', 'Activation activation', 'by name'],
    ['PReLU prelu', 'PReLU prelu .prelu'],
  ]),
  ...list('attention', [
    ['flash_attn AttnMask', '.sdpa', 'one call for every mask, on every device, with gradients'],
    ['flash_attn_varlen_cpu flash_attn_varlen_unfused', '.sdpaVarlen', 'starts are cumulative row numbers'],
    [
      'cpu_flash::causal::run_causal_attn_cpu cpu_flash::standard::run_flash_attn_cpu causal_decode_f32_interleaved',
      '.sdpa',
      'the CPU engine chooses',
    ],
  ]),
  ...list('batch_norm', [
    [
      'BatchNorm BatchNormConfig batch_norm',
      'BatchNorm batchNorm .batchNorm',
      'train() and eval() choose the statistics',
    ],
  ]),
  ...list('conv', [
    ['Conv1d Conv1dConfig conv1d conv1d_no_bias', 'Conv1d conv1d .conv1d', '{ useBias: false } for no bias'],
    ['Conv2d Conv2dConfig conv2d conv2d_no_bias', 'Conv2d conv2d .conv2d', 'absorbBatchNorm is absorb_bn'],
    [
      'ConvTranspose1d ConvTranspose1dConfig conv_transpose1d conv_transpose1d_no_bias',
      'ConvTranspose1d convTranspose1d .convTranspose1d',
    ],
    [
      'ConvTranspose2d ConvTranspose2dConfig conv_transpose2d conv_transpose2d_no_bias',
      'ConvTranspose2d convTranspose2d .convTranspose2d',
      'groups too',
    ],
  ]),
  ...list('embedding', [['Embedding embedding', 'Embedding embedding .embedding']]),
  ...list('encoding', [['one_hot', '.oneHot', 'on the device']]),
  ...list('func', [['Func FuncT func func_t', 'Func func', 'the function is told whether it trains']]),
  ...list('group_norm', [['GroupNorm group_norm', 'GroupNorm groupNorm .groupNorm']]),
  ...list('init', [
    ['Init FanInOut NormalOrUniform NonLinearity', 'initialise constant normal uniform kaiming xavier fans'],
    ['ZERO ONE DEFAULT_KAIMING_UNIFORM DEFAULT_KAIMING_NORMAL', 'ZERO ONE KAIMING_UNIFORM KAIMING_NORMAL'],
  ]),
  ...list('kv_cache', [
    ['Cache KvCache ConcatKvCache', 'KvCache', 'grows by doubling, answers views'],
    ['RotatingCache RotatingKvCache', 'RotatingKvCache'],
    ['ScatteredKvCache ScatteredCacheBuilder IndicesAndMask', 'PagedKvCache', 'many sequences share a pool of pages'],
    [
      'InterleavedKvCache RawInterleavedKvCache rope_i_inplace',
      '',
      "layouts of Candle's CPU attention; ours reads strides",
    ],
  ]),
  ...list('layer_norm', [
    ['LayerNorm LayerNormConfig layer_norm layer_norm_no_bias', 'LayerNorm layerNorm .layerNorm', 'has a gradient'],
    ['RmsNorm rms_norm', 'RmsNorm rmsNorm .rmsNorm', 'has a gradient; no forward_diff is needed'],
  ]),
  ...list('linear', [['Linear linear linear_no_bias linear_b', 'Linear linear', '{ bias: false } for no bias']]),
  ...list('loss', [
    ['cross_entropy', '.crossEntropy', 'any rank, label smoothing, ignored targets, weights'],
    ['nll', '.nll'],
    ['mse', '.mse'],
    ['huber', '.huber'],
    ['binary_cross_entropy_with_logit', '.bceWithLogits', 'stable for any logit'],
  ]),
  ...list('moe', [['moe_gemm moe_gemm_gguf', '', 'CUDA only there']]),
  ...list('ops', [
    ['softmax softmax_last_dim', '.softmax', 'fused with a gradient'],
    ['log_softmax', '.logSoftmax'],
    ['silu', '.silu'],
    ['swiglu', '.swiglu'],
    ['sigmoid', '.sigmoid'],
    ['hard_sigmoid', '.hardSigmoid'],
    ['mish', '.mish'],
    ['leaky_relu', '.leakyRelu'],
    ['selu', '.selu'],
    ['dropout Dropout', 'Dropout dropout .dropout'],
    ['rms_norm rms_norm_slow', '.rmsNorm'],
    ['layer_norm layer_norm_slow', '.layerNorm'],
    ['pixel_shuffle pixel_unshuffle', '.pixelShuffle .pixelUnshuffle'],
    ['replication_pad2d', '.padMode', 'any width; reflect and circular too'],
    ['sdpa', '.sdpa', 'Metal only there'],
    ['Identity', 'Identity'],
  ]),
  ...list('optim', [
    ['Optimizer', 'Optimizer'],
    ['SGD', 'SGD', 'with momentum, Nesterov and decay; groups of parameters'],
    ['AdamW ParamsAdamW', 'AdamW', 'ten others too: Adam, Adafactor, Muon, LBFGS, ...'],
  ]),
  ...list('rnn', [
    ['RNN Direction default_no_bias', 'RNN LSTM GRU', 'options layers, bidirectional, bias'],
    ['LSTM LSTMConfig LSTMState lstm', 'LSTM lstm'],
    ['GRU GRUConfig GRUState gru', 'GRU gru', "states are stacked as LSTM's (Candle joins them)"],
  ]),
  ...list('rotary_emb', [
    ['rope rope_slow', '.rope', 'has a gradient'],
    ['rope_i rope_i_slow', '.ropeI'],
    ['rope_thd', '.ropeThd'],
  ]),
  ...list('sampling', [['gumbel_softmax', '.gumbelSoftmax', 'takes its uniform numbers as an argument']]),
  ...list('sequential', [['Sequential seq', 'Sequential seq']]),
  ...list('var_builder', [
    ['VarBuilder VarBuilderArgs SimpleBackend Backend', 'VarBuilder', 'sources implement VarSource'],
    ['from_varmap from_tensors zeros', 'VarBuilder', 'fromVarMap, fromTensors, zeros'],
    [
      'from_mmaped_safetensors from_buffered_safetensors from_slice_safetensors from_npz from_pth ' +
        'from_pth_with_state SafeTensorWithRouting',
      'VarBuilder',
      'fromFiles takes them all, and gguf',
    ],
    ['rename rename_f Rename Renamer', 'VarBuilder', 'rename(f)'],
    ['ShardedSafeTensors ShardedVarBuilder Shard', 'VarBuilder', 'shard(name, { dim, rank, worldSize })'],
  ]),
  ...list('var_map', [['VarMap', 'VarMap', 'in the order of making']]),
];

/** The table as Markdown: docs/nn.md. */
export function namesMarkdown(): string {
  const code = (names: string): string =>
    names
      .split(' ')
      .filter(Boolean)
      .map((n) => `\`${n}\``)
      .join(' ');
  const rows = CANDLE_NAMES.map(
    (c) => `| ${c.module} | ${code(c.names)} | ${c.ours ? code(c.ours) : 'none'} | ${c.note ?? ''} |`,
  );
  const there = CANDLE_NAMES.filter((c) => c.ours).reduce((n, c) => n + c.names.split(' ').length, 0);
  const all = CANDLE_NAMES.reduce((n, c) => n + c.names.split(' ').length, 0);
  return (
    `# Names of candle-nn\n\nGenerated by \`npm run docs\` from src/nn/names.ts. ` +
    `Of ${all} public names of candle-nn 0.11, ${there} have an answer here; ` +
    `names that begin with a dot are methods of Tensor, the others exports of \`wick/nn\`.\n\n| module | candle-nn ` +
    `| wick | note |\n|---|---|---|---|\n${rows.join('\n')}\n`
  );
}
