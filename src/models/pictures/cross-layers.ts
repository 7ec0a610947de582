// Layers of a text that look at pictures, among those that look at the text (Llama 3.2): keys and values are made of
// the pictures once, and each token looks at those it may.
import { type Linear, linear, type RmsNorm } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { rmsNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { keep } from '../../tensor/scope.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { GatedFeedForward } from '../parts.js';

export interface CrossConfig {
  readonly width: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
}
type Ready = readonly [keys: Tensor, values: Tensor];
/** Which keys tokens look at, u8 (b, 1, t, keys), and 1 for tokens that look at any, (b, t, 1). */
interface Allowed {
  readonly mask: Tensor;
  readonly any: Tensor;
}

class CrossBlock extends Module {
  readonly beforeMixer: RmsNorm;
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly out: Linear;
  readonly qNorm: RmsNorm;
  readonly kNorm: RmsNorm;
  readonly beforeMlp: RmsNorm;
  readonly mlp: GatedFeedForward;
  /** How much of each branch is added: their tanh. */
  readonly mixerGate: Tensor;
  readonly mlpGate: Tensor;
  readonly #config: CrossConfig;
  constructor(vb: VarBuilder, c: CrossConfig) {
    super();
    this.#config = c;
    const product = (name: string, from: number, to: number): Linear => linear(from, to, vb.pp(name), { bias: false });
    const [head, narrow] = [c.width / c.heads, (c.width / c.heads) * c.kvHeads];
    this.beforeMixer = rmsNorm(c.width, vb.pp('input_layernorm'), c.eps);
    this.q = product('cross_attn.q_proj', c.width, c.width);
    this.k = product('cross_attn.k_proj', c.width, narrow);
    this.v = product('cross_attn.v_proj', c.width, narrow);
    this.out = product('cross_attn.o_proj', c.width, c.width);
    this.qNorm = rmsNorm(head, vb.pp('cross_attn.q_norm'), c.eps);
    this.kNorm = rmsNorm(head, vb.pp('cross_attn.k_norm'), c.eps);
    this.beforeMlp = rmsNorm(c.width, vb.pp('post_attention_layernorm'), c.eps);
    this.mlp = new GatedFeedForward(
      product('mlp.gate_proj', c.width, c.inner),
      product('mlp.up_proj', c.width, c.inner),
      product('mlp.down_proj', c.inner, c.width),
      c.activation,
    );
    this.mixerGate = vb.get([1], 'cross_attn_attn_gate');
    this.mlpGate = vb.get([1], 'cross_attn_mlp_gate');
  }
  /** (b, n, heads * d) to (b, n, heads, d). */
  #split(x: Tensor, heads: number): Tensor {
    return x.reshape([x.shape[0], x.shape[1], heads, -1]);
  }
  /** Of pictures (b, places, width). */
  keysAndValues(pictures: Tensor): Ready {
    const { kvHeads } = this.#config;
    const keys = this.kNorm.forward(this.#split(this.k.forward(pictures), kvHeads));
    const values = this.#split(this.v.forward(pictures), kvHeads);
    return [keys.transpose(1, 2).contiguous(), values.transpose(1, 2).contiguous()];
  }
  forward(x: Tensor, [keys, values]: Ready, { mask, any }: Allowed): Tensor {
    const [b, t, width] = x.shape;
    const q = this.qNorm.forward(this.#split(this.q.forward(this.beforeMixer.forward(x)), this.#config.heads));
    const found = q.transpose(1, 2).contiguous().sdpa(keys, values, { mask });
    const mixed = this.out.forward(found.transpose(1, 2).reshape([b, t, width]));
    const y = x.add(mixed.mul(this.mixerGate.tanh()));
    const fed = this.mlp.forward(this.beforeMlp.forward(y)).mul(any.cast(x.dtype));
    return y.add(fed.mul(this.mlpGate.tanh()));
  }
}

/** From which token on, and until which, each of a text's pictures is looked at. */
export function rangesOf(row: readonly number[], imageToken: number): [from: number, to: number][] {
  const at = row.flatMap((id, i) => (id === imageToken ? [i] : []));
  const ranges = at.map((from, i): [number, number] => [from, at[i + 1] ?? row.length]);
  // Pictures side by side are looked at by the same tokens.
  for (let i = ranges.length - 2; i >= 0; i--) if (ranges[i][1] === ranges[i][0] + 1) ranges[i][1] = ranges[i + 1][1];
  return ranges;
}

/** Pictures that a run's tokens look at. */
export class Watch {
  readonly #layers: ReadonlyMap<number, CrossBlock>;
  readonly #ready: ReadonlyMap<number, Ready>;
  readonly #allowed: Allowed;
  constructor(layers: ReadonlyMap<number, CrossBlock>, ready: ReadonlyMap<number, Ready>, allowed: Allowed) {
    this.#layers = layers;
    this.#ready = ready;
    this.#allowed = allowed;
  }
  behind(x: Tensor, layer: number): Tensor {
    const block = this.#layers.get(layer);
    return block ? block.forward(x, this.#ready.get(layer) as Ready, this.#allowed) : x;
  }
  /** For what follows a prompt, which looks at what its last token does; it outlives scopes until it is disposed. */
  goOn(): Watch {
    const { mask, any } = this.#allowed;
    const last = any.shape[1] - 1;
    for (const pair of this.#ready.values()) pair.forEach(keep);
    return new Watch(this.#layers, this.#ready, {
      mask: keep(mask.narrow(2, last, 1).copy()),
      any: keep(any.narrow(1, last, 1).copy()),
    });
  }
  dispose(): void {
    for (const pair of this.#ready.values()) for (const t of pair) t.dispose();
    this.#allowed.mask.dispose();
    this.#allowed.any.dispose();
  }
}

/** Layers that look at pictures, by their places among a text's. */
export class CrossLayers extends Module {
  readonly blocks: CrossBlock[];
  readonly #at: readonly number[];
  constructor(vb: VarBuilder, c: CrossConfig, at: readonly number[]) {
    super();
    this.#at = at;
    this.blocks = at.map((i) => new CrossBlock(vb.pp('layers', i), c));
  }
  /**
   * Rows of token numbers and their pictures (pictures, tiles, places, width), as many in each row; of a picture the
   * first `tiles` are looked at.
   */
  watch(rows: readonly (readonly number[])[], imageToken: number, pictures: Tensor, tiles: readonly number[]): Watch {
    const [n, most, places, width] = pictures.shape;
    const [each, t] = [n / rows.length, rows[0].length];
    const seen = new Uint8Array(rows.length * t * each * most);
    rows.forEach((row, b) => {
      rangesOf(row, imageToken).forEach(([from, to], j) => {
        for (let i = from; i < to; i++)
          seen.fill(1, ((b * t + i) * each + j) * most, ((b * t + i) * each + j) * most + tiles[b * each + j]);
      });
    });
    // A token in front of all pictures looks at everything, and its feed-forward adds nothing.
    const any = new Uint8Array(rows.length * t);
    for (let i = 0; i < any.length; i++) {
      const own = seen.subarray(i * each * most, (i + 1) * each * most);
      any[i] = Number(own.includes(1));
      if (any[i] === 0) own.fill(1);
    }
    const { device } = pictures;
    const mask = tensor(seen, { shape: [rows.length, 1, t, each * most, 1], device })
      .broadcastTo([rows.length, 1, t, each * most, places])
      .reshape([rows.length, 1, t, each * most * places]);
    const whole = pictures.reshape([rows.length, each * most * places, width]);
    const ready = this.blocks.map((block, i): [number, Ready] => [this.#at[i], block.keysAndValues(whole)]);
    const layers = new Map(this.#at.map((at, i) => [at, this.blocks[i]]));
    const looking = tensor(any, { shape: [rows.length, t, 1], device });
    return new Watch(layers, new Map(ready), { mask, any: looking });
  }
}
