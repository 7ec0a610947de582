// Cases of products, convolutions, pooling and resizing against plain loops.
import type { DType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import { gemmLaunch } from '../src/backends/gpu/matmul.js';
import { poolLaunch } from '../src/backends/gpu/pool.js';
import { bilinearGradLaunch, bilinearLaunch, nearestLaunch } from '../src/backends/gpu/resample.js';
import { convLaunch } from '../src/backends/gpu/conv.js';
import type {} from '../src/backends/gpu/plan.js';
import { type Data, cases, random, make, floats, num, same, range, REALS } from './structured-data.js';

// ---- products ----

function addGemm(
  dtype: DType,
  m: number,
  n: number,
  k: number,
  order: string,
  batch: readonly [number, number, number] = [1, 1, 1],
  bias = false,
  align = 16,
): void {
  const count = batch[0] * batch[1] * batch[2];
  const [a, b, c] = [floats(dtype, count * m * k, -1, 1), floats(dtype, k * n, -1, 1), floats(dtype, n)];
  const [aM, aK] = order[0] === 'k' ? [k, 1] : [1, m];
  const [bN, bK] = order[1] === 'k' ? [k, 1] : [1, n];
  const [x, y, z] = [num(a), num(b), num(c)];
  const out = range(count * m * n).map((i) => {
    const [at, r, j] = [Math.floor(i / (m * n)), Math.floor(i / n) % m, i % n];
    let sum = bias ? z[j] : 0;
    for (let q = 0; q < k; q++) sum += x[at * m * k + r * aM + q * aK] * y[j * bN + q * bK];
    return sum;
  });
  const product = {
    m,
    n,
    k,
    batch,
    bias,
    align,
    a: { row: aM, k: aK, batch: [batch[1] * batch[2] * m * k, batch[2] * m * k, m * k] as const },
    b: { row: bN, k: bK, batch: [0, 0, 0] as const },
  };
  cases.push({
    name: `gemm ${dtype} ${count} x ${m} x ${n} x ${k} ${order}${bias ? ' bias' : ''} align ${align}`,
    plan: (t) => gemmLaunch(dtype, product, t),
    inputs: { a, b, bias: c },
    outputs: { c: { dtype, values: out } },
  });
}
for (const dtype of REALS) addGemm(dtype, 3, 9, 64, 'kk', [1, 1, 1], true);
addGemm('f32', 1, 5, 4096, 'kk');
addGemm('bf16', 8, 6, 2048, 'kk', [1, 1, 2]);
addGemm('f32', 70, 33, 20, 'kr', [2, 1, 2], true);
addGemm('f32', 130, 131, 18, 'rk');
addGemm('f32', 9, 9, 3000, 'rr');
addGemm('f64', 33, 65, 17, 'kr');
addGemm('f64', 5, 5, 0, 'kr', [1, 1, 1], true);
for (const order of ['kk', 'kr', 'rk', 'rr'])
  addGemm(order === 'kk' ? 'f16' : 'bf16', 136, 24, 40, order, [1, 1, 1], order === 'kk');
addGemm('f16', 20, 70, 33, 'kr', [2, 1, 1], true, 2);

const CONVS = [
  // batch, groups, channels, outputs, input, kernel, stride, padding, dilation, outputPadding, bias
  [2, 1, 3, 20, [7, 6], [3, 2], [1, 1], [1, 0], [1, 1], [0, 0], true],
  [1, 2, 4, 17, [6, 9], [3, 3], [2, 1], [1, 2], [1, 2], [1, 0], false],
  [2, 5, 1, 1, [8, 8], [3, 3], [1, 2], [1, 1], [2, 1], [0, 1], true],
  [1, 1, 8, 16, [1, 30], [1, 5], [1, 3], [0, 2], [1, 1], [0, 2], false],
] as const;
for (const [batch, groups, channels, outputs, input, kernel, stride, padding, dilation, extra, bias] of CONVS) {
  for (const dtype of ['f32', 'f16', 'f64', 'u32'] as const)
    for (const transposed of [false, true]) {
      const output = input.map((s, i) =>
        transposed
          ? (s - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + 1 + extra[i]
          : Math.floor((s + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i]) + 1,
      ) as [number, number];
      const area = kernel[0] * kernel[1];
      const data = (n: number): Data =>
        dtype === 'u32' ? make(dtype, n, () => random() * 9) : floats(dtype, n, -1, 1);
      const [src, w, b] = [
        data(batch * groups * channels * input[0] * input[1]),
        data(groups * channels * outputs * area),
        data(groups * outputs),
      ];
      const [x, k, bn] = [num(src), num(w), num(b)];
      const out = new Array<number>(batch * groups * outputs * output[0] * output[1]).fill(0);
      // A transposed convolution walks the same products with image and result exchanged.
      const [small, large] = transposed ? [input, output] : [output, input];
      for (let n = 0; n < batch; n++)
        for (let g = 0; g < groups; g++)
          for (let c = 0; c < channels; c++)
            for (let o = 0; o < outputs; o++) {
              const weights = (transposed ? (g * channels + c) * outputs + o : (g * outputs + o) * channels + c) * area;
              const from = (n * groups * channels + g * channels + c) * input[0] * input[1];
              const to = (n * groups * outputs + g * outputs + o) * output[0] * output[1];
              for (let y = 0; y < small[0]; y++)
                for (let z = 0; z < small[1]; z++)
                  for (let p = 0; p < kernel[0]; p++)
                    for (let q = 0; q < kernel[1]; q++) {
                      const [iy, iz] = [
                        y * stride[0] + p * dilation[0] - padding[0],
                        z * stride[1] + q * dilation[1] - padding[1],
                      ];
                      if (iy < 0 || iy >= large[0] || iz < 0 || iz >= large[1]) continue;
                      const [s, l] = [y * small[1] + z, iy * large[1] + iz];
                      out[to + (transposed ? l : s)] += x[from + (transposed ? s : l)] * k[weights + p * kernel[1] + q];
                    }
            }
      if (bias) out.forEach((v, i) => (out[i] = v + bn[Math.floor(i / (output[0] * output[1])) % (groups * outputs)]));
      const kernelShape = transposed
        ? [groups * channels, outputs, ...kernel]
        : [groups * outputs, channels, ...kernel];
      const shape = {
        batch,
        groups,
        channels,
        outputs,
        input,
        output,
        kernel,
        stride,
        padding,
        dilation,
        bias,
        inputStrides: Layout.contiguous([batch, groups * channels, ...input]).strides,
        kernelStrides: Layout.contiguous(kernelShape).strides,
      };
      cases.push({
        name:
          `conv${transposed ? 'Transpose' : ''} ${dtype} groups ${groups} ${channels} to ${outputs} over ` +
          `[${input}]`,
        plan: (t) => convLaunch(transposed, dtype, shape, t),
        inputs: { src, kernel: w, bias: b },
        outputs: { dst: same(dtype, out) },
      });
    }
}

// ---- pooling and resizing ----

for (const dtype of ['f32', 'bf16', 'u8'] as const) {
  const [planes, input, kernel, stride, padding] = [3, [5, 9], [2, 3], [3, 2], [1, 1]];
  const output = input.map((s, i) => Math.floor((s + 2 * padding[i] - kernel[i]) / stride[i]) + 1);
  const src = make(dtype, planes * 45, (i) => (dtype === 'u8' ? random() * 255 : i % 9 === 4 ? NaN : random() * 9 - 4));
  const x = num(src);
  const found = { avg: [] as number[], max: [] as number[], argmax: [] as number[] };
  for (let p = 0; p < planes; p++)
    for (let y = 0; y < output[0]; y++)
      for (let z = 0; z < output[1]; z++) {
        const inside: number[] = [];
        for (let i = 0; i < kernel[0]; i++)
          for (let j = 0; j < kernel[1]; j++) {
            const [r, c] = [y * stride[0] + i - padding[0], z * stride[1] + j - padding[1]];
            if (r >= 0 && r < input[0] && c >= 0 && c < input[1]) inside.push(r * input[1] + c);
          }
        const values = inside.map((i) => x[p * 45 + i]);
        const numbers = values.filter((v) => v === v);
        const best =
          dtype === 'bf16' && numbers.length < values.length ? NaN : numbers.length ? Math.max(...numbers) : NaN;
        const mean = values.reduce((a, v) => a + v, 0) / (kernel[0] * kernel[1]);
        found.avg.push(dtype === 'u8' ? Math.floor(mean) : mean);
        found.max.push(best);
        found.argmax.push(
          inside[
            Math.max(
              0,
              values.findIndex((v) => Object.is(v, best)),
            )
          ],
        );
      }
  for (const kind of ['avg', 'max', 'argmax'] as const) {
    cases.push({
      name: `${kind} pool ${dtype}`,
      plan: () => poolLaunch(kind, dtype, planes, input, output, kernel, stride, padding),
      inputs: { src },
      outputs: { dst: same(kind === 'argmax' ? 'u32' : dtype, found[kind]) },
    });
  }
}
{
  const src = floats('f16', 2 * 3 * 5);
  const info: Data = { dtype: 'i64', values: [2n, 3n, 5n, 15n, 5n, 1n] };
  const out = range(2 * 3 * 13).map(
    (i) => src.values[Math.floor(i / 13) * 5 + Math.min(4, Math.floor((i % 13) * (5 / 13)))],
  );
  cases.push({
    name: 'nearest neighbours in one dimension',
    plan: () => nearestLaunch('f16', 6, [5], [13]),
    inputs: { src, info },
    outputs: { dst: { dtype: 'f16', values: out } },
  });
}
for (const [input, output, corners, scale] of [
  [[4, 5], [8, 10], false, null],
  [[4, 5], [7, 3], true, null],
  [[3, 4], [1, 9], true, null],
  [[3, 4], [6, 9], false, [2.1, 2.3]],
  [[6, 7], [3, 2], false, [0.4, 0.3]],
] as const) {
  const weights = (axis: 0 | 1): number[][] =>
    range(output[axis]).map((i) => {
      const size = input[axis];
      const step = corners
        ? output[axis] > 1
          ? (size - 1) / (output[axis] - 1)
          : 0
        : scale
          ? 1 / scale[axis]
          : size / output[axis];
      const at = corners ? step * i : Math.max(0, step * (i + 0.5) - 0.5);
      const low = Math.min(Math.floor(at), size - 1);
      const part = Math.min(Math.max(at - low, 0), 1);
      const row = new Array<number>(size).fill(0);
      row[low] += 1 - part;
      row[Math.min(low + 1, size - 1)] += part;
      return row;
    });
  const [rows, cols] = [weights(0), weights(1)];
  const src = floats('f32', 2 * input[0] * input[1]);
  const grad = floats('f32', 2 * output[0] * output[1]);
  const [x, g] = [num(src), num(grad)];
  const y = range(2 * output[0] * output[1]).map((i) => {
    const [p, r, c] = [Math.floor(i / (output[0] * output[1])), Math.floor(i / output[1]) % output[0], i % output[1]];
    return range(input[0] * input[1]).reduce(
      (a, j) => a + x[p * input[0] * input[1] + j] * rows[r][Math.floor(j / input[1])] * cols[c][j % input[1]],
      0,
    );
  });
  const dx = range(2 * input[0] * input[1]).map((i) => {
    const [p, r, c] = [Math.floor(i / (input[0] * input[1])), Math.floor(i / input[1]) % input[0], i % input[1]];
    return range(output[0] * output[1]).reduce(
      (a, j) => a + g[p * output[0] * output[1] + j] * rows[Math.floor(j / output[1])][r] * cols[j % output[1]][c],
      0,
    );
  });
  const info: Data = {
    dtype: 'i64',
    values: [1, 2, ...input, 2 * input[0] * input[1], input[0] * input[1], input[1], 1].map(BigInt),
  };
  const name = `bilinear [${input}] to [${output}]${corners ? ' corners' : ''}${scale ? ' scale' : ''}`;
  cases.push({
    name,
    plan: () => bilinearLaunch('f32', 2, output, corners, scale),
    inputs: { src, info },
    outputs: { dst: { dtype: 'f32', values: y } },
  });
  cases.push({
    name: `gradient of ${name}`,
    plan: () => bilinearGradLaunch('f32', 2, input, output, corners, scale),
    inputs: { grad },
    outputs: { dx: { dtype: 'f32', values: dx } },
  });
}
