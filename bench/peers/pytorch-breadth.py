# Times the works of bench/breadth-works.ts, given as JSON on standard input; prints {name: milliseconds or a sentence}.
import json
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit(1)

given = json.load(sys.stdin)
DEVICE, EACH = given["device"], given["seconds"]
DTYPES = {
    "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
    "bool": torch.bool,
}
if DEVICE == "cuda" and not torch.cuda.is_available():
    sys.exit(1)
# f32 stays f32 on both sides: convolutions and recurrent nets, too, which PyTorch else rounds to TF32.
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False
if "threads" in given:
    torch.set_num_threads(given["threads"])


def operand(text):
    kind, dtype, shape = text.split(" ")
    shape = [int(n) for n in shape.split("x")]
    dtype = DTYPES[dtype]
    if kind.startswith("ids<"):
        return torch.randint(0, int(kind[4:]), shape, device=DEVICE).to(dtype)
    if kind == "truth":
        return torch.rand(shape, device=DEVICE) < 0.5
    if kind == "unit":
        return torch.rand(shape, device=DEVICE).to(dtype)
    if kind == "positive":
        return (torch.rand(shape, device=DEVICE) + 0.5).to(dtype)
    x = torch.randn(shape, device=DEVICE)
    if kind == "sorted":
        x = x.sort().values
    if kind == "definite":
        x = x @ x.mT / shape[-1] + torch.eye(shape[-1], device=DEVICE)
    return x.to(dtype)


def grad(value, *of):
    return torch.autograd.grad(value.sum(), of)


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def best(step):
    step()
    step()
    sync()
    begin = time.perf_counter()
    step()
    sync()
    times = max(1, min(2000, round(EACH / max(1e-6, time.perf_counter() - begin))))
    shortest = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(times):
            step()
        sync()
        shortest = min(shortest, (time.perf_counter() - begin) / times)
    return 1000 * shortest


answers = {}
for work in given["works"]:
    try:
        names = {name: operand(text) for name, text in work["inputs"].items()}
        for name in work.get("grad", []):
            names[name].requires_grad_()
        code = compile(work["torch"], work["name"], "eval")
        scope = {**names, "torch": torch, "F": F, "nn": nn, "grad": grad}
        with torch.set_grad_enabled("grad" in work):
            answers[work["name"]] = best(lambda: eval(code, scope))
    except Exception as e:  # one work that fails is said, the others go on
        answers[work["name"]] = str(e).split("\n")[0][:200]
    names = scope = None
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
print(json.dumps(answers))
