"""The next word by word2vec: CBOW (Mikolov 2013) that looks back only, as a language model.

Negative sampling makes the product of an output vector and the mean of the vectors around it
log p(w | h) / p_noise(w), up to a constant (Levy and Goldberg 2014). So here

    p(w | h) = softmax(a · output(w) · mean of the last vectors + b · log count(w))

with the vectors as word2vec learnt them; a and b are fitted on a text beside. With a = 0 and b = 1
it is the unigram. A mean knows no order of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.errors import DataError
from regard.history.config import Word2VecConfig
from regard.history.ngrams import Floats, Ids
from regard.history.word2vec import WordCorpus, train_word2vec

WINDOW = 5  # words before
SENTENCE = 1000  # tokens of a running text that word2vec reads as one sentence
ROWS = 1024  # places whose scores are computed together
FITTED = 4096  # places of the text on which a and b are fitted


@dataclass(frozen=True)
class NextWord:
    """Vectors, counts and the two scales."""

    inputs: Tensor
    """(V, D)"""
    outputs: Tensor
    """(V, D)"""
    counts: Tensor
    """(V,) logarithms, of half a time for what was not seen."""
    a: float = 0.0
    b: float = 1.0

    @property
    def parameters(self) -> int:
        """Numbers that were learnt."""
        return self.inputs.numel() + self.outputs.numel() + self.counts.numel() + 2

    @torch.no_grad()
    def logprobs(self, ids: Sequence[int] | Ids) -> Floats:
        """log p of each id (T,) given those before it."""
        words = torch.from_numpy(np.asarray(ids, np.int64))
        logs = [np.zeros(0)]
        for at in torch.arange(len(words)).split(ROWS):
            scores = self.a * self.products(words, at) + self.b * self.counts
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


def fit_scales(model: NextWord, ids: Ids) -> NextWord:
    """The model with the a and b that suit the beginning of another text best: a convex fit."""
    words = torch.from_numpy(np.asarray(ids[:FITTED], np.int64))
    at = torch.arange(len(words))
    products = model.products(words, at)
    scales = torch.tensor([model.a, model.b], requires_grad=True)
    learner = torch.optim.LBFGS([scales], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        learner.zero_grad()
        scores = scales[0] * products + scales[1] * model.counts
        value = torch.nn.functional.cross_entropy(scores, words)
        value.backward()
        return value

    learner.step(loss)
    a, b = scales.tolist()
    return replace(model, a=a, b=b)
