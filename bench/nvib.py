"""Bottlenecks: autoencoders side by side, what upper layers keep of characters, probes of latents.

    python bench/nvib.py autoencoders TRAIN TEST --out DIR [--deltas 1,0.5,0.25]
    python bench/nvib.py abstraction TRAIN TEST --out DIR [--deltas 0.5,0.25] [--layers 3]
    python bench/nvib.py latents RUN TEST

TRAIN and TEST have a text on each line. `autoencoders` trains an NVAE for each Δ, a VAE with a
Gaussian for each vector and one with a single Gaussian, and prints one table of
`regard evaluate nvae`. `abstraction` trains denoising autoencoders of characters, with
bottlenecks before the self-attention of the upper encoder blocks and without any, and prints for
each block the share of vectors that are kept and F1 of word boundaries, where what a character
mostly looks at changes; and nats of a character where some of the input is deleted. `latents`
counts kept vectors and reads lengths and first words off the latents linearly, beside the same
probe of the encoder's mean vector. Runs that are in DIR already are not trained again.

On one GPU, ten minutes each:

    python bench/nvib.py autoencoders train.txt test.txt --out runs --device cuda \\
        --dim 256 --depth 2 --steps 20000 --batch-tokens 16000 --deltas 1,0.5,0.25,0.1
    python bench/nvib.py abstraction train.txt test.txt --out runs --device cuda \\
        --dim 256 --depth 4 --layers 2 --steps 8000 --batch-tokens 32000 --deltas 1,0.5,0.25,0.1
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import regard
from regard.kit import Kit
from regard.look.attention_patterns import patterns
from regard.look.probing import Labelled, count_right, make_task
from regard.model.batch import Batch
from regard.nvib.denoising import bottlenecks
from regard.nvib.text_autoencoder import ROWS, measure_latents, read_latents
from regard.train.config import DataConfig, NVAEConfig, TrainConfig

DELETED = (0.0, 0.1, 0.2)


def train(args: argparse.Namespace, name: str, tokens: str, **shape: Any) -> Kit:
    """An autoencoder by name, trained unless it is there."""
    folder = Path(args.out, name)
    if not (folder / "final").is_dir():
        each = max(args.steps // 4, 1)
        config = TrainConfig(
            steps=args.steps,
            lr=args.lr,
            batch_tokens=args.batch_tokens,
            eval_every=each,
            save_every=each,
            log_every=50,
            keep=1,
            length=args.length,
            precision="bf16" if args.device == "cuda" else "fp32",
        )
        sizes = {"dim": args.dim, "depth": args.depth, "heads": args.heads} | shape
        data = DataConfig(valid=(args.test,), tokens=tokens, vocab=args.vocab)
        shape = NVAEConfig(**sizes)
        regard.train.nvae(args.train, out=folder, config=config, shape=shape, data=data)
    return regard.load(folder / "final")


def compare_autoencoders(args: argparse.Namespace) -> None:
    """One table of NVAEs, a VAE of vectors and a pooled VAE."""
    deltas = [float(delta) for delta in args.deltas.split(",")]
    kinds: list[tuple[str, dict[str, Any]]] = [("nvib", {"delta": delta}) for delta in deltas]
    kinds += [("gaussian", {}), ("pooled", {})]
    print(
        "latent | Δ | BLEU | exact | kept | told | nats | forward | reverse | of texts | collapsed"
    )
    for latent, more in kinds:
        weights = {"kl_gaussian": args.kl_gaussian, "kl_dirichlet": args.kl_dirichlet}
        weights |= {"anneal": args.anneal}
        kit = train(
            args,
            "-".join(map(str, (latent, *more.values()))),
            "pieces",
            latent=latent,
            **weights,
            **more,
        )
        s = regard.evaluate.nvae(kit, args.test, train=args.train, count=args.count)
        cells = [latent, more.get("delta", ""), f"{s.bleu:.1f}", f"{s.exact:.1%}"]
        cells += [f"{s.kept_share:.1%}", f"{s.told:.3f}", f"{s.nats_per_token:.3f}"]
        cells += [f"{s.forward:.0f}", f"{s.reverse:.0f}", f"{s.reverse_of_texts:.0f}", s.collapsed]
        print(" | ".join(map(str, cells)), flush=True)


# Characters ---------------------------------------------------------------------------------------


def boundary_scores(pattern: Tensor, text: str) -> Counter[str]:
    """Boundaries between neighbours that look mostly at different keys, against those of words."""
    looked = pattern.mean(0).argmax(-1).tolist()  # of each character, over heads
    found = {n for n in range(1, len(text)) if looked[n] != looked[n - 1]}
    words = {n for n in range(1, len(text)) if (text[n] == " ") != (text[n - 1] == " ")}
    return Counter(right=len(found & words), found=len(found), words=len(words))


@torch.no_grad()
def describe_layers(kit: Kit, texts: list[str]) -> list[tuple[float, float]]:
    """(share of vectors that are kept, F1 of word boundaries) of each encoder block."""
    model, sums = kit.model, [Counter[str]() for _ in kit.model.encoder.blocks]
    for text in texts:
        batch = kit.batch([text], [text])
        seen = patterns(kit.hooked, batch)
        for number, block in enumerate(model.encoder.blocks):
            pattern = seen[f"encoder.blocks.{number}.attn"][0][..., -batch.inputs.shape[1] :]
            kept = batch.inputs.shape[1]
            if (part := getattr(block.attn, "bottleneck", None)) is not None:
                kept = int(part.last.kept(part.config.threshold)[:, 1:].sum())
            sums[number] += boundary_scores(pattern[:, : len(text)], text)
            sums[number] += Counter(kept=kept, vectors=batch.inputs.shape[1])
    return [
        (s["kept"] / s["vectors"], 2 * s["right"] / max(s["found"] + s["words"], 1)) for s in sums
    ]


@torch.no_grad()
def nats_with_noise(kit: Kit, texts: list[str], share: float) -> float:
    """Nats of a character of the text, where a share of the encoder's are deleted."""
    dice, total, count = random.Random(0), 0.0, 0
    for text in texts:
        noisy = "".join(c for c in text if dice.random() >= share) or text[0]
        batch = kit.batch([noisy], [text])
        target = torch.cat(
            [batch.target.new_full((1, 1), kit.batch("a").target[0, 0]), batch.target], 1
        )
        logits = kit.model(Batch(batch.inputs, target[:, :-1])).log_softmax(-1)
        total -= logits.gather(-1, batch.target[..., None]).sum().item()
        count += batch.target.shape[1]
    return total / count


def compare_abstraction(args: argparse.Namespace) -> None:
    """Blocks and noise of character models with and without bottlenecks."""
    texts = [line for line in Path(args.test).read_text().splitlines() if len(line.split()) > 2]
    texts = texts[: args.count]
    shapes = {"plain": {"nvib_layers": 0}}
    for delta in args.deltas.split(","):
        shapes[f"delta-{delta}"] = {"nvib_layers": args.layers, "delta": float(delta)}
    for name, shape in shapes.items():
        weights = {"kl_gaussian": args.kl_gaussian, "kl_dirichlet": args.kl_dirichlet}
        more = {"latent": "none", "noise": 0.1, "anneal": args.anneal} | weights
        kit = train(args, f"chars-{name}", "chars", **more, **shape)
        rows = describe_layers(kit, texts)
        kept = " ".join(f"{share:.1%}" for share, _ in rows)
        f1 = " ".join(f"{value:.1%}" for _, value in rows)
        nats = " ".join(f"{nats_with_noise(kit, texts, share):.3f}" for share in DELETED)
        print(f"{name}: kept {kept}; F1 {f1}; nats with {DELETED} deleted {nats}", flush=True)


# Latents ------------------------------------------------------------------------------------------


@torch.no_grad()
def latent_vectors(kit: Kit, texts: list[str]) -> tuple[Tensor, Tensor, list[int]]:
    """(mean latent by its weights, mean vector of the encoder, vectors kept) of each text."""
    latents, plain, kept = [], [], []
    model, dim = kit.model, kit.model.config.width
    for start in range(0, len(texts), ROWS):
        seen: list[Tensor] = []
        model.encoder.at.final.fn = lambda x: seen.append(x) or x  # noqa: B023
        memory, batch = read_latents(kit, texts[start : start + ROWS])
        model.encoder.at.final.fn = None
        real = torch.ones_like(batch.inputs) > 0 if batch.source_mask is None else batch.source_mask
        plain.append((seen[0] * real[..., None]).sum(1) / real.sum(1, keepdim=True))
        if (held := model.bottleneck) is not None and held.last is not None:
            mixture = held.last._replace(real=held.last.kept(held.config.threshold))
            latents.append((mixture.log_weights().exp()[..., None] * mixture.mean).sum(1))
        else:
            latents.append(memory.x[..., :dim].mean(1))
        kept += model.counts(memory)
    return torch.cat(latents).clone(), torch.cat(plain).clone(), kept


def probe_latents(args: argparse.Namespace) -> None:
    """What can be read off latents linearly, beside the mean vector of the encoder."""
    kit = regard.load(args.train)
    texts = [line for line in Path(args.test).read_text().splitlines() if line.strip()]
    texts = texts[: args.count]
    latents, plain, kept = latent_vectors(kit, texts)
    told = measure_latents(kit, texts)
    print(f"kept: {sorted(Counter(kept).items())}; told {told['told']:.3f} nats a token")
    print(f"bottlenecks: {', '.join(bottlenecks(kit.model))}")
    lengths = [str(min(len(text.split()) // 3, 4)) for text in texts]
    firsts = [text.split()[0] for text in texts]
    common = {word for word, _ in Counter(firsts).most_common(10)}
    for name, labels in (
        ("length", lengths),
        ("first word", [word if word in common else "_" for word in firsts]),
    ):
        task = make_task(labels, firsts, range(len(texts)))
        for what, vectors in (("latents", latents), ("mean vector", plain)):
            held = vectors[task.kept]
            parts = [Labelled(held[part], task.labels[part]) for part in task.parts]
            right, asked = count_right("linear", parts, len(task.names)), len(parts[-1].y)
            share, usual = right / asked, task.majority() / asked
            print(f"{name} from {what}: {share:.1%} of {asked}; most frequent {usual:.1%}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("autoencoders", "abstraction", "latents"))
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--out", default="runs/nvib")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--deltas", default="1,0.25")
    for name, kind, usual in (
        *(("steps", int, 1000), ("dim", int, 128), ("depth", int, 2), ("heads", int, 4)),
        *(("batch-tokens", int, 3000), ("length", int, 64), ("vocab", int, None)),
        *(("layers", int, 1), ("count", int, 300), ("anneal", int, 0), ("lr", float, 1e-3)),
        *(("kl-gaussian", float, 0.01), ("kl-dirichlet", float, 1.0)),
    ):
        parser.add_argument(f"--{name}", type=kind, default=usual)
    args = parser.parse_args()
    does = {"autoencoders": compare_autoencoders, "abstraction": compare_abstraction}
    with regard.settings(device=args.device):
        does.get(args.what, probe_latents)(args)


if __name__ == "__main__":
    main()
