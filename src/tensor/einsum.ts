// Einstein summation: letters name dimensions, repeated letters are multiplied and summed away.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import type { Tensor } from './tensor.js';

/**
 * 'ij,jk->ik'; an ellipsis stands for leading dimensions that broadcast; without '->' letters seen once are kept,
 * sorted.
 */
export function einsum(equation: string, ...tensors: Tensor[]): Tensor {
  if (typeof equation !== 'string') throw new ArgumentError(`einsum: the equation is ${typeof equation}, not a text`);
  const odd = tensors.findIndex((t) => !Array.isArray((t as Partial<Tensor> | null | undefined)?.shape));
  if (odd >= 0) throw new ArgumentError(`einsum: operand ${odd} is ${typeof tensors[odd]}, not a tensor`);
  const [left, right, ...more] = equation.replace(/\s+/g, '').split('->');
  if (more.length > 0) throw new ArgumentError(`einsum: "${equation}" has more than one "->"`);
  const parts = left.split(',');
  if (parts.length !== tensors.length)
    throw new ArgumentError(`einsum: "${equation}" names ${parts.length} tensors, ${tensors.length} were given`);
  const term = /^[A-Za-z]*(\.\.\.)?[A-Za-z]*$/;
  if (!parts.every((p) => term.test(p)) || (right !== undefined && !term.test(right))) {
    throw new ArgumentError(
      `einsum: "${equation}" holds something else than letters, commas, one '...' a tensor and '->'`,
    );
  }
  // Ellipsis dimensions become letters of their own, aligned at the right.
  const spans = parts.map((p, i) => (p.includes('...') ? tensors[i].rank - (p.length - 3) : 0));
  const widest = Math.max(0, ...spans);
  const hidden = Array.from({ length: widest }, (_, i) => String.fromCharCode(0x3b1 + i));
  const open = (p: string, span: number): string => p.replace('...', hidden.slice(widest - span).join(''));
  let terms = parts.map((p, i) => {
    const labels = [...open(p, spans[i])];
    if (labels.length !== tensors[i].rank)
      throw new ShapeError(`einsum: "${p}" does not fit tensor ${i} of shape ${formatShape(tensors[i].shape)}`);
    return diagonals({ labels, t: tensors[i] });
  });
  const all = terms.flatMap((x) => x.labels);
  const once = [...new Set(all)].filter((l) => !hidden.includes(l) && parts.join('').split(l).length === 2).sort();
  const output = right === undefined ? [...hidden, ...once] : [...open(right, widest)];
  const unknown = output.find((l, i) => !all.includes(l) || output.indexOf(l) !== i);
  if (unknown)
    throw new ArgumentError(
      `einsum: "${unknown}" on the right of "${equation}" does not stand on its left, or stands twice on the right`,
    );
  const sizes = new Map<string, number>();
  for (const { labels, t } of terms) {
    labels.forEach((l, d) => {
      const n = sizes.get(l) ?? 1;
      if (n !== 1 && t.shape[d] !== 1 && n !== t.shape[d])
        throw new ShapeError(`einsum: "${l}" in "${equation}" is ${n} in one tensor and ${t.shape[d]} in another`);
      sizes.set(l, n === 1 ? t.shape[d] : n);
    });
  }
  while (terms.length > 1) {
    const [a, b, ...rest] = terms;
    const later = new Set([...output, ...rest.flatMap((x) => x.labels)]);
    terms = [contract(a, b, later, sizes), ...rest];
  }
  const [{ labels, t }] = terms;
  const gone = labels.map((_, d) => d).filter((d) => !output.includes(labels[d]));
  const kept = labels.filter((l) => output.includes(l));
  const summed = gone.length ? t.sum(gone) : t;
  return summed.permute(output.map((l) => kept.indexOf(l)));
}

interface Term {
  readonly labels: readonly string[];
  readonly t: Tensor;
}

/** A letter twice in one tensor takes its diagonal. */
function diagonals({ labels, t }: Term): Term {
  const i = labels.findIndex((l, k) => labels.indexOf(l) !== k);
  if (i < 0) return { labels, t };
  const first = labels.indexOf(labels[i]);
  if (t.shape[first] !== t.shape[i])
    throw new ShapeError(
      `einsum: "${labels[i]}" stands for ${t.shape[first]} and ${t.shape[i]} in a tensor of shape ` +
        `${formatShape(t.shape)}`,
    );
  const rest = labels.map((_, k) => k).filter((k) => k !== first && k !== i);
  return diagonals({
    labels: [...rest.map((k) => labels[k]), labels[i]],
    t: t.permute([...rest, first, i]).diagonal(),
  });
}

/**
 * Two terms to one: shared letters that stay are batch, shared letters that go are multiplied along, the rest is the
 * outside.
 */
function contract(a: Term, b: Term, later: ReadonlySet<string>, sizes: ReadonlyMap<string, number>): Term {
  [a, b] = [dropLonely(a, b, later), dropLonely(b, a, later)];
  const shared = a.labels.filter((l) => b.labels.includes(l));
  const batch = shared.filter((l) => later.has(l));
  const inner = shared.filter((l) => !later.has(l));
  const outA = a.labels.filter((l) => !shared.includes(l));
  const outB = b.labels.filter((l) => !shared.includes(l));
  const size = (ls: readonly string[]): number => ls.reduce((n, l) => n * (sizes.get(l) as number), 1);
  const arrange = ({ labels, t }: Term, groups: readonly (readonly string[])[]): Tensor => {
    const order = groups.flat();
    const full = t.permute(order.map((l) => labels.indexOf(l))).broadcastTo(order.map((l) => sizes.get(l) as number));
    return full.reshape(groups.map(size));
  };
  const product = arrange(a, [batch, outA, inner]).bmm(arrange(b, [batch, inner, outB]));
  const labels = [...batch, ...outA, ...outB];
  return { labels, t: product.reshape(labels.map((l) => sizes.get(l) as number)) };
}

/** Letters that only this term has and that no later step needs are summed before the product. */
function dropLonely({ labels, t }: Term, other: Term, later: ReadonlySet<string>): Term {
  const gone = labels.map((_, d) => d).filter((d) => !later.has(labels[d]) && !other.labels.includes(labels[d]));
  return gone.length ? { labels: labels.filter((_, d) => !gone.includes(d)), t: t.sum(gone) } : { labels, t };
}
