"""Memory: sentence pairs that show what rare words became, the user's own and those of training.

Two files of a model's folder:
  memory.tsv.xz      small words of the target's language on the first line; then on each line
                     origin, source, target and what its rare words became, the numbers of the first
                     and the last target word: entartés=38-44
  inflections.json   lists of endings that take each other's place: ["er", "é", "ée", …]
"""

from __future__ import annotations

import lzma
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.parsers import expat

from regard.ambient import progress, track
from regard.data.pairs import named_pairs, shorten
from regard.data.text_files import read_files, read_lines
from regard.data.word_frequencies import WORDS_FILE, count_words, key, read_counts, words
from regard.errors import DataError, UsageError
from regard.files import parse_json, write_whole
from regard.train.results import LearntMemory
from regard.translation.explanation import align_pairs
from regard.translation.normalise import guess_language, is_other_language, tidy
from regard.translation.results import Example

if TYPE_CHECKING:
    from torch import Tensor

    from regard.kit import Kit

MEMORY_FILE, INFLECTIONS_FILE = "memory.tsv.xz", "inflections.json"
DOING = "making a memory"
SHORT = 4  # letters of the shortest word that is worth an example
STEM = 3  # letters that two inflections of a word have in common, at least
LENGTHS = range(3, 61)  # words and marks of a side that are worth reading
FAMILIAR, SHARE = 20_000, 0.55  # of a sentence in the right language, this share of its words makes
# up a 20,000th of the text each, or more
SMALL = 60  # the most frequent words of a language say little
FIRM = 0.45  # attention of a phrase to the word that it came from
LONGEST_PHRASE, LONGEST_HINT = 7, 6  # words
LONGEST_LINE = 10_000  # characters of a line of a user's file
MOST_BYTES = 1 << 28  # of a memory that is unpacked: a small file may hold any size
LONG = 150  # characters of a pair; of longer ones a word has one, where it has no other
BATCH = 16  # pairs that are aligned together
EXAMPLES = 3  # of one word


class Entry(NamedTuple):
    """A pair of sentences, and what some words of the source became (see above)."""

    origin: str
    source: str
    target: str
    spans: str = ""


class Memory:
    """What the pairs of a model's folder and of a user's files say of words.

    The folder's are read when a word is first looked up. The user's come first; what their words
    became is read off the model's attention when it is asked for.
    """

    def __init__(self, kit: Kit, files: Sequence[str | Path] = ()) -> None:
        self.kit = kit
        languages = tuple(map(str, kit.config.get("languages") or ("", "")))
        self.own = [entry for file in files for entry in read_memory(Path(file), languages)]
        """Pairs of the user's files."""
        self.sentences = {tidy(entry.source): entry for entry in reversed(self.own)}
        """The user's whole sentences, as the model reads them."""

    @cached_property
    def stored(self) -> tuple[frozenset[str], list[Entry]]:
        """Small words, and pairs of the folder."""
        if MEMORY_FILE not in self.kit.files:
            return frozenset(), []
        small, *lines = unpack_memory(self.kit.files[MEMORY_FILE])
        try:
            return frozenset(small.split()), [Entry(*line.split("\t")) for line in lines]
        except TypeError:
            raise broken("a line of other columns") from None

    @cached_property
    def places(self) -> dict[str, list[Entry]]:
        """The pairs that each word stands in."""
        places = defaultdict[str, list[Entry]](list)
        for entry in self.own:
            for word in dict.fromkeys(words(key(entry.source))):
                places[word].append(entry)
        for entry in self.stored[1]:
            for span in entry.spans.split():
                places[span.partition("=")[0]].append(entry)
        return places

    @cached_property
    def endings(self) -> list[list[str]]:
        """Endings that take each other's place."""
        data = self.kit.files.get(INFLECTIONS_FILE, b"[]")
        return [list(map(str, group)) for group in parse_json(data, INFLECTIONS_FILE, list)]

    def inflections(self, word: str) -> Iterator[str]:
        """A word in lower case, and what else its ending may be, the nearest first."""
        yield word
        for group in self.endings:
            for ending in group:
                stem = word.removesuffix(ending)
                if len(stem) >= STEM and stem + ending == word:
                    yield from (stem + other for other in group)

    def lookup(self, word: str, most: int = EXAMPLES) -> list[Example]:
        """Pairs with a word, or with an inflection of it, and what it became there."""
        examples: dict[tuple[str, str], Example] = {}
        for form in dict.fromkeys(self.inflections(key(word))):
            for entry in self.places.get(form, ())[:most]:
                pair = entry.source, entry.target
                if len(examples) < most and pair not in examples:
                    examples[pair] = Example(form, self.phrase(entry, form), *pair, entry.origin)
        return list(examples.values())

    def hints(self, word: str) -> list[str]:
        """What a word may become, of 6 words at most; of longer phrases without the small words."""
        phrases = dict.fromkeys(example.phrase for example in self.lookup(word) if example.phrase)
        return [phrase for each in phrases if (phrase := self.shorten(each))]

    def shorten(self, phrase: str) -> str:
        """A phrase of 6 words at most, or none."""
        listed = phrase.split()
        if len(listed) > LONGEST_HINT:
            listed = [word for word in listed if word.lower() not in self.stored[0]]
        return " ".join(listed) if len(listed) <= LONGEST_HINT else ""

    def phrase(self, entry: Entry, form: str) -> str:
        """What a word became in the target of a pair, "" where that is not clear."""
        said = words(entry.target)
        spans = dict(span.partition("=")[::2] for span in entry.spans.split())
        if form in spans:
            first, last = map(int, spans[form].split("-"))
            return " ".join(said[first : last + 1])
        (weights,) = align_pairs(self.kit, [(entry.source, entry.target)])
        place = words(key(entry.source)).index(form)
        span = find_phrase(weights, place, {n for n, w in enumerate(said) if not w[0].isalnum()})
        return " ".join(said[span[0] : span[1] + 1]) if span else ""


def unpack_memory(data: bytes) -> list[str]:
    """The lines of memory.tsv.xz."""
    try:
        text = lzma.LZMADecompressor().decompress(data, MOST_BYTES)
        return text.decode().rstrip("\n").split("\n")
    except (lzma.LZMAError, EOFError, ValueError) as error:
        raise broken(str(error)) from None


def broken(problem: str) -> DataError:
    """What is wrong with a folder's memory."""
    form = "origin TAB source TAB target TAB spans on each line, packed by xz"
    return DataError(f"reading {MEMORY_FILE}", problem, form, "regard train memory")


# The user's files ---------------------------------------------------------------------------------


def read_memory(path: Path, languages: Sequence[str]) -> list[Entry]:
    """The pairs of a .tsv or .tmx file, both sides in the right language."""
    doing = f"reading the memory {path}"
    if path.suffix.lower() == ".tmx":
        return read_tmx(path, languages, doing)
    entries = []
    for number, line in enumerate(read_lines(path), 1):
        sides = [side.strip() for side in line.split("\t")]
        if not line.strip():
            continue
        if len(line) > LONGEST_LINE or len(sides) != 2 or not all(sides):
            wrong = f"{len(line):,} characters, {len(sides) - 1} TABs: {shorten(line)!r}"
            expected = f"source TAB target, at most {LONGEST_LINE:,} characters"
            raise DataError(doing, f"line {number}: {wrong}", expected)
        entries.append(Entry(f"{path.name}:{number}", *sides))
    for side, language in enumerate(languages):
        text = " ".join(entry[1 + side] for entry in entries)
        if is_other_language(text, language):
            wrong = f"{'source target'.split()[side]}s in {guess_language(text)!r}"
            expected = f"{' TAB '.join(languages)}, as this model translates"
            raise DataError(doing, wrong, expected, "change the columns, or take another model")
    return entries


def read_tmx(path: Path, languages: Sequence[str], doing: str) -> list[Entry]:
    """The pairs of a Translation Memory eXchange file; codes inside its sentences are left out.

    Entities that a file declares itself are refused: a few lines of them unpack to any size.
    """
    parser = expat.ParserCreate()
    entries, heard, inside = list[Entry](), Counter[str](), list[str]()
    sides, language = dict[str, str](), ""

    def open_tag(name: str, attributes: dict[str, str]) -> None:
        nonlocal language
        inside.append(name)
        if name == "tu":
            sides.clear()
        if name == "tuv":
            code = attributes.get("xml:lang") or attributes.get("lang") or ""
            language = code.replace("_", "-").partition("-")[0].lower()
            heard[language] += 1

    def close_tag(name: str) -> None:
        inside.pop()
        source, target = (" ".join(sides.get(side, "").split()) for side in languages)
        if name == "tu" and max(len(source), len(target)) > LONGEST_LINE:
            wrong = f"line {parser.CurrentLineNumber}: a sentence of {LONGEST_LINE:,} characters"
            raise DataError(doing, f"{wrong} or more", "shorter ones")
        if name == "tu" and source and target:
            line = parser.CurrentLineNumber
            entries.append(Entry(f"{path.name}:{line}", source, target))

    def add_text(text: str) -> None:
        if "seg" in inside and inside[-1] in ("seg", "hi"):
            sides[language] = sides.get(language, "") + text

    def refuse(*_: object) -> None:
        wrong = f"line {parser.CurrentLineNumber}: a declared entity"
        raise DataError(doing, wrong, "a file without", "write the text itself")

    parser.StartElementHandler, parser.EndElementHandler = open_tag, close_tag
    parser.CharacterDataHandler, parser.EntityDeclHandler = add_text, refuse
    try:
        for texts in read_files(path):
            for text in texts:
                parser.Parse(text)
        parser.Parse("", True)
    except expat.ExpatError as error:
        raise DataError(doing, str(error), "TMX 1.4, an XML file") from None
    if not entries:
        wrong = f"no pair of {' and '.join(languages)}, but {', '.join(heard) or 'no language'}"
        raise DataError(doing, wrong, "sentences in both languages", "take another model or file")
    return entries


# Learning -----------------------------------------------------------------------------------------


def learn_memory(
    kit: Kit, folder: Path, files: Sequence[Path | str], seen: int, each: int
) -> LearntMemory:
    """Write the memory of a translator into its folder: `each` pairs of words seen so often."""
    if kit.model.config.target is None:
        raise UsageError(DOING, f"{folder}, no translator of text", "an encoder-decoder")
    with progress(DOING) as say:
        say("counting words")
        counts: Mapping[str, int] = (
            read_counts(kit.files[WORDS_FILE])
            if WORDS_FILE in kit.files
            else count_words(source for _, (source, _) in named_pairs(files))
        )
        say("choosing pairs")
        chosen = choose_pairs(files, counts, seen, each)
    pairs = {entry: list[str]() for entries in chosen.values() for entry in entries}
    for word, entries in chosen.items():
        for entry in entries:
            pairs[entry].append(word)
    if not pairs:
        few = f"no pair with a word seen at most {seen} times"
        raise DataError(DOING, few, "pairs with rare words that are not copied")
    heard = count_words(entry.target for entry in pairs)
    small = sorted(word for word, _ in heard.most_common(SMALL) if word[0].isalpha())
    spans = align_entries(kit, pairs, {*small})
    taught, lines = Counter[str](), dict[Entry, list[str]]()
    for word, entries in chosen.items():
        for entry in entries:
            if (span := spans.get((entry, word))) and taught[word] < each:
                taught[word] += 1
                lines.setdefault(entry, []).append(f"{word}={span[0]}-{span[1]}")
    kept = [entry._replace(spans=" ".join(lines[entry])) for entry in pairs if entry in lines]
    kept.sort(key=lambda entry: (entry.origin.rpartition(":")[0], len(entry.origin), entry.origin))
    text = "\n".join([" ".join(small), *("\t".join(entry) for entry in kept), ""])
    data, place = lzma.compress(text.encode(), preset=9), folder / MEMORY_FILE
    write_whole(place, data)
    return LearntMemory(str(place), len(data), len(kept), len(taught))


def choose_pairs(
    files: Sequence[Path | str], counts: Mapping[str, int], seen: int, each: int
) -> dict[str, list[Entry]]:
    """The shortest pairs of each rare word, some more than asked for: not all can be aligned.

    Names and words that are copied teach nothing, nor do sentences of another language.
    """
    total, chosen = sum(counts.values()), defaultdict[str, list[tuple[int, Entry]]](list)
    for origin, (source, target) in track(named_pairs(files), "choosing pairs"):
        heard, said = words(source), target.lower()
        rare = {
            word
            for word in heard
            if word.isalpha() and word.islower() and len(word) >= SHORT and word not in said
            if counts.get(word, 0) <= seen
        }
        if not rare or len(heard) not in LENGTHS:
            continue
        length = len(words(target))
        spoken = [word.lower() for word in heard if word[0].isalpha()]
        familiar = sum(FAMILIAR * counts.get(word, 0) >= total for word in spoken)
        alike = length in LENGTHS and max(length, len(heard)) <= 2 * min(length, len(heard)) + 4
        if alike and familiar >= SHARE * len(spoken):
            for word in rare:
                size = len(source) + len(target)
                chosen[word].append((size, Entry(origin, source, target)))
    return {
        word: [
            entry
            for n, (size, entry) in enumerate(sorted(some)[: each + 1])
            if not n or size <= LONG
        ]
        for word, some in chosen.items()
    }


def align_entries(
    kit: Kit, pairs: Mapping[Entry, Sequence[str]], small: Collection[str]
) -> dict[tuple[Entry, str], tuple[int, int]]:
    """The first and last target word of what each word of a pair became, where that is clear."""
    order = sorted(pairs, key=lambda entry: len(entry.source) + len(entry.target))
    spans = {}
    for start in track(range(0, len(order), BATCH), "aligning words"):
        batch = order[start : start + BATCH]
        read = align_pairs(kit, [(entry.source, entry.target) for entry in batch])
        for entry, weights in zip(batch, read, strict=True):
            heard, said = words(entry.source), words(entry.target.lower())
            little = {n for n, w in enumerate(said) if w in small or not w[0].isalnum()}
            for word in pairs[entry]:
                if span := find_phrase(weights, heard.index(word), little):
                    spans[entry, word] = span
    return spans


def find_phrase(weights: Tensor, place: int, little: Collection[int]) -> tuple[int, int] | None:
    """First and last target word of what a source word became; None where that is not clear.

    Weights are of target words (rows) on source words; `little` are target words that say little.
    """
    weight = weights[:, place]
    own = [weights[n].argmax() == place and weight[n] > 0 for n in range(len(weights))]
    content = [n for n, mine in enumerate(own) if mine and n not in little]
    if not content:
        return None
    first = last = max(content, key=lambda n: float(weight[n]))
    while first > 0 and own[first - 1]:
        first -= 1
    while last + 1 < len(own) and own[last + 1]:
        last += 1
    inside = [n for n in content if first <= n <= last]
    firm = float(weight[inside].mean()) >= FIRM
    return (inside[0], inside[-1]) if firm and inside[-1] - inside[0] < LONGEST_PHRASE else None
