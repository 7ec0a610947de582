// Parakeet as a transducer: what was written so far goes through a recurrent network, and with the moment at hand says
// what comes next, or that nothing does (RNN-T: then the next moment's turn comes); or besides, how many moments later
// to go on (TDT).
import { ArgumentError, FormatError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type Embedding, embedding, type Linear, linear } from '../../nn/layers.js';
import { LSTM } from '../../nn/rnn.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type EarsConfig, earsOf, ParakeetEars } from './parakeet.js';

interface WriterConfig {
  readonly pieces: number;
  readonly width: number;
  readonly layers: number;
  readonly activation: string;
  /** The piece that stands for nothing. */
  readonly blank: number;
  /** The most pieces at one moment. */
  readonly most: number;
  /** A step goes on by 0, 1, ... moments, so many kinds; none of RNN-T. */
  readonly durations: number;
}
/** What the recurrent network knows, and what it makes of it. */
interface Written {
  readonly state: ReturnType<LSTM['run']>['state'] | undefined;
  readonly made: Tensor;
}

export class ParakeetTransducer extends ParakeetEars {
  readonly hear: Linear;
  readonly words: Embedding;
  readonly lstm: LSTM;
  readonly write: Linear;
  readonly out: Linear;
  readonly #config: WriterConfig;
  readonly #bend: (x: Tensor) => Tensor;
  constructor(vb: VarBuilder, ears: EarsConfig, c: WriterConfig) {
    super(vb, ears);
    this.#config = c;
    const d = vb.pp('decoder');
    this.hear = linear(ears.config.width, c.width, vb.pp('encoder_projector'));
    this.words = embedding(c.pieces, c.width, d.pp('embedding'));
    this.lstm = new LSTM(c.width, c.width, { layers: c.layers, from: d.pp('lstm') });
    this.write = linear(c.width, c.width, d.pp('decoder_projector'));
    this.out = linear(c.width, c.pieces + c.durations, vb.pp('joint.head'));
    this.#bend = activation(c.activation);
  }
  /** The piece that stands for nothing, and begins what is written. */
  get blank(): number {
    return this.#config.blank;
  }
  /** Of moments (b, t, 1, width) and what was written (b, 1, u, width): (b, t, u, pieces and durations). */
  #join(heard: Tensor, written: Tensor): Tensor {
    return this.out.forward(this.#bend(heard.add(written)));
  }
  /**
   * Logits of pieces and, of TDT, of durations behind them, for each moment and each piece that was written (b, u), by
   * default the one that stands for nothing: (b, moments, u, pieces and durations).
   */
  forward(frames: Tensor, mask?: Tensor, ids?: Tensor): Tensor {
    const { device } = frames;
    const blanks = Array<number>(frames.shape[0]).fill(this.blank);
    const begun = ids ?? tensor(Int32Array.from(blanks), { shape: [frames.shape[0], 1], device });
    const heard = this.hear.forward(this.heard(frames, mask).x);
    const written = this.write.forward(this.lstm.run(this.words.forward(begun)).output);
    return this.#join(heard.unsqueeze(2), written.unsqueeze(1));
  }
  #next(id: number, state: Written['state']): Written {
    const ids = tensor(Int32Array.of(id), { shape: [1, 1], device: this.out.weight.device });
    const { output, state: after } = this.lstm.run(this.words.forward(ids), state);
    return { state: after, made: this.write.forward(output) };
  }
  /** The likeliest pieces of one sound, one after the other. */
  pieces(frames: Tensor, mask: Tensor): number[] {
    if (frames.shape[0] !== 1) throw new ArgumentError(`sound: pieces of one sound, not of ${frames.shape[0]}`);
    const { pieces, blank, most, durations } = this.#config;
    return scope(() => {
      const { x, real } = this.heard(frames, mask);
      const heard = this.hear.forward(x);
      const found: number[] = [];
      let written = this.#next(blank, undefined);
      // As long as answers of transformers become.
      let [at, here] = [0, 0];
      for (let left = most * x.shape[1] - 1; at < real[0] && left > 0; left--) {
        const step = scope(() => {
          const logits = this.#join(heard.narrow(1, at, 1).unsqueeze(2), written.made.unsqueeze(1)).flatten();
          const best = (from: number, n: number): number => Number(logits.narrow(0, from, n).argmax(0).item());
          const id = best(0, pieces);
          const later = durations > 0 ? best(pieces, durations) : 0;
          if (id === blank) return { id, later: Math.max(1, later), next: undefined };
          const next = this.#next(id, written.state);
          for (const t of [next.made, ...Object.values(next.state ?? {})]) keep(t as Tensor);
          return { id, later, next };
        });
        if (step.next) {
          found.push(step.id);
          for (const t of [written.made, ...Object.values(written.state ?? {})]) (t as Tensor).dispose();
          written = step.next;
        }
        here = step.id === blank ? 0 : here + 1;
        const full = durations === 0 && here >= most;
        if (full) here = 0;
        at += full ? 1 : step.later;
      }
      for (const t of [written.made, ...Object.values(written.state ?? {})]) (t as Tensor).dispose();
      return found;
    });
  }
}

function transducer(c: Config, source: ModelSource): ParakeetTransducer {
  const timed = c.json.model_type === 'parakeet_tdt';
  const given = timed ? (c.has('durations') ? c.numbers('durations') : [0, 1, 2, 3, 4]) : [];
  if (given.some((d, i) => d !== i) || (timed && given.length === 0))
    throw new UnsupportedError(`${c.where}: durations is [${given.join(', ')}]; 0, 1, 2 and so on are served`);
  const pieces = c.count('vocab_size', 8193, 1);
  const blank = c.count('blank_token_id', 8192);
  if (blank >= pieces) throw new FormatError(`${c.where}: blank_token_id is ${blank}, and vocab_size ${pieces}`);
  const config: WriterConfig = {
    ...{ pieces, blank, durations: given.length },
    width: c.count('decoder_hidden_size', 640, 1),
    layers: c.count('num_decoder_layers', 2, 1),
    activation: c.activation('hidden_act', 'relu'),
    most: c.count('max_symbols_per_step', 10, 1),
  };
  return new ParakeetTransducer(source.builder, earsOf(c, source), config);
}
export const TRANSDUCER_FAMILIES: readonly ModelRow[] = [
  { kind: 'sound', types: ['parakeet_rnnt', 'parakeet_tdt'], build: transducer },
];
