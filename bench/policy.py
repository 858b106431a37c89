"""A language model of ten million weights learns from rewards: how far, at what divergence.

    python bench/policy.py TEXT --device cuda --minutes 1.5 --steps 400
    python bench/policy.py TEXT --dim 64 --depth 2 --minutes 0.3 --steps 32 --answers 64   a CPU

TEXT holds a sentence a line. A model learns them; the beginnings of others are the prompts. The
reward of an answer is the mean weight of its words, drawn from N(0, 1) by a hash of each word, or
with --judge the log-odds of the positive class of a folder that `tune classify` made. Printed:
best-of-n and the policy, each with its reward, its divergence in nats, and its gain in deviations
of the reward over the model as it was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import regard
from regard.tune import policy_rollouts


@cache
def weight(word: str) -> float:
    """A draw from N(0, 1) that is always the same for a word."""
    number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:6], "big")
    return NormalDist().inv_cdf((number + 1) / (2**48 + 2))


def planted(answers: Sequence[str], prompts: Sequence[Any]) -> list[float]:
    """The mean weight of the words of each answer; none is 0."""
    words = (re.findall(r"\w+", answer.lower()) for answer in answers)
    return [sum(map(weight, some)) / max(len(some), 1) for some in words]


@cache
def open_judge() -> regard.Kit:
    """The classifier of --judge."""
    return regard.load(os.environ["JUDGE"], device=os.environ["DEVICE"])


def positive(answers: Sequence[str], prompts: Sequence[Any]) -> list[float]:
    """Log-odds of the second class, of prompts with their answers."""
    import torch

    kit, scores = open_judge(), list[float]()
    texts = [
        f"{prompt}{answer}".strip() or "." for prompt, answer in zip(prompts, answers, strict=True)
    ]
    with torch.no_grad():
        for at in range(0, len(texts), 256):
            logits = kit.logits(texts[at : at + 256])
            scores += (logits[:, 1] - logits[:, 0]).tolist()
    return scores


def main() -> None:
    """Train the model, then the policy."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dim", type=int, default=320)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--learn", type=float, help="minutes of the policy, instead of --steps")
    parser.add_argument("--answers", type=int, default=512)
    parser.add_argument("--rows", type=int, default=256, help="answers drawn at once")
    parser.add_argument("--group", type=int, default=8, help="of grpo: answers to a prompt")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument(
        "--beta", type=float, default=0.35, help="price of a nat; of ppo in rewards"
    )
    parser.add_argument("--kl", type=float, help="nats to hold to, by moving beta")
    parser.add_argument("--ema", type=float, default=0.0, help="of the policy's weights")
    parser.add_argument("--method", default="grpo", choices=["grpo", "ppo"])
    parser.add_argument("--judge", help="the folder of a classifier")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", help="a language model that is there already")
    parser.add_argument("--keep", type=Path, help="where the language model is written")
    args = parser.parse_args()
    os.environ["DEVICE"] = args.device
    if args.judge:
        os.environ["JUDGE"] = args.judge
    policy_rollouts.ROWS = args.rows
    fast = {"precision": "bf16"} if args.device == "cuda" else {}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        lines = [
            line for line in args.text.read_text("utf-8").splitlines() if len(line.split()) > 5
        ]
        few = [" ".join(line.split()[:3]) for line in lines[-2000:]]
        (home / "text.txt").write_text("\n".join(lines[:-2000]), "utf-8")
        (home / "prompts.txt").write_text("\n".join(few[:-64]), "utf-8")
        (home / "held.txt").write_text("\n".join(few[-64:]), "utf-8")
        with regard.settings(device=args.device, seed=args.seed, progress=False):
            began, model = time.perf_counter(), args.model
            if model is None:
                shape = regard.ShapeConfig(dim=args.dim, depth=args.depth, heads=args.dim // 32)
                how = regard.TrainConfig(
                    minutes=args.minutes,
                    length=64,
                    batch_tokens=32768 if fast else 4096,
                    lr=2e-3,
                    optimizer="muon",
                    eval_every=0,
                    save_every=10**6,
                    **fast,
                )
                out = args.keep or home / "lm"
                data = regard.DataConfig(split="line", vocab=4000, holdout=0.0)
                text = [str(home / "text.txt")]
                regard.train.lm(text, out=out, shape=shape, config=how, data=data)
                model = str(Path(out) / "final")
            kit = regard.load(model, device="cpu")
            count = sum(p.numel() for p in kit.model.parameters())
            print(f"{count:,} weights, {time.perf_counter() - began:.0f} s", flush=True)
            began = time.perf_counter()
            run = getattr(regard.tune, args.method)(
                [str(home / "prompts.txt")],
                model=model,
                dev=[str(home / "held.txt")],
                out=home / "policy",
                config=regard.TrainConfig(
                    **({"minutes": args.learn} if args.learn else {"steps": args.steps}),
                    lr=args.lr,
                    ema=args.ema,
                    warm_up=10,
                    eval_every=0,
                    save_every=10**6,
                    **fast,
                ),
                policy=regard.PolicyConfig(
                    reward=positive if args.judge else planted,
                    answers=args.answers,
                    group=args.group if args.method == "grpo" else 1,
                    max_new=24,
                    passes=1,
                    minibatches=2,
                    beta=args.beta,
                    target_kl=args.kl,
                ),
                lora=regard.LoRA(r=args.rank, alpha=2 * args.rank, targets=("*",)),
            )
    for point in run.frontier:
        gain = (point.reward - run.frontier[0].reward) / run.deviation
        print(f"{point.answers:12}{point.reward:8.3f}{point.kl:8.2f} nats{gain:+8.2f} sd")
    print(
        f"{args.method}, seed {args.seed}, {args.steps} steps, {time.perf_counter() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
