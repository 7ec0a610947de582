# PyTorch's rates at the sizes of bench/growth.ts, given as {curve: sizes} in JSON; prints {curve: [[size, rate], ...]}.
# The language model is transformers' own Llama of the 1B shape with random weights, not compiled, its cache growing.
import json
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(1)
if not torch.cuda.is_available():
    sys.exit(1)

from timing import seconds  # noqa: E402: PyTorch is there

DEVICE, DTYPE, VOCABULARY = "cuda", torch.bfloat16, 128256
made = None


def elementwise(size):
    a, b = (torch.randn(size // 4, device=DEVICE) for _ in range(2))
    rate = 3 * size / seconds(lambda: a + b, 3, 0.1) / 1e9
    del a, b
    torch.cuda.empty_cache()
    return rate


def model():
    global made
    if made is None:
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
            num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=65536,
            rope_theta=500000.0, tie_word_embeddings=True, attn_implementation="sdpa",
        )
        torch.set_default_dtype(DTYPE)
        with torch.device(DEVICE):
            made = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    return made


def ids(rows, tokens):
    return (torch.arange(rows * tokens, device=DEVICE) * 7919 % VOCABULARY).view(rows, tokens)


@torch.inference_mode()
def prompt(tokens):
    m, x = model(), ids(1, tokens)
    return tokens / seconds(lambda: m(x, use_cache=False, logits_to_keep=1), 3, 0.2)


@torch.inference_mode()
def written(rows, context, tokens=12, rounds=4):
    """Tokens a second of so many answers behind so many tokens each; the best of four rounds."""
    m = model()
    out = m(ids(rows, context), use_cache=True, logits_to_keep=1)
    best = 0.0
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(tokens):
            out = m(out.logits[:, -1].argmax(-1, keepdim=True), past_key_values=out.past_key_values, use_cache=True)
        torch.cuda.synchronize()
        best = max(best, rows * tokens / (time.perf_counter() - begin))
    del out
    torch.cuda.empty_cache()
    return best


def threads(count):
    torch.set_num_threads(count)
    a, b = (torch.randn(1024, 1024) for _ in range(2))
    for _ in range(5):
        a @ b
    best = float("inf")
    for _ in range(50):
        begin = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - begin)
    return 2 * 1024**3 / best / 1e9


CURVES = {
    "elementwise": elementwise,
    "prompt": prompt,
    "decode": lambda context: written(1, context),
    "batch": lambda rows: written(rows, 512),
    "threads": threads,
}
results = {name: [[size, CURVES[name](size)] for size in sizes] for name, sizes in json.loads(sys.argv[1]).items()}
print(json.dumps(results))
