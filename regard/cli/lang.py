"""`regard lang`: words of formal languages made and tested, automata drawn, languages listed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

from regard.cli.show import Show
from regard.data.text_files import decode, join_lines, read_lines
from regard.errors import DataError, ResourceError, UsageError
from regard.files import check_places, write_whole
from regard.lang.dfa import DFA
from regard.lang.languages import MAKERS, Language, language
from regard.lang.opening import join_word, open_language, split_word
from regard.lang.tasks import TASKS

CLIP, LONG = 60, 300  # characters of a line in the table, of an expression


def run(args: argparse.Namespace, show: Show) -> int:
    """Do the action that was asked for."""
    check_places(getattr(args, "out", None))
    actions = {"make": run_make, "test": run_test, "draw": run_draw, "list": run_list}
    return actions[args.action](args, show)


# make ------------------------------------------------------------------------------------------


def run_make(args: argparse.Namespace, show: Show) -> int:
    """Words of a language, then words that are none."""
    made = open_language(args.language, args.words)
    if args.out and Path(args.out).resolve() == Path(args.language).resolve():
        raise UsageError("making words", f"--out {args.out}", "another file than the grammar's")
    rng = Random(args.seed)
    low, high = args.length
    with show.progress(f"making words of {made.name}") as progress:
        progress("counting")
        sizes = [n for n in range(low, high + 1) if made.has(n)]
        if not sizes:
            found = f"no member of {made.name} of length {low}" + (
                f" to {high}" if high > low else ""
            )
            raise DataError("making words", found, near_lengths(made, high))
        members, strangers = list[str](), list[str]()
        for n in range(args.count):
            progress(f"{n} of {args.count}")
            members.append(join_word(made.member(rng.choice(sizes), rng), made.alphabet))
        for n in range(args.negatives):
            progress(f"{n} of {args.negatives} that are none")
            word = made.stranger(rng.randint(low, high), rng, near=n % 2 == 0)
            strangers.append(join_word(word, made.alphabet))
    give(args, show, made, members, strangers)
    return 0


def near_lengths(made: Language, high: int) -> str:
    """Lengths that a language has, for an error."""
    found = [str(n) for n in range(high + 12) if made.has(n)][:6]
    return f"one of {', '.join(found)}, …" if found else "a language with words"


def give(
    args: argparse.Namespace, show: Show, made: Language, members: list[str], strangers: list[str]
) -> None:
    """Into files, as one object, or as lines: members, an empty line, non-members."""
    files = {}
    if args.out:
        path = Path(args.out)
        other = path.with_name(f"{path.stem}-not{path.suffix}")
        files = {path: members} | ({other: strangers} if strangers else {})
        for place, words in files.items():
            write_whole(place, "".join(f"{word}\n" for word in words).encode())
    if show.as_json:
        about = {"language": made.name, "kind": made.kind, "seed": args.seed}
        show.result(
            about | {"members": members, "others": strangers, "files": list(map(str, files))}
        )
    elif files:
        for place, words in files.items():
            show.line(f"{place}: {len(words):,} words")
    else:
        for word in [*members, *([""] if strangers else []), *strangers]:
            show.line(word)


# test ------------------------------------------------------------------------------------------


def run_test(args: argparse.Namespace, show: Show) -> int:
    """Each line: in the language or not, and why not."""
    if args.file == "-":
        lines = list(join_lines(decode(sys.stdin.buffer, "stdin")))
    else:
        lines = list(read_lines([args.file]))
    made = open_language(args.language, args.words, lines)
    rows, members, blank = list[tuple[int, str, str]](), 0, 0
    with show.progress(f"testing {args.file}") as progress:
        for number, line in enumerate(lines, 1):
            progress(f"line {number:,} of {len(lines):,}")
            if not line.strip():
                blank += 1
                continue
            fault = made.fault(split_word(line, made.alphabet))
            members += fault is None
            rows.append((number, line.strip(), fault.why if fault else ""))
    if not rows:
        raise DataError(f"reading {args.file}", "no lines with words", "a word a line (ε: empty)")
    if show.as_json:
        found = [{"line": n, "text": t, "member": not w, "why": w or None} for n, t, w in rows]
        counts = {"members": members, "others": len(rows) - members, "blank": blank}
        show.result({"language": made.name, "kind": made.kind, **counts, "lines": found})
        return 0
    title = f"{made.name}: {members:,} of {len(rows):,} lines are members"
    shown = [
        ("no" if why else "yes", text if len(text) <= CLIP else f"{text[: CLIP - 1]}…", why, str(n))
        for n, text, why in rows[: args.top]
    ]
    show.table(title, ("member", "text", "why not", "line"), shown, left=3)
    if len(rows) > args.top:
        show.note(f"{len(rows) - args.top:,} more lines are counted, not shown (--top, --json)")
    if blank:
        show.note(f"{blank:,} blank lines are left out; ε stands for the empty word")
    return 0


# draw and list ---------------------------------------------------------------------------------


def run_draw(args: argparse.Namespace, show: Show) -> int:
    """The automaton of a regular language."""
    from regard.lang.draw import dot, draw
    from regard.lang.regex_text import dfa_regex

    made = open_language(args.language, args.words)
    if not isinstance(made.source, DFA):
        found, fix = f"{made.name} is {made.kind}", "see `regard lang list` for regular ones"
        raise UsageError("drawing an automaton", found, "a regular language", fix)
    dfa = made.source.minimise()
    text = dot(dfa, args.dead)
    try:
        pattern = dfa_regex(dfa)
    except ResourceError:
        pattern = None
    if args.out and args.out.endswith(".png"):
        draw(dfa, args.out, args.dead)
    elif args.out and args.out.endswith((".dot", ".gv")):
        write_whole(Path(args.out), text.encode())
    elif args.out:
        raise UsageError("drawing an automaton", f"--out {args.out}", "a name in .png or .dot")
    if show.as_json:
        size = {"states": len(dfa.moves), "dead": len(dfa.moves) - len(dfa.live)}
        show.result({"language": made.name, **size, "expression": pattern, "dot": text})
        return 0
    if not args.out:
        show.line(text.rstrip())
    dead = " (one is dead)" if len(dfa.live) < len(dfa.moves) else ""
    short = f"; {pattern}" if pattern and len(pattern) <= LONG else ""
    show.note(f"{len(dfa.moves)} states{dead}{short}")
    return 0


def run_list(args: argparse.Namespace, show: Show) -> int:
    """Languages and tasks."""
    known = [language(name) for name in MAKERS]
    if show.as_json:
        languages = [
            {"name": k.name, "kind": k.kind, "summary": k.summary, "alphabet": list(k.alphabet)}
            for k in known
        ]
        tasks = [
            {"name": t.name, "level": t.level, "inputs": t.inputs, "outputs": t.outputs}
            | {"chance": t.chance, "published": t.published._asdict()}
            for t in TASKS.values()
        ]
        show.result({"languages": languages, "tasks": tasks})
        return 0
    rows = [(k.name, k.kind, k.summary, example(k)) for k in known]
    show.table(
        "languages (dyck-K and dyck-K-depth-D too)", ("name", "kind", "", "such as"), rows, 4
    )
    columns = ("task", "level", "chance", "RNN", "stack", "tape", "Transformer", "LSTM")
    figures = [
        (t.name, t.level, f"{100 * t.chance:.0f}", *(f"{score:.1f}" for score in t.published))
        for t in TASKS.values()
    ]
    title = "tasks, with the published best accuracy at lengths 41 to 500 (per cent)"
    show.table(title, columns, figures, left=2)
    return 0


def example(made: Language) -> str:
    """A member of about six symbols."""
    length = next(n for n in (6, 8, 5, 4) if made.has(n))
    return join_word(made.member(length, Random(1)), made.alphabet)
