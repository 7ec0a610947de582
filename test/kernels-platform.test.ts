// A kernel's text by platform: conditions the platform decides go, all others stay, and each vendor's compiler sees
// what it saw before.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forPlatform, PLATFORMS } from '../src/parity/platform.js';
import { moduleText } from '../src/kernels/source.js';
import { moduleNames } from '../src/backends/gpu/modules.js';

const CHAIN = `before
#if defined(WICK_NVIDIA)
nvidia
#elif defined(WICK_AMD) && __has_builtin(b)
amd with b
#elif defined(WICK_AMD)
amd
#else
host
#endif
after`;
test('branches of other platforms go with their directives', () => {
  assert.equal(forPlatform(CHAIN, 'nvidia'), 'before\nnvidia\nafter');
  assert.equal(forPlatform(CHAIN, 'host'), 'before\nhost\nafter');
});
test('a condition that depends on more stays, and a certain branch after it becomes #else', () => {
  assert.equal(
    forPlatform(CHAIN, 'amd'),
    'before\n#if defined(WICK_AMD) && __has_builtin(b)\namd with b\n#else\namd\n#endif\nafter',
  );
});
test('chains inside chains, negations and joined lines', () => {
  const text =
    '#ifndef WICK_HOST\ngpu\n#if WICK_WAVE == 32 || \\\n  X\nnarrow\n#else\n#ifdef WICK_AMD\nwide ' +
    'amd\n#endif\nwide\n#endif\n#else\nhost\n#endif';
  assert.equal(forPlatform(text, 'host'), 'host');
  assert.equal(forPlatform(text, 'nvidia'), 'gpu\n#if WICK_WAVE == 32 ||    X\nnarrow\n#else\nwide\n#endif');
  assert.equal(forPlatform(text, 'amd'), 'gpu\n#if WICK_WAVE == 32 ||    X\nnarrow\n#else\nwide amd\nwide\n#endif');
  assert.equal(forPlatform('#if !defined(WICK_AMD) && (A || defined(WICK_HOST))\nx\n#endif', 'host'), 'x');
});
test('no module keeps builtins of another vendor, and directives stay in pairs', () => {
  for (const name of moduleNames()) {
    for (const platform of PLATFORMS) {
      const text = forPlatform(moduleText(`${name}.hip`), platform);
      if (platform !== 'amd') assert.doesNotMatch(text, /__builtin_amdgcn/, `${name} for ${platform}`);
      if (platform !== 'nvidia') assert.doesNotMatch(text, /cvt\.rn|cp\.async|wgmma/, `${name} for ${platform}`);
      assert.equal(text.match(/^#if/gm)?.length ?? 0, text.match(/^#endif/gm)?.length ?? 0, `${name} for ${platform}`);
    }
  }
});
