# What one small op costs in PyTorch on the CPU: prints {name: nanoseconds} as JSON, by the names of bench/per-op.ts.
import json
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(1)

torch.set_grad_enabled(False)
a, b, grid, row, weight = torch.randn(4), torch.randn(4), torch.randn(16, 16), torch.randn(1, 256), torch.randn(256, 256)
gain = torch.randn(256)
WORKS = {
    "add of 4": lambda: a + b,
    "add of 4 and a number": lambda: a + 2,
    "add of 16x16 and 16": lambda: grid + grid[:1],
    "transpose (a view)": lambda: grid.transpose(0, 1),
    "reshape (a view)": lambda: grid.reshape(256),
    "sum of 16x16 along 1": lambda: grid.sum(1),
    "softmax of 16x16": lambda: grid.softmax(1),
    "rmsNorm of 256": lambda: torch.nn.functional.rms_norm(row, (256,), gain),
    "matmul 1x256x256": lambda: row @ weight,
}


def best(work, rounds=20, calls=2000):
    for _ in range(calls):
        work()
    least = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            work()
        least = min(least, (time.perf_counter_ns() - begin) / calls)
    return round(least)


print(json.dumps({name: best(work) for name, work in WORKS.items()}))
