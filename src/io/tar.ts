// Tar archives, as far as PyTorch's first file format needs them: members by name, checked headers.
import type { Budget } from './limits.js';
import { badFormat, readBytes, windowOf, type ByteSource } from './byte-source.js';

const BLOCK = 512;
const MAX_MEMBERS = 100_000;

const field = (head: Uint8Array, at: number, length: number): string =>
  Buffer.from(head.subarray(at, at + length))
    .toString('latin1')
    .replace(/\0.*$/s, '')
    .trim();

export function isTar(source: ByteSource): boolean {
  return source.size >= BLOCK && checksumHolds(readBytes(source, 0, BLOCK));
}

function checksumHolds(head: Uint8Array): boolean {
  const stated = field(head, 148, 8);
  if (!/^[0-7]{1,7}$/.test(stated)) return false;
  // The checksum counts its own field as spaces.
  const sum = head.reduce((n, b, i) => n + (i >= 148 && i < 156 ? 32 : b), 0);
  return sum === parseInt(stated, 8);
}

/** Bytes that a member's name and window take. */
const MEMBER = 600;

export function readTar(source: ByteSource, budget: Budget): Map<string, ByteSource> {
  const members = new Map<string, ByteSource>();
  for (let at = 0; at + BLOCK <= source.size; ) {
    budget.memory(MEMBER, at);
    budget.work(BLOCK, at);
    const head = readBytes(source, at, BLOCK);
    if (head.every((b) => b === 0)) break;
    if (!checksumHolds(head)) throw badFormat(source.name, at, 'tar header: its checksum is wrong');
    const name = field(head, 0, 100).replace(/^\.\//, '');
    const digits = field(head, 124, 12);
    if (!/^[0-7]{1,12}$/.test(digits))
      throw badFormat(source.name, at + 124, 'tar header: the size is not an octal number');
    const size = parseInt(digits, 8);
    const isFile = head[156] === 0 || head[156] === 0x30;
    const member = windowOf(source, `${source.name}: ${name}`, at + BLOCK, size);
    if (isFile && members.has(name))
      throw badFormat(source.name, at, `tar member ${JSON.stringify(name)} is there twice`);
    if (isFile) members.set(name, member);
    if (members.size > MAX_MEMBERS) throw badFormat(source.name, at, `more than ${MAX_MEMBERS} tar members`);
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
  return members;
}
