"""`regard eval`: perplexity of a text, BLEU and chrF of translations, with a guard (N14)."""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from regard.cli.opening import open_kit, wrong_network
from regard.cli.show import Show
from regard.cli.texts import at_least, check_finite, likelihood, perplexity
from regard.cli.translate import at_work, one_line
from regard.data.duplicates import WORDS, overlap, pair_overlap
from regard.data.pairs import Pair, all_pairs, read_pairs
from regard.data.results import Overlap
from regard.data.speech import versions
from regard.data.text_files import find_files, read_lines, read_pieces
from regard.data.token_store import fingerprint
from regard.decode.scoring import Counted, stream_logprobs, window_logprobs, windows
from regard.errors import DataError, UsageError
from regard.files import file_hash
from regard.history.ngram_model import NgramModel
from regard.kit import Kit
from regard.model.config import TextConfig
from regard.model_kinds import is_ngrams
from regard.receipt import changed_files, find_receipt, read_receipt, training_files
from regard.tokens import load as load_tokenizer
from regard.translation.config import TranslateConfig
from regard.translation.translator import Translator
from regard.zoo import locate

LONGEST = 1024
VERSIONS = ("spoken", "cleaned", "shuffled")
LENGTHS = (5, 10, 15, 20, 30, 50)  # most source words of each band but the last


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure, unless the test data was trained on."""
    made = run_lm(args, show) if args.kind == "lm" else run_translate(args, show)
    if show.as_json:
        show.result(made)
    else:
        apart = ("by_position", "by_length", *VERSIONS)
        flat = {name: described(value) for name, value in made.items() if name not in apart}
        show.fields(f"{args.path} on {args.test}", flat)
        if args.kind == "lm" and args.speech:
            print_versions(made, show)
        if "by_position" in made:
            columns = "tokens before", "", "perplexity", "tokens"
            show.table("perplexity by position", columns, plot(made["by_position"]), left=2)
        if "by_length" in made:
            rows = [
                (f"{band['from']} to {band['to']}", f"{band['lines']:,}", f"{band['bleu']:.2f}")
                for band in made["by_length"]
            ]
            show.table("BLEU by words of the source", ("words", "lines", "BLEU"), rows)
    return 0


def print_versions(made: dict[str, Any], show: Show) -> None:
    """How far speech is from the written language, and from words in random order."""
    names = "perplexity", "bits_per_token", "bits_per_byte"
    rows = [
        (name, *(f"{made[name][one]:,.3f}" for one in names), f"{made[name]['tokens']:,}")
        for name in VERSIONS
    ]
    columns = "", "perplexity", "bits per token", "bits per byte", "tokens"
    show.table("a transcript without fillers and restarts, and shuffled", columns, rows)


def described(value: Any) -> str:
    """A number or a text for people."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {described(inside)}" for name, inside in value.items())
    return f"{value:,.4f}" if isinstance(value, float) else str(value)


# Overlap ----------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """What a model was trained on."""

    files: list[str]
    lacking: str = ""
    """What is known to be missing from `files`, in words."""


def trained_on(args: argparse.Namespace, show: Show) -> Trained:
    """The files of --train, else those that the receipt of the model's run names."""
    if args.train is not None:
        return Trained(args.train)
    place = find_receipt(Path(args.path))
    if place is None:
        show.note("no --train: whether the test data was trained on is not known")
        return Trained([], "not checked")
    data = training_files(read_receipt(place))
    wrong = changed_files(data)
    files = [name for name in data if name not in wrong]
    show.note(f"{place}: trained on {', '.join(data) or 'nothing'}")
    if not wrong:
        return Trained(files)
    lacking = "not checked: " + "; ".join(f"{name}: {why}" for name, why in wrong.items())
    show.note(f"overlap {lacking}")
    return Trained(files, lacking)


def guard(shared: dict[str, Overlap], trained: Trained, args: argparse.Namespace) -> str:
    """What is known of overlap with the training data; stops where a score would be none."""
    if not shared:
        return trained.lacking
    parts = []
    for name, found in shared.items():
        where = f" (line {', '.join(map(str, found.lines))})" if found.lines else ""
        parts.append(f"{found.found:,} of {found.total:,} by {name}{where}")
    said = "; ".join(parts)
    if not any(found.found for found in shared.values()):
        if not all(found.total for found in shared.values()):
            return f"not checked: no test line has {WORDS} words or more"
        return (
            f"none in {len(trained.files)} files; {trained.lacking}" if trained.lacking else "none"
        )
    if not args.allow_overlap:
        told = f"test lines that stand in the training data: {said}"
        expected = "test data that was not trained on; this would not be a score"
        fix = "take them out of one of the two, or say --allow-overlap"
        raise DataError(f"evaluating on {args.test}", told, expected, fix)
    return f"NOT A SCORE: {said}"


def check_tokenizer(kit: Kit, path: str) -> None:
    """A score is of a model with its own tokenizer."""
    front, own = kit.model.config.front, Path(locate(path)).resolve().parent / "tokenizer"
    vocab = front.vocab if isinstance(front, TextConfig) else kit.text_tokenizer.size
    if kit.text_tokenizer.size > vocab:
        found = f"a tokenizer of {kit.text_tokenizer.size:,} ids, a model of {vocab:,}"
    elif (own / "tokenizer.json").is_file() and find_receipt(Path(path)) is not None:
        if fingerprint(load_tokenizer(str(own))) == fingerprint(kit.text_tokenizer):
            return
        found = f"a tokenizer that differs from the one of the run, in {own}"
    else:
        return
    raise DataError(f"evaluating {path}", found, "the tokenizer that the model was trained with")


def same_files(trained: Trained, args: argparse.Namespace) -> Overlap:
    """Test files that are training files, whatever their lines."""
    before = {file_hash(path) for path in find_files(trained.files)}
    tests = find_files(args.test)
    return Overlap(sum(file_hash(path) in before for path in tests), len(tests), ())


# Language models --------------------------------------------------------------------------------


def run_lm(args: argparse.Namespace, show: Show) -> dict[str, Any]:
    """Perplexity by windows."""
    at_least("--length", args.length)
    at_least("--stride", args.stride)
    shared: dict[str, Overlap] = {}
    trained = trained_on(args, show)
    if trained.files:
        found = overlap(read_lines(trained.files), read_lines(args.test), WORDS)
        shared = {
            f"lines of {WORDS} words or more": found,
            "whole files": same_files(trained, args),
        }
    note = guard(shared, trained, args)
    if is_ngrams(args.path) and not args.edit:  # which has nothing to edit
        model = NgramModel.open(Path(args.path))
        made = compared(args, lambda test: measure_ngrams(model, test))
        if "impossible" in made:
            never = f"{made['impossible']:,} of {made['tokens']:,} tokens have probability 0"
            show.note(f"{never}: not seen in training, and nothing is smoothed")
        return {**made, "overlap": note}
    kit = open_kit(args.path, args.device, args.precision, edits=args.edit)
    check_tokenizer(kit, args.path)
    length = window_length(kit, args.length, args.path)
    kit.warn_long(length)
    stride = length if args.stride is None else args.stride
    carries = kit.model.carry(1) is not None
    if carries and stride != length:
        found_ = f"--stride {stride} with a model that keeps its state"
        raise UsageError("evaluating a language model", found_, "no --stride: nothing is cut off")
    apart = "do not overlap" if stride == length else f"begin {stride} apart"
    return {
        **compared(args, lambda test: measure_lm(kit, test, (length, stride), args, show)),
        "windows": "none: the state goes on" if carries else f"{length} tokens; they {apart}",
        "overlap": note,
    }


def measure_ngrams(model: NgramModel, test: str) -> dict[str, Any]:
    """Perplexity, bits per token and per byte; how many tokens had probability 0."""
    total, count, size, never = model.measure(test)
    return likelihood(total, count, size) | ({"impossible": never} if never else {})


def compared(args: argparse.Namespace, measured: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """A text, or with --speech a transcript as spoken, cleaned and in random order (#116)."""
    if not args.speech:
        return measured(args.test)
    with TemporaryDirectory() as folder:
        paths = versions(args.test, Path(folder), args.seed or 0)
        return {name: measured(path) for name, path in paths.items()}


def measure_lm(
    kit: Kit, test: str, window: tuple[int, int], args: argparse.Namespace, show: Show
) -> dict[str, Any]:
    """Perplexity of one text by windows of a length, so far apart."""
    length, stride = window
    logprobs = stream_logprobs if kit.model.carry(1) is not None else window_logprobs
    with show.progress("evaluating") as progress:
        progress("first window")
        counted, bands = Stream(kit, test), Bands()
        for group in logprobs(kit.model, windows(counted, length, stride)):
            bands.add(group)
            progress(f"{sum(bands.counts):,} tokens")
    total, count = sum(bands.sums), sum(bands.counts)
    if count == 0:
        found_ = f"{counted.tokens} tokens in {test}"
        raise DataError("evaluating a language model", found_, "2 tokens or more")
    check_finite("evaluating a language model", [total])
    made = likelihood(total, count, counted.bytes)
    return made | ({"by_position": bands.rows()} if args.by_position else {})


def window_length(kit: Kit, asked: int | None, path: str) -> int:
    """Tokens of a window: what was asked for, at most what the model has positions for."""
    if kit.model.decoder is None or kit.model.encoder is not None:
        raise wrong_network("predicting a text", path, kit, "a decoder, or n-grams")
    front, room = kit.model.config.front, kit.room
    if asked is not None and room is not None and asked > room:
        raise UsageError("evaluating a language model", f"--length {asked}", f"at most {room}")
    known = front.length if isinstance(front, TextConfig) else None
    return asked or min(room or known or LONGEST, LONGEST)


class Bands:
    """Log-probabilities by how many tokens stand before, in bands of doubling width (#42)."""

    def __init__(self) -> None:
        self.sums: list[float] = []
        self.counts: list[int] = []

    def add(self, group: Iterable[Counted]) -> None:
        """Take in the tokens of some windows; band n is 2^(n−1) + 1 to 2^n tokens before."""
        for counted in group:
            for before, value in enumerate(counted.logprobs, counted.before):
                band = (before - 1).bit_length()
                missing = band + 1 - len(self.sums)
                self.sums += [0.0] * missing
                self.counts += [0] * missing
                self.sums[band] += value
                self.counts[band] += 1

    def rows(self) -> list[dict[str, Any]]:
        """Perplexity of each band that holds a token."""
        return [
            {
                "from": 2**band // 2 + 1,
                "to": 2**band,
                "tokens": count,
                "perplexity": perplexity(-total / count),
            }
            for band, (total, count) in enumerate(zip(self.sums, self.counts, strict=True))
            if count
        ]


def plot(rows: Sequence[dict[str, Any]], width: int = 40) -> list[tuple[str, ...]]:
    """Rows of a table with a bar each; the longest bar is the largest perplexity."""
    most = max(row["perplexity"] for row in rows)
    return [
        (
            f"{row['from']:,} to {row['to']:,}",
            "█" * max(1, round(width * row["perplexity"] / most)),
            f"{row['perplexity']:,.2f}",
            f"{row['tokens']:,}",
        )
        for row in rows
    ]


class Stream:
    """The token stream of a file; counts the bytes of what is predicted.

    A tokenizer that begins texts with a token gives the first word a context; else the first token
    is context only.
    """

    def __init__(self, kit: Kit, path: str) -> None:
        self.tokenizer, self.path = kit.text_tokenizer, path
        self.bytes = self.tokens = 0

    def __iter__(self) -> Iterator[int]:
        begin = self.tokenizer.first
        if begin is not None:
            yield begin
        for piece in read_pieces(self.path):
            self.bytes += len(piece.encode())
            for id in self.tokenizer.encode(piece, special=False):
                if self.tokens == 0 and begin is None:
                    self.bytes -= len(self.tokenizer.decode([id]).encode())
                self.tokens += 1
                yield id


# Translation ------------------------------------------------------------------------------------


def run_translate(args: argparse.Namespace, show: Show) -> dict[str, Any]:
    """BLEU and chrF of beam search against one reference."""
    at_least("--beams", args.beams)
    at_least("--workers", args.workers)
    pairs = list(read_pairs(args.test))
    if not any(source.strip() and target.strip() for source, target in pairs):
        what = f"{len(pairs):,} pairs, none with words on both sides" if pairs else "no pairs"
        raise DataError(f"evaluating on {args.test}", what, "one or more")
    config = TranslateConfig(args.beams, shortlist=not args.no_shortlist)
    with show.progress("translating") as progress:
        with at_work(args.path, args, len(pairs), config, show) as crew:
            if isinstance(crew, Translator):
                check_tokenizer(crew.kit, args.path)
            note = check_pairs(args, pairs, show)

            def tell(done: int, total: int) -> None:
                progress(f"{len(pairs) * done // total:,} of {len(pairs):,} lines")

            answers = crew.translate([source for source, _ in pairs], tell)
    found = [one_line(answer.translations[0].text) for answer in answers]
    spaced = not isinstance(crew, Translator)
    scores = bleu_chrf(found, [target for _, target in pairs], spaced)
    if args.by_length:
        scores["by_length"] = by_length(pairs, found, spaced)
    return {**scores, "lines": len(pairs), "beams": crew.config.beams, "overlap": note}


def check_pairs(args: argparse.Namespace, pairs: Sequence[Pair], show: Show) -> str:
    """What is known of test pairs among the training data."""
    trained, shared = trained_on(args, show), dict[str, Overlap]()
    if trained.files:
        shared = pair_overlap(all_pairs(trained.files), pairs)
    return guard(shared, trained, args)


def by_length(pairs: Sequence[Pair], found: Sequence[str], spaced: bool) -> list[dict[str, Any]]:
    """BLEU of the lines whose sources have so many words, in bands."""
    sizes = [len(source.split()) for source, _ in pairs]
    groups: dict[int, list[int]] = {}
    for n, size in enumerate(sizes):
        groups.setdefault(bisect_left(LENGTHS, size), []).append(n)
    made = []
    for _, lines in sorted(groups.items()):
        scores = bleu_chrf([found[n] for n in lines], [pairs[n][1] for n in lines], spaced)
        made.append(
            {
                "from": min(sizes[n] for n in lines),
                "to": max(sizes[n] for n in lines),
                "mean": sum(sizes[n] for n in lines) / len(lines),
                "lines": len(lines),
                "bleu": scores["bleu"],
            }
        )
    return made


def bleu_chrf(
    found: Iterable[str], references: Iterable[str], spaced: bool = False
) -> dict[str, Any]:
    """sacrebleu's scores with their signatures; `spaced`: blanks before marks are meant."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ModuleNotFoundError:
        fix = "pip install 'regard[score]'"
        raise UsageError("scoring translations", "sacrebleu is not installed", fix=fix) from None
    made: dict[str, Any] = {}
    answers, wanted = list(found), [list(references)]
    for name, metric in (("bleu", BLEU(force=spaced)), ("chrf", CHRF())):
        made[name] = float(metric.corpus_score(answers, wanted).score)
        made[f"{name}_signature"] = str(metric.get_signature())
    return made
