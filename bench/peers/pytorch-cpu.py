# Times products and convolutions in PyTorch on the CPU: arguments are the number of threads and the names that
# bench/cpu.ts gives its work; prints {name: milliseconds} as JSON.
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


print(json.dumps({name: best((product if name.startswith("matmul") else convolution)(name)) for name in sys.argv[2:]}))
