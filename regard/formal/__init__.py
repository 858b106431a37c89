"""Formal languages: draw, test and learn their words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.ambient import current, track
from regard.errors import DataError, UsageError
from regard.formal import results
from regard.verbs import Amount, Count, File, Natural, verb

if TYPE_CHECKING:
    Lines = str | Path | Sequence[str]
else:
    Lines = File

LongModel = Literal[
    "none", "sinusoidal", "randomised", "rotary", "relative", "alibi", "rnn", "lstm", "gru"
]
MAX_LENGTH = 2000


@verb
def make(
    language: str, *, length: str | int = "1-20", count: Count = 10, negatives: Natural = 0
) -> results.DrawnWords:
    """Draw words of a language, each of a length as likely as any other, and non-members.

    Args:
        language: a name of `formal list`, the file of a grammar, or a regular expression.
        length: symbols of a word, or a range of lengths such as 2-40.
        count: members.
        negatives: non-members too, after an empty line: half near misses, half random.

    Example:
        >>> regard.formal.make("anbn", length=20, count=1).members
        ['aaaaaaaaaabbbbbbbbbb']
        $ regard formal make anbn --length 20 --count 5
        $ regard formal make dyck-2 --length 2-40 --count 1000 --negatives 1000 > dyck.txt
        $ regard formal make grammar.txt --length 1-12 --seed 7 --json
    """
    from random import Random

    from regard.formal.hierarchy import open_language

    low, high = _read_lengths(length)
    opened, rng = open_language(language), Random(current().seed)
    sizes = [n for n in track(range(low, high + 1), "counting words, length") if opened.has(n)]
    if not sizes:
        near = [str(n) for n in range(high + 12) if opened.has(n)][:6]
        expected = f"one of {', '.join(near)}, …" if near else "a language with words"
        lengths = f"{low} to {high}" if high > low else f"{low}"
        raise DataError("making words", f"no member of {opened.name} of length {lengths}", expected)
    members = [
        opened.join(opened.member(rng.choice(sizes), rng))
        for _ in track(range(count), "drawing words")
    ]
    others = [
        opened.join(opened.stranger(rng.randint(low, high), rng, near=n % 2 == 0))
        for n in track(range(negatives), "drawing non-members")
    ]
    return results.DrawnWords(opened.name, opened.kind, current().seed, members, others)


def _read_lengths(length: str | int) -> tuple[int, int]:
    """A length, or two with a dash between: 20 or 2-40."""
    low, dash, high = str(length).partition("-")
    expected = f"a length, or a range such as 2-40 that goes up, to {MAX_LENGTH} at most"
    first, last = (int(n) if n.isdecimal() else -1 for n in (low, high if dash else low))
    if not 0 <= first <= last <= MAX_LENGTH:
        raise UsageError("reading a length", repr(length), expected)
    return first, last


@verb
def test(language: str, lines: Lines = "-", *, top: Natural = 40) -> results.Membership:
    """Say of each line whether it is in a language.

    Args:
        language: a name of `formal list`, the file of a grammar, or a regular expression.
        lines: a file with one word of the language a line, ε the empty one; - is stdin; in Python
            also the words themselves.
        top: rows shown.

    Example:
        >>> regard.formal.test("anbn", ["aabb", "aab"]).lines[1].member
        False
        $ regard formal test anbncn lines.txt
        $ regard formal test grammar.txt lines.txt --json
        $ regard formal test ".* leeuw .* olifant .*" lines.txt
    """
    from regard.data.text_files import read_lines
    from regard.formal.hierarchy import open_language

    texts = [*read_lines(lines)] if isinstance(lines, str | Path) else [*lines]
    opened = open_language(language, texts)
    tested = []
    for number, text in enumerate(track(texts, "testing lines"), 1):
        if text.strip():
            member = opened.accepts(opened.split(text))
            tested.append(results.TestedLine(text.strip(), member, number))
    if not tested:
        raise DataError(f"reading {lines}", "no lines with words", "a word a line (ε: empty)")
    members, blank = sum(line.member for line in tested), len(texts) - len(tested)
    others = len(tested) - members
    return results.Membership(opened.name, opened.kind, members, others, blank, tested, top)


@verb
def draw(language: str) -> results.Automaton:
    """The smallest automaton of a regular language, as DOT.

    Args:
        language: a name of `formal list`, or a regular expression.

    Example:
        >>> regard.formal.draw("(a|b)*abb").states
        4
        $ regard formal draw "(a|b)*abb"
        $ regard formal draw parity --json
        $ regard formal draw "~(.* leeuw .*)" --save no-lion.dot
    """
    from regard.formal.dfa import DFA
    from regard.formal.hierarchy import open_language
    from regard.formal.state_diagram import dot

    opened = open_language(language)
    if not isinstance(opened.source, DFA):
        problem, fix = f"{opened.name} is {opened.kind}", "see `regard formal list`"
        raise UsageError("drawing an automaton", problem, "a regular language", fix)
    dfa = opened.source.minimise()
    sizes = len(dfa.moves), len(dfa.moves) - len(dfa.live)
    return results.Automaton(opened.name, *sizes, dot(dfa), dfa)


@verb
def list() -> results.Languages:
    """The languages by name, and the tasks of length generalisation.

    Example:
        >>> regard.formal.list().languages[0].name
        'an'
        $ regard formal list
        $ regard formal list --json
        $ regard formal list | grep context-sensitive
    """
    from random import Random

    from regard.formal.hierarchy import MAKERS, find_language
    from regard.formal.tasks import TASKS

    languages = []
    for one in map(find_language, MAKERS):
        length = next(n for n in (6, 8, 5, 4) if one.has(n))
        example = one.join(one.member(length, Random(1)))
        row = results.LanguageRow(one.name, one.kind, one.summary, [*one.alphabet], example)
        languages.append(row)
    tasks = [
        results.TaskRow(t.name, t.level, t.chance, t.published._asdict()) for t in TASKS.values()
    ]
    return results.Languages(languages, tasks)


@verb
def learn(
    tasks: Sequence[str],
    *,
    models: Sequence[LongModel] = ("sinusoidal", "relative", "rnn", "lstm"),
    steps: Count = 10_000,
    lr: Amount = 1e-3,
    train_length: Count = 40,
    test_length: Count = 500,
    seeds: Count = 1,
    count: Count = 64,
) -> results.LengthRuns:
    """Train on short sequences of a task, test on long ones (Delétang et al. 2023).

    Args:
        tasks: names of `formal list`.
        models: Transformers by their positions, or recurrent models.
        steps: of each training.
        lr: peak learning rate.
        train_length: longest sequence of training.
        test_length: longest sequence of the test.
        seeds: train with so many seeds, from --seed on; the best and the mean are shown.
        count: sequences of each length in the test.

    Example:
        >>> regard.formal.learn(["parity"], models=["rnn"], steps=2000).runs[0].far
        $ regard formal learn parity even-pairs --models sinusoidal rnn --steps 2000
        $ regard formal learn bucket-sort --models relative --seeds 3 --save runs.json
        $ regard formal learn reverse --models lstm --test-length 100 --json
    """
    from regard.formal.length_generalisation import run_task
    from regard.formal.tasks import find_task

    chosen = [find_task(name) for name in ([tasks] if isinstance(tasks, str) else tasks)]
    if test_length <= train_length:
        problem = f"--test-length {test_length}, --train-length {train_length}"
        raise UsageError("choosing lengths", problem, "a test on longer sequences than training")
    runs = []
    for task in chosen:
        for model in models:
            for seed in range(current().seed, current().seed + seeds):
                lengths = train_length, test_length
                runs.append(run_task(task, model, seed, steps, lr, lengths, count))
    return results.LengthRuns(runs)
