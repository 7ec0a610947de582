// The seam under a group of ranks: what NCCL and RCCL, MPI, sockets and threads each do in their own way.
import type { DType } from '../base/dtype.js';
import type { Tensor } from '../tensor/tensor.js';

/** What collectives make of everyone's elements. */
export const REDUCTIONS = ['sum', 'avg', 'prod', 'max', 'min'] as const;
/** What becomes of everyone's elements. */
export type Reduction = (typeof REDUCTIONS)[number];

/** Something that was begun. What it reads and writes must not be touched before `wait` has returned. */
export interface Work {
  /** Returns when the result may be used by ops enqueued from now on. */
  wait(): void;
}
export const DONE: Work = { wait: () => {} };

/**
 * Tensors given to it are contiguous, of equal shape and dtype on every rank, and all ranks make the same calls in the
 * same order. With `overlap` a call may go on beside what is enqueued after it, until its work is waited for.
 */
export interface Transport {
  /** 'nccl', 'mpi', 'socket', 'local' or 'alone'. */
  readonly name: string;
  /** This rank's number, from 0. */
  readonly rank: number;
  /** How many ranks there are. */
  readonly size: number;
  /** Whether it reduces this dtype as it is; others are widened to f32 first. */
  reduces(dtype: DType, op: Reduction): boolean;
  /** Begins to reduce everyone's src into dst on all ranks; `overlap` lets other work go on beside it. */
  allReduce(src: Tensor, dst: Tensor, op: Reduction, overlap: boolean): Work;
  /** src has `size` parts of dst's size, one after another. */
  reduceScatter(src: Tensor, dst: Tensor, op: Reduction, overlap: boolean): Work;
  /** dst has `size` parts of src's size, one after another. */
  allGather(src: Tensor, dst: Tensor, overlap: boolean): Work;
  /** Begins to write the root's values into x on all ranks. */
  broadcast(x: Tensor, root: number): Work;
  /** Begins to send x to a rank. */
  send(x: Tensor, to: number): Work;
  /** Begins to receive into x from a rank. */
  recv(x: Tensor, from: number): Work;
  /** Returns when every rank has called it. */
  barrier(): void;
  /** A transport of these ranks alone, in this order; called by all ranks of this one, each with the group it is in. */
  split(members: readonly number[], name: string): Transport;
  /** Ends it; what is under way fails. */
  close(): void;
}

/** 'rank 1 of 4': how errors begin. */
export const who = (t: { readonly rank: number; readonly size: number }): string => `rank ${t.rank} of ${t.size}`;
