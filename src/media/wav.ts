// Sounds from WAV files, as samples; files that are cut off are refused.
import { FormatError } from '../base/errors.js';

/** A sound of one channel. */
export interface Sound {
  /** Between -1 and 1. */
  readonly samples: Float32Array;
  readonly rate: number;
}

/** How a sample is stored, by format tag and bits. */
const SAMPLES: Readonly<Record<string, (view: DataView, at: number) => number>> = {
  '1/8': (v, at) => (v.getUint8(at) - 128) / 128,
  '1/16': (v, at) => v.getInt16(at, true) / 32768,
  '1/24': (v, at) => (v.getUint8(at) | (v.getUint8(at + 1) << 8) | (v.getInt8(at + 2) << 16)) / 8388608,
  '1/32': (v, at) => v.getInt32(at, true) / 2147483648,
  '3/32': (v, at) => v.getFloat32(at, true),
  '3/64': (v, at) => v.getFloat64(at, true),
};

/** What programs write that do not know how long a sound will be: it goes on to the file's end. */
const UNKNOWN = 0x7ff00000;
/** A RIFF WAVE file; channels are averaged. */
export function readWav(bytes: Uint8Array): Sound {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tag = (at: number): string => Buffer.from(bytes.subarray(at, at + 4)).toString('latin1');
  if (bytes.length < 12 || tag(0) !== 'RIFF' || tag(8) !== 'WAVE')
    throw new FormatError('WAV: it does not begin with RIFF ... WAVE');
  let format: { kind: string; channels: number; rate: number; width: number } | undefined;
  for (let at = 12; at + 8 <= bytes.length; ) {
    const size = view.getUint32(at + 4, true);
    const body = at + 8;
    if (tag(at) === 'fmt ') {
      if (size < 16 || body + size > bytes.length) throw new FormatError(`WAV: the format at byte ${at} is cut off`);
      const code = view.getUint16(body, true);
      const bits = view.getUint16(body + 14, true);
      // The extensible form names the real one inside.
      const real = code === 0xfffe && size >= 26 ? view.getUint16(body + 24, true) : code;
      format = {
        kind: `${real}/${bits}`,
        channels: view.getUint16(body + 2, true),
        rate: view.getUint32(body + 4, true),
        width: bits / 8,
      };
      if (format.rate === 0) throw new FormatError('WAV: its rate is 0 samples a second');
      if (!Object.hasOwn(SAMPLES, format.kind) || format.channels === 0)
        throw new FormatError(
          `WAV: samples of format ${real} with ${bits} bits are not read; PCM of 8 to 32 bits and floats are`,
        );
    } else if (tag(at) === 'data') {
      if (!format) throw new FormatError('WAV: the samples come before their format');
      const { kind, channels, rate, width } = format;
      const end = Math.min(body + size, bytes.length);
      if (end < body + size && size < UNKNOWN)
        throw new FormatError(`WAV: the file is cut off: of ${size} bytes of samples there are ${end - body}`);
      const count = Math.floor((end - body) / (channels * width));
      const read = SAMPLES[kind];
      const samples = new Float32Array(count);
      for (let i = 0; i < count; i++) {
        let sum = 0;
        for (let c = 0; c < channels; c++) sum += read(view, body + (i * channels + c) * width);
        samples[i] = sum / channels;
      }
      return { samples, rate };
    }
    at = body + size + (size % 2);
  }
  throw new FormatError('WAV: there are no samples in it');
}
