// A kernel's text as one platform's compiler sees it: conditions that the platform alone decides are decided, all
// others stay.

export const PLATFORMS = ['nvidia', 'amd', 'host'] as const;
export type Platform = (typeof PLATFORMS)[number];

/** The platform that a device's kernels are compiled for; undefined where it runs none. */
export function platformOf(device: string): Platform | undefined {
  const kinds: Readonly<Record<string, Platform>> = {
    cuda: 'nvidia',
    rocm: 'amd',
    emu: 'amd',
    dry: 'amd',
    sim: 'host',
  };
  const kind = device.split(':')[0];
  return Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
}

/** Macros that are defined on one platform alone; those with `always` are defined there whatever the target. */
const MACROS: readonly { readonly pattern: RegExp; readonly platform: Platform; readonly always?: true }[] = [
  { pattern: /^(WICK_NVIDIA|__CUDACC_RTC__)$/, platform: 'nvidia', always: true },
  { pattern: /^(WICK_AMD|__HIP__|__HIPCC_RTC__|__AMDGCN__|__clang__)$/, platform: 'amd', always: true },
  { pattern: /^(WICK_HOST|WICK_SIM)$/, platform: 'host', always: true },
  { pattern: /^(MATRIX_MMA|__CUDA.*)$/, platform: 'nvidia' },
  { pattern: /^(MATRIX_MFMA|MATRIX_WMMA|__gfx\w+__)$/, platform: 'amd' },
];

type Maybe = boolean | undefined;
function isDefined(name: string, platform: Platform): Maybe {
  const row = MACROS.find((m) => m.pattern.test(name));
  if (!row) return undefined;
  return row.platform === platform ? row.always : false;
}

/** A condition's value where the platform decides it. */
function decide(condition: string, platform: Platform): Maybe {
  const tokens = condition.match(/\w+|&&|\|\||[!<>=]=|\S/g) ?? [];
  let at = 0;
  const any = (): Maybe => {
    let v = all();
    for (; tokens[at] === '||'; v = either(v, all())) at++;
    return v;
  };
  const all = (): Maybe => {
    let v = term();
    for (; tokens[at] === '&&'; v = both(v, term())) at++;
    return v;
  };
  const term = (): Maybe => {
    if (tokens[at] === '!') {
      at++;
      const v = term();
      return v === undefined ? undefined : !v;
    }
    if (tokens[at] === '(') {
      at++;
      const v = any();
      at++;
      return v;
    }
    if (tokens[at] === 'defined') {
      const name = tokens[at + 1] === '(' ? tokens[at + 2] : tokens[at + 1];
      at += tokens[at + 1] === '(' ? 4 : 2;
      return isDefined(name, platform);
    }
    // A comparison or a call: nothing is known of it.
    for (let depth = 0; at < tokens.length && (depth > 0 || !['&&', '||', ')'].includes(tokens[at])); at++)
      depth += tokens[at] === '(' ? 1 : tokens[at] === ')' ? -1 : 0;
    return undefined;
  };
  const both = (a: Maybe, b: Maybe): Maybe => (a === false || b === false ? false : a && b);
  const either = (a: Maybe, b: Maybe): Maybe =>
    a === true || b === true ? true : a === false ? b : b === false ? a : undefined;
  return any();
}

interface Chain {
  /** Whether lines of the present branch stay. */
  keep: boolean;
  /** An earlier branch was certain: the rest cannot be reached. */
  closed: boolean;
  /** Some branch depends on more than the platform, so the directives stay. */
  open: boolean;
}

export function forPlatform(text: string, platform: Platform): string {
  const out: string[] = [];
  const chains: Chain[] = [];
  const kept = (): boolean => chains.every((c) => c.keep);
  for (const line of text.replace(/\\\n/g, ' ').split('\n')) {
    const [, word, rest] = /^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)$/.exec(line) ?? [];
    if (word === undefined) {
      if (kept()) out.push(line);
      continue;
    }
    if (word === 'endif') {
      const chain = chains.pop();
      if (chain?.open && kept()) out.push('#endif');
      continue;
    }
    if (word.startsWith('if')) chains.push({ keep: false, closed: false, open: false });
    const chain = chains[chains.length - 1];
    const condition =
      word === 'else'
        ? ''
        : word === 'ifdef'
          ? `defined(${rest.trim()})`
          : word === 'ifndef'
            ? `!defined(${rest.trim()})`
            : rest;
    const value = chain.closed ? false : word === 'else' ? true : decide(condition, platform);
    chain.keep = true; // so that the directive itself is judged by the chains around it
    if (kept() && value !== false && (value === undefined || chain.open))
      out.push(value === true ? '#else' : `${chain.open ? '#elif' : '#if'} ${condition.trim()}`);
    chain.keep = value !== false;
    chain.open ||= value === undefined;
    chain.closed ||= value === true;
  }
  return out.join('\n');
}
