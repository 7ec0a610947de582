// ONNX recurrent layers, a step at a time.
import type { Tensor } from '../../src/index.js';
import { type Node, type Handler, NotServed, has, input, int, text, listAt } from './node.js';

const ACTIVATIONS: Readonly<Record<string, (x: Tensor, a: number, b: number) => Tensor>> = {
  Sigmoid: (x) => x.sigmoid(),
  Tanh: (x) => x.tanh(),
  Relu: (x) => x.relu(),
  Affine: (x, a, b) => x.affine(a, b),
  LeakyRelu: (x, a) => x.leakyRelu(a),
  HardSigmoid: (x, a, b) => x.affine(a, b).clamp(0, 1),
};

function recurrent(
  n: Node,
  gates: number,
  step: (
    n: Node,
    x: Tensor,
    h: Tensor,
    c: Tensor | undefined,
    part: (t: Tensor | undefined, g: number) => Tensor | undefined,
    d: number,
  ) => [Tensor, Tensor?],
): Tensor[] {
  const turned = int(n, 'layout', 0) === 1;
  const x = turned ? input(n, 0).transpose(0, 1) : input(n, 0);
  const [w] = [input(n, 1)];
  const hidden = int(n, 'hidden_size', w.shape[1] / gates);
  const direction = text(n, 'direction', 'forward');
  const [steps, batch] = x.shape;
  const lengths = listAt(n, 4);
  if (lengths && lengths.some((l) => l !== steps)) throw new NotServed('sequences of several lengths');
  const state = (i: number, d: number): Tensor => {
    if (!has(n, i)) return x.newZeros([batch, hidden]);
    const s = turned ? input(n, i).transpose(0, 1) : input(n, i);
    return s.narrow(0, d, 1).squeeze(0);
  };
  const outs: Tensor[] = [];
  const lasts: Tensor[] = [];
  const cells: Tensor[] = [];
  for (let d = 0; d < w.shape[0]; d++) {
    const back = direction === 'reverse' || d === 1;
    const part = (t: Tensor | undefined, g: number): Tensor | undefined =>
      t
        ?.narrow(0, d, 1)
        .squeeze(0)
        .narrow(0, g * hidden, hidden);
    let h = state(5, d);
    let c: Tensor | undefined = n.op === 'LSTM' ? state(6, d) : undefined;
    const ys: Tensor[] = [];
    for (let t = 0; t < steps; t++) {
      [h, c] = step(n, x.narrow(0, back ? steps - 1 - t : t, 1).squeeze(0), h, c, part, d);
      ys.push(h);
    }
    const [first, ...rest] = back ? ys.reverse() : ys;
    outs.push(first.stack(rest, 0));
    lasts.push(h);
    if (c) cells.push(c);
  }
  const [o0, ...o] = outs;
  const [h0, ...hs] = lasts;
  const y = o0.stack(o, 1);
  const h = h0.stack(hs, 0);
  const c = cells.length > 0 ? cells[0].stack(cells.slice(1), 0) : undefined;
  return (turned ? [y.permute([2, 0, 1, 3]), h.transpose(0, 1), c?.transpose(0, 1)] : [y, h, c]) as Tensor[];
}

const activation = (n: Node, i: number, otherwise: string): ((x: Tensor) => Tensor) => {
  const name = (n.attributes.activations as readonly string[] | undefined)?.[i] ?? otherwise;
  const f = ACTIVATIONS[name];
  if (!f) throw new NotServed(`activation ${name}`);
  const alpha = (n.attributes.activation_alpha as readonly number[] | undefined)?.[i] ?? 0.01;
  const beta = (n.attributes.activation_beta as readonly number[] | undefined)?.[i] ?? 0;
  return (x) => f(x, alpha, beta);
};

const clipped = (n: Node, x: Tensor): Tensor => {
  const c = n.attributes.clip as number | undefined;
  return c ? x.clamp(-c, c) : x;
};

const plus = (x: Tensor, y: Tensor | undefined): Tensor => (y ? x.add(y) : x);

export const RECURRENT: Readonly<Record<string, Handler>> = {
  RNN: (n) =>
    recurrent(n, 1, (m, x, h, _c, part, d) => {
      const b = m.inputs[3];
      const sum = plus(
        plus(
          x.matmul((part(input(m, 1), 0) as Tensor).t()).add(h.matmul((part(input(m, 2), 0) as Tensor).t())),
          part(b, 0),
        ),
        part(b, 1),
      );
      return [activation(m, d, 'Tanh')(clipped(m, sum))];
    }),
  GRU: (n) =>
    recurrent(n, 3, (m, x, h, _c, part, d) => {
      const b = m.inputs[3];
      const [f, g] = [activation(m, 2 * d, 'Sigmoid'), activation(m, 2 * d + 1, 'Tanh')];
      const wx = (i: number): Tensor => plus(x.matmul((part(input(m, 1), i) as Tensor).t()), part(b, i));
      const rh = (i: number, s: Tensor): Tensor => plus(s.matmul((part(input(m, 2), i) as Tensor).t()), part(b, 3 + i));
      const z = f(clipped(m, wx(0).add(rh(0, h))));
      const r = f(clipped(m, wx(1).add(rh(1, h))));
      const late = int(m, 'linear_before_reset', 0) === 1;
      const fresh = g(clipped(m, wx(2).add(late ? r.mul(rh(2, h)) : rh(2, r.mul(h)))));
      return [fresh.add(z.mul(h.sub(fresh)))];
    }),
  LSTM: (n) =>
    recurrent(n, 4, (m, x, h, c, part, d) => {
      const b = m.inputs[3];
      const [f, g, o] = ['Sigmoid', 'Tanh', 'Tanh'].map((name, i) => activation(m, 3 * d + i, name));
      const gate = (i: number): Tensor =>
        plus(
          plus(
            x.matmul((part(input(m, 1), i) as Tensor).t()).add(h.matmul((part(input(m, 2), i) as Tensor).t())),
            part(b, i),
          ),
          part(b, 4 + i),
        );
      const peep = (i: number, s: Tensor): Tensor | undefined => part(m.inputs[7], i)?.mul(s);
      const cell = c as Tensor;
      const i = f(clipped(m, plus(gate(0), peep(0, cell))));
      const forget = f(clipped(m, plus(gate(2), peep(2, cell))));
      const next = forget.mul(cell).add(i.mul(g(clipped(m, gate(3)))));
      const out = f(clipped(m, plus(gate(1), peep(1, next))));
      return [out.mul(o(next)), next];
    }),
};
