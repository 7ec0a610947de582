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
# Numbers with a rule of their own, running combinations.
ops('lerp', lambda x, y: torch.lerp(x, y, 0.25), pair((3, 4), (4,)), TWO + ['f16'], args=['$y', 0.25])
ops('lerp', lambda x, y: torch.lerp(x, y, 0.75), pair((3, 4), (3, 4)), TWO, args=['$y', 0.75])
ops('lerp', lambda x, y, z: torch.lerp(x, y, z), pair((3, 4), (3, 4), (3, 4)), TWO, args=['$y', '$z'])
for dt in FLOATS:
    big = torch.finfo(NAMES[dt])
    case('nanToNum', lambda x: torch.nan_to_num(x, posinf=big.max, neginf=big.min), dt, {'x': edges(dt)}, grad=False)
ops('nanToNum', lambda x: torch.nan_to_num(x, 2.0, 1.0, -1.0), lambda dt: {'x': torch.tensor([1.0, nan, inf, -inf, -3.0], dtype=torch.float64)}, TWO, args=[{'nan': 2, 'posinf': 1, 'neginf': -1}])
HOLES = lambda dt: {'x': torch.where(rand(3, 5, lo=0, hi=1) < 0.3, nan, rand(3, 5))}
ops('nansum', lambda x: x.nansum(1), HOLES, TWO + ['f16'], args=[1])
ops('nanmean', lambda x: x.nanmean(0, keepdim=True), HOLES, TWO + ['f16'], args=[0, True])
for same in (True, False):
    case('isClose', lambda x, y: torch.isclose(x, y, rtol=1e-2, atol=1e-3, equal_nan=same), 'f32', {'x': torch.tensor([1, 1, nan, inf, -inf, 0, 100, inf]),
         'y': torch.tensor([1.005, 1.05, nan, inf, inf, 0.0005, 101, 3])}, ['$y', {'rtol': 1e-2, 'atol': 1e-3, 'equalNan': same}], grad=False)
ops('logAddExp', torch.logaddexp, pair((3, 4), (4,)), TWO + ['bf16'], args=['$y'])
case('logAddExp', torch.logaddexp, 'f64', {'x': torch.tensor([inf, -inf, -inf, 1.0, 700.0]), 'y': torch.tensor([inf, -inf, 2.0, -inf, 800.0])}, ['$y'], grad=False)
for name, f in {'cumprod': torch.cumprod, 'logcumsumexp': torch.logcumsumexp}.items():
    ops(name, lambda x: f(x, 1), X(3, 6), TWO + ['f16'], args=[1])
    ops(name, lambda x: f(x, 0), X(5, 2), TWO, args=[-2])
case('cumprod', lambda x: x.cumprod(1), 'i32', {'x': whole(2, 5)}, [1])
case('cumprod', lambda x: x.cumprod(1), 'f64', {'x': torch.tensor([[2.0, 0, 3, 1], [1, 2, 0, 0]])}, [1])
case('logcumsumexp', lambda x: x.logcumsumexp(0), 'f64', {'x': torch.tensor([-inf, -inf, 1.0, 800.0, 2.0])}, [0], grad=False)
for name, f in {'cummax': torch.cummax, 'cummin': torch.cummin}.items():
    ops(name, lambda x: tuple(f(x, 1)), X(3, 6), G, args=[1])
    case(name, lambda x: tuple(f(x, 0)), 'f32', {'x': torch.tensor([1.0, 3, 3, nan, 2, nan, 4])}, [0], grad=False)
    case(name, lambda x: tuple(f(x, 0)), 'i64', {'x': torch.tensor([1, 3, 3, 0, 0, 4])}, [0])

# Order and counts.
for args, f in (([1], lambda x: tuple(x.median(1))), ([0, True], lambda x: tuple(x.median(0, keepdim=True))), ([], lambda x: x.median())):
    ops('median', f, X(4, 5), TWO + ['f16'], args=args)
case('median', lambda x: x.median(1)[0], 'f32', {'x': torch.tensor([[1.0, nan, 3], [4, 2, 6]])}, [1], grad=False)
case('median', lambda x: x.median(1)[0], 'i32', {'x': whole(3, 6)}, [1])
for how in ('linear', 'lower', 'higher', 'midpoint', 'nearest'):
    ops('quantile', lambda x: x.quantile(0.3, 1, interpolation=how), X(3, 6), TWO, args=[0.3, 1, {'interpolation': how}])
ops('quantile', lambda x: x.quantile(torch.tensor([0.1, 0.5, 1.0], dtype=x.dtype), 0, keepdim=True), X(5, 2), TWO, args=[[0.1, 0.5, 1.0], 0, {'keepdim': True}])
ops('quantile', lambda x: x.quantile(0.75), X(3, 4), TWO, args=[0.75])
case('quantile', lambda x: x.quantile(0.5, 1), 'f64', {'x': torch.tensor([[1.0, nan, 3], [4, 2, 6]])}, [0.5, 1], grad=False)
for dt in ('f32', 'i64'):
    case('mode', lambda x: x.mode(1)[0], dt, {'x': torch.tensor([[2, 1, 2, 1, 3], [5, 5, 5, 0, 0], [4, 3, 2, 1, 0]])}, [1], grad=False)
    case('unique', lambda x: x.unique(return_inverse=True, return_counts=True), dt, {'x': torch.tensor([[2, 1, 2], [1, 3, 9]])}, [], grad=False)
    case('uniqueConsecutive', lambda x: x.unique_consecutive(return_inverse=True, return_counts=True), dt, {'x': torch.tensor([[2, 2, 1], [1, 1, 2]])}, [], grad=False)
EDGE = torch.tensor([1.0, 2, 2, 5, 9])
for right in (False, True):
    for dt in ('f64', 'f32', 'i32'):
        at = torch.tensor([[0, 1, 2], [3, 9, 10]])
        case('searchsorted', lambda e, v: torch.searchsorted(e, v, right=right), dt, {'x': EDGE, 'v': at}, ['$v', {'right': right}], grad=False)
        case('bucketize', lambda v, e: torch.bucketize(v, e, right=right), dt, {'v': at, 'x': EDGE}, ['$x', {'right': right}], grad=False)
    case('searchsorted', lambda e, v: torch.searchsorted(e, v, right=right), 'f32', {'x': torch.stack([EDGE, EDGE * 2]), 'v': torch.tensor([[0.5, 2, nan], [inf, -inf, 4]])},
         ['$v', {'right': right}], grad=False)
torch.manual_seed(5)
case('histc', lambda x: x.histc(8, -1, 1), 'f32', {'x': rand(40)}, [8, {'min': -1, 'max': 1}], grad=False)
case('histc', lambda x: x.histc(5), 'f64', {'x': rand(40)}, [5], grad=False)
case('histc', lambda x: x.histc(3), 'f64', {'x': torch.tensor([2.0, 2, 2])}, [3], grad=False)
SPOTS = torch.tensor([[0, 3, 0, 1, 3], [2, 2, 2, 0, 1], [1, 1, 0, 3, 0]])
for r in ('sum', 'prod', 'mean', 'amax', 'amin'):
    for own in (True, False):
        ops('scatterReduce', lambda x, i, v: x.scatter_reduce(1, i, v, r, include_self=own), lambda dt: {'x': X(3, 4)(dt)['x'], 'i': SPOTS, 'v': X(3, 5)(dt)['x']}, TWO,
            args=[1, '$i', '$v', r, {'includeSelf': own}], fixed=('i',))
        case('scatterReduce', lambda x, i, v: x.scatter_reduce(1, i, v, r, include_self=own), 'i64', {'x': whole(3, 4), 'i': SPOTS, 'v': whole(3, 5)},
             [1, '$i', '$v', r, {'includeSelf': own}], fixed=('i',))
    case('scatterReduce', lambda x, i, v: x.scatter_reduce(0, i, v, r), 'f64', {'x': torch.tensor([1.0, 0, 2, 5]), 'i': torch.tensor([0, 0, 1, 1, 2]), 'v': torch.tensor([1.0, 1, 0, 0, 3])},
         [0, '$i', '$v', r], fixed=('i',))
for r in ('amax', 'amin'):
    case('scatterReduce', lambda x, i, v: x.scatter_reduce(0, i, v, r), 'f32', {'x': torch.tensor([1.0, nan, 2, 5]), 'i': torch.tensor([0, 0, 1, 2, 2]), 'v': torch.tensor([nan, 1, 0, 0, inf])},
         [0, '$i', '$v', r], grad=False, fixed=('i',))

# Windows, pictures, volumes.
T3 = ['f64', 'f32', 'f16']
for o, kw in (({}, {}), ({'padding': 1, 'ceilMode': True}, {'padding': 1, 'ceil_mode': True})):
    ops('maxPool3d', lambda x: F.max_pool3d(x, 3, 2, **kw), X(1, 2, 5, 6, 4), TWO, args=[3, 2, o])
    ops('avgPool3d', lambda x: F.avg_pool3d(x, 3, 2, **kw), X(1, 2, 5, 6, 4), TWO, args=[3, 2, o])
ops('maxPool3d', lambda x: F.max_pool3d(x, 2, 1, dilation=(1, 2, 1)), X(1, 1, 4, 5, 4), TWO, args=[2, 1, {'dilation': [1, 2, 1]}])
ops('avgPool3d', lambda x: F.avg_pool3d(x, 3, 2, padding=1, count_include_pad=False, ceil_mode=True), X(1, 1, 4, 5, 6), TWO, args=[3, 2, {'padding': 1, 'countIncludePad': False, 'ceilMode': True}])
POOLS = [('maxPool2d', F.max_pool2d, (2, 2, 7, 6), [3, 2], {'ceil_mode': True}), ('maxPool2d', F.max_pool2d, (2, 2, 7, 8), [[2, 3], [1, 2]], {'dilation': (2, 1), 'padding': (1, 1)}),
         ('avgPool2d', F.avg_pool2d, (2, 2, 7, 6), [3, 2], {'ceil_mode': True, 'padding': 1}), ('avgPool2d', F.avg_pool2d, (2, 2, 7, 6), [3, 2], {'padding': 1, 'count_include_pad': False}),
         ('maxPool1d', F.max_pool1d, (2, 2, 9), [2, 3], {'ceil_mode': True, 'dilation': 2}), ('avgPool1d', F.avg_pool1d, (2, 2, 9), [4, 2], {'ceil_mode': True, 'padding': 1})]
CAMEL = {'ceil_mode': 'ceilMode', 'count_include_pad': 'countIncludePad', 'padding': 'padding', 'dilation': 'dilation'}
for name, f, shape, args, kw in POOLS:
    ops(name, lambda x: f(x, *args, **kw), X(*shape), T3, args=[*args, {CAMEL[k]: v for k, v in kw.items()}])
for d, shape, size in ((1, (2, 3, 7), 3), (2, (1, 2, 7, 5), [3, 2]), (3, (1, 1, 4, 5, 6), [2, 3, 2])):
    ops(f'adaptiveMaxPool{d}d', lambda x: getattr(F, f'adaptive_max_pool{d}d')(x, size), X(*shape), T3, args=[size])
    if d != 2:
        ops(f'adaptiveAvgPool{d}d', lambda x: getattr(F, f'adaptive_avg_pool{d}d')(x, size), X(*shape), T3, args=[size])
ops('conv3d', lambda x, y: F.conv3d(x, y), pair((1, 2, 3, 4, 4), (2, 2, 2, 2, 3)), T3, args=['$y'])
ops('conv3d', lambda x, y, z: F.conv3d(x, y, z, stride=(2, 1, 1), padding=(1, 0, 1), dilation=(2, 1, 1), groups=2), pair((2, 2, 4, 3, 3), (4, 1, 2, 2, 2), (4,)), TWO,
    args=['$y', {'stride': [2, 1, 1], 'padding': [1, 0, 1], 'dilation': [2, 1, 1], 'groups': 2, 'bias': '$z'}])
ops('convTranspose3d', lambda x, y: F.conv_transpose3d(x, y), pair((1, 2, 2, 3, 2), (2, 2, 2, 2, 2)), T3, args=['$y'])
ops('convTranspose3d', lambda x, y, z: F.conv_transpose3d(x, y, z, stride=(2, 1, 2), padding=(1, 0, 1), output_padding=(1, 0, 1), groups=2, dilation=(1, 2, 1)),
    pair((2, 2, 2, 2, 3), (2, 1, 3, 2, 2), (2,)), TWO, args=['$y', {'stride': [2, 1, 2], 'padding': [1, 0, 1], 'outputPadding': [1, 0, 1], 'groups': 2, 'dilation': [1, 2, 1], 'bias': '$z'}])
ops('unfold2d', lambda x: F.unfold(x, (2, 3)), X(2, 2, 4, 5), T3, args=[[2, 3]])
ops('unfold2d', lambda x: F.unfold(x, 2, dilation=(2, 1), padding=1, stride=2), X(1, 1, 5, 5), TWO, args=[2, {'stride': 2, 'padding': 1, 'dilation': [2, 1]}])
ops('fold', lambda x: F.fold(x, (4, 5), (2, 3)), X(2, 12, 9), T3, args=[[4, 5], [2, 3]])
ops('fold', lambda x: F.fold(x, 5, 2, dilation=(2, 1), padding=1, stride=2), X(1, 4, 9), TWO, args=[5, 2, {'stride': 2, 'padding': 1, 'dilation': [2, 1]}])
SIZES = [((2, 3, 5), 'linear', 8, None), ((1, 2, 4, 5), 'nearest', [7, 3], None), ((1, 2, 4, 5), 'nearest-exact', [7, 3], None), ((1, 2, 4, 5), 'bilinear', [7, 3], True),
         ((1, 2, 4, 5), 'bicubic', [7, 8], None), ((1, 2, 6, 5), 'bicubic', [3, 9], True), ((1, 1, 3, 2, 4), 'trilinear', [4, 5, 3], None), ((1, 1, 3, 2, 4), 'nearest', [4, 5, 3], None),
         ((1, 2, 7, 5), 'area', [3, 2], None), ((1, 2, 9), 'area', 4, None)]
for shape, mode, size, align in SIZES:
    o = {'size': size, 'mode': mode, **({'alignCorners': True} if align else {})}
    ops('interpolate', lambda x: F.interpolate(x, size, mode=mode, align_corners=align), X(*shape), T3, args=[o])
for mode, factor in (('bilinear', 1.7), ('bicubic', 0.6), ('nearest', 1.3), ('nearest-exact', 0.7)):
    ops('interpolate', lambda x: F.interpolate(x, scale_factor=factor, mode=mode), X(1, 2, 5, 6), TWO, args=[{'scale': factor, 'mode': mode}])
for mode in ('bilinear', 'bicubic'):
    for size in ([3, 4], [9, 5]):
        ops('interpolate', lambda x: F.interpolate(x, size, mode=mode, antialias=True), X(1, 2, 7, 8), TWO, args=[{'size': size, 'mode': mode, 'antialias': True}])
for mode in ('bilinear', 'nearest', 'bicubic'):
    for pad in ('zeros', 'border', 'reflection'):
        for align in (False, True):
            ops('gridSample', lambda x, g: F.grid_sample(x, g, mode, pad, align), lambda dt: {'x': rand(2, 2, 4, 5), 'g': rand(2, 3, 4, 2, lo=-1.7, hi=1.7)}, TWO,
                args=['$g', {'mode': mode, 'paddingMode': pad, 'alignCorners': align}])
ops('gridSample', lambda x, g: F.grid_sample(x, g, align_corners=False), lambda dt: {'x': rand(1, 2, 3, 4, 2), 'g': rand(1, 2, 3, 2, 3, lo=-1.2, hi=1.2)}, TWO, args=['$g'])
for align in (False, True):
    ops('affineGrid', lambda t: F.affine_grid(t, (2, 1, 3, 4), align), X(2, 2, 3), T3, args=[[2, 1, 3, 4], {'alignCorners': align}])
ops('affineGrid', lambda t: F.affine_grid(t, (1, 1, 2, 3, 2), False), X(1, 3, 4), TWO, args=[[1, 1, 2, 3, 2]])

# Linear algebra. Signs of singular vectors are anyone's choice, and made equal here; of eigenvectors the values are compared.
SQUARE = lambda dt: {'x': rand(2, 4, 4) + 3 * torch.eye(4, dtype=torch.float64)}
def definite(dt):
    a = rand(2, 4, 4)
    return {'x': a @ a.mT + torch.eye(4, dtype=torch.float64)}


def signed_svd(x):
    """With the signs that make the largest component of V's columns (U's of wide matrices) positive."""
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    inner = vt.mT if x.shape[-2] >= x.shape[-1] else u
    sign = inner.gather(-2, inner.abs().argmax(-2, keepdim=True)).sign().detach()
    return u * sign, s, vt * sign.mT


ops('solve', torch.linalg.solve, lambda dt: {**SQUARE(dt), 'b': rand(2, 4, 3)}, TWO, args=['$b'])
ops('solve', torch.linalg.solve, lambda dt: {'x': rand(3, 3) + 2 * torch.eye(3, dtype=torch.float64), 'b': rand(3)}, TWO, args=['$b'])
ops('inv', torch.linalg.inv, SQUARE, TWO)
ops('det', torch.linalg.det, SQUARE, TWO)
for dt in TWO:
    torch.manual_seed(3)
    case('slogdet', lambda x: tuple(torch.linalg.slogdet(x)), dt, SQUARE(dt), grad=False)
    case('cholesky', torch.linalg.cholesky, dt, {'x': (lambda a: a @ a.mT + torch.eye(4, dtype=torch.float64))(torch.randint(-2, 3, (2, 4, 4)).double())})
    case('eigh', lambda x: torch.linalg.eigh(x)[0], dt, {'x': (lambda a: a + a.mT)(torch.randint(-4, 5, (2, 4, 4)).double())})
for shape in ((2, 5, 3), (4, 4), (3, 5)):
    ops('qr', lambda x: tuple(torch.linalg.qr(x)), X(*shape), TWO)
    ops('svd', signed_svd, X(*shape), TWO)
ops('lstsq', lambda x, b: torch.linalg.lstsq(x, b).solution, lambda dt: {'x': rand(5, 3), 'b': rand(5, 2)}, TWO, args=['$b'])
ops('lstsq', lambda x, b: torch.linalg.pinv(x) @ b, lambda dt: {'x': rand(3, 5), 'b': rand(3, 2)}, TWO, args=['$b'])
ops('matrixExp', torch.linalg.matrix_exp, X(2, 3, 3), TWO + ['f16'])
ops('matrixExp', torch.linalg.matrix_exp, X(3, 3, lo=-6, hi=6), TWO)

# Transforms as pairs of real tensors.
parts = lambda z: (z.real, z.imag)
for n, norm in ((6, 'backward'), (7, 'ortho'), (96, 'forward'), (128, 'backward'), (521, 'backward')):
    shape = (2, n) if n < 100 else (n,)
    ops('rfft', lambda x: parts(torch.fft.rfft(x, norm=norm)), X(*shape), TWO if n < 500 else ['f64'], args=[{'norm': norm}])
    ops('fft', lambda x, y: parts(torch.fft.fft(torch.complex(x, y), norm=norm)), pair(shape, shape), TWO if n < 500 else ['f64'], args=['$y', {'norm': norm}])
    if n < 100:
        ops('ifft', lambda x, y: parts(torch.fft.ifft(torch.complex(x, y), norm=norm)), pair(shape, shape), TWO, args=['$y', {'norm': norm}])
        ops('irfft', lambda x, y: torch.fft.irfft(torch.complex(x, y), norm=norm), pair(shape, shape), TWO, args=['$y', {'norm': norm}])
        ops('irfft', lambda x, y: torch.fft.irfft(torch.complex(x, y), 2 * n - 1, norm=norm), pair(shape, shape), TWO, args=['$y', {'n': 2 * n - 1, 'norm': norm}])
ops('rfft', lambda x: parts(torch.fft.rfft(x, 8, 0)), X(5, 3), TWO + ['f16'], args=[{'n': 8, 'dim': 0}])
ops('rfft', lambda x: parts(torch.fft.rfft(x, 3)), X(2, 5), TWO, args=[{'n': 3}])
hann = torch.hann_window(8, dtype=torch.float64) + 0.1
stft = lambda x, w, **kw: parts(torch.stft(x, 8, window=w, return_complex=True, **kw))
ops('stft', lambda x, w: stft(x, w, hop_length=3), lambda dt: {'x': rand(2, 21), 'w': hann}, TWO, args=[8, {'window': '$w', 'hop': 3}])
ops('stft', lambda x, w: stft(x, w, center=False, normalized=True, onesided=False), lambda dt: {'x': rand(21), 'w': hann}, TWO,
    args=[8, {'window': '$w', 'center': False, 'normalized': True, 'onesided': False}])
ops('stft', lambda x, w: parts(torch.stft(x, 8, win_length=5, window=w, pad_mode='constant', return_complex=True)), lambda dt: {'x': rand(21), 'w': hann[1:6]}, TWO,
    args=[8, {'window': '$w', 'padMode': 'constant'}])

# Names that are a line or two of other rows.
three = lambda a, b, c, lo=-2.0, hi=2.0: lambda dt: {'x': rand(*a, lo=lo, hi=hi), 'y': rand(*b, lo=lo, hi=hi), 'z': rand(*c, lo=lo, hi=hi)}
both = lambda a, b, lo=-2.0, hi=2.0: lambda dt: {'x': rand(*a, lo=lo, hi=hi), 'y': rand(*b, lo=lo, hi=hi)}
ops('addmm', lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2), three((2, 4), (2, 3), (3, 4)), FLOATS, args=['$y', '$z', {'beta': 0.5, 'alpha': 2}])
ops('addmm', torch.baddbmm, three((2, 2, 4), (2, 2, 3), (2, 3, 4)), TWO, args=['$y', '$z'])
ops('addcmul', lambda x, y, z: torch.addcmul(x, y, z, value=0.5), three((2, 3), (3,), (2, 1)), FLOATS, args=['$y', '$z', 0.5])
ops('addcdiv', lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), three((2, 3), (3,), (2, 1), 0.5), FLOATS, args=['$y', '$z', 0.5])
for dt in TWO + ['f16']:
    signs = torch.tensor([0.0, -0.0, 1.0, -1.5, inf, -inf, 3.0])
    case('signbit', torch.signbit, dt, {'x': signs}, grad=False)
    case('copysign', torch.copysign, dt, {'x': signs.repeat(7), 'y': signs.repeat_interleave(7)}, ['$y'], grad=False)
    numbers = torch.tensor([0.0, 1.0, -1.5, inf, -inf, nan, 3.0])
    for name, f in {'fmax': torch.fmax, 'fmin': torch.fmin, 'heaviside': lambda x, y: torch.heaviside(x, y)}.items():
        x = numbers.nan_to_num(2.0) if name == 'heaviside' else numbers
        case(name, f, dt, {'x': x.repeat(7), 'y': numbers.repeat_interleave(7)}, ['$y'], grad=False)
    case('xlogy', torch.xlogy, dt, {'x': torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0, 0.0]), 'y': torch.tensor([0.0, inf, nan, 2.0, 0.5, 1.0])}, ['$y'], grad=False)
    case('sinc', torch.sinc, dt, {'x': torch.tensor([0.0, 0.25, -0.25, 0.5, -0.75, 1.25])})
    case('erfc', torch.special.erfc, dt, {'x': torch.tensor([0.0, 0.5, -0.5, 2.0, 3.0, -3.0, 1.25])})
ops('copysign', torch.copysign, both((2, 3), (3,), 0.5), TWO, args=['$y'])
ops('fmax', torch.fmax, both((2, 3), (3,)), TWO, args=['$y'])
ops('fmin', torch.fmin, both((2, 3), (3,)), TWO, args=['$y'])
ops('frac', torch.frac, X(3, 4, lo=-5, hi=5), FLOATS)
ops('logAddExp2', torch.logaddexp2, both((2, 3), (3,)), TWO + ['f16'], args=['$y'])
ops('logit', torch.logit, X(3, 4, lo=0.2, hi=0.45), FLOATS)
ops('logit', lambda x: torch.logit(x, 0.3), X(3, 4, lo=0.05, hi=0.95), TWO, args=[0.3])
ops('xlogy', torch.xlogy, both((2, 3), (3,), 0.5), TWO + ['f16'], args=['$y'])
ops('deg2rad', torch.deg2rad, X(3, 4, lo=-180, hi=180), FLOATS)
ops('rad2deg', torch.rad2deg, X(3, 4), FLOATS)
for dt in TWO + INTS:
    case('countNonzero', lambda x: torch.count_nonzero(x), dt, {'x': whole(3, 4, lo=0, hi=3)}, grad=False)
    case('countNonzero', lambda x: torch.count_nonzero(x, 1), dt, {'x': whole(3, 4, lo=0, hi=3)}, [1], grad=False)
for dt in INTS:
    case('bincount', lambda x: torch.bincount(x, minlength=8), dt, {'x': whole(12, lo=0, hi=6)}, [8], grad=False)
    case('isIn', torch.isin, dt, {'x': whole(3, 4, lo=0, hi=6), 'y': whole(2, lo=0, hi=6)}, ['$y'], grad=False)
ops('diff', torch.diff, X(3, 5), FLOATS)
ops('diff', lambda x: torch.diff(x, 2, 0), X(5, 3), TWO, args=[2, 0])
ops('cross', lambda x, y: torch.linalg.cross(x, y), both((2, 3), (2, 3)), FLOATS, args=['$y'])
ops('cross', lambda x, y: torch.linalg.cross(x, y, dim=0), both((3, 2), (3, 2)), TWO, args=['$y', 0])
ops('cdist', lambda x, y: torch.cdist(x.contiguous(), y), both((2, 3, 4), (2, 5, 4)), TWO, args=['$y'])
ops('cdist', lambda x, y: torch.cdist(x, y, 1.0), both((3, 4), (2, 4)), TWO, args=['$y', 1])
ops('cov', torch.cov, X(3, 6), TWO)
ops('cov', lambda x: torch.cov(x, correction=0), X(6), TWO, args=[0])
ops('corrcoef', torch.corrcoef, X(3, 6), TWO)
ops('kron', lambda x, y: torch.kron(x.contiguous(), y), both((2, 3), (3, 2)), FLOATS, args=['$y'])
ops('kron', lambda x, y: torch.kron(x.contiguous(), y), both((2,), (2, 3)), TWO, args=['$y'])
ops('kthvalue', lambda x: tuple(torch.kthvalue(x, 2)), X(3, 5), TWO, args=[2])
ops('kthvalue', lambda x: tuple(torch.kthvalue(x, 4, 0, True)), X(4, 3), TWO, args=[4, 0, True])
ops('tile', lambda x: torch.tile(x, (2,)), X(2, 3), TWO + ['i64'], args=[[2]])
ops('tile', lambda x: torch.tile(x, (2, 1, 2)), X(2, 3), TWO, args=[[2, 1, 2]])
ops('tensordot', lambda x, y: torch.tensordot(x, y, 2), both((2, 3, 4), (3, 4, 5)), TWO, args=['$y', 2])
ops('tensordot', lambda x, y: torch.tensordot(x, y, ([0, 2], [1, 0])), both((3, 2, 4), (4, 3)), TWO, args=['$y', [[0, 2], [1, 0]]])
ops('trapezoid', lambda x: torch.trapezoid(x, dx=0.5, dim=0), X(5, 3), TWO, args=[0.5, 0])
ops('cumulativeTrapezoid', lambda x: torch.cumulative_trapezoid(x, dx=0.5), X(3, 5), TWO, args=[0.5])
# vander's own gradient fails in PyTorch 2.13: powers side by side are the same.
ops('vander', lambda x: torch.stack([x**i for i in (3, 2, 1, 0)], 1), X(4, lo=0.5, hi=1.5), TWO)
ops('vander', lambda x: torch.stack([x**i for i in (0, 1, 2)], 1), X(4, lo=0.5, hi=1.5), TWO, args=[3, True])
ops('varMean', lambda x: torch.var_mean(x, 1), X(3, 5), TWO, args=[1])
ops('stdMean', lambda x: torch.std_mean(x, 1), X(3, 5), TWO, args=[1])
ops('aminmax', lambda x: tuple(torch.aminmax(x, dim=1)), X(3, 4), TWO, args=[1])
ops('indexFill', lambda x, i: x.index_fill(0, i, 3), lambda dt: {'x': rand(3, 4), 'i': torch.tensor([0, 2])}, TWO, args=[0, '$i', 3], fixed=('i',))
for name, f in {'hardshrink': F.hardshrink, 'softshrink': F.softshrink, 'tanhshrink': F.tanhshrink, 'celu': F.celu, 'softmin': lambda x: F.softmin(x, -1)}.items():
    ops(name, f, X(3, 4), TWO + ['f16'])
ops('celu', lambda x: F.celu(x, 0.5), X(3, 4), TWO, args=[0.5])
ops('threshold', lambda x: F.threshold(x, 0.5, -1), X(3, 4), TWO, args=[0.5, -1])
ops('normalize', F.normalize, X(3, 4), TWO + ['f16'])
ops('normalize', lambda x: F.normalize(x, 1, 0), X(3, 4), TWO, args=[{'p': 1, 'dim': 0}])
ops('pairwiseDistance', F.pairwise_distance, both((3, 4), (3, 4)), TWO, args=['$y'])
ops('pairwiseDistance', lambda x, y: F.pairwise_distance(x, y, 1), both((3, 4), (4,)), TWO, args=['$y', 1])
ops('channelShuffle', lambda x: F.channel_shuffle(x.contiguous(), 3), X(2, 6, 2), TWO, args=[3])
ops('localResponseNorm', lambda x: F.local_response_norm(x.contiguous(), 3), X(2, 5, 3), TWO, args=[3])
ops('localResponseNorm', lambda x: F.local_response_norm(x.contiguous(), 2, 0.1, k=2), X(1, 4, 2, 2), TWO, args=[2, {'alpha': 0.1, 'k': 2}])
ops('matrixPower', lambda x: torch.linalg.matrix_power(x, 3), X(2, 3, 3), TWO, args=[3])
ops('matrixPower', lambda x: torch.linalg.matrix_power(x, -2), SQUARE, TWO, args=[-2])
ops('fullLike', lambda x: torch.full_like(x, 3), X(2, 3), TWO, args=[3], grad=False)

# Parts put in place, small formulas.
ops('unflatten', lambda x: x.unflatten(1, (2, 3)), X(2, 6), G, args=[1, [2, 3]])
ops('tensorSplit', lambda x: x.tensor_split(3), X(7, 2), G, args=[3])
ops('tensorSplit', lambda x: x.tensor_split((1, -2), 1), X(2, 7), TWO, args=[[1, -2], 1])
ops('columnStack', lambda x, y: torch.column_stack([x, y]), pair((3,), (3, 2)), TWO, args=[['$y']])
ops('atLeast', lambda x: torch.atleast_3d(x), X(3, 2), TWO, args=[3])
ops('atLeast', lambda x: torch.atleast_2d(x), X(3), TWO, args=[2])
at = lambda *shape: (lambda dt: {'x': X(*shape[0])(dt)['x'], 'i': torch.tensor(shape[1]), 'v': X(*shape[2])(dt)['x']})
ops('indexCopy', lambda x, i, v: x.index_copy(0, i, v), at((4, 3), [2, 0], (2, 3)), G, args=[0, '$i', '$v'], fixed=('i',))
ops('put', lambda x, i, v: x.put(i, v), at((2, 3), [5, 0, -2], (3,)), G, args=['$i', '$v'], fixed=('i',))
ops('put', lambda x, i, v: x.put(i, v, True), at((2, 3), [4, 4, 1], (3,)), TWO, args=['$i', '$v', {'accumulate': True}], fixed=('i',))
ops('selectScatter', lambda x, y: x.select_scatter(y, 1, -2), pair((3, 4), (3,)), G, args=['$y', 1, -2])
ops('diagonalScatter', lambda x, y: x.diagonal_scatter(y, 2, 0, 2), pair((3, 2, 4), (2, 2)), G, args=['$y', 2, 0, 2])
ops('combinations', lambda x: torch.combinations(x, 3), X(5), TWO, args=[3])
ops('combinations', lambda x: torch.combinations(x, 2, True), X(3), TWO, args=[2, {'withReplacement': True}])
ops('hardtanh', lambda x: F.hardtanh(x, -0.5, 1.5), X(3, 4), TWO + ['f16'], args=[-0.5, 1.5])
ops('logSigmoid', F.logsigmoid, X(3, 4, lo=-30, hi=30), TWO + ['f16'])
ops('glu', lambda x: F.glu(x, 0), X(4, 3), TWO + ['f16'], args=[0])
ops('gradient', lambda x: torch.gradient(x, spacing=0.5, dim=0)[0], X(5, 3), TWO, args=[0.5, 0])
ops('gradient', lambda x: torch.gradient(x)[0], X(2), TWO)
ops('pdist', lambda x: F.pdist(x), X(5, 3), TWO)
ops('pdist', lambda x: F.pdist(x, 1), X(4, 3), TWO, args=[1])
ops('renorm', lambda x: x.renorm(2, 1, 1.5), X(3, 4), TWO, args=[2, 1, 1.5])
ops('xlog1py', torch.special.xlog1py, lambda dt: {'x': rand(2, 3), 'y': rand(3, lo=-0.5, hi=2)}, TWO, args=['$y'])
HOLES = torch.tensor([[nan, 3.0, 1.0, 2.0], [5.0, nan, nan, 4.0], [1.0, 9.0, 7.0, 8.0]], dtype=torch.float64)
for dt in TWO:
    case('nanmedian', lambda x: tuple(torch.nanmedian(x, 1)), dt, {'x': HOLES}, [1], grad=False)
ops('nanmedian', lambda x: tuple(torch.nanmedian(x, 1)), X(3, 5), TWO, args=[1])
for dt in ('i32', 'i64'):
    case('gcd', torch.gcd, dt, {'x': torch.tensor([12, -18, 0, 7, 0]), 'y': torch.tensor([18, 12, 5, 13, 0])}, ['$y'], grad=False)
    case('lcm', torch.lcm, dt, {'x': torch.tensor([12, -18, 0, 7, 0]), 'y': torch.tensor([18, 12, 5, 13, 0])}, ['$y'], grad=False)
case('unravelIndex', lambda x: torch.stack(torch.unravel_index(x.long(), (2, 3, 4)), -1), 'i64', {'x': torch.tensor([[0, 5, 23], [12, 7, 1]])}, [[2, 3, 4]], grad=False)
ops('logdet', torch.logdet, SQUARE, TWO)
ops('pinv', torch.linalg.pinv, X(5, 3), TWO)
ops('pinv', torch.linalg.pinv, X(2, 3, 5), TWO)
for dt in TWO:
    case('matrixRank', torch.linalg.matrix_rank, dt, {'x': torch.tensor([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]], dtype=torch.float64)}, grad=False)
    case('pinv', torch.linalg.pinv, dt, {'x': torch.tensor([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]], dtype=torch.float64)}, grad=False)
    case('lstsq', lambda x, b: torch.linalg.pinv(x) @ b, dt, {'x': torch.tensor([[1.0, 2, 3], [2, 4, 6], [1, 0, 1], [0, 2, 2]], dtype=torch.float64), 'b': torch.tensor([[1.0], [0], [2], [-1]], dtype=torch.float64)}, ['$b'], grad=False)

golden_cases.write('breadth', f'{TORCH}, {SCIPY}; computed in double precision and rounded once')
