"""`regard info` of models that count: n-grams, vectors of words, translators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.cli.show import Show, human, human_bytes
from regard.errors import UsageError
from regard.files import read_json
from regard.history.bag_of_words import BagModel
from regard.history.class_ngrams import ClassNgrams
from regard.history.ngram_model import NgramModel
from regard.history.word_translator import WordTranslator
from regard.history.word_vectors import is_folder, measure_file, read_vectors
from regard.model_kinds import NGRAMS, TRANSLATOR, VECTORS, Found, Kind


def show_counted(path: str, found: Found, taps: bool, show: Show) -> None:
    """Print the sizes of a model that counts."""
    if taps:
        doing = f"listing the taps of {path}"
        raise UsageError(doing, f"{found.kind.title}: there are none", "a network")
    made = DESCRIBED[found.kind](Path(path))
    if show.as_json:
        show.result(made)
    else:
        spelt = {"bytes_on_disk": human_bytes}
        fields = {name: spelt.get(name, human)(value) for name, value in made.items()}
        show.fields(f"{path}: {found.kind.title}", fields)


def describe_ngrams(path: Path) -> dict[str, Any]:
    """Order, words and n-grams of a folder or an ARPA file."""
    model = NgramModel.open(path)
    sizes = [len(level) for level in model.tables.levels]
    made: dict[str, Any] = {"order": len(sizes), "vocabulary": model.tables.vocab}
    made |= {"classes": model.tables.model.vocab} if isinstance(model.tables, ClassNgrams) else {}
    made["ngrams"] = sizes
    return made | {"smoothing": model.smoothing, "sentences": model.lines}


def describe_vectors(path: Path) -> dict[str, Any]:
    """Words and dimensions; of a file from its head, however large it is."""
    if is_folder(path):
        vectors = read_vectors(path)
        return {"words": len(vectors), "dim": vectors.dim}
    words, dim, text = measure_file(path)
    form = f"word2vec's {'text' if text else 'binary'}"
    return {"words": words, "dim": dim, "form": form, "bytes_on_disk": path.stat().st_size}


def describe_translator(path: Path) -> dict[str, Any]:
    """What it was trained as, its words and weights."""
    model = WordTranslator.open(path)
    settings = {k: v for k, v in read_json(path / "config.json").items() if k != "model_type"}
    made: dict[str, Any] = {"translator": model.kind, "source_words": len(model.words.sources)}
    made["target_words"] = len(model.words.targets)
    if isinstance(model.model, BagModel):
        made["classes"] = len(model.model.classes.word)
        made["weights"] = len(model.model.rows.values)
    else:
        made["weights"] = len(model.model.table.values)
    return made | settings


DESCRIBED: dict[Kind, Callable[[Path], dict[str, Any]]] = {
    NGRAMS: describe_ngrams,
    VECTORS: describe_vectors,
    TRANSLATOR: describe_translator,
}
