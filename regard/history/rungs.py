"""The ladder: every rung from counting words to the Transformer, trained and measured on one split.

Rungs stand in the order they came; each says which lower ones it should beat. Those that count come
first, the others share what is left of a budget of minutes, or take as many steps as asked for.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.ambient import choose_device, current, note, settings
from regard.data.duplicates import WORDS, count_words, normalise
from regard.data.pairs import read_pairs
from regard.data.statistics import perplexity
from regard.data.text_files import read_lines, read_parts
from regard.decode.scoring import score_rows
from regard.energy import Meter
from regard.errors import DataError, check_known
from regard.files import check_new
from regard.history.config import Word2VecConfig
from regard.history.ngram_model import NgramModel, encode_lines, joined
from regard.history.ngrams import Floats, Ids
from regard.history.predictors import room_of
from regard.history.results import Ladder, RungScore
from regard.history.word2vec import WordCorpus, train_word2vec
from regard.history.word_vectors import save_folder
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import KINDS, train_tokenizer
from regard.train.config import DataConfig, ShapeConfig, TrainConfig

DOING = "climbing the ladder"
LEAST = 20  # lines that can be split
MOST = 1000  # pairs that are held out for each of validation and test
PIECES = 4000  # tokens of pairs
TRIAL = 12  # steps that the pace of a rung is guessed from, for its learning rate
MANY = 10**9  # steps where the clock says how many
TRAINING = 0.8  # share of a rung's time that is for training, not for its trial and its test
VALIDATIONS = 3  # of a rung
CLASSES, BROWN, MERGE = 100, 0.05, 1e-6  # at most; share of the budget; seconds of word × k²
LBFGS = 3  # steps of logistic regression for each minute of the budget, at most 60
PACE, WORKERS = 50_000, 2  # of word2vec: tokens a second at least; threads

SAME: dict[str, Any] = {"schedule": "cosine", "floor": 0.05, "keep": 1, "log_every": 10}
SAME |= {"batch_tokens": 1024}
RATE = 8e-3
FEW = {"fixed": 2000, "additive": 2000, "transformer": 600}  # steps beyond which less is better
PAIR: dict[str, Any] = {"length": 96, "smoothing": 0.0}
MUON = {"optimizer": "muon"}  # Adam learns more slowly


class Rung(NamedTuple):
    """One model of the ladder."""

    name: str
    title: str
    level: int
    """Rungs of one level are not expected to beat each other."""
    verb: str | None = None
    """Of `regard.train`, for those that are trained step by step; others count."""
    shape: Mapping[str, Any] = {}
    how: Mapping[str, Any] = {}
    share: float = 1.0
    """Of the time of those that are trained, beside the others'."""


PAIRS = (
    Rung("bayes", "naive Bayes", 0),
    Rung("logreg", "logistic regression", 1),
    Rung("ibm1", "IBM model 1", 2),
    Rung("fixed", "fixed vector", 3, "seq2seq", {"attention": "none"}, PAIR),
    # a step of Bahdanau's takes 1.5 times that of a fixed vector
    Rung("additive", "Bahdanau", 4, "seq2seq", {"attention": "additive"}, PAIR, 1.6),
    Rung(
        *("transformer", "Transformer", 5, "seq2seq"),
        *({"pre_norm": True, "depth": 2}, PAIR | MUON, 1.2),
    ),
)
"""Of translation."""
TEXTS = (
    Rung("1-gram", "1-gram", 0),
    Rung("2-gram", "2-gram", 1),
    Rung("3-gram", "3-gram", 2),
    Rung("5-gram", "5-gram", 3),
    Rung("classes", "class 3-gram", 1),
    Rung("word2vec", "word2vec", 1, "w2v"),
    Rung("mlp", "MLP", 4, "mlp", {"depth": 1}, {"length": 32, "lr": 2e-3}),
    Rung("rnn", "RNN", 4, "rnn", {"depth": 1}, {"length": 32, "lr": 2e-3}),
    Rung("lstm", "LSTM", 5, "lstm", {"depth": 1}, {"length": 32, "lr": 5e-3}),
    Rung("gru", "GRU", 5, "gru", {"depth": 1}, {"length": 32, "lr": 5e-3}),
    Rung("transformer", "Transformer", 6, "lm", {"depth": 2}, {"length": 128} | MUON),
)
"""Of language modelling."""


def beaten_by(rungs: Sequence[Rung], quality: Mapping[str, float]) -> dict[str, list[str]]:
    """For each rung the lower ones that are as good or better; more quality is better."""
    return {
        rung.name: [
            other.name
            for other in rungs
            if other.level < rung.level and quality[other.name] >= quality[rung.name]
        ]
        for rung in rungs
    }


# What is said long after -------------------------------------------------------------------------

BEGIN, END, ANSWER = "I grew up in France", "I speak fluent", "French"
FILLER = "and then we went to the city and the people there were good to us".split()
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64)
"""Words between the two."""


def lacking(tokenizer: Tokenizer) -> list[str]:
    """Words of the question that a tokenizer does not know."""
    return [w for w in f"{BEGIN} {END} {ANSWER}".split() if not knows(tokenizer, w)]


def knows(tokenizer: Tokenizer, word: str) -> bool:
    """Whether a word can be written without the unknown token."""
    return tokenizer.specials.get("unk", -1) not in tokenizer.encode(word, special=False)


def questions(tokenizer: Tokenizer) -> dict[int, tuple[list[int], int]]:
    """The sentence with known words between its halves, by how many; and the answer's tokens."""
    known = [word for word in FILLER if knows(tokenizer, word)]
    asked = dict[int, tuple[list[int], int]]()
    for distance in DISTANCES if known else (0,):
        text = " ".join([BEGIN, *islice(cycle(known), distance), END])
        whole = tokenizer.encode(f"{text} {ANSWER}", special=False)
        asked[distance] = whole, len(whole) - len(tokenizer.encode(text, special=False))
    return asked


def answer_curve(
    asked: Mapping[int, tuple[list[int], int]],
    logprobs: Callable[[list[int]], Sequence[float] | Floats | None],
) -> list[float | None]:
    """p(answer) at each distance; None where a model has no room for so much."""
    rows = [(logprobs(whole), size) for whole, size in asked.values()]
    return [None if row is None else math.exp(sum(row[-size:])) for row, size in rows]


# word2vec --------------------------------------------------------------------------------------

WINDOW = 5  # words before
SENTENCE = 1000  # tokens of a running text that word2vec reads as one sentence
ROWS = 1024  # places whose scores are computed together
FITTED = 1024  # places of the text on which a is chosen


@dataclass(frozen=True)
class NextWord:
    """The next word by CBOW (Mikolov 2013) that looks back only: vectors, counts and a scale.

    Negative sampling makes the product of an output vector and the mean of the vectors around it
    log p(w | h) / p_noise(w), up to a constant (Levy and Goldberg 2014). So here

        p(w | h) = softmax(a · output(w) · mean of the last vectors + log count(w))

    with the vectors as word2vec learnt them; a is chosen on a text beside. With a = 0 it is the
    unigram. A mean knows no order of words.
    """

    inputs: Tensor
    """(V, D)"""
    outputs: Tensor
    """(V, D)"""
    counts: Tensor
    """(V,) logarithms, of half a time for what was not seen."""
    a: float = 0.0

    @property
    def parameters(self) -> int:
        """Numbers that were learnt."""
        return self.inputs.numel() + self.outputs.numel() + self.counts.numel() + 1

    @torch.no_grad()
    def logprobs(self, ids: Sequence[int] | Ids) -> Floats:
        """log p of each id (T,) given those before it."""
        words = torch.from_numpy(np.asarray(ids, np.int64))
        logs = [np.zeros(0)]
        for at in torch.arange(len(words)).split(ROWS):
            scores = self.a * self.products(words, at) + self.counts
            log = scores.log_softmax(-1)[torch.arange(len(at)), words[at]]
            logs.append(log.double().numpy())
        return np.concatenate(logs)

    def products(self, words: Tensor, at: Tensor) -> Tensor:
        """Of each output vector with the mean of the vectors before places (N,): (N, V)."""
        back = at[:, None] - torch.arange(1, WINDOW + 1)  # (N, window)
        there = (back >= 0).to(self.inputs.dtype)
        seen = self.inputs[words[back.clamp(min=0)]] * there[..., None]  # (N, window, D)
        mean = seen.sum(1) / there.sum(1, keepdim=True).clamp(min=1)
        return mean @ self.outputs.T


def train_next_word(
    ids: Ids, vocab: int, config: Word2VecConfig, seed: int = 0, workers: int = 1
) -> NextWord:
    """word2vec's vectors of the tokens of a running text; nothing for those not in it."""
    counts = np.bincount(ids, minlength=vocab)
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    if len(order) < 2:
        raise DataError("learning vectors", f"{len(order)} different tokens", "2 or more")
    rank = np.full(vocab, -1, np.int32)
    rank[order] = np.arange(len(order))
    bounds = np.unique(np.append(np.arange(0, len(ids), SENTENCE), len(ids)))
    corpus = WordCorpus([str(id) for id in order], counts[order], rank[ids], bounds)
    vectors = np.zeros((2, vocab, config.dim), np.float32)
    vectors[:, order] = train_word2vec(corpus, config, seed, workers)
    seen = torch.from_numpy(np.maximum(counts, 0.5)).float().log()
    return NextWord(torch.from_numpy(vectors[0]), torch.from_numpy(vectors[1]), seen)


def choose_scale(model: NextWord, ids: Ids) -> NextWord:
    """The model with the a, in tenths, that suits the beginning of another text best."""
    tried = (replace(model, a=tenths / 10) for tenths in range(16))
    return max(tried, key=lambda one: float(one.logprobs(ids[:FITTED]).sum()))


# One split ----------------------------------------------------------------------------------------


def cut_parts(
    data: str, valid: str | None, test: str | None, pairs: bool
) -> tuple[dict[str, list[str]], int]:
    """The rows of each part, and how many training rows were left out as others have them."""

    def read(file: str) -> list[str]:
        if pairs:
            return ["\t".join(pair) for pair in read_pairs(file)]
        return list(read_lines(file))

    def keys(row: str) -> list[object]:
        """What must not stand in two parts: a source, a target; a line that is not too short."""
        if pairs:
            sides = enumerate(row.split("\t"))
            return [(n, normalise(side)) for n, side in sides if side.strip()]
        return [normalise(row)] if count_words(row) >= WORDS else []

    rows = read(data)
    if len(rows) < LEAST:
        what = "pairs" if pairs else "lines"
        raise DataError(DOING, f"{len(rows)} {what} in {data}", f"{LEAST} or more")
    held = max(1, min(len(rows) // LEAST, MOST if pairs else len(rows)))
    parts: dict[str, list[str]] = {}
    for name, file in (("test", test), ("valid", valid)):
        if file is not None:
            parts[name] = read(file)
        else:
            rows, parts[name] = rows[:-held], rows[-held:]
        if not any(row.strip() for row in parts[name]):
            raise DataError(DOING, f"nothing in the {name} data", "one line or more")
    seen = {key for part in parts.values() for row in part for key in keys(row)}
    train = [row for row in rows if seen.isdisjoint(keys(row))]
    if len(train) < LEAST // 2:
        problem = f"{len(train)} lines to train on without those of the test and validation data"
        raise DataError(DOING, problem, f"{LEAST // 2} or more", "give data that they do not share")
    return {"train": train, "valid": parts["valid"], "test": parts["test"]}, len(rows) - len(train)


# Climbing -----------------------------------------------------------------------------------------


@dataclass
class Climb:
    """Trains and measures rung after rung on one split; the first fields are `regard.ladder`'s."""

    data: str
    valid: str | None
    test: str | None
    minutes: float
    steps: int | None
    rungs: str | None
    out: str | None
    tokens: str | None
    vocab: int | None
    min_count: int
    dim: int
    watts: float | None
    train: Any
    evaluate: Any
    """The rooms of these names."""

    def climb(self) -> Ladder:
        """In a folder of its own or in `out`, which keeps the models."""
        self.pairs = ".tsv" in Path(self.data).suffixes
        known = {rung.name: rung for rung in (PAIRS if self.pairs else TEXTS)}
        asked = list(known) if self.rungs is None else self.rungs.split(",")
        for name in asked:
            check_known(name, known, DOING, f"no rung {name!r}")
        self.climbed = [rung for name, rung in known.items() if name in asked]
        if self.out is None:
            with TemporaryDirectory(prefix="regard-ladder-") as folder:
                return self.run(Path(folder))
        check_new(Path(self.out), DOING)
        return self.run(Path(self.out))

    def make_split(self, folder: Path) -> None:
        """Write the three parts, and the tokenizer of the training part."""
        kind = self.tokens or ("pieces" if self.pairs else "spaced")
        check_known(kind, KINDS, DOING, f"--tokens {kind}")
        parts, self.taken_out = cut_parts(self.data, self.valid, self.test, self.pairs)
        self.lines = {name: len(rows) for name, rows in parts.items()}
        folder.mkdir(parents=True)
        self.files = {name: folder / f"{name}.{'tsv' if self.pairs else 'txt'}" for name in parts}
        for name, path in self.files.items():
            path.write_text("".join(f"{row}\n" for row in parts[name]), encoding="utf-8")
        texts = read_parts([self.files["train"]])
        if self.pairs:
            texts = (f"{side}\n" for pair in read_pairs(self.files["train"]) for side in pair)
        self.tokenizer = train_tokenizer(
            texts,
            kind,
            self.vocab or (PIECES if self.pairs else None),
            specials=("pad", "eos"),
            min_count=self.min_count if kind in ("spaced", "words") else 1,
            wrap="eos" if self.pairs else "none",
        )
        self.tokenizer.save(folder / "tokenizer")
        self.tokenizer_folder = str(folder / "tokenizer")

    def run(self, folder: Path) -> Ladder:
        """Those that count first, the others by their shares of the time."""
        began = time.monotonic()
        self.folder = folder
        self.meter = Meter(choose_device() == "cuda", self.watts)
        self.make_split(folder / "split")
        unknown = [] if self.pairs else lacking(self.tokenizer)
        self.asked = {} if self.pairs or unknown else questions(self.tokenizer)
        scores = list[RungScore]()
        if self.taken_out:
            lines = f"{self.taken_out:,} lines"
            note(f"left out of training, as test or validation has them: {lines}")
        own = 0.0  # seconds of one share: what an earlier rung takes too much no later one lacks
        for number, rung in enumerate(self.climbed):
            shares = sum(other.share for other in self.climbed[number:] if other.verb)
            left = began + 60 * self.minutes - time.monotonic()
            own = max(own, left / shares) if rung.verb else 0.0
            seconds = own * rung.share
            about = f", about {seconds:.0f} s" if rung.verb and not self.steps else ""
            note(f"rung {number + 1} of {len(self.climbed)}: {rung.title}{about}")
            with settings(quiet=True):
                measured = self.measure_rung(rung, folder / rung.name, seconds)
            scores.append(RungScore(rung.name, rung.title, **measured))
        quality = {row.name: row.bleu or 0.0 for row in scores}
        if not self.pairs:
            quality = {row.name: -(row.perplexity or 0.0) for row in scores}
        better = beaten_by(self.climbed, quality)
        french = {"distances": [*self.asked], "lacking": unknown}
        return Ladder(
            self.data,
            "translation" if self.pairs else "text",
            self.lines,
            self.taken_out,
            None if self.steps else self.minutes,
            self.steps,
            current().seed,
            round(time.monotonic() - began, 1),
            self.out,
            [replace(row, beaten_by=better[row.name]) for row in scores],
            {"source": self.meter.source, "measured": self.meter.measured},
            None if self.pairs else french,
        )

    def measure_rung(self, rung: Rung, out: Path, seconds: float) -> dict[str, Any]:
        """Train a rung into a folder and measure it on the test data."""
        if rung.name == "word2vec":
            return self.measure_vectors(out, seconds)
        costs = self.train_steps(rung, out, seconds) if rung.verb else self.count(rung, out)
        model = str(out / "final" if rung.verb else out)
        if self.pairs:
            score = self.evaluate.translate(model, self.files["test"], by_length=True, workers=1)
            return costs | {"bleu": score.bleu, "by_length": score.to_dict()["by_length"]}
        costs.pop("steps", None)
        score = self.evaluate.lm(model, self.files["test"])
        quality = {"perplexity": score.perplexity, "bits": score.bits_per_token}
        return costs | quality | {"french": self.follow_french(rung, model)}

    def count(self, rung: Rung, out: Path) -> dict[str, Any]:
        """Train a rung that counts."""
        file = self.files["train"]
        self.meter.start()
        if self.pairs:
            lbfgs = self.steps or max(1, min(60, int(LBFGS * self.minutes)))
            more = {"steps": lbfgs} if rung.name == "logreg" else {}
            run = getattr(self.train, rung.name)(file, out=out, **more)
            costs, size = self.costs(run.seconds), run.weights
            words = sum(len(row.split()) for row in read_lines(file))
        else:
            text: dict[str, Any] = {"tokens": self.tokenizer_folder, "lines": False, "out": out}
            if rung.name == "classes":  # whose search takes words × classes²
                kinds = len(np.unique(self.ids("train")))
                most = math.isqrt(int(60 * self.minutes * BROWN / (kinds * MERGE)))
                classes = max(1, min(CLASSES, kinds, CLASSES if self.steps else most))
                run = self.train.classes(file, classes=classes, **text)
            else:
                run = self.train.ngram(file, order=int(rung.name[0]), **text)
            costs, words = self.costs(run.seconds), run.tokens
            own = run.vocabulary if rung.name == "classes" else 0  # each word's share of its class
            size = sum(run.ngrams) + own
        return costs | {"parameters": size, "tokens_per_s": words / max(run.seconds, 0.01)}

    def costs(self, seconds: float) -> dict[str, Any]:
        """What a rung cost that was trained just now."""
        return {"seconds": seconds, "joules": self.meter.joules()}

    def ids(self, part: str) -> Ids:
        """A part as one running text."""
        return joined(encode_lines(self.tokenizer, read_parts([self.files[part]]), False))

    def measure_vectors(self, out: Path, seconds: float) -> dict[str, Any]:
        """Vectors of word2vec, and a softmax over the mean of the last ones."""
        ids, began = self.ids("train"), time.perf_counter()
        self.meter.start()
        config = Word2VecConfig("cbow", self.dim, WINDOW, min_count=1)
        times = config.times(len(ids))
        if not self.steps:
            times = max(1, min(times, int(TRAINING * seconds * PACE / max(len(ids), 1))))
        config = replace(config, epochs=times)
        model = train_next_word(ids, self.tokenizer.size, config, current().seed, WORKERS)
        speed = times * len(ids) / max(time.perf_counter() - began, 0.01)
        model = choose_scale(model, self.ids("valid"))
        costs = self.costs(time.perf_counter() - began)
        pieces = self.tokenizer.pieces(range(self.tokenizer.size), "source")
        words = [re.sub(r"\s", "▁", piece or f"<id{id}>") for id, piece in enumerate(pieces)]
        counts = np.bincount(ids, minlength=self.tokenizer.size).tolist()
        both = {"in": model.inputs.numpy(), "out": model.outputs.numpy()}
        how = {**asdict(config), "seed": current().seed, "a": model.a}
        save_folder(out, words, counts, both, how)
        logs = model.logprobs(self.ids("test"))
        if not len(logs):
            raise DataError(DOING, f"no tokens in {self.files['test']}", "one or more")
        loss = -float(logs.mean())
        french = answer_curve(self.asked, model.logprobs) if self.asked else None
        quality = {"perplexity": perplexity(loss), "bits": loss / math.log(2), "french": french}
        return costs | quality | {"parameters": model.parameters, "tokens_per_s": speed}

    def follow_french(self, rung: Rung, model: str) -> list[float | None] | None:
        """p(French) by distance."""
        if not self.asked:
            return None
        if rung.verb is None:
            return answer_curve(self.asked, NgramModel.open(Path(model)).tables.logprobs)
        net, room = self.kit.model, room_of(self.kit)
        return answer_curve(
            self.asked, lambda ids: score_rows(net, [ids])[0] if len(ids) <= room + 1 else None
        )

    def train_steps(self, rung: Rung, out: Path, seconds: float) -> dict[str, Any]:
        """Train step by step, for so many seconds by the clock or as many steps as asked for."""
        count, options = self.steps, dict[str, Any]()
        if count is None:
            began, trial = time.perf_counter(), self.folder / ".trial"
            often = {"log_every": TRIAL // 3, "eval_every": 0, "save_every": TRIAL}
            speed, tokens = pace(self.start_run(rung, trial, {"steps": TRIAL, **often}).metrics)
            shutil.rmtree(trial)
            left = max(1.0, TRAINING * seconds - (time.perf_counter() - began))
            count = max(TRIAL, int(left * speed / tokens))  # about: the clock decides
            options["minutes"] = left / 60
        options |= {"steps": count if self.steps else MANY, "save_every": MANY}
        options["warm_up"] = max(1, min(400, count // 10))
        options["eval_every"] = -(-count // VALIDATIONS)
        if rung.name in FEW:
            options["lr"] = RATE * min(1.0, (FEW[rung.name] / count) ** 0.5)
        began = time.perf_counter()
        self.meter.start()
        run = self.start_run(rung, out, options)
        costs = self.costs(time.perf_counter() - began)
        if run.best_valid is None:
            raise DataError(f"training {rung.name}", "nothing to validate on", "longer lines")
        for name in ("checkpoints", "data"):
            shutil.rmtree(out / name, ignore_errors=True)
        self.kit = run.kit
        size = sum(weight.numel() for weight in self.kit.model.parameters())
        figures = {"bits": run.best_valid / math.log(2), "steps": run.steps, "parameters": size}
        return costs | figures | {"tokens_per_s": pace(run.metrics)[0]}

    def start_run(self, rung: Rung, out: Path, options: Mapping[str, Any]) -> Any:
        """Train a rung that is trained step by step."""
        shape = dict(rung.shape)
        if rung.name == "transformer":
            shape["heads"] = next(count for count in (4, 2, 1) if self.dim % count == 0)
        return getattr(self.train, str(rung.verb))(
            self.files["train"],
            out=out,
            config=TrainConfig(**{**SAME, **rung.how, **options}),
            shape=ShapeConfig(dim=self.dim, **shape),
            data=DataConfig(valid=(str(self.files["valid"]),), tokens=self.tokenizer_folder),
        )


def pace(metrics: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """(tokens per second, tokens of a step) of a run, its slow first lines left out."""
    steps = [line for line in metrics if "tokens_per_s" in line]
    kept = steps[1:] or steps
    seconds = sum(1 / max(line["tokens_per_s"], 1e-9) for line in kept)
    return len(kept) / seconds, sum(line["count"] for line in steps) / len(steps)
