"""`regard guess`: Shannon's game (1951). How many guesses does each letter of a text take?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.entropy import read_text
from regard.cli.predicting import open_model
from regard.cli.show import Show, is_fancy
from regard.cli.texts import at_least, naming
from regard.errors import DataError, UsageError
from regard.history.ngrams import Ids
from regard.history.predictors import NgramPredictor
from regard.history.shannon import Alphabet, Letters, bounds, guess_ranks, letters_of, rank_shares
from regard.history.smoothing import train_ngrams

DOING = "playing Shannon's game"
PERSON, MACHINE = 50, 1000  # letters to guess unless said otherwise
BEFORE = 40  # letters that are shown first
YOU = "you"
GIVE_UP, LEAVE = "?", ("\x04", "\x1b", "")
BLANK = "_"  # how the blank is shown, and may be typed
BARS = " ▁▂▃▄▅▆▇█"
GROUPS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))


def run(args: argparse.Namespace, show: Show) -> int:
    """Choose a passage, let everyone guess it, compare."""
    if not args.auto and not sys.stdin.isatty():
        fix = "--auto lets models play"
        raise UsageError(DOING, "stdin is not a terminal", "someone who guesses", fix)
    for order in args.orders:
        at_least("--orders", order)
    alphabet: Alphabet = args.alphabet or "27"
    letters = letters_of(read_text(args.file), alphabet)
    count = args.letters or (MACHINE if args.auto else PERSON)
    with naming([args.file], DOING):
        begin = choose(letters, args.letters, count, args.seed)
    count = min(count, len(letters.ids) - begin)
    own, before = letters.ids[begin : begin + count], letters.ids[max(0, begin - BEFORE) : begin]
    found = machines(args, letters, begin, count, show)
    if not args.auto:
        ranks = play(own, before, letters.symbols, show)
        own = own[: len(ranks)]
        found = {YOU: ranks, **{name: row[: len(ranks)] for name, row in found.items()}}
    if not len(own):
        show.note("no letter was guessed")
        return 0
    text = Letters(own, letters.symbols).text
    rows = [result(name, ranks, len(letters.symbols)) for name, ranks in found.items()]
    if show.as_json:
        made = {"file": args.file, "alphabet": alphabet, "symbols": len(letters.symbols)}
        show.result({**made, "begin": begin, "text": text, "players": rows})
    else:
        print_all(text, rows, show)
    return 0


def choose(letters: Letters, asked: int | None, count: int, seed: int) -> int:
    """Where the passage begins: anywhere, at a word where there are words."""
    most = len(letters.ids) - (count if asked else min(count, len(letters.ids) // 2))
    if most < 2:
        found, needed = f"{len(letters.ids):,} letters", f"{asked or 1} to guess and some to learn"
        raise DataError(DOING, found, needed, "a longer text or fewer --letters")
    places = np.flatnonzero(letters.ids[: most - 1] == letters.symbols.find(" ")) + 1
    places = places if len(places) else np.arange(1, most)
    return int(np.random.default_rng(seed).choice(places))


def machines(
    args: argparse.Namespace, letters: Letters, begin: int, count: int, show: Show
) -> dict[str, Ids]:
    """Guesses that each model takes: n-grams of the rest of the text, and the models asked for."""
    own = letters.ids[begin : begin + count]
    before = letters.ids[max(0, begin - BEFORE) : begin]
    rest = np.concatenate((letters.ids[:begin], letters.ids[begin + count :]))
    made, symbols = dict[str, Ids](), letters.symbols
    with show.progress(DOING) as progress:
        for order in args.orders:
            progress(f"n-grams of order {order}")
            predictor = NgramPredictor(train_ngrams(rest, len(symbols), order))
            made[f"{order}-grams"] = guess_ranks(own, predictor, before)
        for path in args.model:
            progress(path)
            model = open_model(path, args.device)
            player = model.in_letters(symbols, args.alphabet or "27")
            if model.was_trained_on(args.file):
                show.note(f"{path} was trained on this file: it may know the passage")
            made[path] = guess_ranks(own, player, before)
    return made


def result(name: str, ranks: Ids, symbols: int) -> dict[str, Any]:
    """What a player's guesses say of the text."""
    known = ranks[ranks < symbols] if name == YOU else ranks  # the last is the letter told
    q = rank_shares(known, symbols) if len(known) else np.zeros(symbols)
    lower, upper = bounds(np.sort(q)[::-1])  # in few letters ranks are out of order by chance
    return {
        "player": name,
        "lower": lower if len(known) else None,
        "upper": upper if len(known) else None,
        "told": len(ranks) - len(known),
        "first": float(q[0]),
        "mean": float(ranks.mean()),
        "q": q.tolist(),
        "ranks": ranks.tolist(),
    }


# A person -----------------------------------------------------------------------------------------


def play(own: Ids, before: Ids, symbols: str, show: Show) -> Ids:
    """Let someone guess at the terminal."""
    show.note(
        f"Guess {len(own)} letters, one after the other; the space bar or {BLANK} is a blank.\n"
        f"{GIVE_UP} tells the letter (it counts as the last guess), Esc or Ctrl-D ends.\n"
    )
    live = is_fancy(sys.stderr)
    with keys() as read:
        return ask(own, before, symbols, read, lambda text: draw(text, live))


def draw(text: str, live: bool) -> None:
    """A line that replaces the one before, or a line of its own."""
    sys.stderr.write(f"\r\x1b[K{text}" if live and not text.endswith("\n") else f"\r{text}")
    sys.stderr.write("" if live or text.endswith("\n") else "\n")
    sys.stderr.flush()


@contextmanager
def keys() -> Iterator[Callable[[], str]]:
    """A function that gives the next key, at once where the terminal can."""
    try:
        import termios
        import tty

        handle = sys.stdin.fileno()
        before = termios.tcgetattr(handle)
    except (ImportError, OSError, ValueError, termios.error):  # lines, then
        yield lambda: sys.stdin.read(1)
        return
    try:
        tty.setcbreak(handle)
        yield lambda: sys.stdin.read(1)
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def ask(
    own: Ids, before: Ids, symbols: str, read: Callable[[], str], draw: Callable[[str], None]
) -> Ids:
    """Guesses (T,) that each letter took; fewer where the player leaves."""
    ranks, capitals = list[int](), any(symbol.isupper() for symbol in symbols)
    while len(ranks) < len(own):
        known = visible(np.concatenate((before, own[: len(ranks)])), symbols)[-50:]
        wrong, right = "", symbols[own[len(ranks)]]
        while True:
            draw(
                f"{known}▏ {len(ranks) + 1}/{len(own)}" + f"   not {' '.join(wrong)}" * bool(wrong)
            )
            key = read()
            if key in LEAVE:
                draw("\n")
                return np.array(ranks, np.int64)
            key = " " if key == BLANK and BLANK not in symbols else key
            key = key if capitals else key.lower()
            if key == GIVE_UP and GIVE_UP not in symbols:
                ranks.append(len(symbols))
                break
            if key == right:
                ranks.append(len(wrong) + 1)
                break
            if key in symbols and visible_key(key) not in wrong:
                wrong += visible_key(key)
    draw("\n")
    return np.array(ranks, np.int64)


def visible_key(key: str) -> str:
    """A letter as it is shown."""
    return BLANK if key.isspace() else key


def visible(ids: Ids, symbols: str) -> str:
    """A text on one line."""
    return "".join(" " if symbols[id].isspace() else symbols[id] for id in ids)


# On the terminal ----------------------------------------------------------------------------------


def print_all(text: str, rows: Sequence[dict[str, Any]], show: Show) -> None:
    """The text over the guesses of the best player, or the person; then the table."""
    best = rows[0] if rows[0]["player"] == YOU else min(rows, key=lambda row: row["upper"])
    show.line(f"guesses by {Path(best['player']).name} for each letter (+ is ten or more)")
    for line in two_lines(text, best["ranks"]):
        show.line(f"  {line}")
    show.line()
    names = [f"{a}" if a == b else f"{a}–{b}" if b else f"{a}+" for a, b in GROUPS]
    table = []
    for row in rows:
        q = np.array(row["q"])
        shares = [f"{100 * q[a - 1 : b].sum():.0f}" for a, b in GROUPS]
        bars = "".join(BARS[int(np.ceil(8 * share))] for share in q[:8])
        limits = tuple(
            "–" if row[name] is None else f"{row[name]:.2f}" for name in ("lower", "upper")
        )
        table.append((Path(row["player"]).name, bars, *shares, *limits))
    title = "per cent of letters by the guess that was right; bounds in bits per letter"
    show.table(title, ("player", "1 … 8", *names, "lower", "upper"), table, 2)
    if rows[0]["player"] == YOU:
        show.line("Shannon's reader, who knew 100 letters: 0.6 to 1.3 bits per letter.")


def two_lines(text: str, ranks: Sequence[int], width: int = 72, most: int = 3) -> list[str]:
    """Letters, and below each its guesses, as Shannon printed them; the first few lines."""
    top = "".join(map(visible_key, text))
    low = "".join(str(rank) if rank < 10 else "+" for rank in ranks)
    pairs = [(top[at : at + width], low[at : at + width]) for at in range(0, len(top), width)]
    more = ["…"] if len(pairs) > most else []
    return [line for pair in pairs[:most] for line in pair] + more
