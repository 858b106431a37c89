"""LoRA training beside PEFT's: tokens a second, peak memory and losses, in one run.

    python bench/lora.py                                     a GPU: SmolLM2-135M's shape, 8 x 512
    python bench/lora.py --compile --peers regard,peft       both compiled
    python bench/lora.py --dim 64 --depth 2 --vocab 500 --batch 2 --length 64 --steps 4   a CPU

Every peer gets the same random base and the same adapter at the start, the same batches, AdamW
and clipping, under bf16 autocast on a GPU; losses tell that they do the same work. Each round runs
every peer in a process of its own, so that neither sees the other's memory; peers take turns.
peft-bf16 is PEFT on a base whose weights are bf16.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

PEERS = ("regard", "peft", "peft-bf16")
RATE = 1e-3
Step = Callable[[Tensor], float]


def make_inputs(place: Path, args: argparse.Namespace) -> None:
    """A base as transformers saves it, and a new adapter of it."""
    import regard
    from regard.model.presets import llama
    from regard.tune.lora import attach

    heads = args.dim // 64
    groups = 3 if heads % 3 == 0 else 1
    hidden = args.dim * 8 // 3
    shape = llama(args.dim, args.depth, heads, groups, hidden, args.vocab, 2048)
    kit = regard.build(shape)
    kit.binding = regard.interop.families.bind("LlamaForCausalLM")
    kit.save(place / "base")
    kit = regard.load(place / "base", device="cpu")
    attach(kit.model, regard.LoRA.parse(args.lora))
    kit.save(place / "adapter")


def regard_step(place: Path, args: argparse.Namespace, device: str) -> Step:
    """A step of the one training loop."""
    from regard.data.windows import Examples
    from regard.loading import load_kit
    from regard.train.config import TrainConfig
    from regard.train.trainer import Trainer, TrainJob

    model = load_kit(place / "adapter", device=device, precision=None).model.train()
    precision = "bf16" if device == "cuda" else "fp32"
    how = {"weight_decay": 0.0, "schedule": "constant", "warm_up": 0, "lr": RATE}
    config = TrainConfig(precision=precision, compile=args.compile, length=args.length, **how)
    trainer = Trainer(TrainJob(config, model))

    def step(ids: Tensor) -> float:
        inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        return trainer.step([Examples(inputs, labels, labels.numel())])["loss"]

    return step


def peft_step(place: Path, args: argparse.Namespace, device: str, dtype: torch.dtype) -> Step:
    """The usual loop around PEFT's model."""
    from peft import PeftModel
    from transformers import LlamaForCausalLM

    base = LlamaForCausalLM.from_pretrained(place / "base", dtype=dtype).to(device)
    model: Any = PeftModel.from_pretrained(base, place / "adapter", is_trainable=True).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    run = torch.compile(model) if args.compile else model

    def step(ids: Tensor) -> float:
        inputs, labels = (part.contiguous().to(device) for part in (ids[:, :-1], ids[:, 1:]))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = run(input_ids=inputs, labels=labels, shift_labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


def measure(peer: str, place: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One peer in this process: speed after the warm-up, peak memory, losses."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if peer == "regard":
        step = regard_step(place, args, device)
    else:
        low = torch.bfloat16 if peer == "peft-bf16" else torch.float32
        step = peft_step(place, args, device, low)
    draw = torch.Generator().manual_seed(1)
    size = args.batch, args.length + 1
    batches = [torch.randint(args.vocab, size, generator=draw) for _ in range(args.steps)]
    losses = [step(batch) for batch in batches[: args.warm_up]]
    began = time.perf_counter()
    losses += [step(batch) for batch in batches[args.warm_up :]]  # the loss waits for the device
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    speed = args.batch * args.length * (args.steps - args.warm_up) / seconds
    return {"tokens_per_s": speed, "peak_bytes": peak, "losses": losses}


def main() -> None:
    """Run all peers in turns and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = {"dim": 576, "depth": 30, "vocab": 49152, "batch": 8, "length": 512, "steps": 40}
    for name, default in (sizes | {"warm-up": 10, "rounds": 3}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lora", default="r=8")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a peer, in a child
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.warm_up = min(args.warm_up, args.steps // 2)
    if args.one:
        print(json.dumps(measure(args.one, args.place, args)))
        return
    peers = args.peers.split(",")
    seen: dict[str, list[dict[str, Any]]] = {peer: [] for peer in peers}
    with tempfile.TemporaryDirectory() as name:
        make_inputs(Path(name), args)
        for _ in range(args.rounds):
            for peer in peers:
                command = [sys.executable, *sys.argv, "--one", peer, "--place", name]
                said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
                seen[peer].append(json.loads(said.stdout.splitlines()[-1]))
                print(peer, f"{seen[peer][-1]['tokens_per_s']:,.0f} tokens/s", file=sys.stderr)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    compiled = ", compiled" if args.compile else ""
    print(f"{device}, {args.batch} x {args.length} tokens, --lora {args.lora}{compiled}")
    print(f"{'':12}{'tokens/s':>12}{'(spread)':>20}{'peak MiB':>10}{'first loss':>12}{'last':>9}")
    for peer, rounds in seen.items():
        speeds = [one["tokens_per_s"] for one in rounds]
        spread = f"{min(speeds):,.0f} to {max(speeds):,.0f}"
        peak = max(one["peak_bytes"] for one in rounds) / 2**20
        losses = rounds[0]["losses"]
        figures = f"{statistics.median(speeds):12,.0f}{spread:>20}{peak:10,.0f}"
        print(f"{peer:12}{figures}{losses[0]:12.4f}{losses[-1]:9.4f}")


if __name__ == "__main__":
    main()
