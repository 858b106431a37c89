"""Memory: sentence pairs that show what rare words became, the user's own and those of training.

Two files of a model's folder:
  memory.tsv         on each line a rare word, the numbers of the first and the last target word of
                     what it became (38-44), origin, source and target of the pair, in the order of
                     the words' bytes; on the first line no word but a TAB, then small words of the
                     target's language
  inflections.json   lists of endings that take each other's place: ["er", "é", "ée", …]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from regard.ambient import progress, track
from regard.data.pairs import MEMORY_FILE, named_pairs, shorten
from regard.data.sorted_lines import SortedLines
from regard.data.text_files import read_files, read_lines
from regard.data.word_frequencies import count_words, key, words
from regard.errors import DataError, UsageError
from regard.files import parse_json, write_whole
from regard.translation.explanation import align_pairs, seen_in_training
from regard.translation.normalise import other_language, tidy
from regard.translation.results import Example

if TYPE_CHECKING:
    from torch import Tensor

    from regard.kit import Kit
    from regard.train.results import LearntMemory

INFLECTIONS_FILE = "inflections.json"
DOING = "making a memory"
SHORT = 4  # letters of the shortest word that is worth an example
STEM = 4  # letters that two inflections of a word have in common, at least
LEAST, MOST = 3, 60  # words and marks of a side that is worth reading
FAMILIAR, SHARE = 20_000, 0.55  # of a sentence in the right language, this share of its words makes
# up a 20,000th of the text each, or more
SMALL = 60  # the most frequent words of a language say little
FIRM = 0.45  # attention of a phrase to the word that it came from
LONGEST_PHRASE, LONGEST_HINT = 7, 6  # words
LONGEST_LINE = 10_000  # characters of a pair of a user's file
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
LONG = 150  # characters of a pair; a longer one is kept where a word, in any inflection, has none
BATCH = 16  # pairs that are aligned together
EXAMPLES = 3  # of one word


class MemoryPair(NamedTuple):
    """A pair of sentences."""

    origin: str
    source: str
    target: str
    span: str = ""
    """First and last target word of what a rare word of the source became: 38-44."""


class TranslationMemory:
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
    def counts(self) -> Mapping[str, int] | None:
        """How often each word was seen in training, where the folder says so."""
        return seen_in_training(self.kit)

    @cached_property
    def stored(self) -> SortedLines:
        """The pairs of the folder."""
        return SortedLines(self.kit.files.get(MEMORY_FILE, b""), MEMORY_FILE)

    @cached_property
    def small(self) -> frozenset[str]:
        """Words of the target's language that say little."""
        return frozenset(word for _, line in self.stored.starting("\t") for word in line.split())

    @cached_property
    def places(self) -> dict[str, list[MemoryPair]]:
        """The user's pairs that each word stands in."""
        places = defaultdict[str, list[MemoryPair]](list)
        for entry in self.own:
            for word in dict.fromkeys(words(key(entry.source))):
                places[word].append(entry)
        return places

    def pairs(self, word: str) -> Iterator[MemoryPair]:
        """The pairs with a word, the user's first."""
        yield from self.places.get(word, ())
        for line in self.stored.starting(f"{word}\t"):
            if len(line) != 5:
                form = "word, first-last, origin, source, target"
                raise self.stored.broken(f"{len(line)} fields of {word!r} instead of {form}")
            _, span, origin, source, target = line
            yield MemoryPair(origin, source, target, span)

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
            for entry in islice(self.pairs(form), most):
                pair = entry.source, entry.target
                if len(examples) < most and pair not in examples:
                    examples[pair] = Example(form, self.phrase(entry, form), *pair, entry.origin)
        return list(examples.values())

    def hints(self, word: str) -> list[str]:
        """What a word may become, of 6 words at most; of longer phrases without the small words."""
        phrases = dict[str, None]()
        for example in self.lookup(word):
            said = example.phrase.split()
            if len(said) > LONGEST_HINT:
                said = [word for word in said if word.lower() not in self.small]
            if 0 < len(said) <= LONGEST_HINT:
                phrases[" ".join(said)] = None
        return list(phrases)

    def phrase(self, entry: MemoryPair, form: str) -> str:
        """What a word became in the target of a pair, "" where that is not clear."""
        said = words(entry.target)
        if entry.span:
            first, last = map(int, entry.span.split("-"))
            return " ".join(said[first : last + 1])
        (weights,) = align_pairs(self.kit, [(entry.source, entry.target)])
        place = words(key(entry.source)).index(form)
        span = find_phrase(weights, place, {n for n, w in enumerate(said) if not w[0].isalnum()})
        return " ".join(said[span[0] : span[1] + 1]) if span else ""


# The user's files ---------------------------------------------------------------------------------


def read_memory(path: Path, languages: Sequence[str]) -> list[MemoryPair]:
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
        entries.append(MemoryPair(f"{path.name}:{number}", *sides))
    for side, language in enumerate(languages):
        text = " ".join(entry[1 + side] for entry in entries)
        if other := other_language(text, language):
            wrong = f"{'source target'.split()[side]}s in {other!r}"
            expected = f"{' TAB '.join(languages)}, as this model translates"
            raise DataError(doing, wrong, expected, "change the columns, or take another model")
    return entries


def read_tmx(path: Path, languages: Sequence[str], doing: str) -> list[MemoryPair]:
    """The pairs of a Translation Memory eXchange file, with the numbers of their units.

    Entities that a file declares itself are refused: a few lines of them unpack to any size.
    """
    text = "".join(chunk for texts in read_files(path) for chunk in texts)
    if "<!ENTITY" in text:
        line = text[: text.index("<!ENTITY")].count("\n") + 1
        raise DataError(doing, f"line {line}: <!ENTITY", "a file that declares none")
    try:
        units = ElementTree.fromstring(text).iter("tu")
    except ElementTree.ParseError as error:
        raise DataError(doing, str(error), "TMX 1.4, an XML file") from None
    entries, heard = list[MemoryPair](), dict[str, str]()
    for number, unit in enumerate(units, 1):
        sides = {}
        for variant in unit.iter("tuv"):
            code = variant.get(XML_LANG) or variant.get("lang") or ""
            sentence = " ".join(map(plain_text, variant.iter("seg")))
            sides[code.replace("_", "-").partition("-")[0].lower()] = " ".join(sentence.split())
        heard |= sides
        source, target = (sides.get(language, "") for language in languages)
        if len(source) + len(target) > LONGEST_LINE:
            wrong = f"unit {number}: {len(source) + len(target):,} characters"
            raise DataError(doing, wrong, f"at most {LONGEST_LINE:,}")
        if source and target:
            entries.append(MemoryPair(f"{path.name}:{number}", source, target))
    if not entries:
        wrong = f"no pair of {languages}, but {', '.join(heard) or 'no language'}"
        raise DataError(doing, wrong, "sentences in both languages", "take another model or file")
    return entries


def plain_text(element: ElementTree.Element) -> str:
    """The text of a sentence without the codes of its form, but with what is highlighted."""
    parts = [(plain_text(x) if x.tag == "hi" else "") + (x.tail or "") for x in element]
    return (element.text or "") + "".join(parts)


# Learning -----------------------------------------------------------------------------------------


def learn_memory(
    kit: Kit, folder: Path, files: Sequence[Path | str], seen: int, each: int
) -> LearntMemory:
    """Write the memory of a translator into its folder: `each` pairs of words seen so often."""
    from regard.train.results import LearntMemory

    if kit.model.config.target is None:
        raise UsageError(DOING, f"{folder}, no translator of text", "an encoder-decoder")
    with progress(DOING) as say:
        say("counting words")
        counts: Mapping[str, int] | None = seen_in_training(kit)
        if counts is None:
            counts = count_words(source for _, (source, _) in named_pairs(files))
        pairs = choose_pairs(files, counts, seen, each, TranslationMemory(kit).inflections)
    if not pairs:
        few = f"no pair with a word seen at most {seen} times"
        raise DataError(DOING, few, "pairs with rare words that are not copied")
    heard = count_words(entry.target for entry in pairs)
    small = sorted(word for word, _ in heard.most_common(SMALL) if word[0].isalpha())
    kept, place = [*align_entries(kit, pairs, {*small})], folder / MEMORY_FILE
    kept.sort(key=lambda both: f"{both[0]}\t".encode())  # short pairs first
    lines = ("\t".join((word, entry.span, *entry[:3])) for word, entry in kept)
    data = "\n".join(["\t" + " ".join(small), *lines, ""]).encode()
    write_whole(place, data)
    taught, origins = {word for word, _ in kept}, {entry.origin for _, entry in kept}
    return LearntMemory(str(place), len(data), len(origins), len(taught))


def choose_pairs(
    files: Sequence[Path | str],
    counts: Mapping[str, int],
    seen: int,
    each: int,
    inflections: Callable[[str], Iterable[str]],
) -> dict[MemoryPair, list[str]]:
    """Short pairs with rare words, and the words that each is to teach.

    Names and words that are copied teach nothing, nor do sentences of another language.
    """
    total, examples = sum(counts.values()), defaultdict[str, list[tuple[int, MemoryPair]]](list)
    for origin, (source, target) in track(named_pairs(files), "choosing pairs"):
        heard, said = words(source), target.lower()
        rare = {word for word in heard if is_content(word) and counts.get(word, 0) <= seen}
        rare = {word for word in rare if word not in said}
        if not rare:
            continue
        short, long = sorted((len(heard), len(words(target))))
        spoken = [word.lower() for word in heard if word[0].isalpha()]
        familiar = sum(FAMILIAR * counts.get(word, 0) >= total for word in spoken)
        if LEAST <= short <= long <= min(MOST, 2 * short + 4) and familiar >= SHARE * len(spoken):
            for word in rare:
                size = len(source) + len(target)
                examples[word].append((size, MemoryPair(origin, source, target)))
    pairs, taught = defaultdict[MemoryPair, list[str]](list), set[str]()
    for word, listed in sorted(examples.items(), key=lambda both: min(both[1])):
        for size, entry in sorted(listed)[:each]:
            if size <= LONG or taught.isdisjoint(inflections(word)):
                pairs[entry].append(word)
                taught.add(word)
    return pairs


def is_content(word: str) -> bool:
    """Whether a word as it stands in a sentence is no small word and no name."""
    return len(word) >= SHORT and word.isalpha() and word.islower()


def align_entries(
    kit: Kit, pairs: Mapping[MemoryPair, Sequence[str]], small: Collection[str]
) -> Iterator[tuple[str, MemoryPair]]:
    """Words, and pairs with the first and last target word of what they became, where clear."""
    order = sorted(pairs, key=lambda entry: len(entry.source) + len(entry.target))
    for start in track(range(0, len(order), BATCH), "aligning words"):
        batch = order[start : start + BATCH]
        read = align_pairs(kit, [(entry.source, entry.target) for entry in batch])
        for entry, weights in zip(batch, read, strict=True):
            heard, said = words(entry.source), words(entry.target.lower())
            little = {n for n, w in enumerate(said) if w in small or not w[0].isalnum()}
            for word in pairs[entry]:
                if span := find_phrase(weights, heard.index(word), little):
                    yield word, entry._replace(span="{}-{}".format(*span))


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
