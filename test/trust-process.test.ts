// What only a process of its own can show: refused threads, and the simulation in several threads at once.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { hostCompiler } from '../src/driver/host-cc.js';

const index = new URL('../src/index.js', import.meta.url).href;
const compiler = ((): string | false => {
  try {
    hostCompiler();
    return false;
  } catch (e) {
    return (e as Error).message;
  }
})();

test('threads that the system refuses are done without', { skip: compiler }, () => {
  const program = `
    import { Device, ones } from ${JSON.stringify(index)};
    const t = ones([1 << 22]);
    console.log(t.add(1).sum().item(), t.exp().shape[0], Device.cpu().backend.threads);`;
  // ulimit -u binds no root and counts all of a user's processes, and Node does not live without its own threads: those
  // of the engine, which begin in the C++ library, are refused from a number on.
  const refuse = `
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <pthread.h>
    #include <stdlib.h>
    #include <string.h>
    int pthread_create(pthread_t* t, const pthread_attr_t* a, void* (*f)(void*), void* x) {
      static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
      static int made;
      if (!real) real = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
      Dl_info at;
      const int ours = dladdr((void*)f, &at) && strstr(at.dli_fname, "libstdc++");
      return ours && ++made > atoi(getenv("MOST")) ? EAGAIN : real(t, a, f, x);
    }`;
  const dir = execFileSync('mktemp', ['-d'], { encoding: 'utf8' }).trim();
  try {
    execFileSync('cc', ['-shared', '-fPIC', '-o', `${dir}/refuse.so`, '-x', 'c', '-'], { input: refuse });
    for (const most of [0, 1, 5]) {
      const r = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
        encoding: 'utf8',
        env: { ...process.env, LD_PRELOAD: `${dir}/refuse.so`, MOST: String(most), WICK_THREADS: '32' },
      });
      assert.equal(r.status, 0, `${r.signal}: ${r.stderr}`);
      assert.equal(r.stdout.trim(), `${2 * 2 ** 22} ${2 ** 22} ${most + 1}`);
    }
  } finally {
    execFileSync('rm', ['-r', dir]);
  }
});

test('the simulation runs in four threads at once', { skip: compiler }, async () => {
  const program = `
    import { workerData, parentPort } from 'node:worker_threads';
    import { arange, Device, ones } from ${JSON.stringify(index)};
    const device = Device.get('sim:32');
    let wrong = 0;
    for (let i = 0; i < 60; i++) {
      const row = arange(0, 700, 1, { device }).mul(workerData / 700).softmax(0);
      if (Math.abs(row.sum().item() - 1) > 1e-5) wrong++;
      const sums = ones([33, 65], { device }).mul(workerData).sum([1]).toArray();
      if (sums.some((v) => v !== 65 * workerData)) wrong++;
    }
    parentPort.postMessage(wrong);`;
  const url = new URL(`data:text/javascript,${encodeURIComponent(program)}`);
  const wrong = await Promise.all(
    [1, 2, 3, 4].map(
      (workerData) =>
        new Promise<number>((done, failed) => {
          const worker = new Worker(url, { workerData });
          worker.on('message', done).on('error', failed);
        }),
    ),
  );
  assert.deepEqual(wrong, [0, 0, 0, 0]);
});

test("the CPU engine stays in memory to the end: its own threads may still run when JavaScript's end", (t) => {
  const program = `import { ones } from ${JSON.stringify(index)}; ones([1 << 20]).add(1);`;
  const r = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
    env: { ...process.env, WICK_CPU_ISA: '', LD_DEBUG: 'files' },
  });
  assert.equal(r.status, 0, String(r.signal));
  const told = r.stderr.split('\n').filter((line) => line.includes('libwick'));
  if (told.length === 0) return t.skip("this system's loader does not tell what it does");
  assert.ok(told.some((line) => line.includes('generating link map')));
  assert.deepEqual(
    told.filter((line) => line.includes('destroying link map')),
    [],
  );
});
