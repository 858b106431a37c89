"""`regard translate`: one line out for each line in, by beam search."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from regard.ambient import choose_device
from regard.cli.lines import Faults, Line, line_groups
from regard.cli.opening import cap_beams, open_kit, wrong_network
from regard.cli.show import Progress, Show
from regard.cli.texts import at_least
from regard.cli.texts import print_json as show_json
from regard.cli.translate_explain import check_page, explain_data, show_explanations, write_pages
from regard.errors import UsageError
from regard.history.word_translator import WordTranslator, translator_kind
from regard.kit import Kit
from regard.model.precision import forget_weights, packed_in_int8
from regard.translation.config import TranslateConfig
from regard.translation.counting_translator import CountingTranslator
from regard.translation.document import Document, Word
from regard.translation.explanation import (
    Explanation,
    explain_document,
    seen_in_training,
    shares,
)
from regard.translation.translator import Translator
from regard.translation.word_choices import word_choices
from regard.translation.worker_pool import WorkerPool, one_thread, worth_workers

SORTED = 1024  # lines that are sorted by length before they are cut into batches
NEAR = 64  # the same where somebody reads along
WISHES = ("explain", "must", "ban", "begin", "page")
"""Arguments that need a search or attention."""
PAGE = 500  # sentences that a page can hold and a browser likes


def run(args: argparse.Namespace, show: Show) -> int:
    """Translate texts, files or stdin."""
    config = read_search(args)
    if args.page and not args.explain:
        raise UsageError("reading the command line", "--page alone", "--explain --page FILE")
    page = Path(args.page or "regard-translate.html")
    if args.explain:
        check_page(page)
    size = NEAR if sys.stdout.isatty() or args.explain else SORTED
    lines = line_groups(args.texts, args.file, size)
    first = next(lines, [])
    with show.progress("translating") as progress:
        progress(f"opening {args.model}")
        with at_work(args.model, args, len(first), config, show) as crew:
            work = Work(crew, show, progress, args.explain, bool(args.texts))
            for group in chain([first[:NEAR], first[NEAR:]], lines):  # so that output starts soon
                work.translate(group)
    if args.explain:
        if work.sentences > PAGE:
            show.note(f"the page holds the first {PAGE} of {work.sentences:,} sentences")
        write_pages(work.explained, page, show)
    if 0 < work.empty < work.done:
        show.note(f"empty lines, which stay so: {work.empty:,}")
    return work.faults.finish()


@contextmanager
def at_work(
    path: str, args: argparse.Namespace, lines: int, config: TranslateConfig, show: Show
) -> Iterator[Translator | CountingTranslator]:
    """Open a translator; on a CPU many lines are shared by a process for each core."""
    kind = translator_kind(Path(path))
    if kind is not None:
        asked = [name for name in WISHES if getattr(args, name, None)]
        if asked:
            found = f"--{asked[0]} with a folder of `regard train {kind}`"
            raise UsageError("translating", found, "a Transformer or a recurrent translator")
        yield CountingTranslator(WordTranslator.open(Path(path)), config)
        return
    workers = getattr(args, "workers", None)
    count = 1 if args.strict else worth_workers(choose_device(args.device), lines, workers)
    if count > 1:
        one_thread()
    kit = open_pair(path, args.device, args.precision, args.strict, args.edit)
    if packed_in_int8(kit.model):
        one_thread()  # a second one saves a seventh, and waits for ages where others need the cores
        forget_weights(kit.model)
    translator = Translator(kit, fit_beams(config, kit, show))
    with WorkerPool(translator, count) if count > 1 else nullcontext():
        yield translator


class Work:
    """The lines of one command."""

    def __init__(
        self,
        crew: Translator | CountingTranslator,
        show: Show,
        progress: Progress,
        explain: bool,
        typed: bool,
    ) -> None:
        self.crew, self.show, self.progress = crew, show, progress
        self.kit = crew.kit if isinstance(crew, Translator) else None
        self.typed = typed
        """Texts of the command itself, which a person reads, not lines of a file."""
        self.counts = seen_in_training(self.kit) if explain and self.kit else None
        self.explain, self.explained = explain, list[Explanation]()
        several = crew.config.alternatives > 1
        self.words = show.as_json and several  # they cost, and only an object has room
        self.faults = Faults(show)
        self.done = self.sentences = self.shown = self.empty = 0

    def translate(self, group: Sequence[Line]) -> None:
        """Translate and show some lines, in their order."""

        def tell(done: int, total: int) -> None:
            self.progress(f"line {self.done + len(group) * done // total:,}")

        documents = self.crew.translate([line.text for line in group], tell)
        for line, document in zip(group, documents, strict=True):
            words = document.words if self.words else []
            if self.words and isinstance(self.crew, Translator):
                words = word_choices(self.crew, document)
            document = document._replace(words=words)
            self.output(line, document)
        sys.stdout.flush()  # whoever reads along should not wait for a full buffer
        self.done += len(group)

    def output(self, line: Line, answer: Document) -> None:
        """What became of one line; one that could not be read is told on stderr."""
        if line.fault:
            self.faults.tell(line.fault)
        asked = self.kit if self.explain else None
        reasons = explain_document(asked, answer, self.counts) if asked else []
        self.explained += reasons[: PAGE - len(self.explained)]
        self.sentences += len(reasons)
        if self.show.as_json:
            made = as_data(line.text, answer) | ({"error": line.fault} if line.fault else {})
            show_json(made | ({"explain": explain_data(reasons)} if self.explain else {}))
        elif reasons:
            show_explanations(reasons, self.show)
        elif self.typed and self.crew.config.alternatives > 1:
            if self.shown:
                self.show.line()
            for t, share in zip(answer.translations, shares(answer.translations), strict=True):
                self.show.line(f"{share:4.0%}  {one_line(t.text)}")
        else:
            self.show.line("\t".join(one_line(t.text) for t in answer.translations))
        self.shown += 1
        self.empty += not line.text.strip() and not line.fault


def read_search(args: argparse.Namespace) -> TranslateConfig:
    """How to search, before the model is known."""
    at_least("--beams", args.beams)
    at_least("--alternatives", args.alternatives)
    for name in ("max_new", "batch", "workers"):
        at_least(f"--{name.replace('_', '-')}", getattr(args, name))
    wishes = (tuple(args.must), tuple(args.ban), args.begin)
    few = not args.no_shortlist
    search = (args.beams, args.alternatives, args.alpha, args.max_new)
    coin = False if args.coin is None and args.texts else args.coin
    config = TranslateConfig(*search, *wishes, few, args.batch, coin)
    return config


def open_pair(path: str, device: str, precision: str, strict: bool, edits: Sequence[str]) -> Kit:
    """An encoder-decoder."""
    kit = open_kit(path, device, precision, strict, edits)
    if kit.model.config.target is None:
        raise wrong_network("translating", path, kit, "an encoder-decoder")
    return kit


def fit_beams(config: TranslateConfig, kit: Kit, show: Show) -> TranslateConfig:
    """No wider than the vocabulary."""
    width = cap_beams(config.width, kit, show)
    return replace(
        config, beams=min(config.beams, width), alternatives=min(config.alternatives, width)
    )


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def as_data(line: str, answer: Document) -> dict[str, Any]:
    """The object of `--json`; probabilities of translations are shares of their list."""
    first, *rest = answer.translations
    made: dict[str, Any] = {"source": line, "text": one_line(first.text), "logprob": first.logprob}
    if rest:
        made["alternatives"] = [
            {"text": one_line(t.text), "logprob": t.logprob, "probability": share}
            for t, share in zip(answer.translations, shares(answer.translations), strict=True)
        ]
    if answer.words:
        made["words"] = [word_data(word) for word in answer.words]
    return made


def word_data(word: Word) -> dict[str, Any]:
    """One word, how likely it was, and what else could stand there with what follows it."""
    others = [
        {"text": o.text, "probability": math.exp(o.logprob), "translation": o.translation}
        for o in word.others
    ]
    return {"text": word.text, "probability": math.exp(word.logprob), "alternatives": others}
