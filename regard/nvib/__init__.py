"""Attention as nonparametric Bayes: bottlenecks, autoencoders.

Bottlenecks are put before attentions of any model: `attach`. The loss that trains them is
`regard.nvib.elbo.elbo`. `regard train nvae` makes autoencoders of texts around one, which say texts
again, draw and mix them. What was trained without them is regularised without training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

from regard.errors import UsageError
from regard.nvib.config import NVIBConfig, Strength, Temperatures
from regard.nvib.results import Attached, Interpolation, Reconstruction, SampledTexts
from regard.result import Failed
from regard.verbs import (
    FLAT,
    Amount,
    Count,
    Files,
    ModelLike,
    Natural,
    Texts,
    answer_texts,
    check_value,
    verb,
)

if TYPE_CHECKING:
    from regard.kit import Kit
    from regard.model.model import Model

__all__ = ["NVIBConfig", "Temperatures", "attach", "detach", "interpolate", "reconstruct"]
__all__ += ["regularise", "restore", "sample"]

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


# Autoencoders of texts ----------------------------------------------------------------------------


@verb
def reconstruct(
    model: ModelLike, texts: Texts
) -> Reconstruction | Iterator[Reconstruction | Failed]:
    """Say texts again, each from its own latents.

    Args:
        model: the folder `final` of `regard train nvae`, or an opened Kit.
        texts: one text, or several, which give an iterator of results.

    Example:
        >>> regard.nvib.reconstruct("run/final", "I like cats.").said
        $ regard nvib reconstruct run/final "I like cats."
        $ regard nvib reconstruct run/final "I like cats." "You saw a dog." --json
        $ regard nvib reconstruct run/final < texts.txt
    """
    from regard.nvib.text_autoencoder import ROWS, open_autoencoder
    from regard.nvib.text_autoencoder import reconstruct as say_again

    opened = open_autoencoder(model)
    return answer_texts(texts, nullcontext, lambda some, _: say_again(*opened, some), ROWS)


@verb
def sample(model: ModelLike, *, count: Count = 10, temperature: Amount = 1.0) -> SampledTexts:
    """Say what latents become that are drawn from the prior.

    Args:
        model: the folder `final` of `regard train nvae`, or an opened Kit.
        count: texts.
        temperature: of the tokens; below 1 sharper, above 1 flatter.

    Example:
        >>> regard.nvib.sample("run/final", count=3).texts[0].text
        $ regard nvib sample run/final
        $ regard nvib sample run/final --count 100 --temperature 0.5 --json
        $ regard nvib sample run/final --seed 7
    """
    from regard.nvib.text_autoencoder import open_autoencoder
    from regard.nvib.text_autoencoder import sample as draw

    return SampledTexts(draw(*open_autoencoder(model), count, temperature))


@verb
def interpolate(model: ModelLike, first: str, second: str, *, steps: Natural = 5) -> Interpolation:
    """Say what lies between two texts: mixtures are joined by their shares, Gaussians by place.

    Args:
        model: the folder `final` of `regard train nvae`, or an opened Kit.
        first: a text.
        second: another one.
        steps: texts between the two.

    Example:
        >>> regard.nvib.interpolate("run/final", "I like cats.", "You saw a dog.").steps[3].text
        $ regard nvib interpolate run/final "I like cats." "You saw a dog."
        $ regard nvib interpolate run/final "I like cats." "You saw a dog." --steps 1
        $ regard nvib interpolate run/final "I like cats." "You saw a dog." --json
    """
    from regard.nvib.text_autoencoder import interpolate as go
    from regard.nvib.text_autoencoder import open_autoencoder

    return Interpolation(go(*open_autoencoder(model), first, second, steps))
