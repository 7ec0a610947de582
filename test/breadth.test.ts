// What the matrix of ops cannot say: bits seen as another dtype, iteration, comparisons that answer a truth value,
// draws by probability, and steps backwards.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rand, randperm, Tensor, tensor } from '../src/index.js';
import { testDevices } from '../src/testing/devices.js';

const numbers = (t: Tensor): unknown => t.toArray();

for (const { name, device, missing } of testDevices('reference,cpu')) {
  const on = (data: Parameters<typeof tensor>[0], dtype?: Tensor['dtype']): Tensor =>
    tensor(data, { device, ...(dtype && { dtype }) });

  test(`bitcast on ${name}`, { skip: missing }, () => {
    const x = on([1, -2, 0, NaN]);
    assert.deepEqual(numbers(x.bitcast('i32').narrow(0, 0, 2)), [0x3f800000, 0xc0000000 | 0]);
    assert.deepEqual(x.bitcast('u8').shape, [16]);
    assert.deepEqual(numbers(x.bitcast('u8').narrow(0, 0, 4)), [0, 0, 0x80, 0x3f]);
    assert.deepEqual(numbers(x.bitcast('u8').bitcast('f32').narrow(0, 0, 3)), [1, -2, 0]);
    assert.deepEqual(numbers(x.bitcast('f64').bitcast('f32')), numbers(x));
    const turned = on([
      [1, 2],
      [3, 4],
    ]).t();
    assert.deepEqual(numbers(turned.bitcast('u32').bitcast('f32')), numbers(turned));
    assert.deepEqual(numbers(turned.bitcast('i16').bitcast('f32')), numbers(turned));
    assert.throws(() => on([1, 2, 3]).bitcast('f64'), { code: 'E_SHAPE', message: /bitcast: .* 12 bytes/ });
    assert.throws(() => x.bitcast('bool'), { code: 'E_DTYPE' });
    assert.throws(() => x.bitcast('f99' as never), { code: 'E_DTYPE', message: /bitcast/ });
  });

  test(`iteration over the first dimension on ${name}`, { skip: missing }, () => {
    const x = on([
      [1, 2],
      [3, 4],
      [5, 6],
    ]);
    assert.deepEqual(
      [...x].map((r) => numbers(r)),
      [
        [1, 2],
        [3, 4],
        [5, 6],
      ],
    );
    assert.deepEqual([...x.narrow(0, 0, 0)], []);
    assert.throws(() => [...on(3)], { code: 'E_SHAPE', message: /iteration/ });
  });

  test(`equal and allclose on ${name}`, { skip: missing }, () => {
    const x = on([1, 2, NaN]);
    assert.equal(on([1, 2]).equal(on([1, 2])), true);
    assert.equal(on([1, 2]).equal(on([1, 3])), false);
    assert.equal(on([1, 2]).equal(on([1, 2], 'f64')), false);
    assert.equal(on([[1, 2]]).equal(on([1, 2])), false);
    assert.equal(x.equal(x), false, 'NaN equals nothing');
    assert.equal(on([0, 1]).equal(on([-0, 1])), true);
    assert.equal(x.allclose(x), false);
    assert.equal(x.allclose(x, { equalNan: true }), true);
    assert.equal(on([100, 0]).allclose(on([100.0005, 0])), true);
    assert.equal(on([100, 0]).allclose(on([100.01, 0])), false);
    assert.equal(on([1]).allclose(on([Infinity])), false);
    assert.throws(() => x.equal(3 as never), { code: 'E_ARGUMENT', message: /equal/ });
  });

  test(`negative steps and one-sided bounds on ${name}`, { skip: missing }, () => {
    const x = on([0, 1, 2, 3, 4, 5]);
    assert.deepEqual(numbers(x.at([undefined, undefined, -1])), [5, 4, 3, 2, 1, 0]);
    assert.deepEqual(numbers(x.at([4, 0, -2])), [4, 2]);
    assert.deepEqual(numbers(x.at([-2, undefined, -3])), [4, 1]);
    assert.deepEqual(numbers(x.at([1, 4, -1])), []);
    assert.throws(() => x.slice(0, 0, 3, 0), { code: 'E_ARGUMENT', message: /slice: step 0/ });
    assert.deepEqual(numbers(x.clamp(2)), [2, 2, 2, 3, 4, 5]);
    assert.deepEqual(numbers(x.clamp(undefined, 2)), [0, 1, 2, 2, 2, 2]);
  });

  test(`draws on ${name}`, { skip: missing }, () => {
    const perm = randperm(50, { device, seed: 3 });
    assert.equal(perm.dtype, 'i64');
    assert.deepEqual(
      (numbers(perm) as number[]).slice().sort((a, b) => a - b),
      Array.from({ length: 50 }, (_, i) => i),
    );
    assert.notDeepEqual(numbers(perm), numbers(randperm(50, { device, seed: 4 })));
    const like = on([[1, 2]], 'f64').randLike({ seed: 1 });
    assert.deepEqual([like.shape, like.dtype, like.device], [[1, 2], 'f64', device]);
    assert.deepEqual(numbers(on([0, 1, 0, 1]).bernoulli({ seed: 1 })), [0, 1, 0, 1]);
    const share = rand([4000], { device, seed: 2 }).affine(0, 0.3).bernoulli({ seed: 5 }).mean().item();
    assert.ok(Math.abs(share - 0.3) < 0.03, `${share} of ones drawn with probability 0.3`);
    assert.throws(() => on([1.5]).bernoulli(), { code: 'E_ARGUMENT', message: /bernoulli/ });
  });

  test(`multinomial on ${name}`, { skip: missing }, () => {
    const weights = on([
      [0, 1, 3, 0],
      [2, 0, 0, 2],
    ]);
    const many = weights.multinomial(4000, { replacement: true, seed: 9 });
    assert.deepEqual([many.shape, many.dtype], [[2, 4000], 'i64']);
    const [a, b] = many.toArray() as number[][];
    const part = (list: number[], v: number): number => list.filter((x) => x === v).length / list.length;
    assert.equal(part(a, 0) + part(a, 3) + part(b, 1) + part(b, 2), 0, 'what weighs nothing is never drawn');
    assert.ok(Math.abs(part(a, 2) - 0.75) < 0.03 && Math.abs(part(b, 0) - 0.5) < 0.03);
    const [c, d] = weights.multinomial(2, { seed: 1 }).toArray() as number[][];
    assert.deepEqual(
      [c.slice().sort(), d.slice().sort()],
      [
        [1, 2],
        [0, 3],
      ],
    );
    assert.throws(() => weights.multinomial(3), { code: 'E_ARGUMENT', message: /as few as 2 weights/ });
    assert.throws(() => on([-1, 2]).multinomial(1), { code: 'E_ARGUMENT', message: /none negative/ });
  });

  test(`distinct slices, and pools with places, are PyTorch's on ${name}`, { skip: missing }, () => {
    const arrays = (list: readonly Tensor[]): unknown[] => list.map((t) => t.toArray());
    const x = on([[1, 2], [0, 5], [1, 2], [0, 3], [0, 5]]); // biome-ignore format: rows
    const rest = [[2, 1, 2, 0, 1], [1, 2, 2]]; // biome-ignore format: which and how many
    assert.deepEqual(arrays(x.unique({ dim: 0 })), [[[0, 3], [0, 5], [1, 2]], ...rest]); // biome-ignore format: rows
    assert.deepEqual(arrays(x.t().unique({ dim: -1 })), [[[0, 0, 1], [3, 5, 2]], ...rest]); // biome-ignore format: rows
    const runs = on([[1, 2], [1, 2], [0, 3], [1, 2]]).uniqueConsecutive({ dim: 0 }); // biome-ignore format: rows
    assert.deepEqual(arrays(runs), [[[1, 2], [0, 3], [1, 2]], [0, 0, 1, 2], [2, 1, 1]]); // biome-ignore format: rows
    assert.deepEqual([x.dim(0), x.dim(-1), ...x.dims(2)], [5, 2, 5, 2]);
    const y = on(Array.from({ length: 25 }, (_, i) => (i * 7) % 25)).reshape([1, 1, 5, 5]);
    const places = (list: readonly (readonly [number, number])[]): number[] => {
      const all = new Array<number>(25).fill(0);
      for (const [at, v] of list) all[at] = v;
      return all;
    };
    const [v, i] = y.maxPool2dWithIndices(2);
    // biome-ignore format: pairs
    assert.deepEqual(arrays([v.flatten(), i.flatten()]), [[17, 24, 20, 19], [6, 7, 10, 17]]);
    const back = v
      .maxUnpool2d(i, 2, 2, { outputSize: [5, 5] })
      .flatten()
      .toArray();
    assert.deepEqual(back, places([[6, 17], [7, 24], [10, 20], [17, 19]])); // biome-ignore format: pairs
    const [v3, i3] = y.maxPool2dWithIndices(3, 2, { padding: 1 });
    assert.deepEqual(v3.flatten().toArray(), [17, 24, 21, 20, 24, 23, 22, 22, 18]);
    assert.deepEqual(i3.flatten().toArray(), [6, 7, 3, 10, 7, 14, 21, 21, 24]);
    const wide = v3.maxUnpool2d(i3, 3, 2, { padding: 1 }).flatten().toArray();
    // biome-ignore format: pairs
    assert.deepEqual(wide, places([[3, 21], [6, 17], [7, 24], [10, 20], [14, 23], [21, 22], [24, 18]]));
  });

  test(`ops that look at values refuse what does not fit on ${name}`, { skip: missing }, () => {
    const x = on([1, 2, 3]);
    assert.throws(() => x.maskedScatter(on([true, true, false]), on([5])), {
      code: 'E_SHAPE',
      message: /maskedScatter: the mask is true at 2 places/,
    });
    assert.throws(() => x.take(on([0.5])), { code: 'E_DTYPE', message: /take: indices are f32/ });
    assert.throws(() => x.bitwiseNot(), { code: 'E_DTYPE', message: /bitwiseNot: does not take f32/ });
    assert.throws(() => x.bitwiseAnd(x), { code: 'E_DTYPE', message: /bitwiseAnd: does not take f32/ });
    assert.throws(() => x.unique(0 as never), { code: 'E_ARGUMENT', message: /unique/ });
    assert.throws(() => x.polygamma(1.5), { code: 'E_ARGUMENT', message: /polygamma/ });
    assert.throws(() => x.roll(1, [0, 0]), { code: 'E_ARGUMENT', message: /roll: 1 shifts for 2 dimensions/ });
  });
}

test('typed arrays may be innermost rows, and a Buffer holds bytes; rows of two kinds are refused', () => {
  const x = tensor([Float64Array.of(1, 2), Float64Array.of(3, 4)]);
  assert.deepEqual([x.dtype, x.shape, x.toArray<number[][]>()[1].map((v) => v + 1)], ['f64', [2, 2], [4, 5]]);
  const whole = tensor([[BigInt64Array.of(1n)], [BigInt64Array.of(2n)]]);
  assert.deepEqual([whole.dtype, whole.shape, whole.toArray()], ['i64', [2, 1, 1], [[[1]], [[2]]]]);
  const bytes = tensor(Buffer.from([1, 255]));
  assert.deepEqual([bytes.dtype, bytes.toArray()], ['u8', [1, 255]]);
  assert.equal(tensor([Float32Array.of(1)], { dtype: 'f16' }).dtype, 'f16');
  assert.throws(
    () => tensor([Float32Array.of(1), Int32Array.of(1)]),
    /from: element \[1\] holds i32 where others hold f32/,
  );
  assert.throws(() => tensor([Float32Array.of(1), Float32Array.of(1, 2)]), /array \[1\] has 2 elements/);
  assert.throws(() => tensor([new Float32Array(1), 3]), /element \[1\] is a number where others are arrays/);
  assert.equal(tensor([new Int8Array(1)]).dtype, 'i8');
  assert.throws(() => tensor([new Uint16Array(1)] as never), /Uint16Array holds no dtype of ours/);
});
