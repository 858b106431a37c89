"""How to translate: model and search, and what translations must and must not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.verbs import EditsLike, Files, Precision

DOING = "translating"


@dataclass(frozen=True)
class TranslateConfig:
    """How to translate."""

    beams: int = 4
    """Width of the beam."""
    alternatives: int = 1
    """Translations of each text, at most 200; the first is the same for any number of them."""
    alpha: float = 0.6
    """Strength of the length penalty (Wu 2016); 0 prefers short translations."""
    max_new: int | None = None
    """Tokens at most; None is 50 more than the source has (Vaswani 2017)."""
    must: tuple[str, ...] = ()
    """Words that each translation holds."""
    ban: tuple[str, ...] = ()
    """Words that none holds."""
    begin: str = ""
    """What each translation begins with."""
    glossary: Mapping[str, str] | None = None
    """Source term → target term."""
    shortlist: bool = True
    """On a CPU, score only the words that the folder's shortlist allows, where it has one and there
    are no wishes; log-probabilities are then shares among these words."""
    batch: int | None = None
    """Sentences that are translated together, of long ones fewer; None is as many as suit the beam.
    Changes no answer."""
    doubt: bool = False
    """Whether to look what each word of the first translation came from."""
    words: bool = False
    """Whether each word has alternatives too."""
    explain: bool = False
    """Whether to say the reasons for each sentence."""
    strict_language: bool = False
    """Whether a text in another language than the model reads is an error."""
    memory: Sequence[str | Path] = ()
    """Files of the user's own sentence pairs."""
    workers: int | None = None
    """Processes for many lines on a CPU; None is as many as cores."""
    strict: bool | None = None
    """The same bits whatever is in the batch; None is as the model was opened."""
    precision: Precision = "auto"
    """Of the matrix products."""
    edit: EditsLike = ()
    """Changes of activations meanwhile."""
    nv: float = 0.0
    """How strongly attention is regularised (`regard.nvib.regularise`)."""
    nv_text: Files | None = None
    """Text to measure the prior of that on; None is some of the box's."""

    @property
    def keeps_whole(self) -> bool:
        """Whether a wish is for the whole of a translation, so that its source is not cut."""
        return bool(self.must or self.begin)
