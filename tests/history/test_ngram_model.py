"""n-gram models of text: folders, running texts, searches, draws."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch

import regard
from regard.cli.main import main
from regard.decode.beam import BeamConfig
from regard.decode.exhaustive import exhaustive
from regard.errors import DataError, ResourceError, UsageError
from regard.history import ngram_model
from regard.history.class_ngrams import train_class_ngrams
from regard.history.ngram_model import NgramModel, encode_lines
from regard.history.smoothing import train_ngrams
from regard.tokens.trainers import train_tokenizer
from tests.decode.toy import beam
from tests.history.naive_ngrams import distribution

LINES = ["the cat sat on the mat", "the dog sat", "", "a cat on a mat sat on the dog", "the mat"]
WRAPPED = {"specials": ["bos", "eos"], "wrap": "bos-eos"}


class NgramStep:
    """Rows and what each has read (`decode/step.py`); a sentence begins with its start id."""

    def __init__(self, tables, rows=1):
        self.tables, self.rows = tables, [list[int]() for _ in range(rows)]

    def __call__(self, ids):
        """Read the next ids (N, t) of each row; log p (N, V) of the one after them."""
        assert len(ids) == len(self.rows)
        made = []
        for row, new in zip(self.rows, ids.tolist(), strict=True):
            row += new
            del row[: max(0, len(row) - self.tables.order)]
            made.append(distribution(self.tables, row))
        return torch.from_numpy(np.stack(made))

    def select(self, rows, group=1):
        """Go on with these rows."""
        self.rows = [list(self.rows[row]) for row in rows.tolist()]


def counted(order=3, way="kneser-ney", kind="spaced", texts=LINES):
    lines = kind == "spaced"
    options = WRAPPED if lines else {"specials": []}
    tokenizer = train_tokenizer(texts, kind, **options)
    ids = np.concatenate(list(encode_lines(tokenizer, texts, lines)))
    start = tokenizer.specials["bos"] if lines else None
    return NgramModel(train_ngrams(ids, tokenizer.size, order, way, start=start), tokenizer, way)


@pytest.mark.parametrize("kind", ["spaced", "chars"])
@pytest.mark.parametrize("way", ["kneser-ney", "add"])
def test_a_folder_holds_all_of_it(tmp_path, way, kind):
    model = counted(way=way, kind=kind)
    model.save(tmp_path / "m")
    again = NgramModel.open(tmp_path / "m")
    assert again.lines == model.lines and again.smoothing == way
    texts = ["the cat on a zebra", "mat"]
    for a, b in zip(model.logprobs(texts), again.logprobs(texts), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(model.tables.levels, again.tables.levels, strict=True):
        np.testing.assert_array_equal(a.count, b.count)


def test_an_arpa_file_is_the_same_model(tmp_path):
    model = counted()
    model.write_arpa(tmp_path / "m.arpa")
    again = NgramModel.open(tmp_path / "m.arpa")
    texts = ["the cat on a zebra", "", "dog"]
    (a,), (b,) = model.logprobs(texts), again.logprobs(texts)
    np.testing.assert_allclose(a, b, rtol=1e-12)
    assert len(a) == 5 + 1 + 1 + 1  # two ends; the blank line is no sentence


def test_a_running_text_goes_on_from_batch_to_batch(monkeypatch):
    model = counted(kind="chars", order=4)
    whole = np.concatenate(list(model.logprobs(LINES)))
    monkeypatch.setattr(ngram_model, "TOGETHER", 1)
    assert len(list(model.logprobs(LINES))) == len(LINES)
    np.testing.assert_array_equal(np.concatenate(list(model.logprobs(LINES))), whole)
    unigrams = counted(kind="chars", order=1)
    assert len(np.concatenate(list(unigrams.logprobs(LINES)))) == len(whole)


def test_the_search_of_the_library_writes_its_likeliest_sentence():
    model = counted(order=2)
    start, end = model.tables.start, model.tokenizer.specials["eos"]
    begin = torch.tensor([[start]])
    (found,) = beam(NgramStep(model.tables), begin, 3, {end}, BeamConfig(200))
    wanted = exhaustive(
        lambda prefixes: NgramStep(model.tables, len(prefixes))(
            torch.cat((begin.expand(len(prefixes), 1), prefixes), 1)
        ),
        model.tables.vocab,
        3,
        {end},
    )
    assert found[0].tokens == wanted[0].tokens and len(found[0].tokens) > 1
    total = np.nansum(model.tables.logprobs([start, *found[0].tokens]))
    assert found[0].logprob == pytest.approx(total, abs=1e-5)


def test_without_smoothing_drawn_texts_have_only_ngrams_that_were_seen():
    model = counted(order=3)
    tables = train_ngrams(
        np.concatenate(list(model.encode(LINES))),
        model.tables.vocab,
        3,
        "add",
        0,
        model.tables.start,
    )
    model = NgramModel(tables, model.tokenizer, "add 0.0")
    ids = np.concatenate(list(model.encode(LINES)))
    seen = {n: {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)} for n in (1, 2, 3)}
    start, end = model.tables.start, model.tokenizer.specials["eos"]
    for order in (1, 2, 3):
        drawn, context = model.sample(order, 300), [start]
        assert not drawn.backed_off  # something always followed
        for word in drawn.tokens:
            context.append(word)
            used = min(order, len(context))
            assert tuple(context[-used:]) in seen[used]
            context = [start] if word == end else context
    odd = model.sample(3, 5, "dog a")  # after what was never seen, fewer words are looked at
    assert odd.backed_off == 1 and odd.marked.startswith("·")


@pytest.mark.parametrize("way", ["kneser-ney", "witten-bell", "add"])
def test_words_are_drawn_as_often_as_the_smoothed_model_says(way):
    model = counted(order=3, way=way)
    start, the = model.tables.start, model.tokenizer.engine.id("the")
    end = model.tokenizer.specials["eos"]
    ids = np.concatenate(list(model.encode(LINES)))
    for order in (1, 2):
        tables = train_ngrams(ids, model.tables.vocab, order, way, start=start)
        drawn = np.array(model.sample(order, 20_000).tokens)
        after = drawn[1:][drawn[:-1] == the] if order == 2 else drawn
        shares = np.bincount(after, minlength=tables.vocab) / len(after)
        wanted = np.exp(distribution(tables, [the] if order == 2 else []))
        np.testing.assert_allclose(shares, wanted, atol=0.02)
        assert end in drawn and start not in drawn
    never = np.setdiff1d(np.arange(tables.vocab), ids[1:][ids[:-1] == the])
    assert shares[never].sum() > 0.1  # what was not seen is drawn too


def test_a_model_of_classes_and_an_arpa_file_draw_too(tmp_path):
    model = counted(order=2)
    model.write_arpa(tmp_path / "m.arpa")
    again = NgramModel.open(tmp_path / "m.arpa")
    drawn = np.array(again.sample(2, 20_000).tokens)
    the = again.tokenizer.engine.id("the")
    shares = np.bincount(drawn[1:][drawn[:-1] == the], minlength=again.tables.vocab)
    wanted = np.exp(distribution(again.tables, [the]))
    np.testing.assert_allclose(shares / shares.sum(), wanted, atol=0.02)
    classes = np.array([0, 1, *[2, 3] * 20])[: model.tables.vocab]
    ids = np.concatenate(list(model.encode(LINES)))
    tables = train_class_ngrams(ids, classes, 2, start=model.tables.start)
    drawn = np.array(NgramModel(tables, model.tokenizer, "kneser-ney").sample(2, 20_000).tokens)
    the = model.tokenizer.engine.id("the")
    shares = np.bincount(drawn[1:][drawn[:-1] == the], minlength=tables.vocab)
    wanted = np.exp(distribution(tables, [the]))
    np.testing.assert_allclose(shares / shares.sum(), wanted, atol=0.02)


def test_what_cannot_be_opened(tmp_path):
    model = counted()
    model.save(tmp_path / "m")
    weights, config = tmp_path / "m" / "model.safetensors", tmp_path / "m" / "config.json"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    with pytest.raises(DataError, match=r"model\.safetensors"):
        NgramModel.open(tmp_path / "m")
    weights.write_bytes(whole)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab": 4}))
    with pytest.raises(DataError, match=r"words\.1\.context does not fit"):
        NgramModel.open(tmp_path / "m")
    config.write_text('{"model_type": "gpt2"}')
    with pytest.raises(DataError, match="no n-gram model"):
        NgramModel.open(tmp_path / "m")


# From files ---------------------------------------------------------------------------------------

TRAIN = ["the cat sat on the mat", "the dog sat on the log", "", "a cat saw a dog", "the end ."] * 3
TEST = ["the cat sat on a log .", "an owl saw the dog"]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(TRAIN) + "\n")
    (tmp_path / "test.txt").write_text("\n".join(TEST) + "\n")
    return tmp_path


def train(files, out="m", **options):
    return regard.train.ngram(files / "train.txt", out=files / out, **options)


def perplexity(model, file):
    return model.measure(file).perplexity


def test_train_then_measure_then_sample_then_arpa(files):
    run = train(files, order=3, valid=files / "test.txt")
    assert run.tokens == 84 and len(run.ngrams) == 3
    assert run.bits_per_token == pytest.approx(math.log2(run.perplexity))
    model = regard.load(files / "m")
    assert perplexity(model, files / "test.txt") == pytest.approx(run.perplexity)
    tokens, size = model.measure(files / "test.txt")[1:3]
    assert tokens == 7 + 5 + 2  # words and ends
    assert size == (files / "test.txt").stat().st_size
    found = regard.history.sample(files / "m", max_new=12)
    assert [text.order for text in found.samples] == [1, 2, 3]
    assert regard.history.sample(model, max_new=12) == found  # the same seed
    assert len(regard.history.sample(model, "the", orders=[2]).samples) == 1
    model.write_arpa(files / "m.arpa")
    again = regard.load(files / "m.arpa")
    assert perplexity(again, files / "test.txt") == pytest.approx(run.perplexity)


def test_unknown_words_are_counted_and_perplexity_is_given_with_and_without_them(files):
    runs, scores = [], []
    for least in (1, 4, 7):
        out = files / f"m{least}"
        runs.append(train(files, out.name, order=2, min_count=least, valid=files / "test.txt"))
        scores.append(regard.evaluate.lm(out, files / "test.txt", train=files / "train.txt"))
    for run, score, least in zip(runs, scores, (1, 4, 7), strict=True):
        counts = Counter(" ".join(TRAIN).split())
        words = [line.split() for line in TEST]
        unknown = [word for line in words for word in line if counts[word] < least]
        assert score.unknown == run.unknown == len(unknown) > 0
        for name in ("perplexity", "perplexity_known", "bits_per_token", "bits_per_byte"):
            assert getattr(score, name) == pytest.approx(getattr(run, name))
        model = regard.load(files / f"m{least}")
        rows = [model.tokenizer.encode(line) for line in TEST]
        unk = model.tokenizer.specials["unk"]
        logs = [
            (log, id == unk)
            for row in rows
            for id, log in list(zip(row, model.tables.logprobs(row), strict=True))[1:]
        ]
        known = [log for log, strange in logs if not strange]
        assert len(known) == score.tokens - len(unknown)
        assert score.perplexity_known == pytest.approx(math.exp(-np.mean(known)))
        assert score.perplexity == pytest.approx(math.exp(-np.mean([log for log, _ in logs])))
        # a code of the text: unknown words are spelt, a byte ends each
        bits = -sum(log for log, _ in logs) / math.log(2) + 8 * sum(len(w) + 1 for w in unknown)
        assert score.bits_per_byte == pytest.approx(bits / (files / "test.txt").stat().st_size)
        assert f"{len(unknown)} of {score.tokens} tokens" in str(score)
        assert score.vocabulary.startswith(f"{run.vocabulary} tokens, ")
    few, some, many = (score.bits_per_byte for score in scores)
    assert few < some < many  # what is not known costs
    assert len({score.vocabulary for score in scores}) == 3  # not comparable, and marked so


def test_classes_are_trained_drawn_coded_and_told(files):
    out = files / "classes"
    run = regard.train.classes(files / "train.txt", out=out, classes=4, valid=files / "test.txt")
    assert run.classes == 4 + 3 == run.ngrams[0] - run.vocabulary  # begin, end, never seen
    assert run.vocabulary == 14 and len(run.ngrams) == 3
    assert perplexity(regard.load(out), files / "test.txt") == pytest.approx(run.perplexity)
    drawn = [tuple(row.tokens) for row in regard.history.sample(out, max_new=60).samples]
    assert len(drawn) == 3 and len(set(drawn)) == 3
    assert regard.history.entropy(files / "test.txt", model=out).coded[1].bytes > 0
    with pytest.raises(UsageError, match="n-grams of classes"):
        regard.load(out).write_arpa(files / "m.arpa")


def test_too_many_classes(files):
    with pytest.raises(UsageError, match="1 to 11"):
        regard.train.classes(files / "train.txt", out=files / "m", classes=99)
    assert not (files / "m").exists()


def test_in_a_bag_order_plays_no_part(files):
    run = regard.train.bow(files / "train.txt", out=files / "bag", k=0.5)
    assert "a bag of words" in str(run)
    model = regard.load(files / "bag")
    totals = []
    for text in ("the cat saw a dog", "dog a the saw cat"):
        (logs,) = model.logprobs([text])
        totals.append(logs.sum())
    counts = Counter(word for line in TRAIN if line for word in [*line.split(), "end of line"])
    kinds = len(counts) + 1  # and one for unknown words
    wanted = sum(
        math.log((counts[word] + 0.5) / (counts.total() + 0.5 * kinds))
        for word in "the cat saw a dog".split() + ["end of line"]
    )
    assert totals == [pytest.approx(wanted, abs=1e-9)] * 2


def test_without_smoothing_unseen_words_are_impossible(files):
    run = regard.train.bow(
        files / "train.txt", out=files / "bag", smoothing=False, valid=files / "test.txt"
    )
    model = regard.load(files / "bag")
    assert model.measure(files / "test.txt").impossible == 2  # an, owl
    assert run.perplexity == math.inf and run.to_dict()["perplexity"] is None
    # Of its own text the perplexity is exp of the entropy of the words.
    counts = Counter(word for line in TRAIN if line for word in [*line.split(), "end of line"])
    shares = [count / counts.total() for count in counts.values()]
    entropy = -sum(share * math.log(share) for share in shares)
    assert perplexity(model, files / "train.txt") == pytest.approx(math.exp(entropy))


def test_characters_run_on_over_lines(files):
    train(files, tokens="chars", order=4, smoothing="witten-bell")
    model = regard.load(files / "m")
    tokens, size = model.measure(files / "test.txt")[1:3]
    assert tokens == size and regard.history.sample(model).samples


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"order": 0}, "order = 0"),
        ({"smoothing": "add", "k": -1}, "k = -1"),
        ({"smoothing": "add", "k": math.nan}, "k = nan"),
        ({"tokens": "wordz"}, "--tokens wordz"),
        ({"smoothing": "good"}, "kneser-ney"),
    ],
)
def test_bad_options(files, options, said):
    with pytest.raises(UsageError) as found:
        train(files, **options)
    assert said in str(found.value) and not (files / "m").exists()


def test_bad_files(files):
    (files / "empty.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"empty\.txt.*no words"):
        regard.train.ngram(files / "empty.txt", out=files / "m")
    with pytest.raises(DataError, match=r"none\.txt"):
        regard.train.ngram(files / "none.txt", out=files / "m")
    with pytest.raises(UsageError, match="there already"):
        train(files, out=".")
    with pytest.raises(DataError, match="no config.json") as found:
        regard.history.sample(files)
    assert "regard train ngram" in str(found.value)
    with pytest.raises(DataError, match="no such file or folder"):
        regard.history.sample(files / "none")
    train(files, order=2)
    with pytest.raises(UsageError, match="1 to 2"):
        regard.history.sample(files / "m", orders=[3])


def test_an_order_longer_than_the_text_is_that_of_its_runs(files, capsys):
    train(files, order=30)
    assert "instead of" in capsys.readouterr().err
    assert perplexity(regard.load(files / "m"), files / "test.txt") > 1
    assert regard.history.sample(files / "m").samples


def test_damaged_arpa(files):
    train(files, order=2)
    regard.load(files / "m").write_arpa(files / "m.arpa")
    text = (files / "m.arpa").read_text()
    line = next(line for line in text.splitlines() if "\tcat" in line)
    for wrong in ("0.5", "nan"):
        changed = line.replace(line.split("\t")[0], wrong, 1)
        (files / "m.arpa").write_text(text.replace(line, changed, 1))
        with pytest.raises(DataError, match="0 or less"):
            regard.load(files / "m.arpa")
    (files / "m.arpa").write_bytes(b"\\data\\\n\xff\n")
    with pytest.raises(DataError, match="line 2, byte 7 .0xff. is not UTF-8"):
        regard.load(files / "m.arpa")


def test_validation_on_the_training_file_is_warned_of(files, capsys):
    (files / "again.txt").write_bytes((files / "train.txt").read_bytes())
    for name, valid, warned in (("a", "again.txt", True), ("b", "test.txt", False)):
        train(files, name, valid=files / valid)
        said = capsys.readouterr().err
        assert ("again.txt is validated on and trained on" in said) == warned


@pytest.mark.parametrize("valid, said", [("none.txt", "no such file"), ("empty.txt", "no tokens")])
def test_validation_that_fails_leaves_no_folder(files, valid, said):
    (files / "empty.txt").write_text("")
    with pytest.raises(DataError, match=said) as found:
        train(files, valid=files / valid)
    assert valid in str(found.value) and not (files / "m").exists()


def test_an_order_beyond_the_memory_is_refused_before_it_is_counted(files, monkeypatch):
    monkeypatch.setattr(ngram_model, "free_memory", lambda: 100_000)
    (files / "train.txt").write_text(" ".join(map(str, range(300))))
    with pytest.raises(ResourceError, match="--order 200") as found:
        train(files, order=200)
    assert "for 302 tokens" in str(found.value) and "--order 11 fits" in str(found.value)
    assert not (files / "m").exists()
    assert train(files, order=11).order == 11


@pytest.mark.parametrize(
    "name, value", [("start", "x"), ("start", 99), ("vocab", None), ("vocab", 9)]
)
def test_a_broken_config_is_named(files, name, value):
    train(files)
    config = json.loads((files / "m" / "config.json").read_text())
    (files / "m" / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(DataError, match="reading") as found:
        regard.load(files / "m")
    assert str(files / "m") in str(found.value)


def test_test_lines_that_were_trained_on_are_no_score(files, capsys):
    long = "one two three four five six seven eight nine"
    (files / "train.txt").write_text(f"{long}\nand more\n")
    (files / "test.txt").write_text(f"{long}\n= = = = Title = = = =\n")
    train(files)
    capsys.readouterr()
    assert main(["evaluate", "lm", str(files / "m"), str(files / "test.txt")]) == 3
    caught = capsys.readouterr()
    assert caught.out == "" and "1 of 1 by lines of 8 words" in caught.err
