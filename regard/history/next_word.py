"""The next word from vectors of word2vec: a softmax over the mean of the vectors before it.

CBOW (Mikolov 2013) that looks back only, so that it is a language model like the others. The
vectors stay as word2vec learnt them; only the softmax is fitted. A mean knows no order of words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import DataError
from regard.history.ngram import Floats, Ids
from regard.history.word2vec import Corpus, Word2VecConfig, train_word2vec

WINDOW = 5  # words before
SENTENCE = 1000  # tokens of a running text that word2vec reads as one sentence
ROWS = 1024  # places of a step
RATE = 1e-2


@dataclass(frozen=True)
class NextWord:
    """log p(w | h) = softmax(W · mean of the last vectors + b)."""

    vectors: Tensor
    """(V, D) of word2vec."""
    weight: Tensor
    """(V, D)"""
    bias: Tensor
    """(V,)"""

    @property
    def parameters(self) -> int:
        """Numbers that were learnt."""
        return self.vectors.numel() + self.weight.numel() + self.bias.numel()

    @torch.no_grad()
    def logprobs(self, ids: Ids) -> Floats:
        """log p of each id (T,) given those before it."""
        words = torch.from_numpy(np.asarray(ids, np.int64)).to(self.vectors.device)
        made = [np.zeros(0)]
        for start in range(0, len(words), ROWS):
            at = torch.arange(start, min(start + ROWS, len(words)), device=words.device)
            scores = F.linear(contexts(self.vectors, words, at), self.weight, self.bias)
            log = scores.log_softmax(-1)[torch.arange(len(at)), words[at]]
            made.append(log.double().cpu().numpy())
        return np.concatenate(made)


def contexts(vectors: Tensor, words: Tensor, at: Tensor) -> Tensor:
    """Means (N, D) of the vectors of the words before places (N,); nothing before is nothing."""
    back = at[:, None] - torch.arange(1, WINDOW + 1, device=at.device)  # (N, window)
    there = (back >= 0).to(vectors.dtype)
    found = vectors[words[back.clamp(min=0)]] * there[..., None]  # (N, window, D)
    return found.sum(1) / there.sum(1, keepdim=True).clamp(min=1)


def token_vectors(
    ids: Ids,
    vocab: int,
    dim: int,
    epochs: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Floats:
    """word2vec's vectors (V, D) of the tokens of a running text; nothing for those not in it."""
    counts = np.bincount(ids, minlength=vocab)
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    if len(order) < 2:
        raise DataError("learning vectors", f"{len(order)} different tokens", "2 or more")
    rank = np.full(vocab, -1, np.int32)
    rank[order] = np.arange(len(order))
    bounds = np.unique(np.append(np.arange(0, len(ids), SENTENCE), len(ids)))
    corpus = Corpus([str(id) for id in order], counts[order], rank[ids], bounds)
    config = Word2VecConfig("cbow", dim, WINDOW, min_count=1, epochs=epochs, seed=seed)
    made = np.zeros((vocab, dim))
    made[order] = train_word2vec(corpus, config, 1, progress).inputs
    return made


def train_next_word(
    ids: Ids,
    vectors: Floats,
    steps: int | None,
    seconds: float = 0.0,
    seed: int = 0,
    device: str = "cpu",
) -> tuple[NextWord, int]:
    """Fit the softmax by Adam in so many steps, or seconds; the model, and its steps.

    It begins with how often each word was seen, so that no step at all is the unigram.
    """
    words = torch.from_numpy(np.asarray(ids, np.int64)).to(device)
    table = torch.from_numpy(vectors).float().to(device)
    seen = table.norm(dim=1) > 0
    table = table / table[seen].norm(dim=1).mean().clamp(min=1e-9)  # vectors of about length 1
    counts = torch.from_numpy(np.bincount(ids, minlength=len(vectors))).to(device)
    bias = (counts + 0.5).float().log().log_softmax(-1).requires_grad_()
    weight = torch.zeros_like(table).requires_grad_()
    learner = torch.optim.Adam([weight, bias], RATE)
    dice = torch.Generator().manual_seed(seed)
    began, step, done = time.monotonic(), 0, 0.0
    while done < 1:
        learner.param_groups[0]["lr"] = RATE * (1 - done)
        at = torch.randint(len(words), (ROWS,), generator=dice).to(device)
        scores = F.linear(contexts(table, words, at), weight, bias)
        learner.zero_grad()
        F.cross_entropy(scores, words[at]).backward()
        learner.step()
        step += 1
        done = step / steps if steps else (time.monotonic() - began) / max(seconds, 1e-9)
    return NextWord(table, weight.detach(), bias.detach()), step
