"""A small corpus and small runs of every kind, for the tests of files → Run."""

from __future__ import annotations

import random

import regard
from regard.train.config import DataConfig, ShapeConfig, TrainConfig

WORDS = "the a cat dog sees likes old red house tree runs".split()
SMALL = dict(dim=16, depth=1, heads=2, length=16, batch_tokens=64, warm_up=2)
OFTEN = dict(steps=6, eval_every=3, save_every=2, log_every=1, vocab=270)


def write_corpus(folder):
    """text.txt, pairs.tsv, and the two sides of the pairs apart."""
    dice = random.Random(0)
    rows = [" ".join(dice.choices(WORDS, k=dice.randint(2, 6))) for _ in range(80)]
    back = [" ".join(reversed(row.split())) for row in rows]
    (folder / "text.txt").write_text("\n".join(rows) + "\n")
    (folder / "pairs.tsv").write_text(
        "".join(f"{a}\t{b}\n" for a, b in zip(rows, back, strict=True))
    )
    (folder / "a.src").write_text("\n".join(rows) + "\n")
    (folder / "a.tgt").write_text("\n".join(back) + "\n")
    return folder


def split_configs(changes):
    """Settings as the three configs that they belong to."""
    configs = {"config": TrainConfig, "shape": ShapeConfig, "data": DataConfig}
    unknown = set(changes) - {n for c in configs.values() for n in c.__dataclass_fields__}
    assert not unknown, unknown
    return {
        name: config(**{n: v for n, v in changes.items() if n in config.__dataclass_fields__})
        for name, config in configs.items()
    }


def train_on(files, kind="lm", out=None, resume=False, dry_run=False, **changes):
    """Train on the CPU with just these settings."""
    with regard.settings(device="cpu"):
        train = getattr(regard.train, kind)
        place = {"resume" if resume else "out": out}
        return train(files, **place, dry_run=dry_run, **split_configs(changes))


def train(kind, corpus, out, **changes):
    """A small run of a kind on the corpus; a setting that is None is left out."""
    file = corpus / ("pairs.tsv" if kind == "seq2seq" else "text.txt")
    asked = {name: value for name, value in (SMALL | OFTEN | changes).items() if value is not None}
    return train_on(file, kind, out, **asked)
