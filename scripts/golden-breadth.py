"""Writes test/golden/breadth.json.br and breadth.safetensors.br: PyTorch's numbers for ops that came later than those of golden-ops.py.

    python scripts/golden-breadth.py        (needs torch, scipy, safetensors; Node packs them)

golden_cases.py says what a case is. Random numbers are seeded by the op, so that a new op leaves the cases of others as they are.
"""
import zlib
import scipy, scipy.special
import torch.nn.functional as F
import golden_cases
from golden_cases import *

TWO = ['f64', 'f32']


def ops(name, *a, **more):
    torch.manual_seed(zlib.crc32(name.encode()) + len(cases) % 7)
    over(name, *a, **more)


def X(*s, lo=-2.0, hi=2.0):
    return lambda dt: {'x': rand(*s, lo=lo, hi=hi) if is_float(dt) else whole(*s, lo=0)}


# Elementwise functions: edge values without gradients, then random ones with them.
UNARY = {'exp2': (torch.exp2, -4, 4), 'log2': (torch.log2, 0.1, 8), 'log10': (torch.log10, 0.1, 8), 'sinh': (torch.sinh, -4, 4),
         'cosh': (torch.cosh, -4, 4), 'asin': (torch.asin, -0.9, 0.9), 'acos': (torch.acos, -0.9, 0.9), 'atan': (torch.atan, -4, 4),
         'asinh': (torch.asinh, -4, 4), 'acosh': (torch.acosh, 1.2, 8), 'atanh': (torch.atanh, -0.9, 0.9), 'erfinv': (torch.erfinv, -0.95, 0.95),
         'lgamma': (torch.lgamma, 0.2, 8), 'digamma': (torch.digamma, 2, 8), 'i0': (torch.special.i0, -6, 6), 'i1': (torch.special.i1, -6, 6)}
SCIPY = f'SciPy {scipy.__version__}'
sci = lambda f: lambda *t: torch.from_numpy(f(*(v.numpy() for v in t)))
# SciPy speaks where PyTorch is off in double: its erfinv near 1, its trigamma; both have NaN for i0 of infinity, which is infinite.
for name, (f, lo, hi) in UNARY.items():
    torch.manual_seed(zlib.crc32(name.encode()))
    if name not in ('lgamma', 'digamma', 'i0', 'i1'):
        for dt in FLOATS:
            case(name, sci(scipy.special.erfinv) if name == 'erfinv' else f, dt, {'x': edges(dt)}, grad=False, by=SCIPY if name == 'erfinv' else TORCH)
    over(name, f, lambda dt: {'x': smooth(lo, hi, kinks=False)}, TWO + ['f16'])
for dt in FLOATS:
    case('i0', sci(scipy.special.i0), dt, {'x': torch.tensor([0.0, -0.0, nan, 1.0, -1.0, 20.0, -20.0])}, grad=False, by=SCIPY)
    case('lgamma', torch.lgamma, dt, {'x': torch.tensor([0.0, -0.0, inf, -inf, nan, 1.0, 2.0, -1.0, -3.0, 0.5, 20.0, 100.0, -0.5, -1.5, 1e-8])}, grad=False)
    case('digamma', torch.digamma, dt, {'x': torch.tensor([0.0, -0.0, inf, nan, 1.0, 2.0, -1.0, -3.0, 0.5, 20.0, 100.0, -1.5])}, grad=False)
for dt in FLOATS:
    case('polygamma', sci(lambda x: scipy.special.polygamma(1, x)), dt, {'x': torch.tensor([0.5, 1.0, 2.5, 8.0, 30.0, 0.1])}, [1], grad=False, by=SCIPY)
for n in (0, 2):
    ops('polygamma', lambda x: torch.polygamma(n, x), lambda dt: {'x': rand(4, 6, lo=2, hi=8)}, TWO + ['bf16'], args=[n])

PAIRS = torch.cartesian_prod(*[torch.tensor([0.0, -0.0, 1.0, -1.5, inf, -inf, nan, 0.3, 1e4, 2.0, -3.0], dtype=torch.float64)] * 2)
PX, PY = PAIRS[:, 0].contiguous(), PAIRS[:, 1].contiguous()
floor_div = lambda x, y: torch.div(x, y, rounding_mode='floor')
for name, f in {'atan2': torch.atan2, 'hypot': torch.hypot, 'fmod': torch.fmod, 'remainder': torch.remainder, 'floorDivide': floor_div}.items():
    for dt in FLOATS:
        case(name, f, dt, {'x': PX, 'y': PY}, ['$y'], grad=False)
    ops(name, f, lambda dt: {'x': rand(4, 1, 5), 'y': torch.cat([rand(2, 1, lo=0.3), rand(1, 1, lo=-2, hi=-0.3)])}, TWO + ['f16'], args=['$y'])
    if name in ('fmod', 'remainder', 'floorDivide'):
        for dt in INTS:
            x, y = torch.arange(-12, 13).repeat_interleave(6), torch.tensor([1, 2, 3, 7, -2, -5]).repeat(25)
            case(name, f, dt, {'x': x.abs() if dt == 'u8' else x, 'y': y.abs() if dt == 'u8' else y}, ['$y'], grad=False)
for name, f in {'bitwiseAnd': torch.bitwise_and, 'bitwiseOr': torch.bitwise_or, 'bitwiseXor': torch.bitwise_xor}.items():
    for dt in INTS:
        torch.manual_seed(7)
        lo = 0 if dt == 'u8' else -100
        case(name, f, dt, {'x': torch.randint(lo, 100, (5, 7)), 'y': torch.randint(lo, 100, (7,))}, ['$y'], grad=False)
for name, f in {'leftShift': torch.bitwise_left_shift, 'rightShift': torch.bitwise_right_shift}.items():
    for dt in INTS:
        torch.manual_seed(8)
        lo = 0 if dt == 'u8' else -100
        case(name, f, dt, {'x': torch.randint(lo, 100, (5, 7)), 'y': torch.randint(0, 8, (7,))}, ['$y'], grad=False)
for dt in INTS:
    case('bitwiseNot', torch.bitwise_not, dt, {'x': torch.arange(0, 20)}, grad=False)
for dt in FLOATS:
    case('isFinite', torch.isfinite, dt, {'x': edges(dt)}, grad=False)
case('isFinite', torch.isfinite, 'i32', {'x': torch.arange(3)}, grad=False)

# Shapes and places.
G = TWO + ['f16', 'i32']
SHAPES = [('unbind', lambda x: x.unbind(1), (3, 4), [1]), ('movedim', lambda x: x.movedim((0, 1), (-1, 0)), (2, 3, 4), [[0, 1], [-1, 0]]),
          ('diagEmbed', lambda x: x.diag_embed(1), (2, 3), [1]), ('diag', lambda x: x.diag(-1), (4,), [-1]), ('diag', lambda x: x.diag(1), (3, 5), [1]),
          ('diagonal', lambda x: x.diagonal(1, 0, 2), (3, 2, 4), [1, 0, 2]), ('diagonal', lambda x: x.diagonal(-2, 1, 2), (2, 4, 3), [-2, 1, 2]),
          ('trace', lambda x: x.trace(), (4, 4), []), ('rot90', lambda x: x.rot90(1), (2, 3), []), ('rot90', lambda x: x.rot90(3, (2, 0)), (2, 3, 4), [3, [2, 0]]),
          ('rot90', lambda x: x.rot90(-2, (0, 1)), (2, 3), [-2]), ('roll', lambda x: x.roll((1, -2), (0, 1)), (3, 5), [[1, -2], [0, 1]]),
          ('roll', lambda x: x.roll(4), (6,), [4]), ('repeatInterleave', lambda x: x.repeat_interleave(3, 1), (2, 3), [3, 1]),
          ('repeatInterleave', lambda x: x.repeat_interleave(torch.tensor([2, 0, 1]), 1), (2, 3), [[2, 0, 1], 1]),
          ('repeatInterleave', lambda x: x.repeat_interleave(2), (2, 3), [2]),
          ('asStrided', lambda x: x.contiguous().as_strided((3, 4), (2, 1), 1), (10,), [[3, 4], [2, 1], 1]),
          ('slice', lambda x: x.flip(1)[:, 1:8:3], (2, 10), [1, 8, 1, -3]), ('slice', lambda x: x.flip(0), (4, 2), [0, None, None, -1]),
          ('slice', lambda x: x.flip(1)[:, 2::2], (2, 7), [1, -3, None, -2])]
for name, f, shape, args in SHAPES:
    dts = TWO + ['f16'] if name == 'trace' else G
    torch.manual_seed(zlib.crc32(name.encode()) + len(args))
    if 'None' in str(args):
        args = [a if a is not None else {'$undefined': True} for a in args]
    over(name, f, X(*shape), dts, args=args)
pair = lambda *ss: (lambda dt: {n: rand(*sh) if is_float(dt) else whole(*sh, lo=0) for n, sh in zip('xyz', ss)})
for name, f in {'hstack': torch.hstack, 'vstack': torch.vstack, 'dstack': torch.dstack}.items():
    ops(name, lambda x, y: f([x, y]), pair((2, 3), (2, 3)), G, args=[['$y']])
    ops(name, lambda x, y: f([x, y]), pair((4,), (4,)), TWO, args=['$y'])
ops('outer', torch.outer, pair((3,), (4,)), G, args=['$y'])
ops('cartesianProd', lambda x, y, z: torch.cartesian_prod(x, y, z), pair((2,), (3,), (2,)), TWO, args=[['$y', '$z']])
IDS = torch.tensor([[0, 2, 1], [-1, 0, 2]])
ops('take', lambda x, i: x.take(i), lambda dt: {'x': X(3, 4)(dt)['x'], 'i': torch.tensor([[0, 11, 5], [-1, 5, -12]])}, G, args=['$i'], fixed=('i',))
ops('takeAlongDim', lambda x, i: torch.take_along_dim(x, i % 3, 1), lambda dt: {'x': X(2, 3)(dt)['x'], 'i': IDS}, G, args=['$i', 1], fixed=('i',))
ops('takeAlongDim', lambda x, i: torch.take_along_dim(x, i, 0), lambda dt: {'x': X(3, 4)(dt)['x'], 'i': torch.tensor([[2], [0]])}, TWO, args=['$i', 0], fixed=('i',))
ops('putAlongDim', lambda x, i, v: x.scatter(1, i, v.expand(3, 2)), lambda dt: {'x': X(3, 4)(dt)['x'], 'i': torch.tensor([[0, 2], [1, 3], [3, 0]]), 'v': X(2)(dt)['x']}, TWO,
    args=['$i', '$v', 1], fixed=('i',))
ops('maskedScatter', lambda x, m, v: x.masked_scatter(m != 0, v), lambda dt: {'x': X(2, 4)(dt)['x'], 'm': torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0]], dtype=torch.uint8), 'v': X(2, 3)(dt)['x']},
    G, args=['$m', '$v'], fixed=('m',))
put = lambda acc: lambda x, i, j, v: x.index_put((i, j), v, accumulate=acc)
for acc, i in ((False, [0, 2, 1, 0]), (True, [0, 2, 2, 0])):
    ops('indexPut', put(acc), lambda dt: {'x': X(3, 4, 2)(dt)['x'], 'i': torch.tensor(i), 'j': torch.tensor([3, -1, -1, 1]), 'v': X(4, 2)(dt)['x']}, G,
        args=[['$i', '$j'], '$v', {'accumulate': acc}], fixed=('i', 'j'))
# -- more above this line --
golden_cases.write('breadth', f'{TORCH}, {SCIPY}; computed in double precision and rounded once')
