// ONNX operators that pick, place and rearrange elements.
import { cat, Tensor } from '../../src/index.js';
import {
  type Node,
  type Handler,
  has,
  input,
  int,
  text,
  ints,
  list,
  listAt,
  axesOf,
  unary,
  binary,
  padList,
} from './node.js';

const positive = (ids: Tensor, size: number): Tensor => {
  const wide = ids.cast('i64');
  return wide.lt(0).where(wide.add(size), wide);
};

function gather(n: Node): Tensor {
  const [x, ids] = [input(n, 0), input(n, 1)];
  const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
  const found = x.indexSelect(axis, positive(ids, x.shape[axis]).flatten());
  return found.reshape([...x.shape.slice(0, axis), ...ids.shape, ...x.shape.slice(axis + 1)]);
}

function scatterElements(n: Node): Tensor {
  const [x, ids, updates] = [input(n, 0), input(n, 1), input(n, 2)];
  const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
  const places = positive(ids, x.shape[axis]);
  const kind = text(n, 'reduction', 'none');
  if (kind === 'none') return x.scatter(axis, places, updates);
  const ours = { add: 'sum', mul: 'prod', max: 'amax', min: 'amin' }[kind] as 'sum';
  return x.scatterReduce(axis, places, updates, ours);
}

/** Tuples of indices as places in the flattened leading dimensions. */
function flatPlaces(x: Tensor, ids: Tensor, batch = 0): Tensor {
  const depth = ids.shape[ids.rank - 1];
  let at: Tensor | undefined;
  for (let d = 0; d < depth; d++) {
    const size = x.shape[batch + d];
    const part = positive(ids.narrow(ids.rank - 1, d, 1).squeeze(-1), size);
    at = at ? at.mul(size).add(part) : part;
  }
  return at as Tensor;
}

function scatterNd(n: Node): Tensor {
  const [x, ids, updates] = [input(n, 0), input(n, 1), input(n, 2)];
  const depth = ids.shape[ids.rank - 1];
  const rest = x.shape.slice(depth).reduce((a, b) => a * b, 1);
  const flat = x.reshape([-1, rest]);
  const places = flatPlaces(x, ids)
    .flatten()
    .unsqueeze(1)
    .broadcastTo([ids.size / depth, rest]);
  const values = updates.reshape([-1, rest]);
  const kind = text(n, 'reduction', 'none');
  const ours = { add: 'sum', mul: 'prod', max: 'amax', min: 'amin' }[kind] as 'sum' | undefined;
  return (ours ? flat.scatterReduce(0, places, values, ours) : flat.scatter(0, places.contiguous(), values)).reshape(
    x.shape,
  );
}

function gatherNd(n: Node): Tensor {
  const [x, ids] = [input(n, 0), input(n, 1)];
  const batch = int(n, 'batch_dims', 0);
  const depth = ids.shape[ids.rank - 1];
  const heads = x.shape.slice(0, batch).reduce((a, b) => a * b, 1);
  const rest = x.shape.slice(batch + depth);
  const inner = x.shape.slice(batch, batch + depth).reduce((a, b) => a * b, 1);
  const places = flatPlaces(x, ids, batch).reshape([heads, -1]);
  const flat = x.reshape([heads * inner, ...rest]);
  const first = Tensor.from(
    Array.from({ length: heads }, (_, i) => i * inner),
    { dtype: 'i64' },
  ).unsqueeze(1);
  return flat.indexSelect(0, places.add(first).flatten()).reshape([...ids.shape.slice(0, -1), ...rest]);
}

function slice(n: Node): Tensor {
  let x = input(n, 0);
  const starts = listAt(n, 1) ?? (ints(n, 'starts') as number[]);
  const ends = listAt(n, 2) ?? (ints(n, 'ends') as number[]);
  const axes = listAt(n, 3) ?? ints(n, 'axes') ?? starts.map((_, i) => i);
  const steps = listAt(n, 4) ?? starts.map(() => 1);
  axes.forEach((axis, i) => {
    const a = (axis + x.rank) % x.rank;
    const size = x.shape[a];
    const inside = (v: number, low: number, high: number): number =>
      Math.min(high, Math.max(low, v < 0 ? v + size : v));
    const step = steps[i];
    const places: number[] = [];
    const [begin, end] =
      step > 0
        ? [inside(starts[i], 0, size), inside(ends[i], 0, size)]
        : [inside(starts[i], 0, size - 1), inside(ends[i], -1, size - 1)];
    for (let p = begin; step > 0 ? p < end : p > end; p += step) places.push(p);
    x = places.length === 0 ? x.narrow(a, 0, 0) : x.indexSelect(a, Tensor.from(places, { dtype: 'i64' }));
  });
  return x;
}

/** Updates written into each sequence from its own place on, over the end to the beginning if circular. */
function tensorScatter(n: Node): Tensor {
  const [past, update] = [input(n, 0), input(n, 1)];
  const axis = (int(n, 'axis', -2) + past.rank) % past.rank;
  const places = listAt(n, 2) ?? new Array<number>(past.shape[0]).fill(0);
  const written = places.map((first, b) => {
    const [old, fresh] = [past.narrow(0, b, 1), update.narrow(0, b, 1)];
    const at = Array.from({ length: fresh.shape[axis] }, (_, i) => (first + i) % past.shape[axis]);
    const ids = Tensor.from(at, { dtype: 'i64' }).reshape(old.shape.map((_, i) => (i === axis ? at.length : 1)));
    return old.scatter(axis, ids.broadcastTo(fresh.shape).contiguous(), fresh);
  });
  return cat(written, 0);
}

export const INDEXING: Readonly<Record<string, Handler>> = {
  Reshape: (n) => {
    const x = input(n, 0);
    const zero = int(n, 'allowzero', 0) === 1;
    return x.reshape(list(input(n, 1)).map((s, i) => (s === 0 && !zero ? x.shape[i] : s)));
  },
  Flatten: unary((x, n) => {
    const axis = int(n, 'axis', 1);
    const a = axis < 0 ? axis + x.rank : axis;
    return x.reshape([x.shape.slice(0, a).reduce((p, q) => p * q, 1), -1]);
  }),
  Transpose: unary((x, n) => x.permute(ints(n, 'perm') ?? x.shape.map((_, i) => x.rank - 1 - i))),
  Squeeze: unary((x, n) => x.squeeze(axesOf(n) ?? x.shape.flatMap((s, i) => (s === 1 ? [i] : [])))),
  Unsqueeze: unary((x, n) => {
    const axes = axesOf(n) as number[];
    const rank = x.rank + axes.length;
    return axes
      .map((a) => (a + rank) % rank)
      .sort((a, b) => a - b)
      .reduce((y, a) => y.unsqueeze(a), x);
  }),
  Expand: binary((x, s) => {
    const want = list(s);
    const rank = Math.max(want.length, x.rank);
    const at = (v: readonly number[], i: number): number => v[i - (rank - v.length)] ?? 1;
    return x.broadcastTo(Array.from({ length: rank }, (_, i) => (at(want, i) === 1 ? at(x.shape, i) : at(want, i))));
  }),
  Tile: binary((x, times) => x.repeat(list(times))),
  Concat: (n) => (n.inputs.length === 1 ? input(n, 0) : cat(n.inputs as Tensor[], int(n, 'axis', 0))),
  Split: (n) => {
    const x = input(n, 0);
    const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
    const size = Math.ceil(x.shape[axis] / n.results);
    const given = listAt(n, 1) ?? ints(n, 'split');
    const sizes = given ?? Array.from({ length: n.results }, (_, i) => Math.min(size, x.shape[axis] - i * size));
    let at = 0;
    return sizes.map((s) => x.narrow(axis, (at += s) - s, s));
  },
  Slice: slice,
  Gather: gather,
  GatherND: gatherNd,
  ScatterElements: scatterElements,
  Scatter: scatterElements,
  ScatterND: scatterNd,
  GatherElements: (n) => {
    const x = input(n, 0);
    const axis = (int(n, 'axis', 0) + x.rank) % x.rank;
    return x.gather(axis, positive(input(n, 1), x.shape[axis]));
  },
  Pad: (n) => {
    const x = input(n, 0);
    const pads = listAt(n, 1) ?? (ints(n, 'pads') as number[]);
    const axes = listAt(n, 3)?.map((a) => (a + x.rank) % x.rank) ?? x.shape.map((_, i) => i);
    const mode = text(n, 'mode', 'constant');
    const begin = x.shape.map(() => 0);
    const end = x.shape.map(() => 0);
    axes.forEach((a, i) => {
      begin[a] = pads[i];
      end[a] = pads[i + axes.length];
    });
    const fill = has(n, 2) ? list(input(n, 2))[0] : 0;
    if (mode === 'constant') {
      let y = x;
      begin.forEach((b, i) => {
        if (b < 0) y = y.narrow(i, -b, y.shape[i] + b);
      });
      end.forEach((e, i) => {
        if (e < 0) y = y.narrow(i, 0, y.shape[i] + e);
      });
      return y.pad(
        padList(
          begin.map((b) => Math.max(b, 0)),
          end.map((e) => Math.max(e, 0)),
        ),
        fill,
      );
    }
    return x.padMode(
      padList(begin, end),
      { edge: 'replicate', reflect: 'reflect', wrap: 'circular' }[mode] as 'reflect',
    );
  },
  Trilu: unary((x, n) => {
    const k = has(n, 1) ? list(input(n, 1))[0] : 0;
    return int(n, 'upper', 1) === 1 ? x.triu(k) : x.tril(k);
  }),
  OneHot: (n) => {
    const [ids, depth, values] = [input(n, 0), list(input(n, 1))[0], input(n, 2)];
    const codes = positive(ids, depth)
      .unsqueeze(-1)
      .eq(
        Tensor.from(
          Array.from({ length: depth }, (_, i) => i),
          { dtype: 'i64' },
        ),
      );
    const axis = (int(n, 'axis', -1) + ids.rank + 1) % (ids.rank + 1);
    return codes.where(values.narrow(0, 1, 1).squeeze(0), values.narrow(0, 0, 1).squeeze(0)).movedim(ids.rank, axis);
  },
  NonZero: unary((x) => x.nonzero().t().cast('i64')),
  Compress: (n) => {
    const x = n.attributes.axis === undefined ? input(n, 0).flatten() : input(n, 0);
    const at = list(input(n, 1)).flatMap((v, i) => (v ? [i] : []));
    return x.indexSelect((int(n, 'axis', 0) + x.rank) % x.rank, Tensor.from(at, { dtype: 'i64' }));
  },
  DepthToSpace: unary((x, n) => {
    const [b, c, h, w] = x.shape;
    const s = int(n, 'blocksize', 1);
    return text(n, 'mode', 'DCR') === 'DCR'
      ? x
          .reshape([b, s, s, c / (s * s), h, w])
          .permute([0, 3, 4, 1, 5, 2])
          .reshape([b, c / (s * s), h * s, w * s])
      : x.pixelShuffle(s);
  }),
  SpaceToDepth: unary((x, n) => {
    const [b, c, h, w] = x.shape;
    const s = int(n, 'blocksize', 1);
    if (text(n, 'mode', 'DCR') === 'CRD') return x.pixelUnshuffle(s);
    return x
      .reshape([b, c, h / s, s, w / s, s])
      .permute([0, 3, 5, 1, 2, 4])
      .reshape([b, c * s * s, h / s, w / s]);
  }),
  ReverseSequence: (n) => {
    const [x, lengths] = [input(n, 0), list(input(n, 1))];
    const [time, batch] = [int(n, 'time_axis', 0), int(n, 'batch_axis', 1)];
    const turned = lengths.map((l, i) => {
      const row = x.narrow(batch, i, 1);
      return cat([row.narrow(time, 0, l).flip(time), row.narrow(time, l, x.shape[time] - l)], time);
    });
    return cat(turned, batch);
  },
  CenterCropPad: (n) => {
    let x = input(n, 0);
    const want = list(input(n, 1));
    const axes = ints(n, 'axes') ?? want.map((_, i) => i);
    axes.forEach((axis, i) => {
      const a = (axis + x.rank) % x.rank;
      const more = want[i] - x.shape[a];
      if (more < 0) x = x.narrow(a, Math.floor(-more / 2), want[i]);
      else if (more > 0) {
        const [b, e] = [x.shape.map(() => 0), x.shape.map(() => 0)];
        b[a] = Math.floor(more / 2);
        e[a] = more - b[a];
        x = x.pad(padList(b, e));
      }
    });
    return x;
  },
  TensorScatter: (n) => tensorScatter(n),
};
