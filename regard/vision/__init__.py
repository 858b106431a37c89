"""Pictures: files to pixels and tokens, augmentation, and runs that learn classes or draw."""

from __future__ import annotations

from regard.verbs import Amount, Count, Files, ModelLike, Precision, Share, verb
from regard.vision.results import Drawing


@verb
def draw(
    model: ModelLike,
    files: Files | None = None,
    *,
    count: Count = 16,
    keep: Share = 0.5,
    temperature: Amount = 1.0,
    top_k: Count | None = None,
    precision: Precision = "auto",
) -> Drawing:
    """Draw new pictures, or the rest of given ones, token by token.

    Args:
        model: the folder `final` of `regard train pixels`, or ImageGPT with its preprocessor.
        files: pictures to go on from, as `regard train image` reads them; without any, new ones.
        count: pictures at most.
        keep: share of their tokens that stays: 0.5 is the top half where rows come in order.
        temperature: below 1 draws likelier pictures.
        top_k: draw each token among so many likeliest ones.
        precision: of the matrix products; less is faster.

    Example:
        >>> regard.draw("run/final", count=4).save("grid.png")
        $ regard draw run/final --save grid.png
        $ regard draw run/final photos/ --count 8 --save completed.png
        $ regard draw run/final shapes-test --keep 0.25 --temperature 0.8 --seed 3 --save four.png
    """
    from regard.ambient import current
    from regard.decode.sampling import SampleConfig
    from regard.loading import open_kit
    from regard.vision.pixel_tokens import PIXEL_RUN

    how = SampleConfig(temperature, top_k, seed=current().seed)
    several = files if isinstance(files, list) else [] if files is None else [files]
    kit = open_kit(model, precision, text=False)
    return PIXEL_RUN.draw(kit, [str(file) for file in several], count, keep, how)
