"""NVIB: attention as nonparametric Bayes, with bottlenecks that count what passes them.

Bottlenecks are put before attentions of any model (`attach`), or stand between encoder and decoder
of an autoencoder, whose texts can be said again, drawn and mixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.nvib import results
from regard.nvib.config import NVIBConfig
from regard.verbs import Amount, Count, ModelLike, Text, verb

if TYPE_CHECKING:
    from regard.kit import Kit

NVIB = NVIBConfig()


def attach(kit: Kit, pattern: str = "*", config: NVIBConfig = NVIB) -> results.Attached:
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
        []
    """
    from regard.nvib.denoising import attach as put

    names, skipped = put(kit.model, pattern, config)
    return results.Attached(names, [results.Skipped(*pair) for pair in skipped.items()])


def detach(kit: Kit) -> None:
    """Take all bottlenecks off a model: its attentions are what they were.

    Example:
        >>> regard.nvib.detach(kit)
    """
    from regard.nvib.denoising import detach as take

    take(kit.model)


@verb
def reconstruct(model: ModelLike, text: Text) -> results.Reconstructions:
    """Say texts again from their latents, and count the vectors that are kept.

    Args:
        model: the folder `final` of `regard train nvae`, or a Kit.
        text: a text on each line.

    Example:
        >>> regard.nvib.reconstruct("run/final", "I like cats.").texts[0].kept
    """
    from regard.errors import DataError
    from regard.loading import open_kit
    from regard.nvib.latent_texts import say_again

    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise DataError("saying texts again", "no text", "one on each line")
    return results.Reconstructions([*say_again(open_kit(model), lines)])


@verb
def sample(
    model: ModelLike, *, count: Count = 10, temperature: Amount = 1.0
) -> results.LatentSamples:
    """Draw latents from the prior, and say the texts that they become.

    Args:
        model: the folder `final` of `regard train nvae`, or a Kit.
        count: texts.
        temperature: of the tokens: below 1 draws likelier ones.

    Example:
        >>> regard.nvib.sample("run/final", count=3).texts
    """
    from regard.loading import open_kit
    from regard.nvib.latent_texts import draw_texts

    return results.LatentSamples([*draw_texts(open_kit(model), count, temperature)])


@verb
def interpolate(
    model: ModelLike, first: str, second: str, *, steps: Count = 5
) -> results.Interpolation:
    """Go from one text to another through latents.

    Of two mixtures the mixture is taken, with all components of both and their weights by share.

    Args:
        model: the folder `final` of `regard train nvae`, or a Kit.
        first: where to begin.
        second: where to end.
        steps: texts between the two.

    Example:
        >>> regard.nvib.interpolate("run/final", "I like cats.", "You saw a dog.").steps
    """
    from regard.loading import open_kit
    from regard.nvib.latent_texts import walk

    return results.Interpolation([*walk(open_kit(model), first, second, steps)])
