// `npm run release:wasm`: the CPU engine as WebAssembly, placed where the main package takes it from (native/prebuilt).
import { copyFileSync, mkdirSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { buildWasm, wasmFolder } from '../src/backends/wasm-build.js';

const built = await buildWasm({ progress: process.stderr.fd });
rmSync(wasmFolder, { recursive: true, force: true });
mkdirSync(wasmFolder, { recursive: true });
const placed = join(wasmFolder, basename(built));
copyFileSync(built, placed);
console.log(`${placed}: ${(statSync(placed).size / 1e6).toFixed(1)} MB. It belongs into the main package.`);
