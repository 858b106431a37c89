"""Classes, tags and numbers: learnt, resumed, opened by transformers, frozen, and bad input."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.errors import DataError, RegardError, UsageError
from regard.interop.families import bind
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.config import HeadConfig
from regard.model.model import Head, Model
from regard.model.presets import bert, gpt2
from regard.tokens.trainers import train_tokenizer
from regard.train import trainer as loop
from regard.train.results import read_metrics
from regard.tune import classification
from regard.tune.classification import row_loss
from regard.tune.config import HeadTuning
from tests.cli.small_folders import CORPUS, pair  # noqa: F401
from tests.properties.threads import one_thread  # noqa: F401

FILLERS = "the mat on log and Paris capital France world today fine".split()
QUICK = dict(epochs=6.0, rows=8)
STEPS = dict(lr=3e-3, dropout=0.0)


def write_texts(path, count=96, seed=0, header=""):
    """Texts with a cat are yes, with a dog no."""
    dice, lines = random.Random(seed), []
    for n in range(count):
        words = dice.choices(FILLERS, k=dice.randint(2, 7))
        words.insert(dice.randrange(len(words)), ("cat", "dog")[n % 2])
        lines.append(f"{' '.join(words)}\t{('yes', 'no')[n % 2]}")
    path.write_text(header + "\n".join(lines) + "\n")
    return path


def write_tags(path, count=60, seed=0):
    """Words before a cat are B, others A."""
    dice, lines = random.Random(seed), []
    for _ in range(count):
        words = dice.choices(FILLERS, k=5)
        lines += [f"{word}\t{'B' if len(word) > 3 else 'A'}" for word in words] + [""]
    path.write_text("\n".join(lines) + "\n")
    return path


def save_fresh(folder, family, shape, kind, **how):
    tokenizer = train_tokenizer(CORPUS, kind, 200, **how)
    kit = Kit(Model.fresh(shape(32, 2, 2, tokenizer.size, 40), 1), tokenizer, bind(family))
    kit.save(folder)
    return folder


@pytest.fixture(scope="session")
def masker(tmp_path_factory):
    """A masked language model that has learnt nothing yet."""
    roles = ("pad", "unk", "cls", "sep", "mask")
    folder = tmp_path_factory.mktemp("masker")
    how = dict(specials=roles, wrap="cls-sep")
    return save_fresh(folder, "BertForMaskedLM", bert, "wordpiece", **how)


@pytest.fixture(scope="session")
def writer(tmp_path_factory):
    """A decoder."""
    folder = tmp_path_factory.mktemp("writer")
    return save_fresh(folder, "GPT2LMHeadModel", gpt2, "words", specials=("pad", "unk", "eos"))


@pytest.fixture
def texts(tmp_path):
    return write_texts(tmp_path / "train.tsv"), write_texts(tmp_path / "dev.tsv", 40, 1)


def tune(kind, file, model, out, config=(), **head):
    settings = regard.TrainConfig(**(STEPS | dict(config)))
    named = ("dev", "resume", "holdout", "lora")
    options = {name: head.pop(name) for name in named if name in head}
    call = getattr(regard.tune, kind)
    return call(
        file, model=model, out=out, head=HeadTuning(**(QUICK | head)), config=settings, **options
    )


def theirs(folder, texts, name):
    """Logits of transformers, which opens the folder by itself, for a padded batch."""
    import transformers

    kit = regard.load(folder)
    model = getattr(transformers, f"AutoModelFor{name}").from_pretrained(folder).eval()
    ids, mask = kit.encode(texts)
    mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    with torch.no_grad():
        return (
            model,
            kit.logits(ids, mask=mask),
            model(ids, attention_mask=mask.long()).logits,
            mask,
        )


# Heads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("take", ["first", "last", "mean"])
@pytest.mark.parametrize("left", [False, True])
def test_padding_on_either_side_changes_no_answer(take, left):
    torch.manual_seed(0)
    head, lengths = Head(HeadConfig(3, take, "tanh", bias=True), 8), [5, 2, 4]
    rows = [torch.randn(n, 8) for n in lengths]
    x, real = torch.full((3, 6, 8), torch.nan), torch.zeros(3, 6, dtype=torch.bool)
    for n, row in enumerate(rows):
        place = slice(6 - len(row), 6) if left else slice(0, len(row))
        x[n, place], real[n, place] = row, True
    alone = torch.stack([head(row[None])[0] for row in rows])
    torch.testing.assert_close(head(x, real), alone, atol=1e-6, rtol=0)
    wanted = {"first": rows[1][0], "last": rows[1][-1], "mean": rows[1].mean(0)}[take]
    torch.testing.assert_close(head.pool(x, real)[1], wanted)


# Runs ---------------------------------------------------------------------------------------------


def test_an_encoder_learns_classes_and_transformers_opens_it(masker, texts, tmp_path):
    run = tune("classify", texts[0], masker, tmp_path / "run", dev=texts[1])
    assert run.best_valid == 1.0
    model, ours, other, _ = theirs(
        run.path, ["the cat", "on the mat a dog today"], "SequenceClassification"
    )
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model.config.id2label == {0: "no", 1: "yes"}
    torch.testing.assert_close(ours, other, atol=1e-5, rtol=0)
    scores = regard.evaluate.classify(run.path, texts[1])
    assert (scores.accuracy, scores.confusion, scores.count) == (1.0, [[20, 0], [0, 20]], 40)
    assert scores.low == scores.high == 1.0 and 0 < scores.ece < 0.5
    scores.save(tmp_path / "table.png")
    (tmp_path / "other.tsv").write_text("the cat\tspam\na dog\tham\n")
    with pytest.raises(DataError, match="only ham, spam\n  expected: some of no, yes"):
        regard.evaluate.classify(run.path, tmp_path / "other.tsv")
    answers = list(regard.predict(run.path, texts[1]))
    assert [a.label for a in answers] == ["yes", "no"] * 20
    assert all(0.5 < a.probability <= 1 for a in answers)
    # Attribution of a prediction (#76): the planted word is what it comes from.
    result = regard.look.explain(run.path, "the mat cat on today", target="yes", method="shap")
    named = dict(zip(result.pieces, result.scores, strict=True))
    assert max(named, key=named.get).strip() == "cat"


def test_a_decoder_takes_the_last_token(writer, texts, tmp_path):
    run = tune("classify", texts[0], writer, tmp_path / "run", dev=texts[1], epochs=3.0)
    name = "SequenceClassification"
    model, ours, other, _ = theirs(run.path, ["the cat", "on the mat a dog today"], name)
    assert type(model).__name__ == "GPT2ForSequenceClassification"
    torch.testing.assert_close(ours, other, atol=1e-5, rtol=0)
    result = regard.look.explain(run.path, "the mat cat on", target="yes", method="gradient")
    assert len(result.scores) >= 4


def test_tags_at_the_first_token_of_words(masker, tmp_path):
    train, dev = write_tags(tmp_path / "train.tsv"), write_tags(tmp_path / "dev.tsv", 20, 1)
    run = tune("tag", train, masker, tmp_path / "run", dev=dev)
    assert run.best_valid > 0.95
    model, ours, other, mask = theirs(
        run.path, ["the mat", "Paris on today"], "TokenClassification"
    )
    assert type(model).__name__ == "BertForTokenClassification"
    torch.testing.assert_close(ours[mask], other[mask], atol=1e-5, rtol=0)
    assert regard.evaluate.tag(run.path, dev).accuracy == pytest.approx(run.best_valid)
    plain = tmp_path / "plain.txt"
    plain.write_text("the today mat\n")
    (answer,) = regard.predict(run.path, plain)
    assert answer.words == ["the", "today", "mat"] and answer.label == ["A", "B", "A"]


@pytest.mark.parametrize("take", ["auto", "first"])
def test_other_heads_are_regards_own(pair, texts, tmp_path, take):  # noqa: F811
    """Of an encoder-decoder the encoder is left."""
    run = tune("classify", texts[0], pair, tmp_path / "run", dev=texts[1], take=take, epochs=1.0)
    kit = regard.load(run.path)
    assert kit.model.decoder is None and kit.binding is None
    assert kit.model.config.head.take == ("mean" if take == "auto" else "first")
    assert len(list(regard.predict(kit, texts[1]))) == 40


def test_several_labels_and_numbers(masker, tmp_path):
    rows = [
        {"text": f"the {'cat ' * (n % 2)}{'dog ' * (n % 3 == 0)}mat", "labels": labels}
        for n in range(60)
        if (labels := ["cat"] * (n % 2) + ["dog"] * (n % 3 == 0)) or True
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = dict(dev=file, several=True, epochs=25.0)
    run = tune("classify", file, masker, tmp_path / "run", **how)
    scores = regard.evaluate.classify(run.path, file)
    assert scores.accuracy == run.best_valid > 0.9 and scores.confusion is None
    answers = list(regard.predict(run.path, file))
    assert answers[0].label == ["dog"] and answers[1].label == ["cat"] and answers[2].label == []
    model, ours, other, _ = theirs(run.path, ["the cat mat"], "SequenceClassification")
    assert model.config.problem_type == "multi_label_classification"

    grades = tmp_path / "grades.csv"
    lines = [f"{'cat ' * (n % 4)}the mat,{-100 + 50 * (n % 4)}" for n in range(80)]
    grades.write_text("sentence,grade\n" + "\n".join(lines) + "\n")
    run = tune("regress", grades, masker, tmp_path / "grade", label="grade", epochs=12.0)
    scores = regard.evaluate.regress(run.path, grades, label="grade")
    assert scores.pearson > 0.95 and scores.rmse < 20
    values = [answer.label for answer in regard.predict(run.path, grades)][:4]
    assert values == pytest.approx([-100, -50, 0, 50], abs=40)


def test_an_adapter_of_a_classifier_has_its_head_too(masker, texts, tmp_path):
    how = dict(dev=texts[1], lora="r=4", epochs=8.0)
    run = tune("classify", texts[0], masker, tmp_path / "run", dict(lr=1e-2), **how)
    assert run.best_valid > 0.8 and (run.path / "adapter_config.json").is_file()
    scores = regard.evaluate.classify(run.path, texts[1])
    assert scores.accuracy == run.best_valid and [row.name for row in scores.classes] == [
        "no",
        "yes",
    ]
    regard.tune.merge(run.path, out=tmp_path / "whole")
    answers = [list(regard.predict(p, texts[1])) for p in (run.path, tmp_path / "whole")]
    assert [a.label for a in answers[0]] == [a.label for a in answers[1]]


class Killed(BaseException):
    """Stands for SIGKILL: nothing in a run may catch it."""


@pytest.mark.parametrize("body", ["all", "none"])
def test_a_killed_run_ends_with_the_same_bits(masker, texts, tmp_path, monkeypatch, body):
    how = dict(dev=texts[1], body=body, epochs=2.0, mlp=body == "none")
    often = dict(save_every=3, log_every=1, dropout=0.1, ema=0.9)
    whole = tune("classify", texts[0], masker, tmp_path / "whole", often, **how)
    step = loop.Trainer.step

    def dying(self, micro):
        if self.state.step == 8:
            raise Killed
        return step(self, micro)

    monkeypatch.setattr(loop.Trainer, "step", dying)
    with pytest.raises(Killed):
        tune("classify", texts[0], masker, tmp_path / "cut", often, **how)
    monkeypatch.setattr(loop.Trainer, "step", step)
    last = regard.tune.classify(resume=tmp_path / "cut")
    assert (last.weights, last.last_weights) == (whole.weights, whole.last_weights)
    curves = [
        [(m["step"], m.get("loss"), m.get("valid_accuracy")) for m in run.metrics]
        for run in (whole, last)
    ]
    assert curves[0] == curves[1] and len(curves[0]) > 20
    assert regard.replay(whole.folder).match


@pytest.mark.slow
def test_a_process_killed_for_real_is_resumed_to_the_same_bits(masker, texts, tmp_path):
    code = (
        "import regard; regard.tune.classify({!r}, model={!r}, dev={!r}, resume={!r}, "
        "head=regard.HeadTuning(epochs=6.0, rows=8), "
        "config=regard.TrainConfig(save_every=3, log_every=1))"
    )

    def start(out):
        line = code.format(str(texts[0]), str(masker), str(texts[1]), str(out))
        return subprocess.Popen([sys.executable, "-c", line], stderr=subprocess.DEVNULL)

    assert start(tmp_path / "whole").wait(300) == 0
    for least in (2, 30):
        process, end = start(tmp_path / "cut"), time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            lines = read_metrics(tmp_path / "cut")
            if lines and lines[-1]["step"] >= least:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert start(tmp_path / "cut").wait(300) == 0
    results = [
        json.loads((tmp_path / p / "receipt.json").read_text())["results"] for p in ("whole", "cut")
    ]
    assert results[0] == results[1]


# What learns --------------------------------------------------------------------------------------


def test_a_frozen_body_is_logistic_regression_at_its_optimum(masker, texts, tmp_path):
    """Against L-BFGS in float64 on the mean vectors, computed one text at a time."""
    config = dict(lr=0.1, steps=400, warm_up=5, eval_every=0, save_every=400)
    how = dict(body="none", rows=96, l2=0.05, holdout=0.0)
    run = tune("classify", texts[0], masker, tmp_path / "run", config, **how)
    base, kit = regard.load(masker), regard.load(run.path)
    frozen = [kit.model.encoder, kit.model.front], [base.model.encoder, base.model.front]
    for ours, before in zip(*frozen, strict=True):
        for name, weight in before.named_parameters():
            assert torch.equal(weight, ours.get_parameter(name)), name
    rows = [line.split("\t") for line in texts[0].read_text().splitlines()]
    with torch.no_grad():
        x = torch.cat([base.model.hidden(base.batch([text])).mean(1) for text, _ in rows]).double()
    y = torch.tensor([("no", "yes").index(label) for _, label in rows])
    weight = torch.zeros(2, 33, dtype=torch.double, requires_grad=True)
    search = torch.optim.LBFGS([weight], max_iter=500, line_search_fn="strong_wolfe")

    def loss(weight):
        scores = x @ weight[:, :32].T + weight[:, 32]
        return F.cross_entropy(scores, y) + 0.025 * weight[:, :32].square().sum()

    def closure():
        search.zero_grad()
        value = loss(weight)
        value.backward()
        return value

    search.step(closure)
    head = kit.model.head.out
    ours = torch.cat([head.weight, head.bias[:, None]], 1).double()
    optimum, reached = float(loss(weight).detach()), float(loss(ours).detach())
    assert 0 <= reached - optimum < 1e-4 and optimum < 0.69
    chances = [(x @ w[:, :32].T + w[:, 32]).softmax(-1).detach() for w in (ours, weight)]
    torch.testing.assert_close(*chances, atol=0.01, rtol=0)


def test_frozen_and_new_parts(masker, texts, tmp_path):
    how = dict(freeze=("front", "encoder.blocks.0"), replace=1, epochs=1.0)
    run = tune("classify", texts[0], masker, tmp_path / "run", dev=texts[1], **how)
    before, after = (dict(regard.load(p).model.named_parameters()) for p in (masker, run.path))
    same = {name for name in before if name in after and torch.equal(before[name], after[name])}
    frozen = {n for n in after if n.startswith(("front.", "encoder.blocks.0."))}
    assert same == frozen
    block = "encoder.blocks.1.attn.q.weight"
    assert float((after[block] - before[block]).abs().max().detach()) > 0.06  # drawn anew
    said = (run.folder / "log.txt").read_text()
    assert "of them trained" in said


def test_rates_fall_from_block_to_block(masker, texts, tmp_path, monkeypatch):
    """The first step of AdamW moves each weight by its rate, up to the sign of its gradient."""
    config = dict(
        lr=1e-3, steps=1, warm_up=0, weight_decay=0.0, clip=0.0, eps=1e-20, schedule="constant"
    )
    seen = {}
    make = classification.HeadKind.make_kit

    def watched(self, plan, data):
        kit = make(self, plan, data)
        seen.update({n: p.detach().clone() for n, p in kit.model.named_parameters()})
        return kit

    monkeypatch.setattr(classification.HeadKind, "make_kit", watched)
    run = tune("classify", texts[0], masker, tmp_path / "run", config, layer_rate=0.5, holdout=0.0)
    after = dict(regard.load(run.path).model.named_parameters())
    for name, share in (
        ("head.out.weight", 1.0),
        ("encoder.blocks.1.mlp.up.weight", 0.5),
        ("encoder.blocks.0.mlp.up.weight", 0.25),
        ("front.positions.weight", 0.125),
    ):
        moved = (after[name] - seen[name]).abs().max().detach()
        assert float(moved) == pytest.approx(1e-3 * share, rel=1e-2), name


def test_losses_are_torchs():
    torch.manual_seed(0)
    head = Head(HeadConfig(4, "mean", bias=True), 8)
    model, x, weights = (
        SimpleNamespace(head=head),
        torch.randn(6, 8),
        torch.tensor([0.5, 2, 1, 1.5]),
    )
    scores, kept = head.out(x).detach(), [0, 1, 2, 4, 5]

    def loss(labels, *how, **more):
        sums = row_loss(model, Batch(x[:, None]), labels, *how, frozen=True, **more)
        return [float(value.detach()) for value in sums[:3]]

    classes = torch.tensor([0, 3, 1, -100, 2, 2])
    whole = torch.nn.CrossEntropyLoss(weights, reduction="sum", label_smoothing=0.1)
    plain = float(F.cross_entropy(scores, classes, reduction="sum"))
    smooth = float(whole(scores, classes))
    assert loss(classes, 0.1, weights=weights) == pytest.approx([smooth, plain, 5])
    size = float(head.out.weight.square().sum().detach())
    assert loss(classes, l2=0.2) == pytest.approx([plain + 5 * 0.1 * size, plain, 5])
    sets = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [1] * 4, [-100] * 4, [0] * 4, [0, 0, 0, 1]])
    mean = float(F.binary_cross_entropy_with_logits(scores[kept], sets[kept].float(), weights))
    assert loss(sets, weights=weights) == pytest.approx([mean * 5, mean * 5, 5])
    numbers = torch.tensor([0.5, -1, 2, -100.0, 0, 0])
    error = float(F.mse_loss(scores[kept, 0], numbers[kept], reduction="sum"))
    assert loss(numbers) == pytest.approx([error, error, 5])


def test_weights_of_classes():
    from collections import Counter

    counts = Counter({"a": 30, "b": 10})
    assert classification.read_weights(["balanced"], counts, ["a", "b"]).tolist() == pytest.approx(
        [2 / 3, 2.0]
    )
    assert classification.read_weights(["b=3"], counts, ["a", "b"]).tolist() == [1, 3]
    with pytest.raises(UsageError, match="CLASS=NUMBER"):
        classification.read_weights(["c=3"], counts, ["a", "b"])


# Long texts, and bad input ------------------------------------------------------------------------


def test_long_texts_are_cut_and_counted(masker, tmp_path):
    file = write_texts(tmp_path / "train.tsv", 24)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([f"{'cat mat ' * 40}\tyes", *lines]) + "\n")
    run = tune("classify", file, masker, tmp_path / "run", dict(steps=1), holdout=0.0)
    said = "cut at their end: 1 of 25 texts, of more than 40 tokens"
    assert said in (run.folder / "log.txt").read_text()


@pytest.mark.parametrize(
    ("name", "content", "head", "said"),
    [
        ("a.csv", "text,topic\nthe cat,x\n", {}, "no column 'label'(.|\n)*text, topic"),
        ("a.tsv", "the cat\tx\nthe dog\tx\n", {}, "one class only, 'x'"),
        ("a.tsv", "the cat\tx\nthe dog\n", {}, "1 cells in line 2"),
        ("a.csv", "text,label\n,x\n", {}, "text = '' in line 2"),
        ("a.csv", "text,label\nthe,x\ncat,\n", {}, "no label in line 3"),
        ("a.tsv", "the\tx\ncat\ty\n", {"freeze": ("encodr",)}, "'encodr'"),
        ("a.tsv", "the\tx\ncat\ty\n", {"freeze": ("*",)}, "all of them"),
        ("a.tsv", "the\tx\ncat\ty\n", {"replace": 3}, "at most 2"),
        ("a.tsv", "the\tx\ncat\ty\n", {"weights": ("z=1",)}, "CLASS=NUMBER"),
        ("a.tsv", "the\tx\ncat\ty\n", {"body": "none", "replace": 1}, "one way to freeze"),
    ],
)
def test_bad_texts(masker, tmp_path, name, content, head, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(RegardError, match=said):
        tune("classify", tmp_path / name, masker, tmp_path / "run", holdout=0.0, **head)
    assert not (tmp_path / "run").exists()


def test_bad_tags_and_numbers_and_models(masker, writer, texts, tmp_path):
    file = tmp_path / "tags.jsonl"
    file.write_text('{"tokens": ["a"], "tags": ["A"]}\n{"tokens": ["a", "b"], "tags": ["A"]}\n')
    with pytest.raises(DataError, match=r"tags.jsonl: 2 tokens and 1 tags in line 2"):
        tune("tag", file, masker, tmp_path / "run")
    broken = tmp_path / "tags.conll"
    broken.write_text("the\tA\ncat\n")
    with pytest.raises(DataError, match=r"tags.conll: 1 columns in line 2"):
        tune("tag", broken, masker, tmp_path / "run")
    with pytest.raises(DataError, match="line 1 of .*: the label 'yes'"):
        tune("regress", texts[0], masker, tmp_path / "run")
    with pytest.raises(UsageError, match="no model to begin with"):
        regard.tune.classify(texts[0], out=tmp_path / "run")
    with pytest.raises(DataError, match="line 1 of .*the label 'maybe'"):
        other = tmp_path / "other.tsv"
        other.write_text("the\tmaybe\n")
        tune("classify", texts[0], masker, tmp_path / "run", dev=other)
    tuned = tune("classify", texts[0], masker, tmp_path / "tuned", dict(steps=1)).path
    with pytest.raises(DataError, match=r"only maybe(.|\n)*some of no, yes"):
        regard.evaluate.classify(tuned, tmp_path / "other.tsv")
    with pytest.raises(UsageError, match="a decoder, which goes on with a text"):
        regard.evaluate.classify(writer, texts[1])
    with pytest.raises(UsageError, match="metric = bleu"):
        tune("classify", texts[0], masker, tmp_path / "run", dict(metric="bleu"))


def test_a_dry_run_writes_nothing(masker, texts, tmp_path):
    plan = regard.tune.classify(texts[0], model=masker, out=tmp_path / "run", dry_run=True)
    assert plan.model["family"] == "BertForSequenceClassification" and plan.run["steps"] == 200
    assert plan.data["train"] == "86 texts" and not (tmp_path / "run").exists()
    settings = regard.tune.classify(texts[0], model=masker, print_config=True)
    assert (settings.values["lr"], settings.values["rows"], settings.values["warm_up"]) == (
        5e-5,
        32,
        20,
    )
