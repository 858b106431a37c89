"""word2vec against its closed form, against numpy, and at any number of workers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.errors import DataError, RegardError, ResourceError, UsageError
from regard.history import word2vec
from regard.history.config import Word2VecConfig
from regard.history.word2vec import (
    Steps,
    alias_table,
    aligned,
    chances,
    jobs,
    read_corpus,
    train_word2vec,
)
from regard.history.word_vectors import WordVectors
from tests.history.plain_word2vec import PlainSteps

ROOT = Path(__file__).resolve().parents[2]
needs_c = pytest.mark.skipif(word2vec.find_library().library is None, reason="no C compiler")
MODES = ["skipgram", "cbow"]


def sentences(count=300, vocab=30, seed=0):
    """Skewed words; some sentences have one word."""
    dice = np.random.default_rng(seed)
    share = 1 / np.arange(1, vocab + 1)
    words = [f"w{n}" for n in range(vocab)]
    return [
        dice.choice(words, dice.integers(1, 15), p=share / share.sum()).tolist()
        for _ in range(count)
    ]


def both(corpus, config):
    """The same beginning for C and for numpy."""
    vocab = len(corpus.words)
    dice = np.random.default_rng(0)
    made = []
    for _ in range(2):
        made.append((aligned(vocab, 32), aligned(vocab, 32)))
    for n in range(2):
        made[0][n][:] = made[1][n][:] = dice.normal(0, 0.3, made[0][n].shape)
    return Steps(corpus, config, *made[0]), PlainSteps(corpus, config, *made[1]), made


@needs_c
@pytest.mark.parametrize("mode", MODES)
def test_c_draws_and_learns_as_numpy_does(mode):
    corpus = read_corpus(sentences(60), 2)
    config = Word2VecConfig(mode, 32, window=3, subsample=0.02, epochs=2)
    native, plain, ((a, b), (c, d)) = both(corpus, config)
    drawn = 0
    for job in jobs(corpus, config, seed=2**70 + 5):
        examples = native.draw(job.bounds, job.key)
        assert examples.tolist() == plain.draw(job.bounds, job.key).tolist()
        native.learn(examples, 0.2)
        plain.learn(examples, 0.2)
        drawn += len(examples)
    assert drawn > 1000
    np.testing.assert_allclose(a, c, atol=2e-4)
    np.testing.assert_allclose(b, d, atol=2e-4)


@needs_c
def test_learning_is_the_gradient_of_the_loss():
    """−log σ(v′·h) − Σ log σ(−v′·h), h the mean of the inputs, by differences in float64."""
    corpus = read_corpus(sentences(40), 2)
    dice, lr, size = np.random.default_rng(1), 1e-3, 1e-5
    inputs = dice.normal(size=(len(corpus.words), 32)).astype(np.float32)
    outputs = dice.normal(size=inputs.shape).astype(np.float32)
    rows, aims = [1, 4], [2 * 3 + 1, 2 * 0, 2 * 7]

    def loss(i, o):
        h = i[rows].mean(0)
        signs = np.array([1 if aim & 1 else -1 for aim in aims])
        return np.log1p(np.exp(-signs * (o[[aim >> 1 for aim in aims]] @ h))).sum()

    old = inputs.astype(np.float64), outputs.astype(np.float64)
    steps = Steps(corpus, Word2VecConfig(), inputs, outputs)
    steps.learn(np.array([2, 3, *rows, *aims], np.int32), lr)
    for n, (new, place, share) in enumerate(((inputs, (4, 5), 2), (outputs, (3, 2), 1))):
        moved = [matrix.copy() for matrix in old]
        moved[n][place] += size
        slope = (loss(*moved) - loss(*old)) / size
        # Inputs get the error of the mean whole, not a half each.
        assert (new[place] - old[n][place]) / lr == pytest.approx(-slope * share, rel=2e-2)
    untouched = [n for n in range(len(inputs)) if n not in rows]
    assert (inputs[untouched] == old[0][untouched]).all()


def digest(corpus, config, workers, seed=3):
    made = train_word2vec(corpus, config, seed, workers)
    return hashlib.sha256(made.inputs.tobytes() + made.outputs.tobytes()).hexdigest()


@pytest.mark.parametrize("mode", MODES)
def test_the_same_bits_with_any_number_of_workers(mode):
    corpus = read_corpus(sentences(3000), 2)
    config = Word2VecConfig(mode, 20, epochs=2)
    assert len(list(jobs(corpus, config))) > 8
    found = {digest(corpus, config, workers) for workers in (1, 2, 4)}
    assert len(found) == 1
    assert digest(corpus, config, 1, seed=4) not in found


def test_a_machine_without_a_compiler_is_told(monkeypatch):
    native = word2vec.NativeLibrary(None, "no C compiler (cc) on this machine")
    monkeypatch.setattr(word2vec, "find_library", lambda: native)
    with pytest.raises(ResourceError, match="no C compiler"):
        train_word2vec(read_corpus(sentences(80), 2), Word2VecConfig(dim=8, epochs=1))


def test_the_same_bits_in_other_processes(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("\n".join(" ".join(row) for row in sentences(1500)))
    found = set()
    for workers, name in ((1, "x"), (4, "y")):
        command = [sys.executable, "-m", "regard", "train", "w2v", str(text), "--quiet"]
        command += ["--out", str(tmp_path / name), "--workers", str(workers)]
        command += ["--dim", "16", "--epochs", "1", "--min-count", "1", "--seed", "5"]
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": str(workers)}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.add((tmp_path / name / "vectors.safetensors").read_bytes())
    assert len(found) == 1


@needs_c
def test_dot_products_become_shifted_pmi():
    """v·v′ → PMI − log k, with as many dimensions as words (Levy and Goldberg 2014)."""
    dice = np.random.default_rng(0)
    vocab, k = 12, 2
    joint = dice.dirichlet(np.ones(vocab * vocab) * 3).reshape(vocab, vocab)
    joint = (joint + joint.T) / 2
    pairs = dice.choice(vocab * vocab, 60_000, p=joint.ravel())
    corpus = read_corpus([[f"w{n // vocab}", f"w{n % vocab}"] for n in pairs], 1)
    config = Word2VecConfig(dim=16, window=1, negative=k, subsample=0, epochs=12, lr=0.1)
    made = train_word2vec(corpus, config, seed=1)
    counts = np.zeros((vocab, vocab))
    ids = corpus.ids.reshape(-1, 2)
    np.add.at(counts, (ids[:, 0], ids[:, 1]), 1)
    counts += counts.T
    noise = corpus.counts**0.75 / (corpus.counts**0.75).sum()
    share = counts / counts.sum()
    # A word's noise that is the word itself is skipped, so k shrinks by its share.
    pmi = np.log(share / (share.sum(1)[:, None] * noise)) - np.log(k)
    dots = made.inputs @ made.outputs.T
    assert np.corrcoef(dots.ravel(), pmi.ravel())[0, 1] > 0.95
    assert abs(np.mean(dots - pmi)) < 0.3


ROYAL = {
    (0, 0): "man",
    (0, 1): "woman",
    (1, 0): "king",
    (1, 1): "queen",
    (2, 0): "boy",
    (2, 1): "girl",
    (3, 0): "prince",
    (3, 1): "princess",
}


def grammar(count=4000):
    """A person is seen among words of their kind and words of their gender."""
    dice = np.random.default_rng(0)
    made = []
    for _ in range(count):
        (kind, gender), person = list(ROYAL.items())[dice.integers(len(ROYAL))]
        near = [f"kind{kind}-{dice.integers(6)}" for _ in range(2)]
        near += [f"gender{gender}-{dice.integers(6)}" for _ in range(2)]
        dice.shuffle(near)
        made.append([*near[:2], person, *near[2:]])
    return made


@needs_c
@pytest.mark.parametrize("mode", MODES)
def test_king_minus_man_plus_woman_is_queen(mode):
    corpus = read_corpus(grammar(), 5)
    config = Word2VecConfig(mode, 24, window=4, subsample=0, epochs=30)
    vectors = WordVectors(corpus.words, train_word2vec(corpus, config, seed=1).inputs)
    people = list(ROYAL.values())
    right = asked = 0
    for a in range(0, 8, 2):
        for c in range(0, 8, 2):
            if a != c:
                answer = vectors.analogy(people[a], people[a + 1], people[c], 1)
                right += answer[0].word == people[c + 1]
                asked += 1
    assert right == asked == 12


def test_draws_follow_their_chances():
    weights = np.array([5.0, 1.0, 0.0, 3.0, 1.0])
    table = alias_table(weights).astype(np.float64)
    found = np.zeros(5)
    np.add.at(found, np.arange(5), table[:, 0] / 2**32)
    np.add.at(found, table[:, 1].astype(int), 1 - table[:, 0] / 2**32)
    np.testing.assert_allclose(found / 5, weights / weights.sum(), atol=1e-9)
    stay = chances(np.array([900, 99, 1]), 0.01) / 2**32
    share = np.array([0.9, 0.099, 0.001])
    np.testing.assert_allclose(stay, np.minimum(1, np.sqrt(0.01 / share) + 0.01 / share), atol=1e-9)
    assert (chances(np.array([900, 1]), 0) == 2**32).all()


def test_windows_and_noise_are_drawn_evenly():
    corpus = read_corpus(sentences(2000, vocab=8), 1)
    config = Word2VecConfig(window=4, subsample=0, negative=3, epochs=1)
    steps = Steps(corpus, config, aligned(8, 16), aligned(8, 16))
    inputs, noise, at = np.zeros(8), np.zeros(8), 0
    examples = np.concatenate([steps.draw(job.bounds, job.key) for job in jobs(corpus, config)])
    wanted = sum(
        2 * (length - gap) * (5 - gap) / 4
        for length in np.diff(corpus.bounds)
        for gap in range(1, min(5, length))
    )
    pairs = 0
    while at < len(examples):
        assert examples[at] == 1 and examples[at + 3] & 1  # one input; first the word itself
        inputs[examples[at + 2]] += 1
        np.add.at(noise, examples[at + 4 : at + 3 + examples[at + 1]] >> 1, 1)
        at, pairs = at + 3 + examples[at + 1], pairs + 1
    assert pairs == pytest.approx(wanted, rel=0.02)
    power = corpus.counts**0.75 / (corpus.counts**0.75).sum()
    kept = power * (1 - corpus.counts / corpus.counts.sum())  # noise that is the word is skipped
    np.testing.assert_allclose(noise / noise.sum(), kept / kept.sum(), rtol=0.1)


def test_a_corpus_counts_ranks_and_drops():
    corpus = read_corpus([["b", "a", "b"], ["rare"], [], ["a", "c", "c", "b"]], 2)
    assert corpus.words == ["b", "a", "c"] and corpus.counts.tolist() == [3, 2, 2]
    assert corpus.ids.tolist() == [0, 1, 0, 1, 2, 2, 0] and corpus.bounds.tolist() == [0, 3, 7]
    long = read_corpus([["a", "b"] * 15_000], 1)
    assert long.bounds.tolist() == [0, 10_000, 20_000, 30_000]


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 0},
        {"dim": 0},
        {"negative": 0},
        {"negative": 64},
        {"subsample": -1},
        {"min_count": 0},
        {"epochs": 0},
        {"mode": "both"},
        {"lr": 0.0},
        {"lr": float("inf")},
        {"lr": float("nan")},
    ],
)
def test_settings_that_cannot_be(wrong, tmp_path):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        regard.train.w2v("text", out=tmp_path / "v", config=Word2VecConfig(**wrong))


def test_too_little_text():
    with pytest.raises(DataError, match="no words"):
        read_corpus([[], []])
    with pytest.raises(DataError, match="0 of 2 words occur 5 times or more"):
        read_corpus([["a", "b"]], 5)
    assert Word2VecConfig().times(10) == 100 and Word2VecConfig().times(10**9) == 5


@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
def test_a_rate_that_is_too_high_is_told(mode):
    corpus = read_corpus(["a b c d e f g h".split()] * 400)
    with pytest.raises(RegardError, match="lower --lr"):
        train_word2vec(corpus, Word2VecConfig(mode, dim=16, lr=1e30, min_count=1, epochs=3))
