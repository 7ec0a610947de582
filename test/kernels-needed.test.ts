// What a kernel's source leaves out: declarations that no kernel of it reaches, and nothing else.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { needed } from '../src/kernels/needed.js';
import { moduleText } from '../src/kernels/source.js';
import { kernelModule, moduleNames, unitOf } from '../src/backends/gpu/modules.js';

const HEAD = `
#ifdef WICK_HOST
#define FN static inline
#else
#define FN __device__
#endif
#define BOTH(NAME, F) FN float NAME(float x) { return F##f(x); } FN double NAME(double x) { return F(x); }
BOTH(sineg, sin)
BOTH(rootg, sqrt)
typedef unsigned word __attribute__((vector_size(16)));
struct Small { unsigned short bits; };
template <class T> struct Wide { typedef T type; };
template <> struct Wide<Small> { typedef float type; };
template <class T> constexpr int width = sizeof(T);
template <> constexpr int width<Small> = 1;
constexpr int UNUSED = 7;
constexpr int FIRST = 1, SECOND = FIRST + 1;
#ifdef WICK_AMD
FN float twice(float x) { return x + x; }
#else
FN float twice(float x) { return 2 * x; }
#endif
FN double twice(double x) { return 2 * x; }
template <class T> FN T half_of(T x) {
#ifdef WICK_AMD
  return x / 2;
#else
  return x * T(0.5);
#endif
}
`;
const words = (text: string): Set<string> => new Set(text.match(/\w+/g) ?? []);

describe('sources hold what their kernels use', () => {
  test('a name keeps every declaration of it, in every branch of a conditional', () => {
    const text = needed([HEAD], 'void k(float* p) { *p = twice(*p); }');
    assert.equal(text.match(/twice\(/g)?.length, 3);
    assert.ok(text.includes('#ifdef WICK_AMD'));
    for (const gone of ['sineg', 'rootg', 'half_of', 'Wide', 'UNUSED', 'word']) assert.ok(!words(text).has(gone), gone);
  });
  test('specialisations of templates and variables stay with them, and what they name', () => {
    const text = needed([HEAD], 'void k(int* p) { *p = width<int>; Wide<int>::type x; }');
    assert.ok(text.includes('width<Small>') && text.includes('Wide<Small>') && text.includes('struct Small {'));
    assert.ok(!words(text).has('twice'));
  });
  test('constants declared together are found by any of their names', () => {
    assert.ok(needed([HEAD], 'int k[SECOND];').includes('constexpr int FIRST = 1, SECOND'));
  });
  test('functions made by a macro are found by their names, with the macro', () => {
    const text = needed([HEAD], 'void k(float* p) { *p = rootg(*p); }');
    assert.ok(text.includes('BOTH(rootg, sqrt)') && text.includes('#define BOTH') && text.includes('#define FN'));
    assert.ok(!text.includes('sineg'));
  });
  test('directives inside a declaration belong to it', () => {
    const text = needed([HEAD], 'void k(float* p) { *p = half_of(*p); }');
    assert.ok(text.includes('return x / 2;') && text.includes('return x * T(0.5);'));
  });
  test('a conditional of which nothing is left goes, one that defines names for others stays', () => {
    const text = needed([HEAD], 'void k() {}');
    assert.ok(!text.includes('twice'));
    assert.equal(text.match(/#if/g)?.length ?? 0, 0);
  });
  test('a text whose directives cut a declaration in two is left whole', () => {
    const text = 'int f(\n#ifdef A\nint x\n#endif\n);\nint cut\n#ifdef A\n= 1;\n#else\n= 2;\n#endif\nint unused;\n';
    assert.ok(needed([text], 'void k() {}').includes('unused'));
  });
  test('every module is taken apart: a kernel of it has less text than all of it', () => {
    for (const name of moduleNames().filter((m) => m !== 'elementwise')) {
      const symbols = [...kernelModule(name).entries.keys()];
      assert.ok(unitOf(name, [symbols[0]]).source.length < moduleText(`${name}.hip`).length, name);
    }
    assert.ok(!unitOf('fill', ['fill_u8']).source.includes('atomic'));
  });
});
