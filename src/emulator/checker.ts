// Watches memory accesses of a checked launch: races between waves and groups, LDS never written, misaligned accesses.
import { ACCESS } from './layout.js';

export interface Finding {
  readonly kernel: string;
  readonly what: string;
  readonly instruction?: string;
  readonly at?: number;
  group?: number[];
  item?: number[];
}
export interface Access { readonly site: number; readonly lane: number; readonly w: number; readonly wave: number; text(site: number): string }
type Note = (f: { what: string; w: number; site?: number; lane?: number }) => void;

/** Who touched a word last, since the last barrier (LDS) or in the launch (global). */
interface Touch { writer: number; writeAtomic: boolean; reader: number; site: number; epoch: number }

export class AccessChecker {
  private readonly lds: number;
  private readonly note: Note;
  private readonly written: Uint8Array;
  private readonly ldsWords = new Map<number, Touch>();
  private readonly globalWords = new Map<number, Touch>();
  private epoch = 0;
  private group = 0;

  constructor(lds: number, ldsBytes: number, note: Note) {
    this.lds = lds;
    this.note = note;
    this.written = new Uint8Array(ldsBytes);
  }
  startGroup(group: number, _waves: number): void {
    this.group = group;
    this.epoch++;
    this.written.fill(0);
    this.ldsWords.clear();
  }
  /** Everything before a barrier is ordered before everything after it, within the group. */
  barrier(check: () => void): void {
    check();
    this.epoch++;
    this.ldsWords.clear();
  }

  access(kind: number, at: number, bytes: number, a: Access): void {
    const lds = kind <= ACCESS.LDS_ATOMIC || (at >= this.lds && at < this.lds + this.written.length);
    const write = kind === ACCESS.LDS_WRITE || kind === ACCESS.WRITE;
    const atomic = kind === ACCESS.LDS_ATOMIC || kind === ACCESS.ATOMIC;
    const align = Math.min(bytes & -bytes, 4);
    if (at % align !== 0) this.note({ what: `misaligned: ${bytes} bytes at an address that is no multiple of ${align}`, w: a.w, site: a.site, lane: a.lane });
    if (lds) {
      const from = at - this.lds;
      if (!write) {
        for (let k = 0; k < bytes; k++) {
          if (!this.written[from + k]) {
            this.note({ what: `uninitialised LDS: byte ${from + k} was never written`, w: a.w, site: a.site, lane: a.lane });
            break;
          }
        }
      }
      if (write || atomic) this.written.fill(1, from, from + bytes);
    }
    const words = lds ? this.ldsWords : this.globalWords;
    // Sub-word accesses are followed per byte group, so that neighbours in a word do not count as races.
    const unit = bytes < 4 ? bytes : 4;
    for (let p = at; p < at + bytes; p += unit) this.touch(words, bytes < 4 ? p + unit / 8 : p, lds, write, atomic, a);
  }

  private touch(words: Map<number, Touch>, key: number, lds: boolean, write: boolean, atomic: boolean, a: Access): void {
    // Waves of different groups are never ordered; those of one group are, by barriers.
    const who = lds ? a.wave : this.group * 64 + a.wave;
    const t = words.get(key);
    if (!t) {
      words.set(key, { writer: write || atomic ? who : -1, writeAtomic: atomic, reader: write || atomic ? -1 : who, site: a.site, epoch: this.epoch });
      return;
    }
    const ordered = (other: number): boolean => other < 0 || other === who || (!lds && Math.floor(other / 64) === this.group && t.epoch !== this.epoch);
    const clash = (!ordered(t.writer) && !(atomic && t.writeAtomic)) || ((write || atomic) && !ordered(t.reader) && !(atomic && t.reader === -1));
    if (clash) {
      this.note({ what: `race: ${lds ? 'LDS' : 'global'} word also touched by another wave with no barrier or atomic between ("${a.text(t.site)}")`, w: a.w, site: a.site, lane: a.lane });
    }
    if (t.epoch !== this.epoch && (lds || Math.floor(Math.max(t.writer, t.reader) / 64) === this.group)) {
      t.reader = -1;
    }
    if (write || atomic) {
      t.writer = who;
      t.writeAtomic = atomic;
    } else t.reader = t.reader >= 0 && t.reader !== who ? t.reader : who;
    t.site = a.site;
    t.epoch = this.epoch;
  }
}
