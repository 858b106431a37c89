"""Attention as nonparametric Bayes: bottlenecks that count what passes them, and regularisation.

Bottlenecks are put before attentions of any model: `attach`. The loss that trains them is
`regard.nvib.elbo.elbo`. What was trained without them is regularised without training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from regard.errors import UsageError
from regard.nvib.config import NVIBConfig, Strength, Temperatures
from regard.nvib.results import Attached
from regard.verbs import FLAT, Files, ModelLike, check_value

if TYPE_CHECKING:
    from regard.kit import Kit
    from regard.model.model import Model

__all__ = ["NVIBConfig", "Temperatures", "attach", "detach", "regularise", "restore"]

NVIB = NVIBConfig()


def attach(kit: Kit, pattern: str = "*", config: NVIBConfig = NVIB) -> Attached:
    """Put a bottleneck before attentions of a model, in place; they denoise from then on.

    Self-attention then reads a mixture of Gaussians, one for each vector, and one of the prior. The
    bottlenecks are new: `regard.nvib.elbo.elbo` is the loss that trains them. What cannot denoise
    is skipped, and the result says why.

    Args:
        kit: an opened model.
        pattern: names of attentions or of what holds them, such as encoder.blocks.* or *.cross.
        config: how bottlenecks are made, and what training pays for what passes them.

    Example:
        >>> regard.nvib.attach(kit, "encoder.blocks.*").skipped
        {}
    """
    from regard.nvib.denoising import attach as put

    check_value("attach", "config", config, Annotated[NVIBConfig, FLAT])
    return put(_model_of(kit), str(pattern), config)


def detach(kit: Kit) -> None:
    """Take all bottlenecks off a model: its attentions are what they were.

    Example:
        >>> regard.nvib.detach(kit)
    """
    from regard.nvib.denoising import detach as take

    take(_model_of(kit))


def _model_of(kit: Kit) -> Model:
    """The model of a Kit: what is changed in place has to be open."""
    from regard.kit import Kit

    if not isinstance(kit, Kit):
        fault = f"kit = {kit!r}"
        raise UsageError("changing a model in place", fault, "a Kit", "open it with regard.load")
    return kit.model


def regularise(model: ModelLike, strength: Strength = 0.0, *, text: Files | None = None) -> Kit:
    """Read the attention of a trained model as nonparametric Bayes, and regularise it (NVR).

    Beside the vectors that an attention reads stands a prior, which every query sees: what the
    attention reads on average. The model is changed in place until `restore`, its weights are not;
    `with kit.edit(nv=0.3):` does so for a while, `--nv 0.3` for a command. Fehr and Henderson 2024.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        strength: from 0, the very same model, to 1; or `Temperatures`; or either for each of
            encoder, cross and decoder.
        text: files that the prior is measured on: lines, or sentence pairs for a translator (those
            in a translator's folder, else French and English ones of the box).

    Example:
        >>> kit = regard.nvib.regularise("fr-en", 0.3)
        >>> kit.translate("Je suis un chat.").text
        "I'm a cat."
    """
    from regard.loading import open_kit
    from regard.nvib.conversion import attach

    check_value("regularise", "model", model, ModelLike)
    kit = open_kit(model)
    attach(kit, strength, text)
    return kit


def restore(kit: Kit) -> Kit:
    """Give a regularised model back as it was, to the bit."""
    return regularise(kit)


@contextmanager
def regularised(kit: Kit, strength: Strength, text: Files | None = None) -> Iterator[None]:
    """Inside, a model is regularised, then again what it was; of strength 0 it stays as it is."""
    before, text_before = kit.nv
    try:
        if strength:
            regularise(kit, strength, text=text)
        yield
    finally:
        if strength:
            regularise(kit, before, text=text_before)
