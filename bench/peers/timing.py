# How the PyTorch peers take times.
import time

import torch


def seconds(step, rounds=3, each=0.2):
    """The best of several rounds, each long enough to time: as bench/nn.ts does it."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    times = max(1, round(each / max(1e-6, time.perf_counter() - begin)))
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(times):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / times)
    return best
