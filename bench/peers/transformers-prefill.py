"""Prefill by transformers, not compiled, for bench/nn.ts: random weights in the shapes whose config.json stands on
standard input as {name: config}; prints {"prefill 2048 tokens, NAME bf16": tokens a second}."""

import gc
import json
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = 2048


def model_of(config: dict):
    fields = dict(config)
    # JSON writes 1.0 as 1, which newer versions refuse where they want a float.
    for name in ("routed_scaling_factor", "rope_theta", "rope_local_base_freq"):
        if name in fields:
            fields[name] = float(fields[name])
    made = AutoConfig.for_model(fields.pop("model_type"), **fields)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    finally:
        torch.set_default_dtype(before)


@torch.inference_mode()
def prefill(model) -> float:
    ids = (torch.arange(TOKENS, device="cuda") * 7919 % model.config.vocab_size)[None]

    def run() -> None:
        model(ids, use_cache=False, logits_to_keep=1)

    run()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 3)
    return TOKENS / best


def main() -> None:
    rates = {}
    for name, config in json.load(sys.stdin).items():
        try:
            model = model_of(config)
            rates[f"prefill {TOKENS} tokens, {name} bf16"] = prefill(model)
            experts = getattr(model.config, "_experts_implementation", None)
            print(name, rates[f"prefill {TOKENS} tokens, {name} bf16"], f"experts: {experts}", file=sys.stderr)
        except Exception as error:  # a shape that this version does not know is left out
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        model = None
        gc.collect()
        torch.cuda.empty_cache()
    print(json.dumps(rates))


main()
