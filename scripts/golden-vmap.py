# Writes test/golden/vmap.json: what torch.func answers to the functions of test/vmap.test.ts, by name.
import json
import sys

import torch
import torch.nn.functional as F
from torch.func import grad, hessian, jacrev, jvp, vjp, vmap


def numbers(*shape, at=0):
    count = 1
    for n in shape:
        count *= n
    return torch.tensor([((7 * (i + at)) % 11 - 5) / 4 for i in range(count)], dtype=torch.float64).reshape(shape)


A, B, W = numbers(4, 3), numbers(4, 3, at=5), numbers(3, 2, at=2)
LABELS = torch.tensor([0, 1, 1, 0])


def loss(w, x, y):
    return F.cross_entropy((x @ w).tanh().unsqueeze(0), y.unsqueeze(0))


def cubes(x):
    return (x * x * x).sum()


CASES = {
    'distance': lambda: vmap(lambda a, b: (a - b).norm())(A, B),
    'in dims': lambda: vmap(lambda a, b: a * b, in_dims=(1, None))(A, numbers(4)),
    'out dims': lambda: vmap(lambda a: a.outer(a), out_dims=2)(A),
    'two results': lambda: torch.cat([t.flatten() for t in vmap(lambda a: (a.sum(), a.exp()), out_dims=(0, 1))(A)]),
    'pairs': lambda: vmap(vmap(lambda a, b: a @ b, in_dims=(None, 0)), in_dims=(0, None))(A, B),
    'shared matrix': lambda: vmap(lambda a: a @ W)(A),
    'own rows': lambda: vmap(lambda t, i: t[i])(numbers(4, 5, 2), torch.tensor([[0, 4], [1, 1], [3, 2], [2, 0]])),
    'softmax': lambda: vmap(lambda a: a.softmax(0).cumsum(0).flip(0))(A),
    'no mapped result': lambda: vmap(lambda a: W)(A),
    'gradients by example': lambda: vmap(grad(loss), in_dims=(None, 0, 0))(W, A, LABELS),
    'gradient of gradients': lambda: grad(lambda a: vmap(grad(cubes))(a).square().sum())(A),
    'hessians': lambda: vmap(hessian(lambda x: x.prod() * x.sum()))(A),
    'jacobian': lambda: jacrev(lambda x: (x @ W).sin())(A),
    'jvp': lambda: vmap(lambda a, b: jvp(lambda x: x.sin() * x.sum(), (a,), (b,))[1])(A, B),
    'vjp': lambda: vmap(lambda a, b: vjp(lambda x: x.sin() * x.sum(), a)[1](b)[0])(A, B),
    'own kernels': lambda: vmap(lambda x, w: F.conv1d(x, w, padding=1))(numbers(4, 2, 2, 5), numbers(4, 3, 2, 3, at=4)),
    'layer norm weights': lambda: vmap(grad(lambda w, x: (F.layer_norm(x, (3,), w) ** 3).sum()), in_dims=(None, 0))(
        numbers(3, at=3), A
    ),
}

json.dump(
    {'torch': torch.__version__, 'cases': {k: f().tolist() for k, f in CASES.items()}},
    open(sys.argv[1], 'w'),
    separators=(',', ':'),
)
