# Times scaled_dot_product_attention in PyTorch by the names that bench/attention.ts gives its cases, a line each on stdin, and prints {name: TFLOP/s} as JSON.
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
CASE = re.compile(r"(forward|backward) (\w+) (\d+)x(\d+)(?:/(\d+))?x(\d+)x(\d+) (causal|full)$")


results = {}
for name in sys.stdin.read().split("\n"):
    found = CASE.match(name)
    if not found:
        continue
    kind, dtype, b, h, hk, t, d, how = found.groups()
    b, h, t, d = int(b), int(h), int(t), int(d)
    hk, causal = int(hk or h), how == "causal"
    backward = kind == "backward"
    q, k, v = (torch.randn(b, n, t, d, device="cuda", dtype=TYPES[dtype], requires_grad=backward) for n in (h, hk, hk))
    run = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=hk != h)  # noqa: E731
    flops = 4 * b * h * d * (t * (t + 1) / 2 if causal else t * t)
    if backward:
        out = run()
        g = torch.randn_like(out)
        results[name] = 2.5 * flops / seconds(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True), each=0.1) / 1e12
        del out, g
    else:
        with torch.no_grad():
            results[name] = flops / seconds(run, each=0.1) / 1e12
    del q, k, v
print(json.dumps(results))
