// Signals put together again from the spectra of their windows: what stft takes apart.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { requireOptions, requireWhole } from '../ops/kernel-row.js';
import type { StftOptions } from '../ops/spectral.js';
import { Tensor } from './tensor.js';

/** Options of istft: those that the spectra were made with. */
export interface IstftOptions extends Omit<StftOptions, 'padMode'> {
  /** Elements of the signal; default as many as the frames are sure of. */
  readonly length?: number;
}
/** What windows must add up to everywhere: less is lost, and cannot be divided by. */
const LEAST = 1e-11;

/** Frames (batch, nFft, frames) added up where they overlap: (batch, elements). */
const overlapped = (frames: Tensor, nFft: number, hop: number): Tensor =>
  frames.fold([(frames.dim(2) - 1) * hop + nFft], [nFft], { stride: [hop] }).squeeze(1);

/**
 * The signals, (elements) or (batch, elements), of spectra (..., frequencies, frames) as `x.stft(nFft, options)` gives
 * them; where windows overlap, their sum is divided by that of the squared windows.
 *
 * ```ts
 * const [re, im] = x.stft(400, { window });
 * const again = istft(re, im, 400, { window, length: x.dim(-1) });
 * ```
 */
export function istft(re: Tensor, im: Tensor, nFft: number, options: IstftOptions = {}): Tensor {
  requireOptions('istft', options, ['hop', 'window', 'center', 'normalized', 'onesided', 'length']);
  if (!(re instanceof Tensor) || !(im instanceof Tensor))
    throw new ArgumentError('istft: takes the real and the imaginary part, as x.stft(nFft) gives them, then nFft');
  requireWhole('istft', 'length of frames', [nFft], 1);
  const { hop = Math.max(1, Math.floor(nFft / 4)), window, center = true, onesided = true, length } = options;
  requireWhole('istft', 'hop', [hop], 1);
  if (length !== undefined) requireWhole('istft', 'length', [length], 1);
  const half = Math.floor(nFft / 2) + 1;
  const rows = onesided ? half : nFft;
  if ((re.rank !== 2 && re.rank !== 3) || re.dim(-2) !== rows || !sameShape(re.shape, im.shape))
    throw new ShapeError(
      `istft: spectra ${formatShape(re.shape)} and ${formatShape(im.shape)} are not both (..., ${rows}, frames), as ` +
        `frames of ${nFft} have with onesided ${onesided}`,
    );
  if (window && (window.rank !== 1 || window.size > nFft))
    throw new ShapeError(`istft: the window ${formatShape(window.shape)} must be a vector of at most ${nFft}`);

  const norm = options.normalized ? 'ortho' : 'backward';
  // The second half of a whole spectrum is the mirror image of the first.
  const [a, b] = [re, im].map((t) => (t.rank === 2 ? t.unsqueeze(0) : t).narrow(1, 0, half).transpose(1, 2));
  const frames = a.irfft(b, { n: nFft, norm });
  const before = window ? Math.floor((nFft - window.size) / 2) : 0;
  const weights = window ? window.cast(re.dtype).pad([before, nFft - window.size - before]) : frames.newFull([nFft], 1);
  const sum = overlapped(frames.mul(weights).transpose(1, 2), nFft, hop);
  const squares = weights
    .sqr()
    .reshape([1, nFft, 1])
    .broadcastTo([1, nFft, re.dim(-1)]);
  const all = overlapped(squares, nFft, hop);

  const start = center ? Math.floor(nFft / 2) : 0;
  const most = sum.dim(1) - start;
  const wanted = length === undefined ? most - start : Math.min(length, most);
  if (wanted < 1) throw new ShapeError(`istft: ${re.dim(-1)} frames of ${nFft} hold nothing but their ends`);
  const share = all.narrow(1, start, wanted);
  const { name } = re.device;
  if ((name === 'cpu' || name === 'reference') && share.min().item() < LEAST)
    throw new ArgumentError('istft: windows do not add up to anything somewhere; a smaller hop or another window does');
  const signal = sum.narrow(1, start, wanted).div(share);
  const whole = length !== undefined && length > wanted ? signal.pad([0, length - wanted]) : signal;
  return re.rank === 2 ? whole.squeeze(0) : whole;
}
