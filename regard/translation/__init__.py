"""Translation of texts of any length, with alternatives and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from regard.ambient import choose_device, note, progress
from regard.errors import RegardError, UsageError
from regard.result import Failed
from regard.translation.config import DOING, TranslateConfig
from regard.translation.results import (
    Alternative,
    Explanation,
    Translation,
    WordChoice,
    share_out,
)
from regard.verbs import (
    Count,
    EditsLike,
    ModelLike,
    Precision,
    Texts,
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


@verb
def translate(
    texts: Texts,
    *,
    model: ModelLike = "fr-en",
    explain: bool = False,
    beams: Count = 4,
    alternatives: Count = 1,
    words: bool = True,
    must: Sequence[str] = (),
    ban: Sequence[str] = (),
    begin: str = "",
    coin: bool | None = None,
    alpha: float = 0.6,
    max_new: Count | None = None,
    shortlist: bool = True,
    batch: Count | None = None,
    workers: Count | None = None,
    strict: bool | None = None,
    precision: Precision = "auto",
    edit: EditsLike = (),
) -> Translation | Iterator[Translation | Failed]:
    """Translate texts by beam search, sentence by sentence.

    `--explain` shows where each word came from; `--save why.html` writes it as a page, `--save
    why.png` a picture of the alignment.

    Args:
        texts: one text, which gives one translation, or several, which give an iterator of them;
            sentences, paragraphs, code with comments, tables: what is no language stays.
        model: a translator: a folder, the name of a model in the box, or an opened Kit.
        explain: whether to say where each word came from, how sure it is, how rare its source.
        beams: width of the beam.
        alternatives: so many translations of each text, at most 200.
        words: with several translations, whether each word has alternatives too.
        must: words that each translation holds.
        ban: words that none holds.
        begin: what each translation begins with.
        coin: whether words may be made up that training never wrote, where the folder lists what
            it did (only for lines of a stream, one translation each).
        alpha: strength of the length penalty (Wu 2016); 0 prefers short translations.
        max_new: tokens at most (50 more than the source has).
        shortlist: on a CPU, whether to score only the words that the folder's shortlist allows,
            where it has one.
        batch: sentences that are translated together, of long ones fewer (as many as suit the
            beam); changes no answer.
        workers: processes for many lines on a CPU (as many as cores).
        strict: the same bits whatever is in the batch; slower.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.translate("Je suis un chat.").text
        "I'm a cat."
        $ regard translate --alternatives 4 --explain "Il m'a entarté."
        $ regard translate --model folder --file lines.fr > lines.en
        $ regard translate --model folder --alternatives 4 --json < lines.fr
    """
    streamed = not isinstance(texts, str | Sequence)
    config = TranslateConfig(
        beams=beams,
        alternatives=alternatives,
        alpha=alpha,
        max_new=max_new,
        must=(must,) if isinstance(must, str) else tuple(must),
        ban=(ban,) if isinstance(ban, str) else tuple(ban),
        begin=begin,
        shortlist=shortlist,
        batch=batch,
        coin=streamed and alternatives == 1 if coin is None else coin,
    )
    lines = group_texts(one_or_several(texts), SORTED)
    first = next(lines, [])
    opened = open_translator(
        model,
        config,
        lines=len(first),
        workers=workers,
        strict=strict,
        precision=precision,
        edit=edit,
        explain=explain,
    )
    groups = chain([first[:NEAR], first[NEAR:]], lines)
    results = _translate_groups(opened, groups, words and alternatives > 1, explain, streamed)
    if not isinstance(texts, str):
        return results
    (result,) = results
    assert isinstance(result, Translation)
    return result


def _translate_groups(
    opened: AbstractContextManager[Translator | CountingTranslator],
    groups: Iterable[Sequence[str | RegardError]],
    words: bool,
    explain: bool,
    streamed: bool,
) -> Iterator[Translation | Failed]:
    """The translations of each group of lines, in their order; empty lines stay so."""
    from regard.translation.explanation import explain_document, seen_in_training
    from regard.translation.translator import Translator
    from regard.translation.word_choices import word_choices

    done = empty = 0
    with progress("translating") as say, opened as translator:
        network = translator if isinstance(translator, Translator) else None
        counts = seen_in_training(network.kit) if explain and network else None
        for group in groups:
            size = len(group)

            def tell(sentences: int, total: int, done: int = done, size: int = size) -> None:
                if done + size > 1:
                    say(f"line {done + size * sentences // total:,}")
                elif total > 1:
                    say(f"sentence {sentences:,} of {total:,}")

            readable = [line for line in group if isinstance(line, str)]
            documents = iter(translator.translate(readable, tell))
            for line in group:
                if isinstance(line, RegardError):
                    yield Failed(line)
                    continue
                document = next(documents)
                chosen = word_choices(network, document) if words and network else document.words
                reasons = None
                if explain and network:
                    reasons = explain_document(network.kit, document, counts)
                yield describe(document, chosen if words else [], reasons, streamed)
                empty += not line.strip()
            done += len(group)
    if 0 < empty < done:
        note(f"empty lines, which stay so: {empty:,}")


def describe(
    document: Document,
    words: Sequence[WordChoice],
    reasons: list[Explanation] | None,
    streamed: bool,
) -> Translation:
    """What became of a text, as a result."""
    listed = [(" ".join(t.text.split()), t.logprob) for t in document.translations]
    shares = share_out([logprob for _, logprob in listed])
    others = [Alternative(*pair, share) for pair, share in zip(listed, shares, strict=True)]
    text, logprob = listed[0]
    several = others if len(others) > 1 else []
    return Translation(document.text, text, logprob, several, list(words), reasons, streamed)


@contextmanager
def open_translator(
    model: ModelLike,
    config: TranslateConfig,
    *,
    lines: int = 1,
    workers: int | None = None,
    strict: bool | None = None,
    precision: Precision = "auto",
    edit: EditsLike = (),
    explain: bool = False,
) -> Iterator[Translator | CountingTranslator]:
    """A translator, ready for so many lines; on a CPU many are shared by a process for each core.

    A model that was opened here needs its float weights no more.
    """
    from dataclasses import replace

    import torch

    from regard.history.word_translator import WordTranslator, translator_kind
    from regard.kit import Kit
    from regard.loading import open_kit, wrong_network
    from regard.model.precision import forget_weights, packed_in_int8
    from regard.translation.counting_translator import CountingTranslator
    from regard.translation.translator import Translator
    from regard.translation.worker_pool import start_workers, worth_workers

    if not isinstance(model, Kit):
        counting = isinstance(model, WordTranslator)
        if counting or translator_kind(Path(model)) is not None:
            wishes: dict[str, object] = {"explain": explain, "edit": edit} | {
                n: getattr(config, n) for n in ("must", "ban", "begin")
            }
            if asked := [name for name, wish in wishes.items() if wish]:
                wrong = f"{asked[0]} by a model that counts words"
                raise UsageError(DOING, wrong, "a Transformer or a recurrent translator")
            words = model if isinstance(model, WordTranslator) else WordTranslator.open(Path(model))
            yield CountingTranslator(words, config)
            return
    threads = torch.get_num_threads()
    device = model.device.type if isinstance(model, Kit) else choose_device()
    several = 1 if strict else worth_workers(device, lines, workers)
    torch.set_num_threads(1)  # a fork would lose the others, and to read weights they are no help
    try:
        kit = open_kit(model, precision, bool(strict))
        if kit.model.config.target is None:
            raise wrong_network(DOING, kit, "an encoder-decoder")
        if not packed_in_int8(kit.model) and several == 1:
            # In int8 a second thread saves a seventh, and waits where others need the cores.
            torch.set_num_threads(threads)
        if packed_in_int8(kit.model) and not isinstance(model, Kit):
            forget_weights(kit.model)
        size = kit.model.config.head.size
        if size is not None and config.width > size:
            note(f"{config.width} beams, but {size} words in the vocabulary: {size} beams")
            count = min(config.alternatives, size)
            config = replace(config, beams=min(config.beams, size), alternatives=count)
        with kit.edit(edit):
            translator = Translator(kit, config, strict)
            with start_workers(translator, several) if several > 1 else nullcontext():
                yield translator
    finally:
        torch.set_num_threads(threads)
