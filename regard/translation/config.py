"""How to translate: the search, and what translations must and must not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.errors import UsageError, check_names

DOING = "translating"
MOST_ALTERNATIVES = 200  # with more, a sentence takes minutes


@dataclass(frozen=True)
class TranslateConfig:
    """How to translate."""

    beams: int = 4
    """Width of the beam."""
    alternatives: int = 1
    """Translations of each text, at most 200; with several, the words have alternatives too."""
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
    shortlist: bool = True
    """On a CPU, score only the words that the folder's shortlist allows, where it has one and one
    answer without wishes is asked for; log-probabilities are then shares among these words."""
    batch: int | None = None
    """Sentences that are translated together, of long ones fewer; None is as many as suit the beam.
    Changes no answer."""
    coin: bool | None = None
    """Whether words may be made up that training never wrote, where the folder lists what it did;
    None: only where one translation is asked for, since another search takes as long again."""

    def __post_init__(self) -> None:
        for name in ("beams", "alternatives", "max_new", "batch"):
            value = getattr(self, name)
            wrong = isinstance(value, bool) or not isinstance(value, int) or value < 1
            if wrong and not (value is None and name in ("max_new", "batch")):
                raise UsageError(DOING, f"{name} = {value!r}", "a whole number from 1 up")
        if self.alternatives > MOST_ALTERNATIVES:
            expected = f"at most {MOST_ALTERNATIVES}: the beam holds all of them at each step"
            raise UsageError(DOING, f"alternatives = {self.alternatives:,}", expected)
        if not 0 <= self.alpha <= 100:
            raise UsageError(DOING, f"alpha = {self.alpha}", "a number from 0 to 100")

    @property
    def keeps_whole(self) -> bool:
        """Whether a wish is for the whole of a translation, so that its source is not cut."""
        return bool(self.must or self.begin)

    @property
    def may_coin(self) -> bool:
        """Whether words may be made up."""
        return self.alternatives == 1 if self.coin is None else self.coin

    @property
    def width(self) -> int:
        """Prefixes kept per source: the beam has room for all translations asked for."""
        return max(self.beams, self.alternatives)


def translate_config(values: dict[str, Any]) -> TranslateConfig:
    """A TranslateConfig from its fields by name; an unknown one fails with the nearest."""
    check_names(values, TranslateConfig.__dataclass_fields__, DOING, "a field of TranslateConfig")
    lists = {
        name: (words,) if isinstance(words, str) else tuple(words)
        for name, words in values.items()
        if name in ("must", "ban")
    }
    return TranslateConfig(**(values | lists))
