// Ranks that work together: the same functions (distributed-ranks.ts) run by threads, by processes over sockets and by
// mpirun; launchers' environments; ranks that die, come late or do something else.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { placeFromEnvironment, runLocal } from '../src/distributed/index.js';
import { FrameReader } from '../src/distributed/frames.js';
import { ncclVersion } from '../src/driver/nccl.js';
import { firstHost } from '../src/distributed/launcher.js';
import { answersOf, byHand, byMpi, programArgs, skipMpi } from './distributed-support.js';

const ranks = new URL('./distributed-ranks.js', import.meta.url);
type Start = (size: number, name: string) => Promise<unknown[]>;
const WAYS: Readonly<
  Record<string, { readonly start: Start; readonly sizes: readonly number[]; readonly skip: string | false }>
> = {
  local: { start: (size, name) => runLocal(size, ranks, name), sizes: [1, 2, 4], skip: false },
  socket: {
    start: async (size, name) => answersOf(...(await byHand(size, programArgs(name)))),
    sizes: [2],
    skip: false,
  },
  mpi: { start: async (size, name) => answersOf(await byMpi(size, programArgs(name))), sizes: [2, 4], skip: skipMpi },
};

interface Everything {
  readonly collectives: string[];
  readonly gradients: number[][];
  readonly groups: number[][];
}
for (const [way, { start, sizes, skip }] of Object.entries(WAYS))
  for (const size of sizes)
    test(`${way}, ${size} ranks: collectives on every dtype, gradients of the sum of all losses, groups`, {
      skip,
    }, async () => {
      const answers = (await start(size, 'everything')) as Everything[];
      assert.equal(answers.length, size);
      const all = Array.from({ length: size }, (_, r) => r);
      const weights = [0, 1].map((k) => all.reduce((s, r) => s + (k === 0 ? r + 1 : 2 * r + 1), 0));
      answers.forEach(({ collectives, gradients, groups }, r) => {
        assert.deepEqual(collectives, [way, `rank ${r} of ${size} over ${way}`]);
        const [sum, mean, gathered, scattered, sent] = gradients;
        assert.deepEqual(sum, weights);
        assert.deepEqual(
          mean,
          weights.map((w) => w / size),
        );
        assert.deepEqual(gathered, [all.reduce((s, i) => s + (i + 1) * (r + 1), 0)]);
        assert.deepEqual(
          scattered,
          all.map((i) => i + 1),
        );
        assert.deepEqual(sent, r === size - 1 ? weights : [0, 0]);
        const [total, place, both, inner] = groups;
        const like = all.filter((i) => i % 2 === r % 2);
        assert.deepEqual(total, [like.reduce((a, b) => a + b)]);
        assert.deepEqual(place, [like.indexOf(r), like.length]);
        assert.deepEqual(both, r === 0 || r === size - 1 ? [...new Set([0, size - 1])] : []);
        assert.deepEqual(inner, [like.length]);
      });
    });

test('what cannot be done is refused by name', async () => {
  for (const said of (await runLocal(2, ranks, 'refusals')) as string[][])
    [
      /allReduce: truth values have no sum/,
      /allReduce: integers have no avg; i32/,
      /reduceScatter: dimension 0 of \[3\] does not divide among 2 ranks/,
      /send: there is no rank 2; they are 0 to 1/,
      /"mean" is not a reduction; there are sum, avg, prod, max, min/,
      /allGather: there is no dimension 1/,
    ].forEach((rule, i) => assert.match(said[i], rule));
});
test('ranks that call different things are told which', async () => {
  for (const said of await runLocal(3, ranks, 'misuse'))
    assert.match(String(said), /calls allReduce sum of f32 \[2\], rank \d calls allReduce sum of f32 \[3\]/);
});
test('a rank that does not come is named when the time is over', async () => {
  const told = new Int32Array(new SharedArrayBuffer(4));
  const [said] = await runLocal(2, ranks, 'late', { data: told, timeoutMs: 300 });
  assert.equal(said, 'rank 0 of 2: rank 1 did not call barrier within 0.3 s');
});
test('a thread that throws ends the others', async () => {
  await assert.rejects(runLocal(2, ranks, 'die', { data: 'throws' }), /rank 1 has had enough/);
});

const ENDS = {
  killed: /rank 1 has gone: its process ended/,
  throws: /rank 1 ended with exit code 1/,
  exits: /rank 1 ended with exit code 3/,
};
for (const [how, sentence] of Object.entries(ENDS))
  test(`a rank that ${how} ends the others with a sentence`, async () => {
    const ends = await byHand(3, programArgs('die', { data: how.replace('is ', '') }));
    for (const r of [0, 2]) {
      assert.notEqual(ends[r].code, 0, `rank ${r} went on: ${ends[r].out}`);
      assert.match(ends[r].err, new RegExp(`wick: rank ${r} of 3 ends: ${sentence.source}`));
    }
  });
test('a killed rank under mpirun ends the run', { skip: skipMpi }, async () => {
  const end = await byMpi(3, programArgs('die', { data: 'killed' }));
  assert.notEqual(end.code, 0);
  assert.doesNotMatch(end.out, /went on/);
  assert.match(end.err, /rank 1/);
});
test('ranks that cannot meet say who is missing', async () => {
  const [first] = await byHand(1, programArgs('collectives', { options: { meetMs: 400 } }), { WORLD_SIZE: '3' });
  assert.match(first.err, /DistributedError.*rank 0 of 3: rank 1, 2 did not come to 127\.0\.0\.1:\d+ within 0\.4 s/);
});

function withEnvironment<T>(set: Record<string, string>, f: () => T): T {
  const before = { ...process.env };
  for (const name of ['RANK', 'WORLD_SIZE', 'OMPI_COMM_WORLD_RANK', 'SLURM_STEP_ID', 'PMI_RANK'])
    delete process.env[name];
  Object.assign(process.env, set);
  try {
    return f();
  } finally {
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
    Object.assign(process.env, before);
  }
}
test('launchers: each is known by its environment', () => {
  const place = (set: Record<string, string>) => withEnvironment(set, placeFromEnvironment);
  assert.equal(place({}), undefined);
  const torchrun = {
    RANK: '5',
    WORLD_SIZE: '8',
    LOCAL_RANK: '1',
    LOCAL_WORLD_SIZE: '4',
    MASTER_ADDR: 'a',
    MASTER_PORT: '5000',
  };
  assert.deepEqual(place(torchrun), {
    ...{ launcher: 'torchrun', rank: 5, size: 8, localRank: 1, localSize: 4 },
    address: { host: 'a', port: 5000 },
  });
  assert.equal(
    place({ ...torchrun, TORCHELASTIC_USE_AGENT_STORE: 'True' })?.address?.port,
    5001,
    "the agent's own port",
  );
  const slurm = {
    SLURM_PROCID: '3',
    SLURM_NTASKS: '4',
    SLURM_LOCALID: '1',
    SLURM_JOB_ID: '7',
    SLURM_JOB_NODELIST: 'n[03-04]',
  };
  assert.equal(place(slurm), undefined, "a job's script is not one of its tasks");
  assert.deepEqual(place({ ...slurm, SLURM_STEP_ID: '0' }), {
    ...{ launcher: 'Slurm', rank: 3, size: 4, localRank: 1, localSize: 4 },
    address: { host: 'n03', port: 20007 },
  });
  const ompi = {
    OMPI_COMM_WORLD_RANK: '1',
    OMPI_COMM_WORLD_SIZE: '2',
    OMPI_COMM_WORLD_LOCAL_RANK: '1',
    OMPI_COMM_WORLD_LOCAL_SIZE: '2',
  };
  assert.deepEqual(place(ompi), { launcher: 'OpenMPI', rank: 1, size: 2, localRank: 1, localSize: 2 });
  assert.equal(place({ PMI_RANK: '0', PMI_SIZE: '2' })?.launcher, 'MPICH');
  assert.throws(() => place({ RANK: '2', WORLD_SIZE: '2' }), /RANK is 2 of 2/);
  assert.throws(() => place({ RANK: 'x', WORLD_SIZE: '2' }), /RANK is "x"; it must be a whole number from 0/);
  assert.throws(() => place({ RANK: '0' }), /RANK is 0, but WORLD_SIZE are not set/);
  for (const [names, first] of [
    ['node07', 'node07'],
    ['n[1,4-5],m', 'n1'],
    ['a,b', 'a'],
  ])
    assert.equal(firstHost(names), first);
});
test(
  'NCCL on simulated GPUs with a stand-in of the library: collectives, overlap, a recorded step, ' + 'groups',
  async () => {
    const names = await runLocal(2, ranks, 'ncclStandInRun', { data: 'NCCL' });
    assert.deepEqual(names, ['NCCL 2.21.5', 'NCCL 2.21.5']);
  },
);
test(
  'NCCL: a process that ends without having closed its group ends the library for it, without the ' + 'others',
  async () => {
    await runLocal(2, ranks, 'ncclAbandoned');
  },
);
test("the library's versions read as people write them", () => {
  assert.deepEqual([22803, 22105, 2804].map(ncclVersion), ['2.28.3', '2.21.5', '2.8.4']);
});
test('bytes of strangers are not messages', () => {
  const reader = new FrameReader(() => assert.fail('took it for one'));
  assert.throws(() => reader.push(Buffer.from('GET / HTTP/1.1\r\n\r\n')), /is none of wick's/);
});
