"""What a path holds, and which verbs take it: a model of the wrong kind is named before it opens.

No torch here, so that the answer comes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import UsageError
from regard.files import read_json
from regard.zoo import shipped


class Kind(NamedTuple):
    """A kind of model."""

    title: str
    trained: str
    """How one is made."""
    verbs: tuple[str, ...]
    """That take one, beside `info`; of networks, the usual ones."""


NETWORK = Kind(
    "a Transformer or a recurrent network",
    "regard train lm, mlm, seq2seq, rnn, lstm, gru, mlp, or a checkpoint",
    ("generate", "translate", "score", "fill", "evaluate lm", "look attention"),
)
NGRAMS = Kind(
    "n-grams",
    "regard train ngram, bow or classes, or an ARPA file",
    ("score", "history sample", "evaluate lm", "evaluate winograd")
    + ("history entropy", "history guess", "export arpa"),
)
VECTORS = Kind(
    "vectors of words",
    "regard train w2v, or a file of word2vec's",
    ("history neighbours", "history analogy") + ("evaluate analogies", "evaluate similarity"),
)
TRANSLATOR = Kind(
    "a translator that counts words",
    "regard train bayes, logreg or ibm1",
    ("translate", "evaluate translate"),
)


TYPES = {"regard-ngram": NGRAMS, "word2vec": VECTORS}
"""What config.json says of a model that is no network, as `model_type` or, of vectors, `model`."""
TYPES |= dict.fromkeys(("regard-bayes", "regard-logreg", "regard-ibm1"), TRANSLATOR)


class IdentifiedKind(NamedTuple):
    """What lies at a path."""

    kind: Kind
    sign: str
    """What tells so."""


def find_kind(path: str) -> IdentifiedKind | None:
    """The kind of model at a path; None where nothing that is known lies there."""
    place = Path(path) if Path(path).exists() else shipped().get(path, Path(path))
    if place.is_dir():
        config = place / "config.json"
        if not config.is_file():
            return None
        said = read_json(config)
        named = str(said.get("model_type", said.get("model")))
        return IdentifiedKind(TYPES.get(named, NETWORK), f"config.json says {named}")
    if {".arpa", ".lm"} & set(place.suffixes) and place.is_file():
        return IdentifiedKind(NGRAMS, "an ARPA file")
    if place.suffix == ".gguf" and place.is_file():
        return IdentifiedKind(NETWORK, "a GGUF file")
    from regard.history.word_vectors import is_vectors

    return IdentifiedKind(VECTORS, "by its first line") if is_vectors(place) else None


def is_ngrams(path: str) -> bool:
    """Whether a path holds an n-gram model: a folder of ours, or an ARPA file."""
    known = find_kind(path)
    return known is not None and known.kind is NGRAMS


def check_kind(path: str, *wanted: Kind) -> Kind | None:
    """The kind of model at a path, None where none is known; another than is wanted is refused."""
    known = find_kind(path)
    if known is None or known.kind in wanted:
        return None if known is None else known.kind
    expected = ", or ".join(f"{kind.title} ({kind.trained})" for kind in wanted)
    fix = f"verbs that take {known.kind.title}: {', '.join((*known.kind.verbs, 'info'))}"
    raise UsageError(f"opening {path}", f"{known.kind.title}: {known.sign}", expected, fix)


def open_counted(path: Path, kind: Kind) -> Any:
    """N-grams, vectors of words, or a translator that counts."""
    if kind is NGRAMS:
        from regard.history.ngram_model import NgramModel

        return NgramModel.open(path)
    if kind is VECTORS:
        from regard.history.word_vectors import read_vectors

        return read_vectors(path)
    from regard.history.word_translator import WordTranslator

    return WordTranslator.open(path)


def describe_counted(path: Path, kind: Kind) -> dict[str, Any]:
    """Sizes and settings of a model that counts."""
    from regard.history.bag_of_words import BagModel
    from regard.history.class_ngrams import ClassNgrams

    model = open_counted(path, kind)
    if kind is VECTORS:
        return {"words": len(model), "dim": model.dim}
    if kind is NGRAMS:
        tables, sizes = model.tables, model.tables.sizes
        classes = {"classes": tables.model.vocab} if isinstance(tables, ClassNgrams) else {}
        figures = {"order": len(sizes), "vocabulary": tables.vocab, **classes, "ngrams": sizes}
        return figures | {"smoothing": model.smoothing, "sentences": model.lines}
    figures = {
        "translator": model.kind,
        "source_words": len(model.words.sources),
        "target_words": len(model.words.targets),
    }
    if isinstance(model.model, BagModel):
        figures["classes"] = len(model.model.classes.word)
        figures["weights"] = len(model.model.rows.values)
    else:
        figures["weights"] = len(model.model.table.values)
    settings = read_json(path / "config.json")
    return figures | {name: value for name, value in settings.items() if name != "model_type"}
