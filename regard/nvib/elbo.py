"""The evidence lower bound: what a text costs, and what the bottlenecks let pass of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.model.batch import Batch
from regard.model.model import Model
from regard.nvib.denoising import bottlenecks
from regard.train.cross_entropy import IGNORE
from regard.train.objectives import Loss, token_loss


def elbo(model: Model, batch: Batch, labels: Tensor, *how: Any) -> Loss:
    """`token_loss`, and the divergences of all bottlenecks by their weights.

    Divergences are of texts, in nats; a text counts as often as it has labels, so that any split of
    a batch gives the same gradient. Layers above each other weigh 1, 2, 3 …
    """
    loss = token_loss(model, batch, labels, *how)
    tokens = (labels != IGNORE).sum(-1)
    total, figures = loss.sum, dict[str, Tensor]()
    for depth, (name, part) in enumerate(bottlenecks(model).items(), 1):
        config, mixture = part.config, part.last
        assert mixture is not None
        share = 1.0
        if model.training:
            with torch.no_grad():
                part.batches.add_(1)
            share = min(1.0, part.batches.item() / max(config.anneal, 1))
        nats = part.divergence(mixture)  # (B, 2), or more rows where the batch was read twice
        kept = mixture.kept(config.threshold)[:, 1:].sum(-1)
        of_texts = torch.stack([*nats.unbind(-1), kept, kept / mixture.real[:, 1:].sum(-1)], -1)
        of_texts = of_texts.unflatten(0, (-1, len(labels))).mean(0)  # (B, 4)
        sums = (tokens[:, None] * of_texts).sum(0).to(total.dtype)
        weights = sums.new_tensor([config.kl_gaussian, config.kl_dirichlet])
        total = total + depth * share * (weights * sums[:2]).sum()
        names = (f"{n}.{name}" for n in ("kl_vectors", "kl_weights", "kept", "kept_share"))
        figures |= {n: value.detach() for n, value in zip(names, sums, strict=True)}
        part.last = None  # nothing of a step stays
    return loss._replace(sum=total, figures=figures)
