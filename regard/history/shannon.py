"""How many bits a letter of a text carries, and how many guesses it takes (Shannon 1951).

F_N = −Σ p(b, j) log2 p(j | b) over the N − 1 letters b before a letter j; F_0 = log2 of all.
Counted on one text it is too low once most N-grams are seen once, so two estimates stand side by
side: plug-in, and the cross entropy of a part held out.
What an arithmetic coder reaches with any predictor bounds the entropy from above.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.ambient import current, note, track
from regard.data.text_files import naming, read_parts
from regard.errors import DataError, UsageError
from regard.history.config import Alphabet
from regard.history.letters import Letters, bytes_of, letters_of
from regard.history.ngram_model import NgramPredictor
from regard.history.ngrams import Counts, Floats, Ids, count_ngrams
from regard.history.predictors import Adaptive, Predictor, TextPredictor
from regard.history.results import BLANK, SPELT, YOU, CodedText, Entropy, Guesses, Player
from regard.history.smoothing import interpolate, kneser_ney_shares, train_ngrams

SHANNON = {"27": (4.76, 4.03, 3.32, 3.1), "26": (4.70, 4.14, 3.56, 3.3)}
"""F_0 to F_3 as published, with the blank and without it."""
TRAINED = 0.9
"""Share of a text that the held-out estimate learns from."""

# Entropy ------------------------------------------------------------------------------------------


def measure_entropy(
    file: str | Path,
    model: TextPredictor | None = None,
    order: int = 6,
    alphabet: Alphabet | None = None,
    letters: int | None = None,
) -> Entropy:
    """F_0 to F_N of a text, and what an arithmetic coder reaches by n-grams and by a model."""
    doing = "measuring entropy"
    chosen: Alphabet = alphabet or ("27" if model is None else "as-is")
    whole = letters_of("".join(read_parts(file)), chosen)
    read = replace(whole, ids=whole.ids[:letters])
    text = read.text
    if not text:
        raise DataError(doing, f"no letters in {file} ({SPELT[chosen]})", "a text with letters")
    with naming([file], "estimating entropy"):
        estimates = estimate(read.ids, len(read.symbols), order)
    few = bytes_of(read)
    learner = Adaptive(len(few.symbols), order, len(few.ids))
    coded = [code_text(f"learning {order}-grams", few.ids, learner, text)]
    if model is not None:
        if model.was_trained_on(file):
            note(f"{model.name} was trained on this file: its bits are no measure of it")
        ids = model.encode(text)
        coded.append(code_text(model.name, ids, model.predictor, text, model.unknown(ids)))
    return Entropy(
        str(file), chosen, len(read.symbols), len(text), *estimates, SHANNON.get(chosen), coded
    )


def code_text(name: str, ids: Ids, predictor: Predictor, text: str, unknown: int = 0) -> CodedText:
    """What an arithmetic coder makes of the symbols of a text, as a share of its letters."""
    code = arithmetic_code(ids, predictor)
    size = 8 * len(code.data)
    excess = size / code.bits - 1 if code.bits else 0.0
    return CodedText(
        name,
        len(ids),
        unknown,
        code.bits / len(text),
        len(code.data),
        size / len(text),
        None if np.isinf(code.bits) else excess,
        code.impossible,
    )


# Arithmetic coding --------------------------------------------------------------------------------

SCALE = 1 << 28  # what probabilities are counted in
TOP = 1 << 48  # a range of codes is never smaller; one digit of a byte stands above it
ROWS, ROW = 256, 4096  # rows of a text at most, and symbols of each at least
ENTRIES = 1 << 22  # numbers in one (N, V) array of probabilities at most


class ArithmeticCode(NamedTuple):
    """A text in bytes."""

    data: bytes
    bits: float
    """What the predictor's probabilities ask for; infinite where they rule a symbol out."""
    impossible: int
    """Symbols that are ruled out; the coder writes them even so."""


def arithmetic_code(ids: Ids, predictor: Predictor) -> ArithmeticCode:
    """Code a text of symbols 0 to V − 1 as the digits of a number (range coder, Martin 1979).

    A predictor reads rows of the text side by side; a symbol of each goes into the code in turn.
    The codes that are left for a text are those from `low`, `size` of them; a symbol narrows them
    to its share, and what is sure of the first byte becomes a digit, in which a carry may stand.
    """
    rows = max(1, min(ROWS, len(ids) // ROW, ENTRIES // max(1, predictor.vocab)))
    low, size, digits = 0, 1 << 56, list[int]()
    bits, impossible = 0.0, 0
    predictor.start(rows)
    columns = zip_longest(*(row.tolist() for row in np.array_split(ids, rows)), fillvalue=-1)
    for column in track(columns, "coding", -(-len(ids) // rows)):
        words = np.array(column)
        there = np.flatnonzero(words >= 0)  # the last symbols are not of all rows
        p = predictor.predict()
        if not np.isfinite(p).all() or p.min() < 0:
            raise DataError("coding a text", "probabilities that are no numbers", "a sound model")
        counts = (p * SCALE).astype(np.int64) + 1  # (N, V): every symbol has 1 or more
        upto, own = np.cumsum(counts, 1), counts[there, words[there]]
        first = upto[there, words[there]] - own
        shares = zip(first.tolist(), own.tolist(), upto[there, -1].tolist(), strict=True)
        for begin, count, total in shares:
            size //= total
            low, size = low + size * begin, size * count
            while size < TOP:
                digits.append(low >> 48)
                low, size = low % TOP << 8, size << 8
        chances = p[there, words[there]]
        impossible += int((chances == 0).sum())
        with np.errstate(divide="ignore"):
            bits -= float(np.log2(chances).sum())
        if len(there) == rows:
            predictor.read(words)
    digits.append(-(-low // TOP))  # the codes that are left hold a multiple of TOP
    for n in range(len(digits) - 1, 0, -1):
        digits[n - 1] += digits[n] >> 8
    return ArithmeticCode(bytes(digit & 255 for digit in digits), bits, impossible)


def estimate(ids: Ids, symbols: int, order: int) -> tuple[list[float], list[float]]:
    """F_0 to F_order in bits per letter by counting (plug-in), and held out:

    the cross entropy of the last tenth by n-grams of the rest (modified Kneser–Ney).
    """
    if len(ids) <= order:
        problem, needed = f"{len(ids):,} letters", f"more than {order} for F{order}"
        raise DataError("estimating entropy", problem, needed, "a longer text or a smaller --order")
    counts = count_ngrams(ids, symbols, order)
    cut = max(order, int(TRAINED * len(ids)))
    learnt = count_ngrams(ids[:cut], symbols, order)
    plug_in, held_out = [float(np.log2(symbols))], [float(np.log2(symbols))]
    for n in range(1, order + 1):
        plug_in.append(conditional(counts[n - 1]))
        # a letter that was not seen keeps one
        model = interpolate(learnt[:n], symbols, None, kneser_ney_shares(learnt[:n], None))
        start = max(0, cut - n + 1)
        held_out.append(float((-model.logprobs(ids[start:])[cut - start :] / np.log(2)).mean()))
    return plug_in, held_out


def conditional(level: Counts) -> float:
    """Plug-in entropy of the last letter of N-grams, given those before it."""
    seen = level.count > 0
    count, context = level.count[seen], level.context[seen]
    before = np.bincount(context, count)[context]
    return float(-(count * np.log2(count / before)).sum() / count.sum()) + 0.0  # no −0


# Guessing -----------------------------------------------------------------------------------------


def guess_ranks(ids: Ids, predictor: Predictor, before: Ids | Sequence[int] = ()) -> Ids:
    """How many guesses (T,) each letter takes, the likeliest first; of equals the first symbol.

    What stands before the text is read, not guessed.
    """
    predictor.start(1)
    ranks, known = np.zeros(len(ids), np.int64), len(before)
    whole = np.concatenate((np.array(before, np.int64), ids))
    for n, id in enumerate(whole):
        if n >= known:
            (p,) = predictor.predict()
            ranks[n - known] = 1 + int((p > p[id]).sum()) + int((p[:id] == p[id]).sum())
        predictor.read(whole[n : n + 1])
    return ranks


def bounds(q: Floats) -> tuple[float, float]:
    """Σ i (q_i − q_{i+1}) log2 i ≤ F_N ≤ −Σ q_i log2 q_i (Shannon 1951, eq. 17)."""
    i = np.arange(1, len(q) + 1)
    lower = (i * (q - np.append(q[1:], 0.0)) * np.log2(i)).sum()
    some = q[q > 0]
    return float(lower), float(-(some * np.log2(some)).sum()) + 0.0


# The game -----------------------------------------------------------------------------------------

PERSON, MACHINE = 50, 1000  # letters to guess unless said otherwise
BEFORE = 40  # letters that are shown first
GIVE_UP, LEAVE = "?", ("\x04", "\x1b", "")
PLAYING = "playing Shannon's game"


def play_game(
    file: str | Path,
    models: Sequence[TextPredictor] = (),
    orders: Sequence[int] = (),
    letters: int | None = None,
    alphabet: Alphabet = "27",
    auto: bool = False,
) -> Guesses:
    """Let n-grams of the rest, models, and unless `auto` a person guess a passage of a text."""
    if not auto and not sys.stdin.isatty():
        fix = "--auto lets models play"
        raise UsageError(PLAYING, "stdin is not a terminal", "someone who guesses", fix)
    whole = letters_of("".join(read_parts(file)), alphabet)
    count = letters or (MACHINE if auto else PERSON)
    with naming([file], PLAYING):
        begin = choose_passage(whole, letters, count)
    end = min(begin + count, len(whole.ids))
    own, before = whole.ids[begin:end], whole.ids[max(0, begin - BEFORE) : begin]
    rest, symbols = np.concatenate((whole.ids[:begin], whole.ids[end:])), whole.symbols
    ranks = dict[str, Ids]()
    for order in track(orders, PLAYING):
        predictor = NgramPredictor(train_ngrams(rest, len(symbols), order))
        ranks[f"{order}-grams"] = guess_ranks(own, predictor, before)
    for model in models:
        letterwise = model.in_letters(symbols, alphabet)
        if model.was_trained_on(file):
            note(f"{model.name} was trained on this file: it may know the passage")
        ranks[model.name] = guess_ranks(own, letterwise, before)
    if not auto:
        typed = ask_person(own, before, symbols)
        own = own[: len(typed)]
        ranks = {YOU: typed, **{name: row[: len(typed)] for name, row in ranks.items()}}
    players = [judge_player(name, row, len(symbols)) for name, row in ranks.items() if len(own)]
    return Guesses(str(file), alphabet, len(symbols), begin, Letters(own, symbols).text, players)


def choose_passage(letters: Letters, asked: int | None, count: int) -> int:
    """Where the passage begins: anywhere, at a word where there are words."""
    most = len(letters.ids) - (count if asked else min(count, len(letters.ids) // 2))
    if most < 2:
        problem, need = f"{len(letters.ids):,} letters", f"{asked or 1} to guess and some to learn"
        raise DataError(PLAYING, problem, need, "a longer text or fewer --letters")
    places = np.flatnonzero(letters.ids[: most - 1] == letters.symbols.find(" ")) + 1
    places = places if len(places) else np.arange(1, most)
    return int(np.random.default_rng(current().seed % (1 << 64)).choice(places))


def judge_player(name: str, ranks: Ids, symbols: int) -> Player:
    """What a player's guesses say of the text."""
    known = ranks[ranks < symbols] if name == YOU else ranks  # the last is the letter told
    q = np.bincount(known - 1, minlength=symbols) / max(len(known), 1)  # (A,)
    lower, upper = bounds(np.sort(q)[::-1])  # in few letters ranks are out of order by chance
    return Player(
        name,
        lower if len(known) else None,
        upper if len(known) else None,
        len(ranks) - len(known),
        q.tolist(),
        ranks.tolist(),
    )


def ask_person(own: Ids, before: Ids, symbols: str) -> Ids:
    """Let someone guess at the terminal; keys count at once."""
    import termios
    import tty

    note(
        f"Guess {len(own)} letters, one after the other; the space bar or {BLANK} is a blank.\n"
        f"{GIVE_UP} tells the letter (it counts as the last guess), Esc or Ctrl-D ends.\n"
    )

    def draw(text: str) -> None:
        """A line that replaces the one before."""
        sys.stderr.write(text if text == "\n" else f"\r\x1b[K{text}")
        sys.stderr.flush()

    settings = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        return ask(own, before, symbols, lambda: sys.stdin.read(1), draw)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)


def ask(
    own: Ids, before: Ids, symbols: str, read: Callable[[], str], draw: Callable[[str], None]
) -> Ids:
    """Guesses (T,) that each letter took; fewer where the player leaves."""
    ranks, capitals = list[int](), any(symbol.isupper() for symbol in symbols)
    while len(ranks) < len(own):
        ids = np.concatenate((before, own[: len(ranks)]))[-50:]
        text = "".join(" " if symbols[id].isspace() else symbols[id] for id in ids)
        wrong, right = "", symbols[own[len(ranks)]]
        while True:
            draw(f"{text}▏ {len(ranks) + 1}/{len(own)}" + f"   not {' '.join(wrong)}" * bool(wrong))
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
            seen = BLANK if key.isspace() else key
            if key in symbols and seen not in wrong:
                wrong += seen
    draw("\n")
    return np.array(ranks, np.int64)
