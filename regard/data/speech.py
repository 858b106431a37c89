"""Spontaneous speech as it is written down: fillers, restarts, and the text without them (#116).

A restart is what is said again at once (`I was I was late`) or broken off (`the ho- house`);
fillers and commas may stand between (Shriberg 1994). Marks are found by the words alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from regard.data.text_files import read_lines
from regard.data.treebank import ConllSentence
from regard.errors import DataError

SURE = frozenset("uh uhh uhm umm erm hm hmm mmm mhm uh-huh mm-hmm euh ehm äh ähm öh öhm".split())
UNSURE = frozenset("um er eh ah".split())  # words of German, Portuguese and others too
ENGLISH = frozenset("the and i you it of that this they we my to was".split())
MEANT = frozenset("that had very no yes yeah so bye ha really many much long nous vous".split())
"""Words that are said twice on purpose."""
JOINS = frozenset("and or to und oder bis et ou y o".split())  # after `pre- and post-war`
LONGEST = 4  # words that are said again
ENDS, DASHES = ".?!:;", "-–—"
AROUND = ".,;:?!…()[]{}\"'«»“”‘’*=" + DASHES


class Mark(NamedTuple):
    """Words from `start` to before `stop` that cleaning takes out."""

    kind: str
    start: int
    stop: int


def fold(word: str) -> str:
    """A word without capitals and the marks around it; nothing is left of a mark."""
    return word.casefold().strip(AROUND)


def find_marks(words: Sequence[str]) -> list[Mark]:
    """Fillers and restarts of a line, in order."""
    folded = [fold(word) for word in words]
    english = not ENGLISH.isdisjoint(folded)
    fillers = {
        n
        for n, word in enumerate(folded)
        if word in SURE or (word in UNSURE and (english or words[n].endswith((",", "…"))))
    }
    said = [n for n, word in enumerate(folded) if word and n not in fillers]
    broken = {
        n
        for n, after in zip(said, said[1:], strict=False)
        if words[n][-1] in DASHES and folded[after] not in JOINS
    }
    marks = [Mark("filler", n, n + 1) for n in fillers]
    marks += [Mark("restart", n, n + 1) for n in broken]
    marks += repeats(words, folded, [n for n in said if n not in broken])
    return sorted(marks, key=lambda mark: (mark.start, -mark.stop))


def repeats(words: Sequence[str], folded: Sequence[str], said: Sequence[int]) -> Iterator[Mark]:
    """What is said again at once, no sentence ending between."""
    at, spoken = 0, [folded[n] for n in said]
    while at < len(said):
        for size in range(min(LONGEST, (len(said) - at) // 2), 0, -1):
            if spoken[at] != spoken[at + size]:
                continue
            start, stop = said[at], said[at + size]
            again = spoken[at : at + size] == spoken[at + size : at + 2 * size]
            # No restart: very very, 12 12, the name Tap Tap.
            name = words[start].istitle() and words[stop].istitle() and len(words[start]) > 1
            meant = name or spoken[at] in MEANT or not any(map(str.isalpha, words[start]))
            if not again or (size == 1 and meant):
                continue
            if not any(word[-1] in ENDS for word in words[start:stop] if word):
                yield Mark("restart", start, stop)
                at += size - 1
                break
        at += 1


def marked_words(marks: Sequence[Mark]) -> set[int]:
    """Places of the words that cleaning takes out."""
    return {n for mark in marks for n in range(mark.start, mark.stop)}


def clean(text: str) -> str:
    """A line without its fillers and restarts."""
    words = text.split()
    gone = marked_words(find_marks(words))
    return " ".join(word for n, word in enumerate(words) if n not in gone) if gone else text


def versions(path: Path | str, folder: Path, seed: int) -> dict[str, str]:
    """A transcript as spoken, cleaned, and with the words of each line in random order, as files.

    All three are written with one blank between words, so that nothing else differs.
    """
    lines, rng = [line.split() for line in read_lines(path)], Random(seed)
    texts = {
        "spoken": lines,
        "cleaned": [clean(" ".join(words)).split() for words in lines],
        "shuffled": [rng.sample(words, len(words)) for words in lines],
    }
    if texts["cleaned"] == lines:
        fault = "no fillers and no restarts"
        raise DataError(f"cleaning {path}", fault, "a transcript of spontaneous speech")
    for name, some in texts.items():
        (folder / name).write_text("".join(f"{' '.join(words)}\n" for words in some), "utf-8")
    return {name: str(folder / name) for name in texts}


def show_marks(words: Sequence[str], marks: Sequence[Mark]) -> str:
    """The line with fillers in braces and restarts in brackets: {uh} [I was] I was."""
    shown = list(words)
    for mark in reversed(marks):  # the inner ones first
        left, right = "{}" if mark.kind == "filler" else "[]"
        shown[mark.start] = left + shown[mark.start]
        shown[mark.stop - 1] += right
    return " ".join(shown)


def clean_tree(sentence: ConllSentence) -> ConllSentence:
    """A sentence of a treebank without them; what hung at them hangs at what is above them.

    Words at or below UD's relation `reparandum` go too.
    """
    heads = [int(head) - 1 for head in sentence.columns["head"]]
    relations = sentence.columns.get("deprel", [""] * len(heads))

    def above(n: int) -> Iterator[int]:
        while n >= 0:
            yield n
            n = heads[n]

    gone = marked_words(find_marks(sentence.forms))
    gone |= {n for n in range(len(heads)) if any(relations[m] == "reparandum" for m in above(n))}
    kept = [n for n in range(len(heads)) if n not in gone]
    if not kept or not gone:
        return sentence
    hangs = {n: next((m for m in above(heads[n]) if m not in gone), -1) for n in kept}
    root = next(n for n in kept if hangs[n] < 0)
    place = {n: str(k) for k, n in enumerate(kept, 1)}
    columns = {name: [column[n] for n in kept] for name, column in sentence.columns.items()}
    columns["head"] = ["0" if n == root else place[root if h < 0 else h] for n, h in hangs.items()]
    return ConllSentence(sentence.line, columns)
