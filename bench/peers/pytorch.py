# Times the same work in PyTorch on the GPU and prints {name: milliseconds} as JSON. Called by bench/gpu.ts where PyTorch is installed.
import json
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(1)
if not torch.cuda.is_available():
    sys.exit(1)

GIB = 2**30
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
results = {}
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
torch.set_grad_enabled(False)


def clock(name, step):
    for _ in range(3):
        step()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def once(times):
        start.record()
        for _ in range(times):
            step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / times

    times = max(3, min(50, int(10 / once(2)) + 1))
    results[name] = min(once(times) for _ in range(4))


def rand(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=DTYPES[dtype])


x = rand(GIB // 4, dtype="f32")
clock("copy 1 GiB", lambda: x.clone())
for dtype, size in (("f32", 4), ("bf16", 2)):
    x, y = rand(GIB // size, dtype=dtype), rand(GIB // size, dtype=dtype)
    clock(f"exp 1 GiB {dtype}", lambda: x.exp())
    clock(f"gelu 1 GiB {dtype}", lambda: F.gelu(x, approximate="tanh"))
    clock(f"affine 1 GiB {dtype}", lambda: x * 2)
    clock(f"cast 1 GiB {dtype}", lambda: x.to(torch.bfloat16 if dtype == "f32" else torch.float32))
    clock(f"add 1 GiB {dtype}", lambda: x + y)
del x, y
for dtype in ("f32", "bf16"):
    for r, c in ((65536, 4096), (16384, 16384), (1048576, 128)):
        x, w = rand(r, c, dtype=dtype), rand(c, dtype=dtype)
        clock(f"sum {r}x{c} {dtype}", lambda: x.sum(-1))
        clock(f"argmax {r}x{c} {dtype}", lambda: x.argmax(-1))
        clock(f"softmax {r}x{c} {dtype}", lambda: x.softmax(-1))
        clock(f"layerNorm {r}x{c} {dtype}", lambda: F.layer_norm(x, (c,), w, w))
        clock(f"rmsNorm {r}x{c} {dtype}", lambda: F.rms_norm(x, (c,), w))
        del x, w
x = rand(16384, 16384, dtype="f32")
clock("transposed copy 16384x16384 f32", lambda: x.t().contiguous())
x, ids = rand(65536, 1024, dtype="bf16"), torch.randint(0, 65536, (65536,), device="cuda")
clock("indexSelect 65536 rows of 1024 bf16", lambda: x.index_select(0, ids))
for r, c in ((16384, 1024), (64, 131072)):
    x = rand(r, c, dtype="f32")
    clock(f"argsort {r}x{c} f32", lambda: x.argsort(-1))
for n, dtype in ((8192, "bf16"), (8192, "f16"), (4096, "f32")):
    x, y = rand(n, n, dtype=dtype), rand(n, n, dtype=dtype)
    clock(f"matmul {n} {dtype}", lambda: x @ y)
for dtype in ("f32", "f16"):
    x, w = rand(32, 64, 56, 56, dtype=dtype), rand(64, 64, 3, 3, dtype=dtype)
    for tf32 in (False, True) if dtype == "f32" else (False,):
        torch.backends.cudnn.allow_tf32 = tf32
        ending = f"{dtype} tf32" if tf32 else dtype
        clock(f"conv2d 32x64x56x56 k3 {ending}", lambda: F.conv2d(x, w, padding=1))
        clock(f"convTranspose2d 32x64x56x56 k3 {ending}", lambda: F.conv_transpose2d(x, w, padding=1))
    torch.backends.cudnn.allow_tf32 = False
x = rand(16384, 4096, dtype="f32")
clock("cumsum 16384x4096 f32", lambda: x.cumsum(-1))
print(json.dumps(results))
