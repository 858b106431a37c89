"""Translation of texts of any length, with alternatives and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from regard.ambient import choose_device, note, progress
from regard.errors import DataError, RegardError, UsageError
from regard.result import Failed
from regard.translation.config import DOING, TranslateConfig
from regard.translation.formats import READERS, DocumentFile
from regard.translation.results import Alternative, TranslatedDocument, Translation
from regard.verbs import (
    Bound,
    Count,
    EditsLike,
    File,
    Files,
    ModelLike,
    Precision,
    Share,
    Words,
    fields_of,
    group_texts,
    one_or_several,
    verb,
)

if TYPE_CHECKING:
    from regard.translation.counting_translator import CountingTranslator
    from regard.translation.document import Document
    from regard.translation.translator import Translator

SORTED = 1024  # lines of a stream that are sorted by length before they are cut into batches
NEAR = 64  # the first of them, so that output starts soon

Alternatives = Annotated[int, Bound(1, 200, "a whole number from 1 up, at most 200")]
"""With more, a sentence takes minutes: the search for others holds all of them."""
TextsOrFile = Annotated[str | Path | Iterable[str | RegardError], Words("each", tuple(READERS))]
"""One text, several, or a document, by its Path."""


@verb
def translate(
    texts: TextsOrFile,
    *,
    out: str | Path | None = None,
    model: ModelLike | None = None,
    to: str | None = None,
    explain: bool = False,
    beams: Count = 4,
    alternatives: Alternatives = 1,
    words: bool = True,
    doubt: bool | None = None,
    memory: Files | None = None,
    must: Sequence[str] = (),
    ban: Sequence[str] = (),
    begin: str = "",
    glossary: File | Mapping[str, str] | None = None,
    alpha: Annotated[float, Bound(0, 100, "a number from 0 to 100")] = 0.6,
    max_new: Count | None = None,
    shortlist: bool = True,
    batch: Count | None = None,
    workers: Count | None = None,
    strict: bool | None = None,
    strict_language: bool = False,
    precision: Precision = "auto",
    edit: EditsLike = (),
    nv: Share = 0.0,
    nv_text: Files | None = None,
) -> Translation | TranslatedDocument | Iterator[Translation | Failed]:
    """Translate texts or a document by beam search, sentence by sentence.

    `--explain` shows where each word came from; `--save why.html` writes it as a page, `--save
    why.png` a picture of the alignment.

    Args:
        texts: one text, which gives one translation, or several, which give an iterator of them;
            sentences, paragraphs, code with comments, tables: what is no language stays. Or the
            Path of a document that keeps its form: .docx, .html, .md, .srt, .vtt, else lines.
        out: of a document: the new file; without it, its text is the result.
        model: a translator: a folder, the name of a model in the box, or an opened Kit (the one of
            the box that writes `to` and reads what the first lines are in, all lines with one).
        to: code of the language to write, such as fr (English of French, French of English).
        explain: whether to say where each word came from, how sure it is, how rare its source.
        beams: width of the beam.
        alternatives: so many translations of each text, at most 200; the first stays the same.
        words: with several translations, whether each word has alternatives too.
        doubt: whether each word has its confidence and the source words it came from (yes; on the
            command line with --json, --save and on a terminal, where doubtful words are dim).
        memory: your own sentence pairs, .tsv or .tmx files: a sentence that stands there is
            translated so, and its rare words are shown.
        must: words that each translation holds.
        ban: words that none holds.
        begin: what each translation begins with.
        glossary: terms and their translations: a file, source term TAB target term on each line, or
            a mapping. Terms in small letters are found in any case and in the plural.
        alpha: strength of the length penalty (Wu 2016); 0 prefers short translations.
        max_new: tokens at most (50 more than the source has).
        shortlist: on a CPU, whether to score only the words that the folder's shortlist allows,
            where it has one.
        batch: sentences that are translated together, of long ones fewer (as many as suit the
            beam); changes no answer.
        workers: processes for many lines on a CPU (as many as cores).
        strict: the same bits whatever is in the batch; slower.
        strict_language: whether a text in another language than the model reads is an error; if
            not, it stays as it is and a note says so.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.
        nv: how strongly its attention is regularised, from 0 to 1 (`regard.nvib.regularise`).
        nv_text: text to measure the prior of that on (some of the box's).

    Example:
        >>> regard.translate("Je suis un chat.").text
        "I'm a cat."
        >>> regard.translate("Je suis un chat.").words[-2].aligned
        ['chat']
        $ regard translate --alternatives 4 --explain "Il m'a entarté."
        $ regard translate --to en --strict-language --file lines.fr > lines.en
        $ regard translate --file report.docx --out report.en.docx --glossary terms.tsv
    """
    from regard.translation.direction import choose_model

    if glossary is not None:
        from regard.translation.glossary import read_glossary

        glossary = read_glossary(glossary)
    document = None
    if isinstance(texts, Path):
        document = DocumentFile(texts, None if out is None else Path(out))
        texts = [passage.text for passage in document.passages]
    if (document is None and out is not None) or (document and (explain or alternatives > 1)):
        wrong = "texts with a file to write to, or a document with reasons or alternatives"
        raise UsageError(DOING, wrong, "one document (--file FILE, in Python a Path), to a file")
    streamed = not isinstance(texts, str | Sequence)
    must, ban = ((each,) if isinstance(each, str) else tuple(each) for each in (must, ban))
    memory = [memory] if isinstance(memory, str | Path) else memory or []
    doubt, words = explain or doubt is not False, words and alternatives > 1
    config = TranslateConfig(**fields_of(TranslateConfig, locals()))
    lines = group_texts(one_or_several(texts), SORTED)
    first = next(lines, [])
    opened = open_translator(choose_model(model, to, first), config, len(first))
    groups = chain([first[:NEAR], first[NEAR:]], lines)
    results = _translate_groups(opened, groups, config, streamed)
    if document is not None:
        return document.write(one.text for one in results if isinstance(one, Translation))
    if not isinstance(texts, str):
        return results
    (result,) = results
    assert isinstance(result, Translation)
    return result


def _translate_groups(
    opened: AbstractContextManager[Translator | CountingTranslator],
    groups: Iterable[Sequence[str | RegardError]],
    config: TranslateConfig,
    streamed: bool,
) -> Iterator[Translation | Failed]:
    """The translations of each group of lines, in their order; empty lines stay so."""
    from regard.translation.normalise import LANGUAGES, other_language

    done = empty = 0
    foreign = Counter[str]()
    with progress("translating") as say, opened as translator:
        language = translator.language
        for group in groups:
            size = len(group)

            def tell(sentences: int, total: int, done: int = done, size: int = size) -> None:
                if done + size > 1:
                    say(f"line {done + size * sentences // total:,}")
                elif total > 1:
                    say(f"sentence {sentences:,} of {total:,}")

            for n, line in enumerate(group, done + 1):
                if isinstance(line, str) and (other := other_language(line, language)):
                    names = f"{LANGUAGES[other]['name']}, not {LANGUAGES[language]['name']}"
                    if config.strict_language:
                        wrong = f"{line[:60]!r} looks like {names}"
                        raise DataError(f"{DOING} text {n:,}", wrong, fix="no --strict-language")
                    foreign[names] += 1
            readable = [line for line in group if isinstance(line, str)]
            documents = iter(translator.translate(readable, tell))
            for line in group:
                if isinstance(line, RegardError):
                    yield Failed(line)
                    continue
                threshold = translator.doubt.threshold if translator.doubt else 0.5
                yield describe(translator.read(next(documents)), threshold, streamed)
                empty += not line.strip()
            done += len(group)
    if 0 < empty < done:
        note(f"empty lines, which stay so: {empty:,}")
    for names, count in foreign.items():
        note(f"texts that look like {names}, and stay so: {count:,}")


def describe(document: Document, threshold: float, streamed: bool) -> Translation:
    """What became of a text, as a result."""
    text, words = document.text, document.words
    best, *_ = others = [
        Alternative(on_one_line(text, t.text), t.logprob) for t in document.translations
    ]
    mean = sum(word.confidence for word in words) / len(words) if words else 1.0
    return Translation(
        text,
        best.text,
        best.logprob,
        None if words is None else mean,
        others if len(others) > 1 else [],
        words or [],
        document.reasons,
        streamed,
        threshold,
    )


def on_one_line(source: str, text: str) -> str:
    """A translation in one line, in the columns of its source: TABs stay, those at its ends too."""
    bare = source.strip() or source
    before, after = (side.count("\t") for side in source.split(bare, 1)) if bare else (0, 0)
    cells = ("\t" * before + text + "\t" * after).split("\t")
    return "\t".join(" ".join(cell.split()) for cell in cells)


@contextmanager
def open_translator(
    model: ModelLike, config: TranslateConfig, lines: int = 1
) -> Iterator[Translator | CountingTranslator]:
    """A translator, ready for so many lines; on a CPU many are shared by a process for each core.

    A model that was opened here needs its float weights no more, unless it is regularised.
    """
    import torch

    from regard.kit import Kit
    from regard.loading import open_kit, wrong_network
    from regard.model.precision import forget_weights, packed_in_int8
    from regard.model_kinds import TRANSLATOR, find_kind, open_counted
    from regard.translation.translator import Translator
    from regard.translation.worker_pool import start_workers, worth_workers

    known = find_kind(str(model)) if isinstance(model, str | Path) else None
    if known is not None and known.kind is TRANSLATOR:
        model = open_counted(Path(str(model)), TRANSLATOR)
    if not isinstance(model, str | Path | Kit):
        from regard.translation.counting_translator import CountingTranslator

        refused = ("explain", "edit", "nv", "memory", "must", "ban", "begin", "glossary")
        asked = [name for name in refused if getattr(config, name)]
        asked += ["alternatives"] if config.alternatives > 1 else []
        if asked:
            wrong = f"{asked[0]} by a model that counts words"
            raise UsageError(DOING, wrong, "a Transformer or a recurrent translator")
        yield CountingTranslator(model, config)
        return
    threads = torch.get_num_threads()
    device = model.device.type if isinstance(model, Kit) else choose_device()
    several = 1 if config.strict else worth_workers(device, lines, config.workers)
    torch.set_num_threads(1)  # a fork would lose the others, and to read weights they are no help
    try:
        kit = open_kit(model, config.precision, bool(config.strict))
        if kit.model.config.target is None:
            raise wrong_network(DOING, kit, "an encoder-decoder")
        if not packed_in_int8(kit.model) and several == 1:
            # In int8 a second thread saves a seventh, and waits where others need the cores.
            torch.set_num_threads(threads)
        if packed_in_int8(kit.model) and not (isinstance(model, Kit) or config.nv):
            forget_weights(kit.model)
        size = kit.model.config.head.size
        if size is not None and config.beams > size:
            note(f"{config.beams} beams, but {size} words in the vocabulary: {size} beams")
            config = replace(config, beams=size)
        with kit.edit(config.edit, config.nv, config.nv_text):
            translator = Translator(kit, config)
            with start_workers(translator, several) if several > 1 else nullcontext():
                yield translator
    finally:
        torch.set_num_threads(threads)
