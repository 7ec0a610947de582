// What is made of masks: things one by one, whose masks may lie over each other, and a picture of which each place
// belongs to one segment.
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Masks, MaskingModel } from './scene-model.js';

/** A thing in a picture and its own mask. */
export interface MaskedThing {
  /** The class's name. */
  readonly label: string;
  /** The class's number. */
  readonly id: number;
  /** From 0 to 1: how sure the model is. */
  readonly score: number;
  /** 255 where it is, 0 elsewhere, row by row. */
  readonly mask: Uint8Array;
}
/** A part of a picture that is one thing, or all there is of one class. */
export interface PanopticSegment {
  /** Its number in the map, from 1. */
  readonly number: number;
  /** The class's name. */
  readonly label: string;
  /** The class's number. */
  readonly id: number;
  /** From 0 to 1: how sure the model is. */
  readonly score: number;
}
/** A picture of which each place belongs to one segment, or to none. */
export interface Panoptic {
  /** Pixels in a row. */
  readonly width: number;
  /** Rows of pixels. */
  readonly height: number;
  /** The segment's number for each pixel, row by row; 0 where there is none. */
  readonly map: Uint16Array;
  /** What was found, in the order of the numbers in `map`. */
  readonly segments: readonly PanopticSegment[];
}

const flat = (t: Tensor): number[] => t.cast('f32').reshape([-1]).toArray() as number[];

/** Of one picture, the things that are likelier than `threshold`, the likeliest first. */
export function thingsOf(
  model: MaskingModel,
  made: Masks,
  [height, width]: readonly [number, number],
  threshold: number,
): MaskedThing[] {
  const classes = model.labels.length;
  const [, questions] = made.classes.shape;
  const shares = flat(made.classes.cast('f32').softmax(-1).narrow(2, 0, classes).contiguous());
  const likeliest = shares
    .map((share, i) => ({ share, question: Math.floor(i / classes), id: i % classes }))
    .sort((a, b) => b.share - a.share)
    .slice(0, questions);
  const masks = model.sized(made).cast('f32').squeeze(0);
  const area = masks.shape[1] * masks.shape[2];
  const open = masks.gt(0).cast('f32').reshape([questions, area]);
  // The mean of what a mask shows, where it shows something.
  const sure = flat(masks.sigmoid().reshape([questions, area]).mul(open).sum(1).div(open.sum(1).affine(1, 1e-6)));
  const things: MaskedThing[] = [];
  for (const { share, question, id } of likeliest) {
    const score = share * sure[question];
    if (!(score >= threshold)) continue;
    scope(() => {
      const own = open.narrow(0, question, 1).reshape([1, 1, masks.shape[1], masks.shape[2]]);
      const mask = Uint8Array.from(flat(own.interpolate({ size: [height, width], mode: 'nearest' })), (v) => 255 * v);
      if (mask.includes(255)) things.push({ label: model.labels[id], id, score, mask });
    });
  }
  return things.sort((a, b) => b.score - a.score);
}

export interface PanopticRules {
  /** Classes less likely than this are left out. */
  readonly threshold: number;
  /** A place of a mask counts from this on. */
  readonly maskThreshold: number;
  /** Of its own mask a segment keeps more than this share, or goes. */
  readonly overlap: number;
  /** Classes of which all there is becomes one segment. */
  readonly fuse: ReadonlySet<number>;
}
/** One segment for each place of one picture: that whose mask, by how likely its class is, shows it best. */
export function panopticOf(
  model: MaskingModel,
  made: Masks,
  [height, width]: readonly [number, number],
  rules: PanopticRules,
): Panoptic {
  const none = model.labels.length;
  const shares = made.classes.cast('f32').softmax(-1).squeeze(0);
  const [scores, ids] = [flat(shares.max(-1)), flat(shares.argmax(-1))];
  const kept = ids.flatMap((id, i) => (id !== none && scores[i] > rules.threshold ? [i] : []));
  const map = new Uint16Array(height * width);
  if (kept.length === 0) return { width, height, map, segments: [] };
  const all = model.sized(made).cast('f32').sigmoid();
  const own = kept.map((i) => all.narrow(1, i, 1));
  const resized = own[0].cat(own.slice(1), 1).interpolate({ size: [height, width], mode: 'bilinear' });
  const weighed = kept.map((i, k) => resized.narrow(1, k, 1).affine(scores[i], 0));
  const masks = weighed[0].cat(weighed.slice(1), 1);
  const winners = Uint16Array.from(flat(masks.argmax(1)));
  const whole = flat(masks.ge(rules.maskThreshold).cast('f32').sum([2, 3]));
  const areas = new Float64Array(kept.length);
  for (const k of winners) areas[k]++;
  const segments: PanopticSegment[] = [];
  const fused = new Map<number, number>();
  const numbers = kept.map((i, k) => {
    if (!(areas[k] > 0 && whole[k] > 0 && Math.fround(areas[k] / whole[k]) > rules.overlap)) return 0;
    const id = ids[i];
    const known = fused.get(id);
    if (known !== undefined) return known;
    const number = segments.length + 1;
    segments.push({ number, label: model.labels[id], id, score: scores[i] });
    if (rules.fuse.has(id)) fused.set(id, number);
    return number;
  });
  winners.forEach((k, i) => {
    map[i] = numbers[k];
  });
  return { width, height, map, segments };
}
