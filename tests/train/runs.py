"""Small runs of every kind, in this process, for the tests of training."""

from __future__ import annotations

import random
from dataclasses import replace
from fnmatch import fnmatch

from regard.data.bucket import Buckets
from regard.data.packing import Masker, Packed
from regard.data.token_store import pair_store, text_store
from regard.data.windows import Windows
from regard.interop.families import bind
from regard.kit import Kit
from regard.loading import load
from regard.model.model import Model
from regard.model.presets import bert, llama, transformer
from regard.tokens.trainers import train_tokenizer
from regard.train.config import TrainConfig
from regard.train.trainer import Trainer, TrainJob, with_dropout

WORDS = "the a cat dog sees likes old red house tree runs".split()
SMALL = dict(steps=12, length=16, batch_tokens=64, accumulate=2, warm_up=3, dropout=0.1)
OFTEN = dict(ema=0.9, eval_every=5, save_every=3, log_every=1)


def write_text(path, lines=120):
    dice = random.Random(1)
    text = [" ".join(dice.choices(WORDS, k=dice.randint(2, 6))) for _ in range(lines)]
    path.write_text("\n".join(text) + "\n")
    return path


def write_pairs(path, lines=120):
    dice = random.Random(2)
    rows = [dice.choices(WORDS, k=dice.randint(2, 6)) for _ in range(lines)]
    path.write_text("".join(f"{' '.join(r)}\t{' '.join(reversed(r))}\n" for r in rows))
    return path


def make_parts(kind, folder):
    """(model config, architecture, tokenizer, training source, validation source)."""
    if kind == "lm":
        text = write_text(folder / "text.txt")
        tokens = train_tokenizer([text.read_text()], "chars")
        store = text_store(folder / "lm.store", text, tokens)
        parts = Windows(store, 16, 4, seed=0), Windows(store, 16, 64, seed=None)
        return llama(16, 2, 2, 1, 32, tokens.size, 16), "LlamaForCausalLM", tokens, *parts
    if kind == "mlm":
        text = write_text(folder / "text.txt")
        tokens = train_tokenizer([text.read_text()], "wordpiece", 60, wrap="cls-sep")
        store = text_store(folder / "mlm.store", text, tokens, "line", special=True)
        hide = Masker(tokens.size, tokens.specials["mask"], tokens.specials.values())
        parts = Packed(store, 16, 4, 0, masker=hide), Packed(store, 16, 8, None, masker=hide)
        return bert(16, 2, 2, tokens.size, 16), "BertForMaskedLM", tokens, *parts
    pairs = write_pairs(folder / "pairs.tsv")
    words = pairs.read_text().replace("\t", " ")
    tokens = train_tokenizer([words], "words", specials=("pad", "eos"), wrap="eos")
    store = pair_store(folder / "pairs.store", [pairs], tokens)
    ends = tokens.specials["pad"], tokens.specials["eos"]
    parts = Buckets(store, 64, *ends, seed=0), Buckets(store, 200, *ends, seed=None)
    return transformer(16, 2, 2, tokens.size), "MarianMTModel", tokens, *parts


def make_trainer(kind, folder, run="run", valid=True, job=None, frozen="", **changes):
    """A trainer over a small corpus in `folder`; its run is `folder`/`run`."""
    config = TrainConfig(**(SMALL | OFTEN | changes))
    shape, family, tokens, train, held = make_parts(kind, folder)
    kit = Kit(with_dropout(Model.fresh(shape, 0), config.dropout), tokens, bind(family))
    for name, parameter in kit.model.named_parameters():
        parameter.requires_grad_(not fnmatch(name, frozen))
    (folder / run).mkdir(parents=True, exist_ok=True)
    rest = {"identity": {"kind": kind}, **(job or {})}

    def save(path, model):
        replace(kit, model=model).save(path)

    rest = {"train": train, "valid": held if valid else None} | rest
    return Trainer(TrainJob(config, kit.model, folder=folder / run, save=save, **rest))


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the loop may catch it."""


def kill_at(trainer, step, micro=0):
    """Make a trainer die in the given step, after `micro` of its micro-batches."""
    loss, begun = trainer.objective.loss, [0]

    def dying(*arguments, **extra):
        if trainer.state.step + 1 == step and trainer.model.training:
            if begun[0] == micro:
                raise Killed
            begun[0] += 1
        return loss(*arguments, **extra)

    trainer.objective.loss = dying
    return trainer


def load_model(folder):
    return load(folder).model
