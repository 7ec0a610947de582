# Times products, convolutions and attention in PyTorch on the CPU: arguments are the number of threads and the names
# that bench/cpu.ts gives its work; prints {name: milliseconds} as JSON.
import json
import re
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(1)

torch.set_num_threads(int(sys.argv[1]))
torch.set_grad_enabled(False)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def product(name):
    m, k, _, n, dtype = re.match(r"matmul (\d+)x(\d+) by (\d+)x(\d+) (\w+)", name).groups()
    x, y = torch.randn(int(m), int(k)).to(DTYPES[dtype]), torch.randn(int(k), int(n)).to(DTYPES[dtype])
    return lambda: x @ y


def batched(name):
    count, m, k, _, n, dtype = re.match(r"matmul of (\d+): (\d+)x(\d+) by (\d+)x(\d+) (\w+)", name).groups()
    x, y = torch.randn(int(count), int(m), int(k)), torch.randn(int(count), int(k), int(n))
    x, y = x.to(DTYPES[dtype]), y.to(DTYPES[dtype])
    return lambda: x @ y


def row(name):
    k, n, dtype = re.match(r"one row by (\d+)x(\d+) (\w+)", name).groups()
    x, y = torch.randn(1, int(k)).to(DTYPES[dtype]), torch.randn(int(n), int(k)).to(DTYPES[dtype])
    return lambda: x @ y.t()


def attention(name):
    batch, heads, time, dim, causal = re.match(r"attention (\d+)x(\d+)x(\d+)x(\d+)(, causal)?", name).groups()
    q, k, v = (torch.randn(int(batch), int(time), int(heads), int(dim)).transpose(1, 2) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal is not None)


def convolution(name):
    batch, channels, side, filters, kernel, stride = map(
        int, re.match(r"conv2d (\d+)x(\d+)x\d+x(\d+) to (\d+), kernel (\d+), stride (\d+)", name).groups()
    )
    x, w = torch.randn(batch, channels, side, side), torch.randn(filters, channels, kernel, kernel)
    return lambda: F.conv2d(x, w, stride=stride, padding=(kernel - 1) // 2)


def best(step):
    step()
    milliseconds, end, rounds = float("inf"), time.perf_counter() + 0.4, 0
    while rounds < 6 or time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        milliseconds, rounds = min(milliseconds, 1000 * (time.perf_counter() - begin)), rounds + 1
    return milliseconds


WORKS = {"matmul of": batched, "matmul": product, "one row": row, "conv2d": convolution, "attention": attention}


def work(name):
    return next(make for begin, make in WORKS.items() if name.startswith(begin))(name)


print(json.dumps({name: best(work(name)) for name in sys.argv[2:]}))
