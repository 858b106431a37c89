"""Direction: which translator is meant, by the language asked for and by the texts.

Source and target stand in a folder's config.json as `languages`, and its words.tsv lists what it
was trained to read: nothing here is special to a language. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.ambient import note
from regard.data.word_frequencies import WORDS_FILE, WordCounts, key, words
from regard.errors import UsageError
from regard.files import read_json
from regard.translation.config import DOING
from regard.translation.normalise import other_language
from regard.verbs import ModelLike
from regard.zoo import KNOWN, locate, shipped

USUAL = "fr-en"  # where the texts do not tell
LINES, WORDS = 20, 60  # at most, that tell the language
UNSEEN = 1e-7  # times a full stop, of a word that training never saw
SURE = math.log(10)  # how much likelier the words must be for another model than for the usual one


def languages_of(model: ModelLike) -> Sequence[str]:
    """Codes of the source and of the target, where the config.json of a model says so."""
    config = getattr(model, "config", {})
    if isinstance(model, str | Path):
        file = Path(locate(model), "config.json")
        config = read_json(file) if file.is_file() else {}
    return config.get("languages") or ()


def choose_model(model: ModelLike | None, to: str | None, texts: Iterable[object]) -> ModelLike:
    """The model asked for, or the one of the box that writes `to` and reads texts such as these."""
    if model is not None:
        if to and (pair := languages_of(model)) and pair[1] != to:
            fix = f"--to {pair[1]}, or leave --model out"
            raise UsageError(DOING, f"to = {to!r} by {model}", f"{pair[1]}, which it writes", fix)
        return model
    box = shipped()
    names = sorted(box, key=lambda name: name != USUAL)
    pairs = {name: pair for name in names if (pair := languages_of(box[name]))}
    fitting = [name for name, (_, target) in pairs.items() if to in (None, target)]
    if to and pairs and not fitting:
        expected = ", ".join(f"{target} ({name})" for name, (_, target) in pairs.items())
        fix = "`regard train seq2seq` makes translators, --model opens them"
        raise UsageError(DOING, f"to = {to!r}", f"one of {expected}", fix)
    text = " ".join([line for line in texts if isinstance(line, str)][:LINES])
    likely = [name for name in fitting if not other_language(text, pairs[name][0])]
    first, *others = likely or fitting[:1] or [USUAL]
    chosen = first
    if others and all((box[name] / WORDS_FILE).is_file() for name in likely):
        heard = [word for word in dict.fromkeys(words(key(text))) if word.isalpha()][:WORDS]
        known = {name: familiarity(box[name] / WORDS_FILE, heard) for name in likely}
        best = max(likely, key=lambda name: known[name])
        chosen = best if known[best] > known[first] + SURE else first
    if to is None and chosen != USUAL:
        note(f"{chosen} {KNOWN.get(chosen, '')}: the text looks so; --to tells otherwise")
    return box.get(chosen, chosen)


def familiarity(file: Path, heard: Iterable[str]) -> float:
    """How well a model's training knew some words: the sum of the logarithms of their shares."""
    counts = WordCounts(file.read_bytes())
    stops = max(1, counts.get(".", 0))
    return sum(math.log(counts.get(word, 0) / stops + UNSEEN) for word in heard)
