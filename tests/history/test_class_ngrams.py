"""The identities of n-grams over classes, their folders, predictors and draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import regard
from regard.errors import DataError, UsageError
from regard.history.class_ngrams import train_class_ngrams
from regard.history.clusters import brown_classes
from regard.history.ngram_model import NgramModel, NgramPredictor
from regard.history.smoothing import train_ngrams
from regard.tokens.trainers import train_tokenizer
from tests.history.naive_ngrams import distribution
from tests.history.planted_classes import planted, same_split


def rows(seed=0, count=400, vocab=12):
    """Sentences 0 … 1 of ids from 2 on."""
    dice = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        made += [0, *(2 + dice.geometric(0.3, 6) % (vocab - 2)), 1]
    return np.array(made)


@pytest.mark.parametrize("way", ["add", "kneser-ney", "witten-bell"])
@pytest.mark.parametrize("order", [2, 3])
def test_each_word_its_class_is_the_word_model(way, order):
    ids = rows()
    made = train_class_ngrams(ids, np.arange(12), order, way, 0.5, start=0)
    plain = train_ngrams(ids, 12, order, way, 0.5, start=0)
    np.testing.assert_array_equal(made.logprobs(rows(1)), plain.logprobs(rows(1)))


def test_one_class_is_the_unigram():
    ids = rows()
    classes = np.array([0, *[1] * 11])
    made = train_class_ngrams(ids, classes, 2, "add", 0, start=0)
    plain = train_ngrams(ids, 12, 1, "add", 0, start=0)
    np.testing.assert_array_equal(made.logprobs(ids), plain.logprobs(ids))
    free = ids[ids > 1] - 2
    one = train_class_ngrams(free, np.zeros(10, int), 2, "add", 0)
    np.testing.assert_array_equal(
        one.logprobs(free), train_ngrams(free, 10, 1, "add", 0).logprobs(free)
    )


def test_probabilities_sum_to_one():
    classes = np.array([0, 1, *[2, 3] * 5])
    made = train_class_ngrams(rows(), classes, 3, start=0)
    for context in ([0], [0, 3, 4], [5, 5]):
        log = distribution(made, np.array(context))
        assert np.exp(log).sum() == pytest.approx(1, abs=1e-9)
        for word in range(1, 12):
            assert made.logprobs(np.array([*context, word]))[-1] == pytest.approx(log[word])


def test_classes_help_where_text_is_short():
    """Held-out perplexity below the plain model's, on little text of a class source (row 15)."""
    ids, _, truth = planted(3000, each=25)
    train, test = ids[:2000], ids[2000:]
    plain = train_ngrams(train, 100, 2)
    made = train_class_ngrams(train, truth, 2)
    seen = np.isfinite(made.logprobs(test))
    assert made.logprobs(test)[seen].mean() > plain.logprobs(test)[seen].mean() + 0.1


def test_mixed_with_words_it_is_the_sum_of_both():
    classes, ids = np.array([0, 1, *[2, 3] * 5]), rows()
    alone, mixed = (train_class_ngrams(ids, classes, 2, start=0, share=s) for s in (1.0, 0.3))
    plain = train_ngrams(ids, 12, 2, start=0)
    both = 0.3 * np.exp(alone.logprobs(rows(1))) + 0.7 * np.exp(plain.logprobs(rows(1)))
    np.testing.assert_allclose(np.exp(mixed.logprobs(rows(1))), both, rtol=1e-12)
    assert np.exp(distribution(mixed, np.array([0, 3, 4]))).sum() == pytest.approx(1, abs=1e-9)


# As models ----------------------------------------------------------------------------------------


def test_brown_classes_find_planted_ones_and_keep_marks_apart():
    ids, bounds, truth = planted(20_000)
    whole = np.concatenate(
        [[33, *ids[a:b], 34] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    )
    made = brown_classes(whole, 38, 4, apart=[33, 34])
    assert same_split(made[:32], truth)
    assert len({*made[:32]} & {*made[32:]}) == 0
    assert made[33] != made[34] and (made == made[33]).sum() == 1
    assert made[32] == made[35] == made[37]  # never seen: one class
    assert sorted({*made.tolist()}) == list(range(7))


def test_brown_classes_see_no_neighbours_over_the_end_of_a_sentence():
    """Words that only stand beside each other across sentences are no neighbours."""
    text = [0, 1, 9, 2, 3, 9] * 30
    apart = brown_classes(np.array(text), 10, 2, apart=[9])
    plain = brown_classes(np.array([id for id in text if id != 9]), 10, 2)
    assert apart[0] == apart[1] != apart[2] == apart[3]
    assert plain[0] == plain[2] != plain[1] == plain[3]


def model(lines=True):
    texts = ["the cat sat on the mat", "a dog sat on a log", "the dog saw the cat"] * 4
    specials = ["bos", "eos"] if lines else []
    wrap = "bos-eos" if lines else "none"
    tokenizer = train_tokenizer(texts, "spaced", None, specials=specials, wrap=wrap)
    ids = np.concatenate([tokenizer.encode(text, special=lines) for text in texts])
    apart = [tokenizer.specials[role] for role in specials]
    classes = brown_classes(ids, tokenizer.size, 3, apart)
    start = apart[0] if lines else None
    tables = train_class_ngrams(ids, classes, 3, start=start, share=0.4)
    return NgramModel(tables, tokenizer, "kneser-ney"), ids


@pytest.mark.parametrize("lines", [True, False])
def test_a_folder_gives_the_same_model_back(tmp_path: Path, lines):
    made, ids = model(lines)
    made.save(tmp_path / "m")
    again = NgramModel.open(tmp_path / "m")
    np.testing.assert_array_equal(again.tables.logprobs(ids), made.tables.logprobs(ids))
    assert again.lines == lines and again.tables.order == 3
    assert again.tables.vocab == made.tokenizer.size


def test_a_predictor_says_what_the_distribution_says():
    made, _ = model()
    end, begin = made.tokenizer.specials["eos"], made.tables.start
    predictor = NgramPredictor(made.tables, end)
    predictor.start(2)
    texts = [made.tokenizer.encode(t, special=False) for t in ("the cat sat", "a log on")]
    heard = [[begin], [begin]]
    for step in [*zip(*texts, strict=True), (end, texts[0][0]), (texts[0][0], texts[1][0])]:
        for row, p in enumerate(predictor.predict()):
            np.testing.assert_allclose(p, np.exp(distribution(made.tables, heard[row])), atol=1e-12)
        predictor.read(np.array(step))
        heard = [
            [begin] if word == end else [*row, word] for row, word in zip(heard, step, strict=True)
        ]


def test_arpa_files_have_no_place_for_classes(tmp_path: Path):
    with pytest.raises(UsageError, match="n-grams of classes"):
        model()[0].write_arpa(tmp_path / "m.arpa")
    assert not (tmp_path / "m.arpa").exists()


def test_classes_that_do_not_fit(tmp_path: Path):
    made, _ = model()
    made.save(tmp_path / "m")
    config = tmp_path / "m/config.json"
    config.write_text(config.read_text().replace('"vocab": ', '"vocab": 1'))
    with pytest.raises(DataError, match="does not fit"):
        NgramModel.open(tmp_path / "m")


def write_lines(path: Path, count: int, seed: int) -> Path:
    """Words of six classes that follow one another; half of them have a favourite next word."""
    dice, each = np.random.default_rng(seed), 15
    lines = []
    for _ in range(count):
        words, word = [], int(dice.integers(6 * each))
        for _ in range(int(dice.integers(6, 14))):
            words.append(f"w{word}")
            new = (word // each + int(dice.choice([1, 1, 1, 2, 4]))) % 6 * each
            favourite = word % 2 == 0 and dice.random() < 0.7
            word = new + ((word * 7) % each if favourite else int(dice.geometric(0.25)) % each)
        lines.append(" ".join(words))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_by_default_classes_do_not_lose_to_words_at_little_text(tmp_path: Path):
    test = write_lines(tmp_path / "test.txt", 200, 1)
    for count in (60, 200):
        train = write_lines(tmp_path / f"{count}.txt", count, 0)
        runs = {
            name: make(train, out=tmp_path / f"{name}{count}", order=3, valid=test)
            for name, make in (("words", regard.train.ngram), ("classes", regard.train.classes))
        }
        assert runs["classes"].perplexity < 0.97 * runs["words"].perplexity
        assert runs["classes"].classes < 20
        model = regard.load(tmp_path / f"classes{count}")
        assert model.measure(test).perplexity == pytest.approx(runs["classes"].perplexity)
        alone = regard.train.classes(
            train, out=tmp_path / f"alone{count}", order=3, valid=test, classes=6, share=1
        )
        assert alone.perplexity > runs["classes"].perplexity
