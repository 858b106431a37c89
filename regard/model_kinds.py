"""What a path holds, and which verbs take it: a model of the wrong kind is named before it opens.

No torch here, so that the answer comes at once.
"""

from __future__ import annotations

import argparse
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
    (
        "score",
        "history sample",
        "evaluate lm",
        "evaluate winograd",
        "history entropy",
        "history guess",
    )
    + ("export arpa",),
)
VECTORS = Kind(
    "vectors of words",
    "regard train w2v, or a file of word2vec's",
    ("history neighbours", "history analogy", "history cluster")
    + ("evaluate analogies", "evaluate similarity", "embed"),
)
TRANSLATOR = Kind(
    "a translator that counts words",
    "regard train bayes, logreg or ibm1",
    ("translate", "evaluate translate"),
)
COUNTED = (NGRAMS, VECTORS, TRANSLATOR)
NOT_NETWORKS = (
    "history sample",
    "export arpa",
    *(verb for verb in VECTORS.verbs if verb != "embed"),
)
NO_MODEL = ("replay", "tok")
"""Verbs whose `path` is no model."""


class Found(NamedTuple):
    """What lies at a path."""

    kind: Kind
    sign: str
    """What tells so."""


def find_kind(path: str) -> Found | None:
    """The kind of model at a path; None where nothing that is known lies there."""
    from regard.history.ngram_model import KIND
    from regard.history.word_translator import KINDS
    from regard.history.word_vectors import WEIGHTS, is_folder, is_vectors

    place = Path(path)
    if not place.exists():
        place = shipped().get(path, place)
    if place.is_dir():
        if is_folder(place):
            return Found(VECTORS, f"it has {WEIGHTS}")
        config = place / "config.json"
        if not config.is_file():
            return None
        named = str(read_json(config).get("model_type"))
        kinds = {KIND: NGRAMS, **dict.fromkeys(KINDS, TRANSLATOR)}
        return Found(kinds.get(named, NETWORK), f"config.json says {named}")
    if place.suffix in (".arpa", ".lm") and place.is_file():
        return Found(NGRAMS, "an ARPA file")
    if place.suffix == ".gguf" and place.is_file():
        return Found(NETWORK, "a GGUF file")
    return Found(VECTORS, "by its first line") if is_vectors(place) else None


def is_ngrams(path: str) -> bool:
    """Whether a path holds an n-gram model: a folder of ours, or an ARPA file."""
    found = find_kind(path)
    return found is not None and found.kind is NGRAMS


def check_kind(path: str, *wanted: Kind) -> Kind | None:
    """The kind of model at a path, None where none is known; another than is wanted is refused."""
    found = find_kind(path)
    if found is None or found.kind in wanted:
        return None if found is None else found.kind
    raise UsageError(
        f"opening {path}",
        f"{found.kind.title}: {found.sign}",
        ", or ".join(f"{kind.title} ({kind.trained})" for kind in wanted),
        f"verbs that take {found.kind.title}: {', '.join((*found.kind.verbs, 'info'))}",
    )


def takes(verb: str, kind: Kind) -> bool:
    """Whether a verb takes a kind of model."""
    if kind is NETWORK:
        return verb not in NOT_NETWORKS
    return verb == "info" or verb in kind.verbs


def check_models(args: argparse.Namespace) -> None:
    """Refuse the first model that the verb does not take, and say which verbs do."""
    verb = args.verb
    if verb == "export":
        verb = f"{verb} {args.form}"
    for path in named_models(args):
        check_model(path, verb)
        if getattr(args, "edit", None):
            check_edited(path)


def named_models(args: argparse.Namespace) -> list[str]:
    """The paths of models that a command names."""
    if args.verb in NO_MODEL:
        return []
    made = list[str]()
    for name in ("path", "model", "folders"):
        value = getattr(args, name, None)
        made += [value] if isinstance(value, str) else value or []
    return made


def check_edited(path: str) -> None:
    """Refuse --edit of a model that has no activations."""
    found = find_kind(path)
    if found is not None and found.kind is not NETWORK:
        told = f"{found.kind.title}, which has no taps: {found.sign}"
        raise UsageError(f"editing {path}", told, NETWORK.title, "the same without --edit")


def check_model(path: str, verb: str) -> None:
    """Refuse a model that a verb, or `regard.load`, does not take."""
    found = find_kind(path)
    if found is None or takes(verb, found.kind):
        return
    fits = [kind for kind in (NETWORK, *COUNTED) if takes(verb, kind)]
    expected = ", or ".join(f"{kind.title} ({kind.trained})" for kind in fits)
    verbs = ", ".join((*found.kind.verbs, "info"))
    raise UsageError(
        f"opening {path} for `regard{'.' if verb == 'load' else ' '}{verb}`",
        f"{found.kind.title}: {found.sign}",
        expected,
        f"verbs that take {found.kind.title}: {verbs}",
    )


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
    """Sizes and settings of a model that counts; of a file of vectors from its head alone."""
    from regard.history.bag_of_words import BagModel
    from regard.history.class_ngrams import ClassNgrams
    from regard.history.word_vectors import is_folder, measure_file

    if kind is VECTORS and not is_folder(path):
        words, dim, text = measure_file(path)
        form = f"word2vec's {'text' if text else 'binary'}"
        return {"words": words, "dim": dim, "form": form, "bytes_on_disk": path.stat().st_size}
    model = open_counted(path, kind)
    if kind is VECTORS:
        return {"words": len(model), "dim": model.dim}
    if kind is NGRAMS:
        tables = model.tables
        sizes = [len(level) for level in tables.levels]
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
