# Times attention, a training step and prefill in PyTorch on the GPU and prints {name: value} as JSON, by the names that bench/nn.ts gives them.
import json
import sys

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    sys.exit(1)
if not torch.cuda.is_available():
    sys.exit(1)

from timing import seconds  # noqa: E402: PyTorch is there

DEVICE, DTYPE = "cuda", torch.bfloat16
results = {}


def attention():
    with torch.no_grad():
        for b, h, t, d in ((4, 32, 4096, 128), (16, 16, 1024, 64), (4, 16, 4096, 256), (1, 16, 131072, 128)):
            q, k, v = (torch.randn(b, h, t, d, device=DEVICE, dtype=DTYPE) for _ in range(3))
            for causal in (True, False):
                flops = 4 * b * h * t * t * d * (0.5 if causal else 1)
                rate = flops / seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)) / 1e12
                results[f"attention forward bf16 {b}x{h}x{t}x{d}{' causal' if causal else ''}"] = rate
            del q, k, v
        q = torch.randn(1, 32, 1, 128, device=DEVICE, dtype=DTYPE)
        k, v = (torch.randn(1, 32, 32768, 128, device=DEVICE, dtype=DTYPE) for _ in range(2))
        best = seconds(lambda: F.scaled_dot_product_attention(q, k, v))
        results["decode attention bf16 32 heads, 32768 keys of 128"] = 2 * 32 * 32768 * 128 * 2 / best / 1e9
    b, h, t, d = 4, 16, 2048, 64
    q, k, v = (torch.randn(b, h, t, d, device=DEVICE, dtype=DTYPE, requires_grad=True) for _ in range(3))
    g = torch.randn(b, h, t, d, device=DEVICE, dtype=DTYPE)
    best = seconds(lambda: torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), g))
    results[f"attention forward and backward bf16 {b}x{h}x{t}x{d} causal"] = 3.5 * 4 * b * h * t * t * d * 0.5 / best / 1e12


class Block(nn.Module):
    def __init__(self, hidden, inner, heads, kv_heads, dim):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, dim
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * dim, bias=False)
        self.out = nn.Linear(heads * dim, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        y = self.qkv(self.norm1(x)).view(b, t, -1, self.dim).transpose(1, 2)
        q, k, v = y.split((self.heads, self.kv_heads, self.kv_heads), 1)

        def turn(z):
            left, right = z.chunk(2, -1)
            return z * cos + torch.cat((-right, left), -1) * sin

        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, vocab, hidden, inner, layers, heads, kv_heads, dim, context, theta, tied):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, inner, heads, kv_heads, dim) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        angles = torch.outer(torch.arange(context).float(), theta ** (-torch.arange(0, dim, 2).float() / dim))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, last=False):
        t = ids.shape[1]
        cos, sin = self.cos[:t].to(DTYPE), self.sin[:t].to(DTYPE)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x[:, -1:] if last else x))


def made(*sizes):
    """A model with random bf16 weights, made on the device."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPE)
    with torch.device(DEVICE):
        model = Llama(*sizes)
    torch.set_default_dtype(before)
    return model


def training():
    batch, context, hidden, layers = 32, 1024, 512, 8
    inner = round(hidden * 8 / 3 / 64) * 64
    ids = (torch.arange(batch * context, device=DEVICE) * 7919 % 8192).view(batch, context)
    # The fair twin of what wick does: bf16 weights in the model, f32 masters that AdamW moves; and PyTorch's usual way, autocast over f32.
    for way in ("bf16 weights, f32 masters", "autocast"):
        torch.manual_seed(1)
        if way == "autocast":
            with torch.device(DEVICE):
                model = Llama(8192, hidden, inner, layers, hidden // 64, hidden // 64, 64, context, 10000.0, True)
        else:
            model = made(8192, hidden, inner, layers, hidden // 64, hidden // 64, 64, context, 10000.0, True)
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
        params = list(model.parameters())
        masters = params if way == "autocast" else [p.detach().float().requires_grad_() for p in params]
        optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)

        def step():
            if way == "autocast":
                with torch.autocast("cuda", DTYPE):
                    logits = model(ids)
                loss = F.cross_entropy(logits.float().flatten(0, 1), ids.flatten())
                loss.backward()
            else:
                loss = F.cross_entropy(model(ids).float().flatten(0, 1), ids.flatten())
                loss.backward()
                for m, p in zip(masters, params):
                    m.grad, p.grad = p.grad.float(), None
            nn.utils.clip_grad_norm_(masters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if way != "autocast":
                with torch.no_grad():
                    torch._foreach_copy_(params, masters)

        count = sum(p.numel() for p in model.parameters())
        rate = batch * context / seconds(step, 3, 0.5)
        name = f"training step of {count / 1e6:.1f}M parameters bf16, {batch}x{context} tokens"
        results[f"{name} ({way})"] = rate
        results[name] = max(rate, results.get(name, 0))
        del model, optimizer, params, masters


def prefill():
    shapes = {"1b": (2048, 8192, 16, 32, 8, 64, True), "8b": (4096, 14336, 32, 32, 8, 128, False)}
    for name, (hidden, inner, layers, heads, kv_heads, dim, tied) in shapes.items():
        model = made(128256, hidden, inner, layers, heads, kv_heads, dim, 4096, 500000.0, tied).eval()
        ids = (torch.arange(2048, device=DEVICE) * 7919 % 128256).view(1, -1)
        with torch.no_grad():
            results[f"prefill 2048 tokens, Llama {name} bf16"] = 2048 / seconds(lambda: model(ids, last=True), 3, 0.3)
        del model
        torch.cuda.empty_cache()


parts = {"attention": attention, "train": training, "prefill": prefill}
for part in (sys.argv[1] if len(sys.argv) > 1 else ",".join(parts)).split(","):
    parts[part]()
print(json.dumps(results))
