// A worker thread of the encoder pool: takes a piece, answers its blocks or what was wrong with it.
import { parentPort } from 'node:worker_threads';
import { encodePiece, type Piece } from './encode-rows.js';

parentPort?.on('message', (piece: Piece) => {
  try {
    const made = encodePiece(piece);
    parentPort?.postMessage(made, [made.bytes.buffer as ArrayBuffer]);
  } catch (error) {
    parentPort?.postMessage({ error: (error as Error).message });
  }
});
