// Watches memory accesses of a checked launch: races between waves and groups, LDS never written, misaligned accesses.
import { ACCESS } from './layout.js';

/** Something wrong that a checked launch saw: a race, an unwritten word, a bad address. */
export interface Finding {
  /** The kernel. */
  readonly kernel: string;
  /** What was seen, in a sentence. */
  readonly what: string;
  /** The instruction that did it. */
  readonly instruction?: string;
  /** Its offset in the image. */
  readonly at?: number;
  /** 'softmax:81: "red[lane] = x;"', where the code object has line tables. */
  readonly source?: string;
  /** The work-group, [x, y, z]. */
  group?: number[];
  /** The work-item in its group, [x, y, z]. */
  item?: number[];
}
export interface Access {
  readonly site: number;
  readonly lane: number;
  readonly w: number;
  readonly wave: number;
  text(site: number): string;
}
type Note = (f: { what: string; w: number; site?: number; lane?: number }) => void;

/** The last write and the reads since, each with the time it happened. */
interface Touch {
  writer: number;
  wrote: number;
  atomic: boolean;
  writeSite: number;
  reader: number;
  read: number;
  otherReader: number;
  readSite: number;
}

export class AccessChecker {
  private readonly lds: number;
  private readonly note: Note;
  private readonly written: Uint8Array;
  private readonly ldsWords = new Map<number, Touch>();
  private readonly globalWords = new Map<number, Touch>();
  /** Accesses are numbered; a barrier orders all before it, within the group. */
  private time = 0;
  private barrierAt = 0;
  private group = 0;
  /** When each group last did a global atomic: what passes data between groups. */
  private readonly atomicAt = new Map<number, number>();

  constructor(lds: number, ldsBytes: number, note: Note) {
    this.lds = lds;
    this.note = note;
    this.written = new Uint8Array(ldsBytes);
  }
  startGroup(group: number, _waves: number): void {
    this.group = group;
    this.barrierAt = this.time;
    this.written.fill(0);
    this.ldsWords.clear();
  }
  /** Everything before a barrier is ordered before everything after it, within the group. */
  barrier(check: () => void): void {
    check();
    this.barrierAt = this.time;
    this.ldsWords.clear();
  }

  access(kind: number, at: number, bytes: number, a: Access): void {
    const lds = kind <= ACCESS.LDS_ATOMIC || (at >= this.lds && at < this.lds + this.written.length);
    const write = kind === ACCESS.LDS_WRITE || kind === ACCESS.WRITE;
    const atomic = kind === ACCESS.LDS_ATOMIC || kind === ACCESS.ATOMIC;
    // Compilers join two halves in LDS into one word, whose address the hardware does not mind.
    const align = Math.min(bytes & -bytes, lds ? 2 : 4);
    if (at % align !== 0)
      this.note({
        what: `misaligned: ${bytes} bytes at an address that is not a multiple of ${align}`,
        w: a.w,
        site: a.site,
        lane: a.lane,
      });
    if (lds) {
      const from = at - this.lds;
      if (!write) {
        for (let k = 0; k < bytes; k++) {
          if (!this.written[from + k]) {
            this.note({
              what: `uninitialised LDS: byte ${from + k} was never written`,
              w: a.w,
              site: a.site,
              lane: a.lane,
            });
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

  private touch(
    words: Map<number, Touch>,
    key: number,
    lds: boolean,
    write: boolean,
    atomic: boolean,
    a: Access,
  ): void {
    const who = lds ? a.wave : this.group * 64 + a.wave;
    const now = ++this.time;
    if (atomic && !lds) this.atomicAt.set(this.group, now);
    let t = words.get(key);
    if (!t)
      words.set(
        key,
        (t = { writer: -1, wrote: 0, atomic: false, writeSite: 0, reader: -1, read: 0, otherReader: -1, readSite: 0 }),
      );
    const changes = write || atomic;
    if (!this.ordered(t.writer, t.wrote, who, lds) && !(atomic && t.atomic)) this.race(lds, a, t.writeSite);
    else if (
      changes &&
      !(atomic && t.atomic) &&
      (!this.ordered(t.reader, t.read, who, lds) || !this.ordered(t.otherReader, t.read, who, lds))
    )
      this.race(lds, a, t.readSite);
    if (changes) Object.assign(t, { writer: who, wrote: now, atomic, writeSite: a.site, reader: -1, otherReader: -1 });
    else {
      // Two readers are enough: whoever writes next clashes with one of them.
      if (t.reader >= 0 && t.reader !== who) t.otherReader = t.reader;
      Object.assign(t, { reader: who, read: now, readSite: a.site });
    }
  }
  private race(lds: boolean, a: Access, other: number): void {
    this.note({
      what:
        `race: ${lds ? 'LDS' : 'global'} word also touched by another wave with no barrier or atomic between ` +
        `("${a.text(other)})`,
      w: a.w,
      site: a.site,
      lane: a.lane,
    });
  }

  /** Whether an earlier access by `other` is ordered before one by `who` now. */
  private ordered(other: number, then: number, who: number, lds: boolean): boolean {
    if (other < 0 || other === who) return true;
    const group = Math.floor(other / 64);
    if (lds || group === this.group) return then <= this.barrierAt;
    // Groups hand data over by atomics: one after the access, one before this.
    return (this.atomicAt.get(group) ?? 0) > then && (this.atomicAt.get(this.group) ?? 0) > then;
  }
}
