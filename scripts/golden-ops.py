"""Writes test/golden/ops.json.br and ops.safetensors.br: what PyTorch (NumPy, transformers, Python where named) gives for the ops of the table.

    python scripts/golden-ops.py        (needs torch, numpy, transformers, safetensors; Node packs them)

golden_cases.py says what a case is.
"""
import math, sys
from decimal import ROUND_HALF_UP, Decimal
import mpmath, numpy as np, torch, transformers
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from golden_cases import *


def half_up(x):
    one = lambda v: v if not math.isfinite(v) else math.copysign(float(Decimal(abs(v)).quantize(0, ROUND_HALF_UP) if abs(v) < 2**60 else abs(v)), v)
    return torch.tensor([one(v) for v in x.reshape(-1).tolist()], dtype=torch.float64).reshape(x.shape)


def tails(f, exact):
    """PyTorch's function, with a form of its own functions that keeps the tails where its formula cancels."""
    return lambda x: torch.where(torch.isfinite(x), exact(torch.where(torch.isfinite(x), x, 0.0)), f(x))


ROOT_HALF, TANH = math.sqrt(0.5), 2 * math.sqrt(2 / math.pi)
normcdf = tails(torch.special.ndtr, lambda x: torch.special.erfc(-x * ROOT_HALF) / 2)
gelu_erf = tails(F.gelu, lambda x: x * torch.special.erfc(-x * ROOT_HALF) / 2)
gelu_tanh = tails(lambda x: F.gelu(x, approximate='tanh'), lambda x: x * torch.sigmoid(TANH * (x + 0.044715 * x**3)))
# Its hardsigmoid multiplies gradients by 1/6 in single precision.
hard_sigmoid = lambda x: F.relu6(x + 3) / 6
# Its powers of 0.5 are square roots, which differ from C's pow at -inf.
def c_power(e):
    def one(v):
        try:
            return math.pow(v, e)
        except (ValueError, ZeroDivisionError):
            return math.nan if v != 0 else math.inf if e % 2 != 1 or math.copysign(1, v) > 0 else -math.inf
        except OverflowError:
            return math.inf if v > 0 or e % 2 == 0 else -math.inf
    return lambda x: torch.tensor([one(v) for v in x.tolist()], dtype=torch.float64)


def gelu_50_digits(x):
    one = lambda v: v if v == inf or v != v else float(mpmath.mpf(v) / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (mpmath.mpf(v) + mpmath.mpf('0.044715') * mpmath.mpf(v) ** 3))))
    with mpmath.workdps(50):
        return torch.tensor([F.gelu(torch.tensor(v), approximate='tanh').item() if not math.isfinite(v) else one(v) for v in x.tolist()], dtype=torch.float64)


MPMATH = f'mpmath {mpmath.__version__}'
PY = f'Python {sys.version.split()[0]} decimal'
NUMPY = f'NumPy {np.__version__}'
UNARY = {  # name: function, dtypes of whole numbers too?, range of gradients, kinks?
    'neg': (lambda x: -x, True), 'recip': (torch.reciprocal, False, 0.2, 4), 'exp': (torch.exp, False), 'expm1': (torch.expm1, False),
    'log': (torch.log, False, 0.1, 4), 'log1p': (torch.log1p, False, -0.9, 4), 'sin': (torch.sin, False), 'cos': (torch.cos, False),
    'tan': (torch.tan, False, -1.4, 1.4), 'tanh': (torch.tanh, False), 'erf': (torch.erf, False), 'normcdf': (normcdf, False),
    'ceil': (torch.ceil, True), 'floor': (torch.floor, True), 'roundEven': (torch.round, True), 'trunc': (torch.trunc, True),
    'abs': (torch.abs, True), 'sign': (torch.sign, True), 'sqr': (torch.square, True), 'sqrt': (torch.sqrt, False, 0.1, 4),
    'rsqrt': (torch.rsqrt, False, 0.1, 4), 'relu': (torch.relu, True), 'relu6': (F.relu6, False, -4, 8), 'sigmoid': (torch.sigmoid, False),
    'silu': (F.silu, False), 'gelu': (gelu_tanh, False), 'geluErf': (gelu_erf, False),
    'softplus': (lambda x: F.softplus(x, threshold=1e9) if x.max() < 30 else torch.logaddexp(x, torch.zeros_like(x)), False),
    'softsign': (F.softsign, False), 'mish': (F.mish, False), 'hardSigmoid': (hard_sigmoid, False), 'hardSwish': (F.hardswish, False),
    'selu': (F.selu, False), 'logicalNot': (torch.logical_not, True), 'isNan': (torch.isnan, False), 'isInf': (torch.isinf, False),
}
def without_nan(x):
    """Where one of two numbers is NaN, Candle's max and min in f32 and f64 (and relu, which is one) give the other; PyTorch gives NaN."""
    return torch.nan_to_num(x, nan=1.25, posinf=inf, neginf=-inf) if x.is_floating_point() else x


for name, (f, ints, *span) in UNARY.items():
    for dt in FLOATS + (INTS if ints else []):
        plain = f if is_float(dt) or name not in ('ceil', 'floor', 'roundEven', 'trunc') else lambda x: x
        exact = (gelu_50_digits, MPMATH) if name == 'gelu' else (plain, TORCH)
        x = edges(dt)
        # Far down its tail gelu multiplies the rounding of its argument: no op in double meets it to the last bits there.
        x = torch.where(x == -20, -6.0, x) if name == 'gelu' else without_nan(x) if name == 'relu' else x
        case(name, exact[0], dt, {'x': x}, grad=False, by=exact[1])
    if name not in ('logicalNot', 'isNan', 'isInf'):
        over(name, f, lambda dt: {'x': smooth(*(span or (-4, 4)))})
over('round', half_up, lambda dt: {'x': edges(dt)}, grad=False, by=PY)
for dt in INTS:
    case('round', lambda x: x, dt, {'x': edges(dt)}, grad=False)

SCALAR = {'elu': [(1.0,), (0.5,)], 'leakyRelu': [(0.01,), (0.3,)], 'powf': [(2.0,), (0.5,), (-1.0,), (3.0,), (0.0,)],
          'clamp': [(-1.0, 1.5), (0.0, inf), (2.0, 1.0)], 'affine': [(2.5, -1.0), (0.0, 3.0)]}
SCALAR_F = {'elu': lambda a: lambda x: F.elu(x, a), 'leakyRelu': lambda a: lambda x: F.leaky_relu(x, a), 'powf': lambda e: lambda x: torch.pow(x, e),
            'clamp': lambda lo, hi: lambda x: torch.clamp(x, lo, hi), 'affine': lambda m, a: lambda x: x * m + a}
for name, params in SCALAR.items():
    for p in params:
        for dt in FLOATS:
            f, by = (c_power(*p), f'Python {sys.version.split()[0]} math') if name == 'powf' else (SCALAR_F[name](*p), TORCH)
            case(name, f, dt, {'x': edges(dt)}, p, grad=False, by=by)
        over(name, SCALAR_F[name](*p), lambda dt: {'x': smooth(*((0.2, 4) if name == 'powf' else (-4, 4)))}, args=p)
for dt in INTS:
    case('clamp', lambda x: torch.clamp(x, 1, 50), dt, {'x': edges(dt)}, (1, 50))
    case('affine', lambda x: x * 2 + 1, dt, {'x': torch.arange(12)}, (2, 1))

trunc_div = lambda x, y: torch.div(x, y, rounding_mode='trunc')
BINARY = {'add': torch.add, 'sub': torch.sub, 'mul': torch.mul, 'div': torch.div, 'minimum': torch.minimum, 'maximum': torch.maximum,
          'eq': torch.eq, 'ne': torch.ne, 'lt': torch.lt, 'le': torch.le, 'gt': torch.gt, 'ge': torch.ge, 'logicalAnd': torch.logical_and,
          'logicalOr': torch.logical_or, 'logicalXor': torch.logical_xor}
pairs = [(a, b) for a in (0.0, -0.0, 1.0, -1.5, inf, -inf, nan, 0.3, 1e4) for b in (0.0, -0.0, 2.0, -3.0, inf, -inf, nan)]
PX, PY_ = (torch.tensor([p[i] for p in pairs], dtype=torch.float64) for i in (0, 1))
for name, f in BINARY.items():
    for dt in FLOATS:
        kept_nan = without_nan if name in ('minimum', 'maximum') else lambda t: t
        case(name, f, dt, {'x': kept_nan(PX), 'y': kept_nan(PY_)}, ['$y'], grad=False)
    over(name, f, lambda dt: {'x': rand(4, 1, 5), 'y': torch.cat([rand(2, 1, lo=0.3), rand(1, 1, lo=-2, hi=-0.3)])}, args=['$y'],
         grad=name in ('add', 'sub', 'mul', 'div', 'minimum', 'maximum'))
    for dt in INTS:
        case(name, trunc_div if name == 'div' else f, dt, {'x': whole(4, 6, lo=0 if dt == 'u8' else -9, hi=10).abs() if dt == 'u8' else whole(4, 6),
             'y': whole(6, lo=1, hi=8)}, ['$y'], grad=False)
over('pow', torch.pow, lambda dt: {'x': rand(4, 6, lo=0.2, hi=3), 'y': rand(6)}, args=['$y'])
for dt in FLOATS:
    base, power = torch.cartesian_prod(torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, inf, -inf, nan], dtype=torch.float64),
                                       torch.tensor([0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, inf, -inf, nan], dtype=torch.float64)).unbind(1)
    case('pow', torch.pow, dt, {'x': base.contiguous(), 'y': power.contiguous()}, ['$y'], grad=False)
over('where', lambda c, t, f: torch.where(c != 0, t, f), lambda dt: {'c': torch.tensor([[1, 0, 2], [0, 0, 1]], dtype=torch.uint8), 't': rand(2, 3), 'f': rand(3)},
     args=['$t', '$f'], fixed=('c',))


def silu_slope(x, y, z):
    return torch.autograd.grad(F.silu(x), x, y * z, create_graph=True)[0]


over('siluMul', lambda x, y: F.silu(x) * y, lambda dt: {'x': smooth(), 'y': rand(4, 6)}, args=['$y'])
over('siluMulGrad', silu_slope, lambda dt: {'x': smooth(), 'y': rand(4, 6), 'z': rand(4, 6)}, args=['$y', '$z'])
over('ema', lambda x, y: torch.lerp(y, x, 0.875), lambda dt: {'x': rand(4, 6, lo=0.1), 'y': rand(4, 6, lo=0.1)}, args=['$y', 0.875])
over('emaSqr', lambda x, y: torch.addcmul(0.9375 * x, y, y, value=1 - 0.9375), lambda dt: {'x': rand(4, 6, lo=0), 'y': rand(4, 6)}, args=['$y', 0.9375])
over('adamStep', lambda x, y, z: torch.addcdiv(x, y, z.sqrt() + 1e-3, value=-0.05),
     lambda dt: {'x': rand(4, 6), 'y': rand(4, 6), 'z': rand(4, 6, lo=0.1)}, args=['$y', '$z', 0.05, 1e-3])

# Casts: between floats every rounding, to whole numbers what they hold.
for a in FLOATS:
    for b in FLOATS:
        case('castTo', lambda x: x, a, {'x': edges(a)}, [b], grad=False, out=b)
        case('cast', lambda x: x, a, {'x': smooth()}, [b], out=b)
    for b in INTS:
        case('castTo', lambda x: x.to(NAMES[b]), a, {'x': rand(24, lo=0, hi=100)}, [b], grad=False, out=b)
for a in INTS:
    for b in FLOATS + INTS:
        case('castTo', lambda x: x.to(NAMES[b]), a, {'x': whole(20, lo=0, hi=120)}, [b], grad=False, out=b)
case('castTo', lambda x: x, 'f32', {'x': torch.tensor([0.0, -0.0, 1.0, 1.0625, 1.1875, 448.0, -448.0, 0.001953125, 0.0009765625, 0.0029, 17.0, 19.0])}, ['f8e4m3'], grad=False, out='f8e4m3')

# Shapes.
X = lambda *s: (lambda dt: {'x': rand(*s) if is_float(dt) else whole(*s, lo=0)})
ALL = FLOATS + INTS
over('copy', lambda x: x.clone(), X(3, 4), ALL)
over('contiguous', lambda x: x.contiguous(), X(3, 4), ALL)
over('zerosLike', torch.zeros_like, X(3, 4), ALL, grad=False)
over('onesLike', torch.ones_like, X(3, 4), ALL, grad=False)
for dt in ALL:
    case('newZeros', lambda x: x.new_zeros([2, 3]), dt, X(2)(dt), [[2, 3], dt], grad=False)
    case('newFull', lambda x: x.new_full([2, 3], 7), dt, X(2)(dt), [[2, 3], 7, dt], grad=False)
    case('newArange', lambda x: torch.arange(0, 7).to(x.dtype), dt, X(2)(dt), [7, dt], grad=False)
    case('newArange', lambda x: torch.arange(3, 13, 2).to(x.dtype), dt, X(2)(dt), [5, dt, 3, 2], grad=False)
VIEWS = [('squeeze', lambda x: x.squeeze(), (1, 3, 1, 2), []), ('squeeze', lambda x: x.squeeze((0, 1)), (1, 3, 1, 2), [[0, 1]]),
         ('unsqueeze', lambda x: x.unsqueeze(1), (3, 2), [1]), ('unsqueeze', lambda x: x.unsqueeze(-1), (3, 2), [-1]),
         ('unfold', lambda x: x.unfold(1, 3, 2), (2, 9), [1, 3, 2]), ('unfold', lambda x: x.unfold(0, 2, 1), (4, 3), [0, 2, 1]),
         ('diagonal', lambda x: x.diagonal(dim1=-2, dim2=-1), (2, 3, 4), []), ('permute', lambda x: x.permute(2, 0, 1), (2, 3, 4), [[2, 0, 1]]),
         ('slice', lambda x: x[:, 1:9:3], (2, 10), [1, 1, 9, 3]), ('slice', lambda x: x[:, -4:-1], (2, 10), [1, -4, -1]),
         ('narrow', lambda x: x.narrow(1, 2, 3), (2, 10), [1, 2, 3]), ('broadcastTo', lambda x: x.broadcast_to(4, 2, 3), (2, 1), [[4, 2, 3]]),
         ('reshape', lambda x: x.reshape(3, -1), (2, 3, 4), [[3, -1]]), ('transpose', lambda x: x.transpose(0, 2), (2, 3, 4), [0, 2]),
         ('t', lambda x: x.t(), (3, 5), []), ('flatten', lambda x: x.flatten(1, 2), (2, 3, 4), [1, 2]), ('flatten', lambda x: x.flatten(), (2, 3, 4), []),
         ('get', lambda x: x[1], (3, 4), [1]), ('get', lambda x: x.select(1, 2), (3, 4), [2, 1]), ('chunk', lambda x: x.chunk(3, 1), (2, 8), [3, 1]),
         ('split', lambda x: x.split([1, 4, 3], 1), (2, 8), [[1, 4, 3], 1]), ('repeat', lambda x: x.repeat(2, 1, 3), (2, 3), [[2, 1, 3]]),
         ('roll', lambda x: x.roll(2, 1), (2, 5), [2, 1]), ('roll', lambda x: x.roll(-3, 0), (4, 2), [-3, 0]), ('flip', lambda x: x.flip(0, 2), (2, 3, 4), [[0, 2]]),
         ('pad', lambda x: F.pad(x, (1, 2, 0, 3)), (2, 3), [[1, 2, 0, 3]]), ('pad', lambda x: F.pad(x, (2, 0), value=5), (2, 3), [[2, 0], 5]),
         ('tril', lambda x: x.tril(), (4, 5), []), ('tril', lambda x: x.tril(-1), (2, 4, 4), [-1]), ('triu', lambda x: x.triu(1), (4, 5), [1]),
         ('triu', lambda x: x.triu(-2), (4, 5), [-2]), ('sumTo', lambda x: x.sum_to_size(1, 3), (2, 4, 3), [[1, 3]])]
for name, f, shape, args in VIEWS:
    over(name, f, X(*shape), FLOATS if name == 'sumTo' else ALL, args=args)
for dt in ALL:
    case('viewAs', lambda x: x.view(6, 4), dt, X(2, 3, 4)(dt), [[6, 4]])
    case('padSame', lambda x: torch.cat([x[:, :1].expand(-1, 2), x, x[:, -1:].expand(-1, 3)], 1), dt, X(2, 4)(dt), [1, 2, 3])


def placed(x):
    out = torch.full((5, 9), 4.0 if x.is_floating_point() else 4, dtype=x.dtype)
    return torch.slice_scatter(out, torch.slice_scatter(out[1:4:2], x, 1, 0, 9, 3), 0, 1, 4, 2)


over('place', placed, X(2, 3), ALL, args=[[5, 9], [1, 0], [2, 3], 4])
two = lambda *s: (lambda dt: {'x': rand(*s) if is_float(dt) else whole(*s, lo=0), 'y': rand(*s) if is_float(dt) else whole(*s, lo=0)})
over('cat', lambda x, y: torch.cat([x, y, x], 1), two(2, 3), ALL, args=[['$y', '$x'], 1])
over('stack', lambda x, y: torch.stack([x, y], 1), two(2, 3), ALL, args=[['$y'], 1])
over('sliceScatter', lambda x, y: torch.slice_scatter(x, y, 1, 2, 4), lambda dt: {'x': rand(3, 6), 'src': rand(3, 2)} if is_float(dt) else
     {'x': whole(3, 6, lo=0), 'src': whole(3, 2, lo=0)}, ALL, args=[1, 2, '$src'])


def assigned(x, src):
    return torch.slice_scatter(x, torch.slice_scatter(x[1:3], src, 1, 2, 5), 0, 1, 3)


over('sliceAssign', assigned, lambda dt: {'x': rand(4, 6), 'src': rand(2, 3)}, args=[[[1, 3], [2, 5]], '$src'])

# Reductions. Whole numbers are summed in 64 bits.
RED = [((), {}), (([1],), {'dim': 1}), (([0, 2], True), {'dim': (0, 2), 'keepdim': True})]
for args, kw in RED:
    over('sum', lambda x: x.sum(**kw), X(2, 3, 4), ['f64', 'f32', 'f16', 'bf16', 'i64'], args=args)
    over('mean', lambda x: x.mean(**kw), X(2, 3, 4), args=args)
    over('logSumExp', lambda x: x.logsumexp(kw.get('dim', (0, 1, 2)), kw.get('keepdim', False)), X(2, 3, 4), args=args)
    over('max', lambda x: x.amax(kw.get('dim', (0, 1, 2)), kw.get('keepdim', False)), X(2, 3, 4), args=args)
    over('min', lambda x: x.amin(kw.get('dim', (0, 1, 2)), kw.get('keepdim', False)), X(2, 3, 4), args=args)
    for op, f in (('variance', torch.var), ('std', torch.std)):
        over(op, lambda x: f(x, **kw), X(2, 3, 4), args=args)
        over(op, lambda x: f(x, kw.get('dim', None), correction=0, keepdim=kw.get('keepdim', False)), X(2, 3, 4),
             args=[args[0] if args else [0, 1, 2], kw.get('keepdim', False), 0])
    for op, f in (('any', torch.any), ('all', torch.all)):
        over(op, lambda x: f(x != 0, **kw), lambda dt: {'x': whole(2, 3, 4, lo=0, hi=2)}, ALL, args=args, grad=False)
    for p in (1.0, 2.0, 3.0, inf, -inf, 0.0):
        over('norm', lambda x: torch.linalg.vector_norm(x, p, kw.get('dim'), kw.get('keepdim', False)), X(2, 3, 4), ['f64', 'f32', 'f16'], grad=p > 0, args=[p, *args])
over('prod', lambda x: x.prod(), X(2, 3))
over('prod', lambda x: x.prod(1, keepdim=True), X(2, 3, 4), args=[[1], True])
over('prod', lambda x: x.prod(1), lambda dt: {'x': torch.tensor([[2.0, 0, 3], [0, 0, 1], [1, 2, 3]])}, args=[[1]])
case('prod', lambda x: x.prod(0), 'i64', {'x': whole(3, 4)}, [[0]])
for dt in FLOATS + INTS:
    ties = {'x': whole(3, 7, lo=0, hi=4)}
    case('argmax', lambda x: torch.from_numpy(np.argmax(x.detach().numpy(), 1)), dt, ties, [1], grad=False, by=NUMPY)
    case('argmin', lambda x: torch.from_numpy(np.argmin(x.detach().numpy(), 0)), dt, ties, [0], grad=False, by=NUMPY)
    case('argsort', lambda x: torch.argsort(x, dim=1, stable=True), dt, ties, [1], grad=False)
    case('argsort', lambda x: torch.argsort(x, dim=1, descending=True, stable=True), dt, ties, [1, {'descending': True}], grad=False)
    case('sort', lambda x: torch.sort(x, dim=1, stable=True), dt, X(3, 7)(dt), [1])
    case('topk', lambda x: torch.topk(x, 3, 1), dt, {'x': torch.stack([torch.randperm(9) for _ in range(2)]).double()}, [3, 1])
over('cumsum', lambda x: x.cumsum(1), X(2, 7), args=[1])
over('cumsum', lambda x: x.cumsum(0), X(5, 3), ['f64', 'f32', 'i64'], args=[0])

# Products.
over('bmm', torch.bmm, lambda dt: {'x': rand(2, 3, 5), 'y': rand(2, 5, 4)}, args=['$y'])
over('matmul', torch.matmul, lambda dt: {'x': rand(2, 1, 3, 5), 'y': rand(3, 5, 4)}, args=['$y'])
over('matmul', torch.matmul, lambda dt: {'x': rand(3, 5), 'y': rand(5)}, args=['$y'])
over('dot', torch.dot, lambda dt: {'x': rand(33), 'y': rand(33)}, args=['$y'])

# Indexing.
ids = torch.tensor([2, 0, 1, 2])
grid = torch.tensor([[0, 2, 1], [1, 1, 0]])
over('embedding', lambda x, i: F.embedding(i, x), lambda dt: {'x': rand(3, 4), 'ids': grid}, args=['$ids'], fixed=('ids',))
over('indexSelect', lambda x, i: x.index_select(1, i), lambda dt: {'x': rand(2, 3), 'ids': ids}, args=[1, '$ids'], fixed=('ids',))
over('gather', lambda x, i: x.gather(1, i), lambda dt: {'x': rand(2, 3), 'ids': grid}, args=[1, '$ids'], fixed=('ids',))
over('indexAdd', lambda x, i, s: x.index_add(1, i, s), lambda dt: {'x': rand(2, 3), 'ids': ids, 'src': rand(2, 4)}, args=[1, '$ids', '$src'], fixed=('ids',))
over('scatterAdd', lambda x, i, s: x.scatter_add(1, i, s), lambda dt: {'x': rand(2, 4), 'ids': grid, 'src': rand(2, 3)}, args=[1, '$ids', '$src'], fixed=('ids',))
over('scatter', lambda x, i, s: x.scatter(1, i, s), lambda dt: {'x': rand(2, 4), 'ids': torch.tensor([[0, 2, 1], [1, 3, 0]]), 'src': rand(2, 3)},
     args=[1, '$ids', '$src'], fixed=('ids',))
over('maskedFill', lambda x, m: x.masked_fill(m != 0, 3.0), lambda dt: {'x': rand(2, 3), 'mask': torch.tensor([[1, 0, 1]], dtype=torch.uint8)},
     args=['$mask', 3], fixed=('mask',))
for dt in ('i64', 'u8'):
    case('oneHot', lambda i: F.one_hot(i.long(), 5).float(), dt, {'ids': grid}, [5], grad=False)
    case('oneHot', lambda i: (F.one_hot(i.long(), 4) * 3 + 1).double(), dt, {'ids': grid}, [4, {'on': 4, 'off': 1, 'dtype': 'f64'}], grad=False)

# Convolutions, pooling, resizing.
CONV = [('conv1d', F.conv1d, (2, 4, 9), (6, 2, 3), dict(stride=2, padding=1, dilation=2, groups=2)),
        ('conv2d', F.conv2d, (2, 4, 7, 6), (4, 2, 3, 2), dict(stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)),
        ('convTranspose1d', F.conv_transpose1d, (2, 4, 5), (4, 3, 3), dict(stride=2, padding=1, output_padding=1, groups=2)),
        ('convTranspose2d', F.conv_transpose2d, (1, 4, 4, 3), (4, 2, 3, 2), dict(stride=(2, 1), padding=(1, 0), groups=2))]
for name, f, xs, ws, o in CONV:
    out_channels = ws[0] if 'Transpose' not in name else ws[1] * o['groups']
    ours = {'stride': o['stride'], 'padding': o['padding'], 'groups': o['groups'], 'bias': '$b'}
    ours.update({'dilation': o['dilation']} if 'dilation' in o else {})
    ours.update({'outputPadding': o['output_padding']} if 'output_padding' in o else {})
    over(name, lambda x, w, b: f(x, w, b, **o), lambda dt: {'x': rand(*xs), 'w': rand(*ws), 'b': rand(out_channels)}, args=['$w', ours])
over('avgPool1d', lambda x: F.avg_pool1d(x, 3, 2), X(2, 3, 9), args=[3, 2])
over('maxPool1d', lambda x: F.max_pool1d(x, 3, 2), X(2, 3, 9), args=[3, 2])
over('avgPool2d', lambda x: F.avg_pool2d(x, (2, 3), (2, 1)), X(2, 3, 6, 7), args=[[2, 3], [2, 1]])
over('maxPool2d', lambda x: F.max_pool2d(x, (2, 3), (2, 1)), X(2, 3, 6, 7), args=[[2, 3], [2, 1]])
over('maxPool2d', lambda x: F.max_pool2d(x, 3, 2, 1), X(1, 2, 6, 7), args=[[3, 3], [2, 2], {'padding': [1, 1]}])
over('argMaxPool2d', lambda x: F.max_pool2d(x, (2, 3), (2, 1), return_indices=True)[1], X(2, 3, 6, 7),
     args=[{'kernel': [2, 3], 'stride': [2, 1], 'padding': [0, 0]}], grad=False)
over('globalAvgPool2d', lambda x: F.adaptive_avg_pool2d(x, 1), X(2, 3, 4, 5))
over('adaptiveAvgPool2d', lambda x: F.adaptive_avg_pool2d(x, (3, 2)), X(2, 3, 7, 5), args=[[3, 2]])
over('upsampleNearest1d', lambda x: F.interpolate(x, 7), X(2, 3, 4), args=[7])
over('upsampleNearest2d', lambda x: F.interpolate(x, (7, 5)), X(2, 3, 4, 6), args=[[7, 5]])
for align in (False, True):
    over('upsampleBilinear2d', lambda x: F.interpolate(x, (7, 5), mode='bilinear', align_corners=align), X(2, 3, 4, 6), args=[[7, 5], {'alignCorners': align}])

    def back(g, align=align):
        x = torch.zeros(2, 3, 4, 6, dtype=g.dtype, requires_grad=True)
        return torch.autograd.grad(F.interpolate(x, (7, 5), mode='bilinear', align_corners=align), x, g, create_graph=True)[0]

    over('upsampleBilinear2dBackward', back, X(2, 3, 7, 5), args=[{'size': [7, 5], 'alignCorners': align, 'scale': None, 'inputSize': [4, 6]}])
over('pixelShuffle', lambda x: F.pixel_shuffle(x, 2), X(2, 8, 3, 2), args=[2])
over('pixelUnshuffle', lambda x: F.pixel_unshuffle(x, 2), X(2, 2, 4, 6), args=[2])
for mode in ('reflect', 'replicate', 'circular'):
    over('padMode', lambda x: F.pad(x, (2, 1), mode=mode), X(2, 3, 4), args=[[2, 1], mode])
    over('padMode', lambda x: F.pad(x, (2, 1, 1, 2), mode=mode), X(1, 2, 3, 4), args=[[2, 1, 1, 2], mode])

# Softmax, norms, rotary embedding.
for dim in (1, 0):
    over('softmax', lambda x: x.softmax(dim), X(4, 7), args=[dim])
    over('logSoftmax', lambda x: x.log_softmax(dim), X(4, 7), args=[dim])
    over('softmaxBackward', lambda y, g: torch.ops.aten._softmax_backward_data(g, y, dim, y.dtype), lambda dt: {'y': rand(4, 7).softmax(dim), 'g': rand(4, 7)},
         args=['$g', dim], grad=False)
    over('logSoftmaxBackward', lambda y, g: torch.ops.aten._log_softmax_backward_data(g, y, dim, y.dtype),
         lambda dt: {'y': rand(4, 7).log_softmax(dim), 'g': rand(4, 7)}, args=['$g', dim], grad=False)


def slope_of(norm):
    def back(x, g, w):
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(norm(x, w), x, g)[0]
    return back


over('layerNorm', lambda x, w, b: F.layer_norm(x, (8,), w, b, 1e-3), lambda dt: {'x': rand(3, 8), 'w': rand(8), 'b': rand(8)}, args=['$w', '$b', {'eps': 1e-3}])
over('rmsNorm', lambda x, w: F.rms_norm(x, (8,), w, 1e-3), lambda dt: {'x': rand(3, 8), 'w': rand(8)}, args=['$w', {'eps': 1e-3}])
over('layerNormBackward', slope_of(lambda x, w: F.layer_norm(x, (8,), w, None, 1e-3)), lambda dt: {'x': rand(3, 8), 'g': rand(3, 8), 'w': rand(8)},
     args=['$g', '$w', {'eps': 1e-3}], grad=False)
over('rmsNormBackward', slope_of(lambda x, w: F.rms_norm(x, (8,), w, 1e-3)), lambda dt: {'x': rand(3, 8), 'g': rand(3, 8), 'w': rand(8)},
     args=['$g', '$w', {'eps': 1e-3}], grad=False)
over('groupNorm', lambda x, w, b: F.group_norm(x, 2, w, b, 1e-3), lambda dt: {'x': rand(2, 4, 5), 'w': rand(4), 'b': rand(4)}, args=[2, '$w', '$b', {'eps': 1e-3}])
over('batchNorm', lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-3), lambda dt: {'x': rand(5, 4, 3), 'w': rand(4), 'b': rand(4)},
     args=['$w', '$b', {'eps': 1e-3}])
HF = f'transformers {transformers.__version__}'


def halves(unsqueeze):
    def f(x, c, s):
        full = lambda t: torch.cat([t, t], -1).unsqueeze(0)
        return apply_rotary_pos_emb(x, x, full(c), full(s), unsqueeze_dim=unsqueeze)[0]
    return f


def neighbours(x, c, s):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * torch.complex(c, s)).flatten(-2)


def angles(time, width):
    a = torch.outer(torch.arange(time).double(), 10000.0 ** (-torch.arange(width).double() / width))
    return {'cos': a.cos(), 'sin': a.sin()}


over('rope', halves(1), lambda dt: {'x': rand(2, 3, 5, 8), **angles(5, 4)}, args=['$cos', '$sin'], by=HF)
over('ropeThd', halves(2), lambda dt: {'x': rand(2, 5, 3, 8), **angles(5, 4)}, args=['$cos', '$sin'], by=HF)
over('ropeI', neighbours, lambda dt: {'x': rand(2, 3, 5, 8), **angles(5, 4)}, args=['$cos', '$sin'])

# Attention.
QKV = lambda dt: {'q': rand(2, 4, 5, 8), 'k': rand(2, 2, 7, 8), 'v': rand(2, 2, 7, 8)}
late = torch.ones(5, 7).tril(2).bool()
over('sdpa', lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), QKV, args=['$k', '$v'])
over('sdpa', lambda q, k, v: F.scaled_dot_product_attention(q, k, v, late, enable_gqa=True), QKV, args=['$k', '$v', {'causal': True}])
over('sdpa', lambda q, k, v: F.scaled_dot_product_attention(q, k, v, late & ~torch.ones(5, 7).tril(-1).bool(), enable_gqa=True, scale=0.3), QKV,
     args=['$k', '$v', {'causal': True, 'window': [2, 0], 'scale': 0.3}])
starts_q, starts_k = torch.tensor([0, 2, 3, 6], dtype=torch.int32), torch.tensor([0, 4, 5, 9], dtype=torch.int32)


def packed(q, k, v, sq, sk):
    parts = []
    for a, b, c, d in zip(sq[:-1], sq[1:], sk[:-1], sk[1:]):
        mask = torch.ones(int(b - a), int(d - c)).tril(int(d - c) - int(b - a)).bool()
        part = F.scaled_dot_product_attention(*(t.transpose(0, 1).unsqueeze(0) for t in (q[a:b], k[c:d], v[c:d])), mask, enable_gqa=True)
        parts.append(part[0].transpose(0, 1))
    return torch.cat(parts)


over('sdpaVarlen', packed, lambda dt: {'q': rand(6, 2, 8), 'k': rand(9, 1, 8), 'v': rand(9, 1, 8), 'sq': starts_q, 'sk': starts_k},
     args=['$k', '$v', '$sq', '$sk', {'causal': True, 'maxQueries': 3, 'maxKeys': 4}], fixed=('sq', 'sk'))


def paged(q, k, v, pages, lengths):
    outs = []
    for b in range(q.shape[0]):
        rows = lambda t: torch.cat([t[int(p)] for p in pages[b]], 1)[:, :int(lengths[b])].unsqueeze(0)
        outs.append(F.scaled_dot_product_attention(q[b:b + 1], rows(k), rows(v), enable_gqa=True))
    return torch.cat(outs)


over('sdpaPaged', paged, lambda dt: {'q': rand(2, 2, 1, 8), 'k': rand(5, 1, 3, 8), 'v': rand(5, 1, 3, 8), 'pages': torch.tensor([[4, 0, 2], [1, 3, 0]], dtype=torch.int32),
                                    'lengths': torch.tensor([8, 4], dtype=torch.int32)}, args=['$k', '$v', '$pages', {'lengths': '$lengths'}],
     fixed=('pages', 'lengths'), grad=False)
over('sdpaDelta', lambda o, g: torch.linalg.vecdot(o, g), lambda dt: {'out': rand(2, 3, 5, 8), 'g': rand(2, 3, 5, 8)}, ['f64', 'f32'], args=['$g', 'bhtd'], grad=False)

WHOLE = {'layout': 'bhtd', 'scale': 8**-0.5, 'softcap': 0, 'left': -1, 'right': -1, 'extras': [], 'longest': [0, 0]}


def scores(q, k):
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * 8**-0.5


def attention(q, k, v):
    return scores(q, k).softmax(-1) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)


def attention_slopes(q, k, v, g, lse, delta):
    leaves = [t.detach().requires_grad_(True) for t in (q, k, v)]
    return torch.autograd.grad(attention(*leaves), leaves, g)


def attention_saved(dt):
    made = {n: t.to(NAMES[dt]).double() for n, t in QKV(dt).items()}
    out, g = attention(*made.values()), rand(2, 4, 5, 8).to(NAMES[dt]).double()
    return {**made, 'g': g, 'lse': scores(made['q'], made['k']).logsumexp(-1), 'delta': (out * g).sum(-1)}


over('sdpaRun', lambda q, k, v: (attention(q, k, v), scores(q, k).logsumexp(-1)), QKV, ['f64', 'f32'], args=['$k', '$v', WHOLE, []])
over('sdpaBackward', attention_slopes, attention_saved, ['f64', 'f32'], args=['$k', '$v', '$g', '$lse', '$delta', WHOLE, []], grad=False)

# Activations of several parts, losses, the rest.
half = lambda x: x.chunk(2, -1)
over('swiglu', lambda x: F.silu(half(x)[0]) * half(x)[1], X(3, 8))
over('geglu', lambda x: F.gelu(half(x)[0], approximate='tanh') * half(x)[1], X(3, 8))
over('relu2', lambda x: F.relu(x).square(), lambda dt: {'x': smooth()})
over('prelu', lambda x, s: F.prelu(x, s), lambda dt: {'x': rand(2, 3, 4), 'slope': rand(3)}, args=['$slope'])
over('prelu', lambda x, s: F.prelu(x, s), lambda dt: {'x': smooth(), 'slope': rand(1)}, args=['$slope'])
over('softcap', lambda x: torch.tanh(x / 2.5) * 2.5, lambda dt: {'x': smooth()}, args=[2.5])
over('gumbelSoftmax', lambda x, u: ((x - (-u.log()).log()) / 0.7).softmax(-1), lambda dt: {'x': rand(3, 5), 'u': rand(3, 5, lo=0.05, hi=0.95)}, args=[0.7, '$u'])
for p in (0.25, 0.9):
    over('dropout', lambda x, u: torch.where(u >= p, x / (1 - p), 0.0), lambda dt: {'x': rand(3, 5), 'u': rand(3, 5, lo=0, hi=1)}, args=[p, '$u'])
for places in (0, 1, 2):
    over('roundTo', lambda x: x.round(decimals=places), lambda dt: {'x': rand(4, 6, lo=-30, hi=30)}, ['f64', 'f32'], args=[places], grad=False)
classes = torch.tensor([1, 0, 4, 2])
for red in ('mean', 'sum', 'none'):
    pair = lambda dt: {'x': rand(3, 5), 'y': rand(3, 5)}
    over('l1Loss', lambda x, y: F.l1_loss(x, y, reduction=red), pair, args=['$y', {'reduction': red}])
    over('mse', lambda x, y: F.mse_loss(x, y, reduction=red), pair, args=['$y', {'reduction': red}])
    over('huber', lambda x, y: F.huber_loss(x, y, reduction=red, delta=0.7), pair, args=['$y', {'reduction': red, 'delta': 0.7}])
    over('bceWithLogits', lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction=red), lambda dt: {'x': rand(3, 5), 'y': rand(3, 5, lo=0, hi=1)},
         args=['$y', {'reduction': red}])
    over('nll', lambda x, t: F.nll_loss(x, t, reduction=red), lambda dt: {'x': rand(4, 5).log_softmax(1), 't': classes}, args=['$t', {'reduction': red}], fixed=('t',))
    over('crossEntropy', lambda x, t: F.cross_entropy(x, t, reduction=red, label_smoothing=0.1), lambda dt: {'x': rand(4, 5), 't': classes},
         args=['$t', {'reduction': red, 'labelSmoothing': 0.1}], fixed=('t',))

write('ops', f'{TORCH}, {HF}, {NUMPY}, {MPMATH}, {PY} and math; computed in double precision and rounded once')
