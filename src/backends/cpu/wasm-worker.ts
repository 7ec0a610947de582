// A worker thread of the CPU engine as WebAssembly.
import { workerData } from 'node:worker_threads';
import { serve, type WorkerParts } from './wasm-engine.js';

serve(workerData as WorkerParts);
