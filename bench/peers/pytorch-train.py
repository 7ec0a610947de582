# Times training steps in PyTorch by the names that bench/train.ts gives its shapes and prints {name: {eager, compiled, ...}} as JSON: tokens a second, peak gigabytes, seconds of the first step.
# bf16 autocast over f32 weights, clipping, fused AdamW: PyTorch's usual way. Arguments: names by commas, then "eager" or "eager,compiled".
import json
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    sys.exit(1)
if not torch.cuda.is_available():
    sys.exit(1)

DEVICE = "cuda"


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cos, sin):
        b, t, n = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(n, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, n))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, n = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(n, 2))

        def turn(z):
            left, right = z.chunk(2, -1)
            return z * cos + torch.cat((-right, left), -1) * sin

        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, n))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, kind, layers, width, heads, inner, vocab, context):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width) if kind == "gpt2" else None
        block = (lambda: Gpt2Block(width, heads)) if kind == "gpt2" else (lambda: LlamaBlock(width, heads, inner))
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.norm = nn.LayerNorm(width) if kind == "gpt2" else nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight
        dim = width // heads
        angles = torch.outer(torch.arange(context).float(), 10000.0 ** (-torch.arange(0, dim, 2).float() / dim))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angles.sin().bfloat16(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, ids):
        x = self.embed(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), ids.flatten())


SHAPES = {
    "30m": (16, 1024, ("gpt2", 6, 384, 6, 1536, 50304, 1024)),
    "124m": (16, 1024, ("gpt2", 12, 768, 12, 3072, 50304, 1024)),
    "350m": (16, 1024, ("gpt2", 24, 1024, 16, 4096, 50304, 1024)),
    "774m": (16, 1024, ("gpt2", 36, 1280, 20, 5120, 50304, 1024)),
    "1.3b": (4, 2048, ("llama", 24, 2048, 16, 5632, 50304, 2048)),
}
results = {}
names, ways = sys.argv[1].split(","), (sys.argv[2] if len(sys.argv) > 2 else "eager,compiled").split(",")
for name in names:
    if name not in SHAPES:
        continue
    batch, context, sizes = SHAPES[name]
    ids = (torch.arange(batch * context, device=DEVICE) * 7919 % sizes[5]).view(batch, context)
    results[name] = {}
    for way in ways:
        torch.manual_seed(1)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with torch.device(DEVICE):
            model = Model(*sizes)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        run = torch.compile(model) if way == "compiled" else model

        def step():
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(ids)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        first = time.perf_counter() - begin
        for _ in range(3):
            step()
        best = float("inf")
        for _ in range(3):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(8):
                step()
            torch.cuda.synchronize()
            best = min(best, (time.perf_counter() - begin) / 8)
        results[name][way] = batch * context / best
        results[name][f"{way}GB"] = torch.cuda.max_memory_allocated() / 1e9
        results[name][f"{way}First"] = first
        print(name, way, results[name], file=sys.stderr)
        del model, optimizer, run
print(json.dumps(results))
