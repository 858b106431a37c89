"""Checkpoints of other libraries as tables: open, compare, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.ambient import choose_device, note, progress
from regard.errors import UsageError
from regard.interop.results import CheckReport, Exported
from regard.verbs import ModelLike, verb

if TYPE_CHECKING:
    from regard.history.ngram_model import NgramModel

INT8_CARD = """\
# int8 weights

`regard.load` opens this folder; transformers does not: it lists the matrices as missing. Linear
maps and embeddings are stored as whole numbers n from -127 to 127 (NAME.int8) with the largest
absolute weight of each output (NAME.peak): w = n / 127 * peak. `regard.load(folder).save(other)`
writes float32 weights, which transformers opens where the family exists there.
"""


@verb
def check(model: ModelLike, *, properties: bool = False) -> CheckReport:
    """Compare a folder with transformers; test attention's promises.

    Scores are compared on random batches; parity.json in the folder, or beside a .gguf file, holds
    what was found. Where there is nothing to compare with, attention's promises are tested.

    Args:
        model: a Hugging Face folder, a .gguf file, or a Kit.
        properties: test what attention promises: rows sum to one, a batch changes nothing …

    Example:
        >>> regard.check("folder").parity.relative
        4.1e-07
        $ regard check folder
        $ regard check folder --properties
        $ regard check folder --device cpu --seed 7 --json
    """
    from regard.interop.parity import measure_parity
    from regard.interop.properties import check_properties
    from regard.kit import Kit
    from regard.loading import load_kit
    from regard.model_kinds import NETWORK, check_kind
    from regard.zoo import locate

    with progress(f"checking {model if isinstance(model, str) else 'a model'}") as say:
        say("loading")
        if not isinstance(model, Kit):
            check_kind(str(model), NETWORK)
            model = load_kit(model, device=choose_device(), precision=None)
        path = "a model made here" if model.path is None else str(locate(model.path))
        parity = path if model.path is None else measure_parity(model, Path(path))
        reason = parity if isinstance(parity, str) else None
        tested = check_properties(model) if properties or reason else None
    return CheckReport(path, None if isinstance(parity, str) else parity, reason, tested)


@verb
def export(form: Literal["int8", "arpa"], model: ModelLike, out: str | Path) -> Exported:
    """Write a model with int8 weights, or n-grams as ARPA.

    Args:
        form: int8 takes a quarter of the room, arpa writes n-grams as text. Folders for CTranslate2
            are made by tools/ctranslate2_folder.py.
        model: what `regard.load` opens; for arpa, n-grams.
        out: a new or empty folder; for arpa a new file.

    Example:
        >>> regard.export("int8", "folder", "out").bytes
        $ regard export int8 folder out --json
        $ regard export int8 folder out
        $ regard export arpa ngrams out.arpa
    """
    from regard.files import cannot_write, is_taken
    from regard.history.ngram_model import NgramModel
    from regard.interop.folder import INT8
    from regard.kit import Kit
    from regard.loading import load_kit
    from regard.model_kinds import NETWORK, NGRAMS, check_kind

    place = Path(out)
    if is_taken(place):
        raise UsageError("exporting", f"{place} is there already", "a new or empty folder")
    if not isinstance(model, Kit | NgramModel):
        check_kind(str(model), NGRAMS if form == "arpa" else NETWORK)
    try:
        if form == "arpa":
            ngrams = model if isinstance(model, NgramModel) else NgramModel.open(Path(str(model)))
            _save_arpa(ngrams, place)
        else:
            kit = model if isinstance(model, Kit) else load_kit(model)
            kit.save(place, stored=INT8)
            (place / "README.md").write_text(INT8_CARD, encoding="utf-8")
    except OSError as error:
        raise cannot_write(place, error, "room for the weights") from error
    files = place.iterdir() if place.is_dir() else [place]
    return Exported(str(place), form, sum(file.stat().st_size for file in files))


def _save_arpa(model: NgramModel, out: Path) -> None:
    """An n-gram model as an ARPA file, which KenLM and SRILM read; all or nothing."""
    if out.is_dir():
        raise UsageError("exporting", f"{out} is a folder", "the name of a new file")
    if not model.cut_at_blanks:
        note(
            "its tokens are not words between blanks: whoever reads the file must cut texts as "
            "this model does; regard does not read it back"
        )
    draft = out.with_name(f".{out.name}.part")
    try:
        model.write_arpa(draft)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(out)
