# Times scaled_dot_product_attention in PyTorch by the names that bench/attention.ts gives its cases, a line each on stdin, and prints {name: TFLOP/s} as JSON.
# With --one-order those of gradients stand there a second time, with " in one order" behind their names: as PyTorch adds them up where
# torch.use_deterministic_algorithms asks for it.
import json
import re
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(1)
if not torch.cuda.is_available():
    sys.exit(1)

from timing import seconds  # noqa: E402: PyTorch is there

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
CASE = re.compile(r"(forward|backward) (\w+) (\d+)x(\d+)(?:/(\d+))?x(\d+)x(\d+) (causal|full|window (\d+)|varlen|softcap|alibi|sinks)$")


def plain(q, k, v, causal, grouped):
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


def flash(q, k, v, starts, longest, window):
    """PyTorch's FlashAttention itself: what it has for windows and packed sequences."""
    more = {"window_size_left": window, "window_size_right": 0} if window else {}
    return lambda: torch.ops.aten._flash_attention_forward(q, k, v, starts, starts, longest, longest, 0.0, True, False, **more)[0]


def timed(name, kind, dtype, b, h, hk, t, d, how, window):
    b, h, t, d = int(b), int(h), int(t), int(d)
    hk, window = int(hk or h), int(window or 0)
    backward = kind == "backward"
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=TYPES[dtype], requires_grad=backward)  # noqa: E731
    if how in ("causal", "full"):
        q, k, v = (make(b, n, t, d) for n in (h, hk, hk))
        run = plain(q, k, v, how == "causal", hk != h)
    elif how == "varlen":
        q, k, v = (make(b * t, n, d) for n in (h, hk, hk))
        run = flash(q, k, v, torch.arange(b + 1, device="cuda", dtype=torch.int32) * t, t, 0)
    elif window:
        q, k, v = (make(b, t, n, d) for n in (h, hk, hk))
        run = flash(q, k, v, None, t, window)
    else:
        return None  # PyTorch has no kernel for it but those that flex_attention compiles
    seen = t * (window + 1) - window * (window + 1) / 2 if window else t * t if how == "full" else t * (t + 1) / 2
    flops = 4 * b * h * d * seen
    if not backward:
        with torch.no_grad():
            return flops / seconds(run, each=0.1) / 1e12
    out = run()
    g = torch.randn_like(out)
    return 2.5 * flops / seconds(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True), each=0.1) / 1e12


torch.utils.deterministic.fill_uninitialized_memory = False  # a help for finding faults, not a part of the work
results = {}
for name in sys.stdin.read().split("\n"):
    found = CASE.match(name)
    if not found:
        continue
    for one_order in (False, True) if "--one-order" in sys.argv and found[1] == "backward" else (False,):
        torch.use_deterministic_algorithms(one_order)
        try:
            rate = timed(name, *found.groups())
            if rate:
                results[f"{name} in one order" if one_order else name] = rate
        except Exception as e:  # noqa: BLE001: a release without the call leaves its case out
            print(f"{name}: {e}", file=sys.stderr)
print(json.dumps(results))
