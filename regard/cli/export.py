"""`regard export`: a model in another form: int8 weights, for CTranslate2, n-grams as ARPA."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from regard.cli.show import Show, human_bytes
from regard.errors import UsageError
from regard.files import cannot_write, is_taken
from regard.history.ngram_model import NgramModel
from regard.interop.ct2 import build_spec, check_shape, import_specs, write_spec
from regard.interop.folder import INT8
from regard.interop.side import start_id
from regard.kit import Kit
from regard.loading import load_kit

CARD = "README.md"
ABOUT_INT8 = """\
# int8 weights

`regard.load` opens this folder; transformers does not: it lists the matrices as missing. Linear
maps and embeddings are stored as whole numbers n from -127 to 127 (NAME.int8) with the largest
absolute weight of each output (NAME.peak): w = n / 127 * peak. `regard.load(folder).save(other)`
writes float32 weights, which transformers opens where the family exists there.
"""
ABOUT_CTRANSLATE2 = """\
# A model for CTranslate2

```python
import ctranslate2
from tokenizers import Tokenizer

translator = ctranslate2.Translator(folder, compute_type="int8")  # or float32
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokens = tokenizer.encode(text).tokens  # with the end token, which the model expects
best = translator.translate_batch([tokens], beam_size=4)[0].hypotheses[0]
print(tokenizer.decode([tokenizer.token_to_id(token) for token in best]))
```

Positions end at the table in this folder: cut long texts into sentences first.
"""


def run(args: argparse.Namespace, show: Show) -> int:
    """Open a folder and write it in the form asked for."""
    out = Path(args.out)
    if is_taken(out):
        raise UsageError("exporting", f"{out} is there already", "a new or empty folder")
    if args.form == "ctranslate2":
        import_specs()  # before minutes are spent
    try:
        if args.form == "arpa":
            save_arpa(args.path, out, show)
        elif args.form == "ctranslate2":
            save_ctranslate2(load_kit(args.path), out)
        else:
            load_kit(args.path).save(out, stored=INT8)
            (out / CARD).write_text(ABOUT_INT8, encoding="utf-8")
    except OSError as error:
        raise cannot_write(out, error, "room for the weights") from error
    size = sum(file.stat().st_size for file in (out.iterdir() if out.is_dir() else [out]))
    if show.as_json:
        show.result({"folder": str(out), "form": args.form, "bytes": size})
    else:
        show.line(f"{out}: {human_bytes(size)}")
    return 0


def save_arpa(path: str, out: Path, show: Show) -> None:
    """An n-gram model as an ARPA file, which KenLM and SRILM read; all or nothing."""
    if out.is_dir():
        raise UsageError("exporting", f"{out} is a folder", "the name of a new file")
    draft = out.with_name(f".{out.name}.part")
    model = NgramModel.open(Path(path))
    if not model.cut_at_blanks:
        why = (
            "whoever reads the file must cut texts as this model does; regard does not read it back"
        )
        show.note(f"its tokens are not words between blanks: {why}")
    try:
        model.write_arpa(draft)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(out)


def save_ctranslate2(kit: Kit, out: Path) -> None:
    """A folder that CTranslate2 opens, with the tokenizer and how to use them; all or nothing."""
    check_shape(kit.model)
    ends, tokenizer = sorted(kit.stops), kit.tokenizer
    if tokenizer is None or len(ends) != 1:
        found = "no tokenizer" if tokenizer is None else f"{len(ends)} ids that end a text"
        raise UsageError("exporting", found, "a tokenizer, and one id that ends a text")
    ids = range(tokenizer.size)
    words = tokenizer.pieces(ids, "source"), tokenizer.pieces(ids, "target")
    unknown = tokenizer.specials.get("unk")
    made = build_spec(kit.model, words, start_id(kit.files, kit.config), ends[0], unknown)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=out.parent) as name:
        part = Path(name) / "made"
        part.mkdir()
        write_spec(made, part)
        tokenizer.save(part)
        (part / CARD).write_text(ABOUT_CTRANSLATE2, encoding="utf-8")
        part.replace(out)
