"""Cases of ops as golden-ops.py and golden-breadth.py record them.

Inputs are rounded to the case's dtype; results and gradients are computed from them in double precision and rounded once, so
they are the numbers that a correct op of that dtype gives. A case is
    { id, op, dtype, by, args, inputs, outputs, grad_output?, grads?, layouts? }
where op is our method of the first input, args are its arguments ("$name" is an input, {"$number": "Infinity"} a number that
JSON cannot hold), and layouts say how an input is viewed: {"permute": [...]} or {"dim": d, "step": n} of what is stored.
"""
import json, math, os, subprocess
import torch
from safetensors.torch import save_file

torch.manual_seed(2026)
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'test', 'golden')
TORCH = f'PyTorch {torch.__version__}'
NAMES = {'f64': torch.float64, 'f32': torch.float32, 'f16': torch.float16, 'bf16': torch.bfloat16, 'u8': torch.uint8,
         'i16': torch.int16, 'i32': torch.int32, 'i64': torch.int64, 'f8e4m3': torch.float8_e4m3fn}
FLOATS = ['f64', 'f32', 'f16', 'bf16']
INTS = ['i64', 'i32', 'i16', 'u8']
tensors, cases, known = {}, [], {}
inf, nan = math.inf, math.nan


def is_float(dt):
    return dt in ('f64', 'f32', 'f16', 'bf16', 'f8e4m3')


def kept(t):
    """The tensor's name among those stored; equal ones are stored once."""
    t = t.detach().contiguous().clone()
    if t.dtype == torch.bool:
        t = t.to(torch.uint8)
    key = (str(t.dtype), tuple(t.shape), t.reshape(-1).view(torch.uint8).numpy().tobytes())
    if key not in known:
        known[key] = f't{len(known)}'
        tensors[known[key]] = t
    return known[key]


def told(a):
    if isinstance(a, float) and not math.isfinite(a):
        return {'$number': 'NaN' if a != a else 'Infinity' if a > 0 else '-Infinity'}
    if isinstance(a, (list, tuple)):
        return [told(v) for v in a]
    return {k: told(v) for k, v in a.items()} if isinstance(a, dict) else a


def rand(*shape, lo=-2.0, hi=2.0):
    return torch.rand(shape, dtype=torch.float64) * (hi - lo) + lo


def whole(*shape, lo=-9, hi=10):
    return torch.randint(lo, hi, shape).double()


def case(op, f, dt, inputs, args=(), grad=True, by=TORCH, out=None, fixed=(), layout=None):
    """f(*inputs in double) gives the results; `fixed` inputs keep their own dtype; layout views the first input."""
    stored, views, leaves, layouts = {}, [], {}, {}
    for i, (name, t) in enumerate(inputs.items()):
        base = t if name in fixed else t.to(NAMES[dt])
        if i == 0 and layout == 'permuted' and base.dim() >= 2:
            perm = list(range(base.dim()))[::-1]
            base = base.permute(perm).contiguous()
            layouts[name] = {'permute': perm}
        elif i == 0 and layout == 'stepped' and base.dim() >= 1:
            wide = torch.zeros([*base.shape[:-1], base.shape[-1] * 2], dtype=base.dtype)
            wide[..., ::2] = base
            base = wide
            layouts[name] = {'dim': -1, 'step': 2}
        elif i == 0 and layout:
            return
        stored[name] = kept(base)
        leaf = base.double() if base.is_floating_point() else base
        if grad and base.is_floating_point() and is_float(dt):
            leaf.requires_grad_(True)
            leaves[name] = leaf
        lay = layouts.get(name, {})
        views.append(leaf.permute(lay['permute']) if 'permute' in lay else leaf[..., ::2] if 'step' in lay else leaf)
    results = f(*views)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    rounded = [(r.detach().to(NAMES[out]) if out else r.detach().to(NAMES[dt]) if r.is_floating_point() and is_float(dt) else r.detach()) for r in results]
    c = {'id': f'o{len(cases):04d}', 'op': op, 'dtype': dt, 'by': by, 'args': told(list(args)), 'inputs': stored,
         'outputs': {f'y{i}': kept(r) for i, r in enumerate(rounded)}}
    if layouts:
        c['layouts'] = layouts
    first = results[0]
    if leaves and first.requires_grad:
        g = rand(*first.shape).to(NAMES[out or dt])
        got = torch.autograd.grad(first, list(leaves.values()), g.double(), allow_unused=True)
        c['grad_output'] = kept(g)
        c['grads'] = {n: kept((torch.zeros_like(l) if d is None else d).to(NAMES[dt])) for (n, l), d in zip(leaves.items(), got)}
    cases.append(c)


def over(op, f, make, dts=FLOATS, args=(), **more):
    """A case for each dtype, and for f32 views of the first input."""
    for dt in dts:
        case(op, f, dt, make(dt) if callable(make) else make, args, **more)
    if 'f32' in dts:
        for layout in ('permuted', 'stepped'):
            case(op, f, 'f32', make('f32') if callable(make) else make, args, layout=layout, **more)


# Elementwise: edge values without gradients, then kinks and random values with them.
EDGES = [0.0, -0.0, inf, -inf, nan, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5, 1.0, -1.0, 3.0, -3.0, 6.0, 1e-8, -1e-8, 0.1, -0.1, 20.0, -20.0,
         88.0, -88.0, 700.0, -700.0, 1e4, -1e4, 6e-8, 1e-40, 5e-324, 65504.0, 3e38, 1e300, 0.99999994, 1.0000001]
KINKS = [0.0, 6.0, -3.0, 3.0, 0.5, -0.5, 1.0, -1.0, 2.5]


def edges(dt):
    if is_float(dt):
        return torch.cat([torch.tensor(EDGES, dtype=torch.float64), rand(20, lo=-4, hi=4)])
    info = torch.iinfo(NAMES[dt])
    return torch.cat([torch.tensor([0, 1, 2, 3, 100, info.max, info.min, info.max - 1]), torch.randint(max(-100, info.min), 100, (16,))])


def smooth(lo=-4.0, hi=4.0, kinks=True):
    k = [v for v in KINKS if lo <= v <= hi] if kinks else []
    t = torch.cat([torch.tensor(k, dtype=torch.float64), rand(24 - len(k), lo=lo, hi=hi)])
    return t.reshape(4, 6)


def write(name, source):
    """Packs all cases into test/golden/NAME.json.br and NAME.safetensors.br."""
    save_file(tensors, os.path.join(OUT, f'{name}.safetensors'))
    with open(os.path.join(OUT, f'{name}.json'), 'w') as f:
        json.dump({'source': source, 'cases': cases}, f, allow_nan=False, separators=(',', ':'))
    pack = '''const { brotliCompressSync } = require('node:zlib'); const fs = require('node:fs');
for (const f of process.argv.slice(1)) { fs.writeFileSync(f + '.br', brotliCompressSync(fs.readFileSync(f))); fs.unlinkSync(f); }'''
    subprocess.run(['node', '-e', pack, *(os.path.join(OUT, f'{name}.{ext}') for ext in ('json', 'safetensors'))], check=True)
    print(len(cases), 'cases of', len({c.get('op') for c in cases}), 'ops,', len(tensors), 'tensors')
