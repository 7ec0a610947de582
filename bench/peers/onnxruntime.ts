// A child of `npm run bench`: times onnxruntime-node on the nodes it is given as JSON and prints milliseconds by name.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { oneNode, type OneNode } from './onnx-model.js';

interface Session {
  run(feeds: Record<string, unknown>, fetches: Record<string, unknown>): Promise<unknown>;
}
interface Runtime {
  readonly InferenceSession: { create(model: Uint8Array, options: Record<string, unknown>): Promise<Session> };
  readonly Tensor: new (type: 'float32', data: Float32Array, dims: readonly number[]) => unknown;
}

const [folder, threads, work] = process.argv.slice(2);
const { InferenceSession, Tensor } = createRequire(join(folder, 'package.json'))('onnxruntime-node') as Runtime;

const size = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
const filled = (shape: readonly number[]): unknown =>
  new Tensor(
    'float32',
    Float32Array.from({ length: size(shape) }, (_, i) => Math.sin(i * 0.37) * 4),
    shape,
  );

async function time(node: OneNode): Promise<number> {
  const session = await InferenceSession.create(oneNode(node), {
    intraOpNumThreads: Number(threads),
    interOpNumThreads: 1,
    executionMode: 'sequential',
  });
  const feeds = Object.fromEntries(node.inputs.map((shape, i) => [`x${i}`, filled(shape)]));
  const fetches = { y: filled(node.output) };
  let best = Infinity;
  const end = performance.now() + 600;
  for (let i = 0; i < 5 || performance.now() < end; i++) {
    const start = performance.now();
    await session.run(feeds, fetches);
    best = Math.min(best, performance.now() - start);
  }
  return best;
}

const times: Record<string, number> = {};
for (const [name, node] of Object.entries(JSON.parse(work) as Record<string, OneNode>)) times[name] = await time(node);
console.log(JSON.stringify(times));
