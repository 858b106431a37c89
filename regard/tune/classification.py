"""A new output head on a model: classes of texts, tags of words, numbers of texts.

Three kinds of runs of the one loop (`train/trainer.py`). The head is that of the family's own
classifiers, so that transformers opens the folder, unless another one is asked for. With a frozen
body the vectors of texts are computed once, and the head alone is a logistic regression or an MLP.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.labelled_texts import LabelledText, read_labelled, sort_classes
from regard.data.order import Counts, shuffled
from regard.data.text_files import find_files
from regard.data.token_store import fingerprint
from regard.data.windows import IGNORED, Examples, check_index
from regard.errors import DataError, UsageError, did_you_mean
from regard.evaluate.classification_scores import class_figures
from regard.kit import Kit
from regard.loading import load_kit
from regard.look.text_limits import max_tokens_of
from regard.model.batch import Batch, id_batch, pad_rows
from regard.model.config import HeadConfig, ModelConfig, RecurrentConfig
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer
from regard.train.data import RunData, RunKind, RunPlan
from regard.train.objectives import Compiling, Loss, compiled_once, token_loss
from regard.train.results import RunSettings
from regard.train.settings import begin_with, decide_steps, make_config
from regard.tune.config import HeadTuning
from regard.tune.prediction import Collate, Task, encode_texts, run_rows, word_columns

USUAL = {"lr": 5e-5, "beta2": 0.999, "weight_decay": 0.01, "dropout": 0.1, "floor": 0.0}
USUAL |= {"length": 512}
FROZEN = {"lr": 1e-2, "weight_decay": 0.0, "dropout": 0.0, "epochs": 10.0}
PENALTY = 0.03  # l2 of a head alone
"""Settings of fine-tuning (Devlin 2019), and those of a head alone."""
EPOCHS, MIN_STEPS = 3, 200  # little data is read more often (Mosbach 2021)
LOOK_AHEAD = 8  # batches whose texts are sorted by length
HELD_OUT = 0.1  # share of the texts that are validated on without a file for it


# Data ---------------------------------------------------------------------------------------------


class LabelledRows:
    """Texts, or what else has a length, in batches of so many rows, those of like length together.

    With a seed, for training, they come shuffled; each stretch of a few batches is sorted by
    length, and the batches are shuffled.
    """

    varying = True

    def __init__(
        self, ids: list[Any], labels: list[Any], rows: int, collate: Collate, seed: int | None
    ) -> None:
        self.ids, self.labels, self.rows, self.collate, self.seed = ids, labels, rows, collate, seed
        self.lengths = np.array([len(row) for row in ids])
        self.plan = lru_cache(2)(self.make_plan)

    def make_plan(self, epoch: int) -> Counts:
        """The rows in the order of the batches."""
        n = len(self.ids)
        order = shuffled(np.arange(n), n, self.seed, epoch)
        stretch = n if self.seed is None else LOOK_AHEAD * self.rows
        return order[np.lexsort((self.lengths[order], np.arange(n) // stretch))]

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        return -(-len(self.ids) // self.rows)

    def batch(self, epoch: int, index: int) -> Examples:
        """What `collate` makes of some rows; labels (B,), (B, C) or (B, T)."""
        check_index(index, self.count(epoch))
        at = int(shuffled(np.array([index]), self.count(epoch), self.seed, epoch, stream=1)[0])
        numbers = self.plan(epoch)[at * self.rows : (at + 1) * self.rows]
        batch = self.collate([self.ids[n] for n in numbers])
        chosen = [self.labels[n] for n in numbers]
        tags = isinstance(chosen[0], TokenLabels)
        labels = pad_rows(chosen, IGNORED)[0] if tags else torch.tensor(chosen)
        count = int((labels != IGNORED).sum()) if tags else len(chosen)
        return Examples(batch.inputs, labels, count, mask=batch.mask, paths=batch.paths)


class TokenLabels(list[int]):
    """A label for each token of a row, −100 where it is not the first of a word."""


# Objectives ---------------------------------------------------------------------------------------


def row_loss(
    model: Model,
    batch: Batch,
    labels: Tensor,
    smoothing: float = 0.0,
    compiled: Compiling = "no",
    *_: Any,
    frozen: bool = False,
    weights: Tensor | None = None,
    l2: float = 0.0,
) -> Loss:
    """Loss of rows by the shape of their labels; a row labelled −100 carries none.

    Classes (B,): cross-entropy. Several labels (B, C): the mean over classes of binary
    cross-entropies. Numbers (B,): squared error. Of a `frozen` body the batch has the vectors.
    `l2` adds l2 / 2 · ‖W‖² of the scores' weights to the mean of rows.
    """
    if frozen:
        scores = model.head(batch.inputs)
    else:
        hidden = Model.hidden if compiled == "no" else compiled_once(Model.hidden, compiled)
        scores = model.score(hidden(model, batch, None), batch.mask)
    scores, real = scores.float(), labels != IGNORED  # (B, C)
    weights = None if weights is None else weights.to(scores)
    if labels.is_floating_point():
        total = plain = ((scores[:, 0] - labels).square() * real).sum()
    elif labels.dim() == 2:
        each, target = real if weights is None else real * weights, labels.clamp(min=0).to(scores)
        total = F.binary_cross_entropy_with_logits(scores, target, each, reduction="sum")
        total = plain = total / labels.shape[1]
        real = real[:, 0]
    else:
        loss = partial(F.cross_entropy, scores, labels, reduction="sum", ignore_index=IGNORED)
        total, plain = loss(weight=weights, label_smoothing=smoothing), loss()
    if l2:
        assert model.head.out is not None
        total = total + real.sum() * l2 / 2 * model.head.out.weight.square().sum()
    return Loss(total, plain.detach(), real.sum())


# The output head ----------------------------------------------------------------------------------


def choose_head(kit: Kit, own: HeadTuning, task: str, size: int) -> tuple[ModelConfig, str | None]:
    """The shape of a model with a new head, and the architecture that it is saved as.

    The head is that of the family's `task`, such as ForTokenClassification, unless that one differs
    from what is asked for. Of an encoder-decoder the encoder is left.
    """
    config, table = kit.model.config, kit.binding.table if kit.binding is not None else None
    if isinstance(config, RecurrentConfig) or config.front.kind != "text":
        what = "a recurrent model" if isinstance(config, RecurrentConfig) else config.front.kind
        raise DataError(f"putting a head on {kit.path}", what, "a Transformer over text")
    if config.target is not None:
        config, table = replace(config, decoder=None, target=None, shared=False), None
    for name, variant in table.variants.items() if table is not None else ():
        if name.endswith(task):
            parts = {path.removeprefix("head."): value for path, value in variant.fixed.items()}
            head, plain = HeadConfig(size=size, **parts), own.body == "none" or own.mlp
            fits = not plain or (head.transform is not None) == own.mlp
            if own.take in ("auto", head.take) and fits:
                return replace(config, head=head), name
    take: Any = ("last" if config.encoder is None else "mean") if own.take == "auto" else own.take
    take = "all" if task.startswith("ForToken") else take
    head = HeadConfig(size, take, "gelu" if own.mlp else None, bias=True)
    return replace(config, head=head), None


def with_head(kit: Kit, own: HeadTuning, architecture: str, task: Task, seed: int) -> Kit:
    """The model with a new head, its last blocks new too where that is asked for."""
    config, family = choose_head(kit, own, architecture, len(task.names))
    depth, was = config.last.depth, kit.model.config.head
    if own.replace > depth:
        raise UsageError("replacing blocks", f"replace = {own.replace}", f"at most {depth}")
    stack = "encoder" if config.decoder is None else "decoder"
    new = tuple(f"{stack}.blocks.{n}." for n in range(depth - own.replace, depth))
    pooled = (was.take, was.transform, was.norm) == (config.head.take, config.head.transform, False)
    new += ("head.out" if pooled else "head",)  # a body may come with its pooler
    tuned = Kit.fresh(config, family, seed, kit.tokenizer)
    weights = kit.model.state_dict().items()
    kept = {name: weight for name, weight in weights if not name.startswith(new)}
    tuned.model.load_state_dict(kept, strict=False)
    tuned.config = tuned.fresh_config()
    if family is not None:  # what the family's file says of the body stays
        tuned.config |= kit.config | {"architectures": [family]}
        specials = kit.text_tokenizer.specials
        if tuned.config.get("pad_token_id") is None:  # transformers finds the last token by it
            tuned.config["pad_token_id"] = specials.get("pad", specials.get("eos"))
    tuned.config |= task.describe()
    return tuned


def freeze(model: Model, own: HeadTuning) -> None:
    """Let only those parameters learn that should."""
    names = [name for name, _ in model.named_parameters()]
    for pattern in own.freeze:
        if not any(matches(name, pattern) for name in names):
            fix = did_you_mean(pattern, {name.rpartition(".")[0] for name in names})
            raise UsageError("freezing parameters", f"no parameter is called {pattern!r}", fix=fix)
    patterns = ("front", "encoder", "decoder") if own.body == "none" else own.freeze
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not any(matches(name, pattern) for pattern in patterns))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError("freezing parameters", "all of them", "some that learn")


def matches(name: str, pattern: str) -> bool:
    """Whether a parameter is meant by a pattern, or by the name of a part it belongs to."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def layer_rates(model: Model, share: float) -> dict[str, float]:
    """The factor on the learning rate of each parameter: less for lower blocks (Howard 2018)."""
    depth, rates = model.config.last.depth, dict[str, float]()
    for name, _ in model.named_parameters():
        block = re.search(r"\.blocks\.(\d+)\.", name)
        below = depth - int(block[1]) if block else depth + 1 if name.startswith("front") else 0
        rates[name] = share**below
    return rates


# The kinds ----------------------------------------------------------------------------------------


class HeadKind(RunKind):
    """Trains a new head on a model, and the model with it: classify, tag or regress."""

    room, config, beside, unit = "tune", HeadTuning, ("head.*",), "texts"

    def __init__(self, name: str) -> None:
        self.name, tags = name, name == "tag"
        self.unit = "words" if tags else self.unit
        self.task = "ForTokenClassification" if tags else "ForSequenceClassification"
        self.metrics = () if name == "regress" else ("accuracy", "macro_f1")

    def read(self, own: HeadTuning, files: Sequence[str]) -> list[LabelledText]:
        """The labelled texts, or sentences, of files."""
        kind = "several" if own.several else self.name
        paths = find_files(files)
        return [text for p in paths for text in read_labelled(p, kind, own.text, own.label)]

    # Settings -----------------------------------------------------------------------------------

    def usual(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Of fine-tuning, or of a head alone."""
        metric = {"metric": self.metrics[0]} if self.metrics else {}
        alone = FROZEN | ({} if self.name == "tag" else {"l2": PENALTY})
        return USUAL | metric | (alone if said.get("body") == "none" else {})

    def decide(self, settings: RunSettings) -> None:
        """Steps from epochs; files and model must be there."""
        values, doing = settings.values, f"tuning for `{self.name}`"
        begin_with(settings)
        own: Any = make_config(settings, self.config)
        known, metric = ("loss", *self.metrics), values["metric"]
        partly = own.body == "none" or own.replace or own.freeze
        others = self.name != "classify" and (own.several or own.weights)
        for wrong, problem, expected in (
            (others, "several or weights", "`tune classify` has them"),
            (self.name == "tag" and own.l2, "l2", "`tune classify` and `tune regress` have it"),
            (metric not in known, f"metric = {metric}", " or ".join(known)),
            (values["lora"] and partly, "lora with body, freeze or replace", "one way to freeze"),
            (values["r_drop"], "r_drop", "0: only `train` reads a batch twice"),
        ):
            if wrong:
                raise UsageError(doing, problem, expected)
        count = len(self.read(own, values["files"]))
        if not values["valid"]:
            count = len(split_examples(count, values["holdout"], values["seed"])[0])
        each = max(1, -(-count // own.rows) // values["accumulate"])  # steps of an epoch
        steps = max(EPOCHS * each, MIN_STEPS) if own.epochs is None else round(each * own.epochs)
        decide_steps(settings, max(1, steps), each)

    # Data ---------------------------------------------------------------------------------------

    def prepare(self, plan: RunPlan) -> RunData:
        """Read the texts, name their labels, encode them."""
        assert plan.data.init is not None
        plan.progress("reading")
        kit = load_kit(plan.data.init, precision=None)
        tokenizer, own = kit.text_tokenizer, plan.own
        train, valid = self.read(own, plan.files), self.read(own, plan.data.valid)
        if not plan.data.valid:
            parts = split_examples(len(train), plan.data.holdout, plan.seed)
            train, valid = ([train[n] for n in part] for part in parts)
            if valid:
                plan.say(f"held out for validation: {len(valid):,} texts, drawn at random")
        labels = [label for example in train for label in example.labels]
        task = find_task("several" if own.several else self.name, plan, labels)
        limit = max_tokens_of(kit, f"tuning {kit.path}", asked=plan.train.length)

        def encode(examples: list[LabelledText], seed: int | None) -> LabelledRows:
            """Ids and labels; texts that are too long are cut, counted."""
            rows = encode_texts(tokenizer, examples, limit, plan.say)
            pairs = zip(examples, rows, strict=True)
            answers = [label_of(example, task, row, tokenizer) for example, row in pairs]
            collate = partial(id_batch, pad=tokenizer.specials.get("pad", 0))
            return LabelledRows(rows, answers, own.rows, collate, seed)

        source, checked = encode(train, plan.seed), encode(valid, None) if valid else None
        seen = {tuple(row) for row in source.ids}
        if leaks := sum(tuple(row) in seen for row in checked.ids) if checked else 0:
            plan.say(f"warning: {leaks:,} of {len(valid):,} validation texts are trained on too")
        known = {"tokenizer": fingerprint(tokenizer)[:12], "labels": task.names}
        held = f"{len(valid):,} texts" if valid else None
        amounts = {"train": f"{len(train):,} texts", "valid": held}
        return RunData(tokenizer, source, checked, known, plan.hashes, amounts, (kit, task))

    # Model --------------------------------------------------------------------------------------

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """Of the model with its new head."""
        kit, task = data.held
        return choose_head(kit, plan.own, self.task, len(task.names))

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """The model with its new head, frozen where that is asked for."""
        base, task = data.held
        kit = with_head(base, plan.own, self.task, task, plan.seed)
        freeze(kit.model, plan.own)
        if self.reads_once(plan):
            model = kit.model.to(plan.device)

            def pooled(batch: Batch) -> Tensor:
                return model.head.pool(model.hidden(batch), batch.mask)

            for source in (data.train, data.valid):
                if isinstance(source, LabelledRows):  # from now on a text is one vector (D,)
                    source.ids = run_rows(model, source.ids, source.collate, pooled)
                    source.collate = lambda rows: Batch(torch.stack(rows)[:, None])
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """Its loss, its rates, and figures at validations."""
        rates = layer_rates(kit.model, plan.own.layer_rate) if plan.own.layer_rate != 1 else {}
        task, scored = data.held[1], data.valid is not None and data.held[1].kind != "regress"
        frozen = self.reads_once(plan)
        score = {"score": partial(self.figures, data, frozen)} if scored else {}
        loss = partial(row_loss, frozen=frozen, weights=task.weights, l2=plan.own.l2)
        return {"rates": rates, "loss": token_loss if task.kind == "tag" else loss, **score}

    def reads_once(self, plan: RunPlan) -> bool:
        """Whether the body is frozen, and one vector of a text all that the head reads."""
        return plan.own.body == "none" and self.name != "tag"

    def figures(self, data: RunData, frozen: bool, model: Model) -> dict[str, float]:
        """Accuracy and macro F1 on the validation texts."""
        source = data.valid
        assert isinstance(source, LabelledRows)
        call = (lambda batch: model.head(batch.inputs)) if frozen else None
        scores = run_rows(model, source.ids, source.collate, call)
        flat = torch.cat([row.view(-1, row.shape[-1]) for row in scores])  # (N, C)
        several, said = data.held[1].kind == "several", flat > 0
        gold = torch.from_numpy(np.stack(source.labels) if several else np.hstack(source.labels))
        if not several:
            real, classes = gold != IGNORED, flat.shape[-1]
            gold, said = F.one_hot(gold[real], classes), F.one_hot(flat.argmax(-1)[real], classes)
        figures = class_figures(gold.bool(), said.bool(), several)
        return {name: figures[name] for name in self.metrics}


def split_examples(count: int, share: float | None, seed: int) -> tuple[Counts, Counts]:
    """Numbers of the examples to train on, and of those to validate on, which are drawn."""
    most = round(count * (HELD_OUT if share is None else share))
    held = shuffled(np.arange(most), count, seed, 0, stream=9)
    return np.setdiff1d(np.arange(count), held), np.sort(held)


def find_task(kind: str, plan: RunPlan, labels: Sequence[str]) -> Task:
    """What there is to tell apart in the labels to learn: classes, or numbers that differ."""
    doing, own = f"reading {', '.join(plan.files)}", plan.own
    if kind == "regress":
        values = np.array([float(label) for label in labels])
        if not len(values) or values.std() == 0:
            problem = "one value only" if len(values) else "no texts"
            raise DataError(doing, problem, "numbers that differ")
        return Task(kind, [own.label or "label"], float(values.mean()), float(values.std()))
    counts = Counter(labels)
    names, least = sort_classes(list(counts)), 1 if kind == "several" else 2
    if len(names) < least:
        only = f"one class only, {names[0]!r}" if names else "no labels"
        raise DataError(doing, only, f"{least} classes or more")
    weights = read_weights(own.weights, counts, names) if own.weights else None
    return Task(kind, names, weights=weights)


def label_of(example: LabelledText, task: Task, row: list[int], tokenizer: Tokenizer) -> Any:
    """The label of a text, whose ids are `row`, as the loss reads it.

    A class is its number; of several each is 0 or 1. Tags stand at the first tokens of words; one
    that training has not, at none. Numbers are standardised.
    """
    if task.kind == "regress":
        return (float(example.labels[0]) - task.mean) / task.spread
    numbers = {name: n for n, name in enumerate(task.names)}
    if task.kind == "tag":
        tags = TokenLabels([IGNORED] * len(row))
        columns = word_columns(tokenizer, example, row)
        for column, label in zip(columns, example.labels, strict=True):
            if column >= 0:
                tags[column] = numbers.get(label, IGNORED)
        return tags
    unknown = [label for label in example.labels if label not in numbers]
    if unknown:
        known = f"one of the training labels: {', '.join(task.names[:20])}"
        raise DataError(f"reading {example.place}", f"the label {unknown[0]!r}", known)
    if task.kind == "several":
        return [int(name in example.labels) for name in task.names]
    return numbers[example.labels[0]]


def read_weights(words: Sequence[str], counts: Counter[str], names: Sequence[str]) -> Tensor:
    """Weights of the classes (C,): balanced, so that each class counts as much, or as written."""
    weights = torch.ones(len(names))
    for word in words:
        name, _, number = word.rpartition("=")
        if word == "balanced":
            total = sum(counts.values()) / len(names)
            weights *= torch.tensor([total / counts[name] for name in names])
        elif name in names and re.fullmatch(r"\d+(\.\d+)?", number):
            weights[names.index(name)] *= float(number)
        else:
            expected = f"balanced, or CLASS=NUMBER with one of {', '.join(names)}"
            raise UsageError("weighting classes", f"weights = {word!r}", expected)
    return weights


KINDS: dict[str, HeadKind] = {name: HeadKind(name) for name in ("classify", "tag", "regress")}
"""The kinds by the words of their commands."""
