"""Sentence pairs → training files of a translator that reads hints, and its dictionary.

    python recipes/prepare.py D OUT --languages fr en --counts regard/zoo/fr-en/words.tsv

D is the folder of sentence pairs (French TAB English), of dictionary.tsv.xz and lemmas-fr.tsv.xz.
Written into OUT: the pairs in the direction asked for, about half of them with hints (see
regard/translation/dictionary.py); pairs made of dictionary entries; real pairs whose numbers are
drawn anew; and dictionary.tsv and forms.tsv as they ship, of rows whose licence allows it.
"""

from __future__ import annotations

import argparse
import lzma
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

from regard.data.sorted_lines import sort_lines
from regard.data.word_frequencies import (
    WORDS_FILE,
    WordCounts,
    key,
    word_spans,
    words,
    write_counts,
)
from regard.translation.dictionary import (
    COMMON,
    ENTRIES_FILE,
    FORMS_FILE,
    NOUN,
    OPEN,
    VERB,
    Dictionary,
    Entry,
    hint,
)

FREE = ("enwikt", "frwikt")  # Wiktionary's rows: CC BY-SA; the others stay out of the wheel
TRANSLATIONS = 6  # of a headword, of a part of speech
PLAIN = 0.45  # sentences without a hint
CHANCES = ((20, 0.6), (200, 0.35), (2000, 0.12), (20000, 0.04))
"""A word seen less often than this has a hint so often."""
FIRM_SHARE, OTHER_SHARE, WRONG_SHARE, PHRASE_SHARE = 0.15, 0.35, 0.5, 0.2
Pair = tuple[str, str]
Lemmas = Callable[[str], set[str]]
Entries = dict[str, dict[str, list[str]]]
"""Headword → part of speech → translations."""
Forms = dict[tuple[str, str], set[str]]
"""(Form, lemma) → parts of speech, if they are known."""
KINDS = {"noun": NOUN, "nc": NOUN, "adj": "a", "verb": VERB, "v": VERB}
"""Letters of parts of speech, of the dictionary and of the lemmas; o for all others."""


# Dictionary -------------------------------------------------------------------------------------


IRREGULAR = {
    form: verb
    for verb, *forms in map(
        str.split,
        """be am is are was were been|beat beaten|become became|begin began begun|bend
        bent|bet|bind bound|bite bit bitten|bleed bled|blow blew blown|break broke
        broken|bring brought|build built|burn burnt|buy bought|catch caught|choose chose
        chosen|come came|creep crept|cut|deal dealt|dig dug|do does did done|draw drew
        drawn|dream dreamt|drink drank drunk|drive drove driven|eat ate eaten|fall fell
        fallen|feed fed|feel felt|fight fought|find found|flee fled|fly flew flown|forget
        forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got gotten|give gave
        given|go goes went gone|grind ground|grow grew grown|hang hung|have has had|hear
        heard|hide hid hidden|hold held|keep kept|kneel knelt|know knew known|lay laid|lead
        led|lean leant|leap leapt|learn learnt|leave left|lend lent|lie lay lain|light
        lit|lose lost|make made|mean meant|meet met|pay paid|ride rode ridden|ring rang
        rung|rise rose risen|run ran|say said|see saw seen|seek sought|sell sold|send sent|sew
        sewn|shake shook shaken|shine shone|shoot shot|show shown|shrink shrank shrunk|sing
        sang sung|sink sank sunk|sit sat|sleep slept|slide slid|speak spoke spoken|speed
        sped|spend spent|spill spilt|spin spun|spit spat|spoil spoilt|spring sprang
        sprung|stand stood|steal stole stolen|stick stuck|sting stung|stink stank stunk|strike
        struck|swear swore sworn|sweep swept|swell swollen|swim swam swum|swing swung|take
        took taken|teach taught|tear tore torn|tell told|think thought|throw threw
        thrown|understand understood|wake woke woken|wear wore worn|weave wove woven|weep
        wept|win won|wind wound|write wrote written|man men|woman women|child children|foot
        feet|tooth teeth|mouse mice|goose geese|life lives|wife wives|knife knives|leaf
        leaves|half halves|wolf wolves|thief thieves|good better best|bad worse worst""".replace(
            "\n", " "
        ).split("|"),
    )
    for form in forms
}
"""Forms that no ending tells, and their lemmas."""


def english_lemmas(word: str) -> set[str]:
    """What an English word may be a form of, by its ending."""
    lemmas = {word, IRREGULAR.get(word, word)}
    for ending, stems in (
        ("ies", ("y",)),
        ("es", ("", "e")),
        ("s", ("",)),
        ("ied", ("y",)),
        ("ed", ("", "e")),
        ("ing", ("", "e")),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 2:
            stem = word[: -len(ending)]
            lemmas |= {stem + more for more in stems}
            if ending in ("ed", "ing") and stem[-1:] == stem[-2:-1]:
                lemmas.add(stem[:-1])
    return lemmas


def read_rows(path: Path) -> Iterator[list[str]]:
    """Rows of a packed table after its header."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            yield line.rstrip("\n").split("\t")


def usable(translation: str) -> bool:
    """Whether a side of an entry is a word or a phrase, not a definition."""
    plain = re.fullmatch(r"[^\W\d_][\w' -]*", translation) and translation.count(" ") < 5
    return bool(plain) and not re.match(r"an? (\S+ ){2}", translation)  # no definition


def french_entries(folder: Path) -> Entries:
    """Translations of each headword by part of speech, of the rows that may ship."""
    small, large = Entries(), Entries()
    for fr, pos, en, source in read_rows(folder / "dictionary.tsv.xz"):
        if source.startswith(FREE):
            kinds = (small if fr.islower() else large).setdefault(key(fr), {})
            listed = kinds.setdefault(KINDS.get(pos, "o"), [])
            new = (t.strip() for t in en.replace("’", "'").split(" | "))
            listed += [t for t in new if usable(t) and t not in listed]
    both = large | small  # a name, Mur, is no translation of a word, mur
    cut = {fr: {k: ts[:TRANSLATIONS] for k, ts in ks.items() if ts} for fr, ks in both.items()}
    nouns_first = lambda pair: pair[0] != NOUN  # noqa: E731
    return {
        fr: dict(sorted(kinds.items(), key=nouns_first))
        for fr, kinds in cut.items()
        if kinds and usable(fr)
    }


def english_entries(french: Entries, counts: Counter[str]) -> Entries:
    """Headwords of each translation, those first that have it first, then the commoner ones."""
    ranked: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for fr, kinds in french.items():
        for kind, translations in kinds.items():
            for rank, en in enumerate(translations):
                ranked[key(en), kind].append((rank, -counts[fr], fr))
    merged = Entries()
    for (en, kind), rows in sorted(ranked.items(), key=lambda pair: min(pair[1])):
        frs = dict.fromkeys(fr for *_, fr in sorted(rows))
        merged.setdefault(en, {})[kind] = list(frs)[:TRANSLATIONS]
    return merged


def entry_lines(entries: Entries, counts: Counter[str]) -> bytes:
    """The content of dictionary.tsv."""
    lines = []
    for headword, kinds in entries.items():
        parts = headword.replace("'", "' ").split()
        written = " ".join(words(headword))
        content = [p for p in words(headword) if p not in OPEN and len(p) > 2] or parts
        rarest = min(content, key=lambda p: counts[p])
        if len(parts) > 1 and counts[rarest] > COMMON:
            continue
        groups = (f"{kind} {' | '.join(listed)}" for kind, listed in kinds.items())
        lines.append("\t".join((rarest, written, *groups)))
    return sort_lines(lines)


def form_lines(forms: Forms) -> bytes:
    """The content of forms.tsv."""
    rows = ((*pair, "".join(sorted(kinds))) for pair, kinds in forms.items())
    return sort_lines("\t".join(filter(None, row)) for row in rows)


def french_forms(folder: Path, entries: Entries) -> Forms:
    """Forms of the words of French headwords."""
    inside = {part for headword in entries for part in words(headword)}
    forms, wiktionary = Forms(), defaultdict[str, set[str]](set)
    for form, lemma, features in read_rows(folder / "lemmas-fr.tsv.xz"):
        form, lemma = key(form), key(lemma).replace("oe", "œ") if "oe" in lemma else key(lemma)
        if form == lemma or lemma not in inside:
            continue
        if features == "wikt":
            wiktionary[form].add(lemma)
        else:
            kind = KINDS.get(features.partition(":")[0], "o")
            forms.setdefault((form, lemma), set()).add(kind)
    known = {form for form, _ in forms}
    # Wiktionary's tables of auxiliaries make "a" a form of thirty verbs.
    more = {(f, x) for f, ls in wiktionary.items() if f not in known and len(ls) < 4 for x in ls}
    more |= {(form, "se") for form in ("me", "te", "m'", "t'", "s'", "nous", "vous")}
    more |= {("d'", "de"), ("du", "de"), ("des", "de"), ("l'", "le"), ("la", "le"), ("les", "le")}
    more |= {("une", "un"), ("qu'", "que"), ("n'", "ne"), ("j'", "je"), ("au", "à"), ("aux", "à")}
    return forms | {pair: set() for pair in more}


def english_forms(entries: Entries, counts: Counter[str]) -> Forms:
    """Forms of the words of English headwords, of those that occur."""
    inside = {part for headword in entries for part in words(headword)}
    return {
        (form, lemma): set()
        for form in counts
        for lemma in english_lemmas(form)
        if lemma != form and lemma in inside
    }


# Hints ------------------------------------------------------------------------------------------


class Hinter:
    """Draws hints for pairs."""

    def __init__(self, dictionary: Dictionary, counts: Counter[str], lemmas: Lemmas) -> None:
        self.dictionary, self.counts, self.lemmas = dictionary, counts, lemmas
        lines = dictionary.entries.data.decode().split("\n")
        self.others = [line.split("\t")[2][2:].split(" | ")[0] for line in lines[::7] if line]

    def chance(self, entry: Entry, source: list[str]) -> float:
        """How often an entry has a hint."""
        if entry.last > entry.first:
            return 0.4
        seen = self.counts[key(source[entry.first])]
        return next((chance for most, chance in CHANCES if seen < most), 0.0)

    def match(self, translation: str, target: list[set[str]]) -> tuple[int, int] | None:
        """Where a translation stands among the words of a target, each given by its lemmas."""
        parts = [key(part) for part in words(translation)]
        for first in range(len(target)):
            at = first - 1
            for part in parts:
                near = range(at + 1, min(len(target), at + (2 if at < first else 4)))
                at = next((n for n in near if part in target[n]), -1)
                if at < 0:
                    break
            else:
                return first, at
        return None

    def hinted(self, source: str, target: str, draw: random.Random) -> Pair:
        """A pair with hints in its source; some firm ones put another word on both sides."""
        if draw.random() < PLAIN:
            return source, target
        places = word_spans(source)
        listed = [source[a:b] for a, b in places]
        entries = [
            e for e in self.dictionary.find(listed) if draw.random() < self.chance(e, listed)
        ]
        insertions = list[tuple[int, str]]()
        for entry in entries:
            ends = word_spans(target)
            written = [target[a:b] for a, b in ends]
            lemmas = [self.lemmas(key(word)) for word in written]
            spans = [self.match(t, lemmas) for t in entry.translations]
            right = next((n for n, span in enumerate(spans) if span), None)
            at = places[entry.last][1]
            if right is None:
                if draw.random() < WRONG_SHARE:
                    insertions.append((at, hint(entry.translations[: draw.randint(1, 4)])))
                continue
            first, last = spans[right] or (0, 0)
            surface = target[ends[first][0] : ends[last][1]]
            if draw.random() < FIRM_SHARE:
                term = surface if draw.random() < 0.6 else entry.translations[right]
                if first == last and draw.random() < OTHER_SHARE:
                    term = draw.choice(self.others)
                    if surface[:1].isupper():
                        term = term[:1].upper() + term[1:]
                    target = target[: ends[first][0]] + term + target[ends[last][1] :]
                insertions.append((at, hint([term], firm=True)))
                continue
            shown = entry.translations[: draw.randint(1, 4)]
            if entry.translations[right] not in shown:
                shown = [*shown[:3], entry.translations[right]]
            if draw.random() < PHRASE_SHARE:
                a, b = (
                    max(0, first - draw.randint(0, 2)),
                    min(len(ends), last + 1 + draw.randint(0, 2)),
                )
                shown = [target[ends[a][0] : ends[b - 1][1]], *shown[: draw.randint(0, 2)]]
            insertions.append((at, hint(list(dict.fromkeys(shown)))))
        for at, text in sorted(insertions, reverse=True):
            source = source[:at] + text + source[at:]
        return source, target


# Made pairs -------------------------------------------------------------------------------------

UNITS = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize"
)
TENS = {20: "vingt", 30: "trente", 40: "quarante", 50: "cinquante", 60: "soixante"}
EN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
EN_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_french(n: int) -> str:
    """A number below a million in words."""
    units = UNITS.split()
    if n < 17:
        return units[n]
    if n < 20:
        return f"dix-{units[n - 10]}"
    if n < 100:
        if n >= 80:
            return "quatre-vingts" if n == 80 else f"quatre-vingt-{in_french(n - 80)}"
        ten = 60 if n >= 60 else n - n % 10
        rest = n - ten
        if not rest:
            return TENS[ten]
        return (
            f"{TENS[ten]} et {in_french(rest)}"
            if rest in (1, 11)
            else f"{TENS[ten]}-{in_french(rest)}"
        )
    if n < 1000:
        hundreds, rest = divmod(n, 100)
        head = "cent" if hundreds == 1 else f"{units[hundreds]} cent{'' if rest else 's'}"
        return f"{head} {in_french(rest)}" if rest else head
    thousands, rest = divmod(n, 1000)
    many = re.sub(r"(?<=cent|ingt)s$", "", in_french(thousands))
    head = "mille" if thousands == 1 else f"{many} mille"
    return f"{head} {in_french(rest)}" if rest else head


def in_english(n: int, joined: str = " and ") -> str:
    """A number below a million in words."""
    if n < 20:
        return EN[n]
    if n < 100:
        return EN_TENS[n // 10 - 2] + (f"-{EN[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{EN[n // 100]} hundred" + (joined + in_english(n % 100) if n % 100 else "")
    rest = n % 1000
    more = "" if not rest else f"{joined if rest < 100 else ' '}{in_english(rest, joined)}"
    return f"{in_english(n // 1000, joined)} thousand{more}"


LONE = re.compile(
    r"(?<![\d.,:/°$€£%+-])(?<!\d[\s'’])\b(\d{1,4})\b(?![\s'’]?\d)(?![.,:/°$€£%+-]?\d)(?!\s?[%€$£°h])"
)
DECIMAL_FR = re.compile(r"(?<![\d.,])(\d{1,3}),(\d{1,2})(?![\d,])")


def drawn_anew(fr: str, en: str, draw: random.Random) -> Iterator[Pair]:
    """A pair with another number in its place: in words, in digits, as a decimal."""
    a, b = LONE.findall(fr), LONE.findall(en)
    if len(a) == 1 and a == b and not re.fullmatch("(19|20)..|1", a[0]):
        low, high = (2, 100) if len(a[0]) < 3 else (100, 10_000)
        n = draw.randint(low, high)
        joined = draw.choice((" and ", " and ", " "))
        yield LONE.sub(in_french(n), fr), LONE.sub(in_english(n, joined), en)
        if draw.random() < 0.3:
            n = draw.randint(low, high)
            yield LONE.sub(in_french(n), fr), LONE.sub(str(n), en)
        n = draw.randint(low, high)
        yield LONE.sub(str(n), fr), LONE.sub(str(n), en)
    decimals = DECIMAL_FR.findall(fr)
    if len(decimals) == 1:
        old = ".".join(decimals[0])
        if en.count(old) == 1:
            new = (str(draw.randint(0, 400)), str(draw.randint(1, 99)))
            yield DECIMAL_FR.sub(",".join(new), fr), en.replace(old, ".".join(new))


CARRIERS = {
    "nc:ms": (
        ("Je cherche un {}.", "I am looking for a {}."),
        ("Le {} est là.", "The {} is there."),
        ("Elle a dessiné un {}.", "She drew a {}."),
        ("Ce {} me plaît.", "I like this {}."),
        ("Il parle du {}.", "He is talking about the {}."),
        ("Où est mon {} ?", "Where is my {}?"),
    ),
    "nc:fs": (
        ("Je cherche une {}.", "I am looking for a {}."),
        ("La {} est là.", "The {} is there."),
        ("Elle a dessiné une {}.", "She drew a {}."),
        ("Cette {} me plaît.", "I like this {}."),
        ("Il a besoin d'une {}.", "He needs a {}."),
        ("Voilà une {}.", "Here is a {}."),
    ),
    "nc:p": (
        ("Les {} sont là.", "The {} are there."),
        ("Il a vu des {}.", "He saw {}."),
        ("Nous avons acheté trois {}.", "We bought three {}."),
        ("Ces {} sont vieux.", "These {} are old."),
        ("Je n'aime pas les {}.", "I don't like {}."),
    ),
    "verb": (
        ("Il faut {}.", "You have to {}."),
        ("Elle veut {}.", "She wants to {}."),
        ("Nous allons {}.", "We are going to {}."),
        ("Je ne peux pas {}.", "I can't {}."),
        ("Ils ont commencé à {}.", "They began to {}."),
    ),
    "adj": (
        ("C'est très {}.", "It is very {}."),
        ("Il est {}.", "He is {}."),
        ("Je le trouve {}.", "I find it {}."),
        ("Tout cela semble {}.", "All that seems {}."),
    ),
}


def elided(text: str) -> str:
    """French with its articles before vowels."""
    vowel = "(?=[aeiouyâàéèêëîïôûùœ])"
    text = re.sub(rf"\b([LlDd])[ea] {vowel}", r"\1'", text)
    text = re.sub(rf"\bdu {vowel}", "de l'", text)
    return re.sub(rf"\b([Cc])e {vowel}", r"\1et ", text)


def plural(noun: str) -> str:
    """An English noun in the plural."""
    if re.search("(s|x|z|ch|sh)$", noun):
        return noun + "es"
    return noun[:-1] + "ies" if re.search("[^aeiou]y$", noun) else noun + "s"


def carriers(folder: Path, draw: random.Random) -> Iterator[Pair]:
    """Short sentences over the dictionary, and its entries as they are."""
    features: dict[str, set[str]] = defaultdict(set)
    plurals: dict[str, str] = {}
    for form, lemma, feature in read_rows(folder / "lemmas-fr.tsv.xz"):
        if form == lemma:
            features[form].add(feature)
        elif feature in ("nc:mp", "nc:fp"):
            plurals.setdefault(lemma, form)
    for fr, pos, en, source in read_rows(folder / "dictionary.tsv.xz"):
        if not source.startswith(FREE) or not usable(fr):
            continue
        first = en.split(" | ")[0]
        if not usable(first) or pos == "name":
            continue
        sure = "+" in source
        if sure or " " in fr:
            yield fr, first
        if " " in fr or not sure or first.count(" ") > 1:
            continue
        kinds = ["verb"] if pos == "verb" else ["adj"] if pos == "adj" else []
        kinds += [k for k in ("nc:ms", "nc:fs") if pos == "noun" and k in features[fr]]
        for kind in kinds:
            for fr_line, en_line in draw.sample(CARRIERS[kind], 1):
                line = en_line.format(first)
                line = re.sub(r"\ba (?=[aeio])", "an ", line)
                yield elided(fr_line.format(fr)), line
            if kind.startswith("nc") and fr in plurals:
                fr_line, en_line = draw.choice(CARRIERS["nc:p"])
                yield fr_line.format(plurals[fr]), en_line.format(plural(first))


# Files ------------------------------------------------------------------------------------------


def read_tsv(path: Path) -> Iterator[Pair]:
    """French and English of each line."""
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            fr, en = line.rstrip("\n").split("\t")
            yield fr, en


def spaced(french: str) -> str:
    """French with the blanks that French writes before its marks; the corpora have both ways."""
    french = re.sub(r"(?<=[\w)\]\"'»])\s*([?!;:»])(?=\s|$)", r" \1", french)
    return re.sub(r"(?<=\d)\s?%", " %", re.sub(r"«\s*", "« ", french))


class Job:
    """What every process has."""

    hinter: Hinter
    swap: bool
    folder: Path
    out: Path


def work(task: tuple[str, int, int]) -> tuple[str, int, int, Counter[str]]:
    """Every nth pair of a file, in the direction asked for, with hints."""
    name, part, parts = task
    draw = random.Random(f"{name} {part}")
    if name == "made-carriers":
        pairs: Iterator[Pair] = carriers(Job.folder, draw)
    elif name.startswith("made-numbers"):
        source = Job.folder / f"train{name.removeprefix('made-numbers')}.tsv.xz"
        pairs = (new for fr, en in read_tsv(source) for new in drawn_anew(fr, en, draw))
    else:
        pairs = read_tsv(Job.folder / f"{name}.tsv.xz")
    lines = hints = 0
    counts: Counter[str] = Counter()
    with (Job.out / f"{name}-{part}.tsv").open("w", encoding="utf-8", newline="\n") as file:
        for n, (fr, en) in enumerate(pairs):
            if n % parts != part or not fr or not en:
                continue
            source, target = (en, spaced(fr)) if Job.swap else (fr, en)
            counts.update(words(key(source)))
            hinted, target = Job.hinter.hinted(source, target, draw)
            hints += hinted != source
            lines += 1
            file.write(f"{hinted}\t{target}\n")
    return name, lines, hints, counts


def count_english(path: Path) -> Counter[str]:
    """How often each English word of a file occurs."""
    counts = Counter[str]()
    for _, en in read_tsv(path):
        counts.update(words(key(en)))
    return counts


def main() -> None:
    """Make the files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--languages", nargs=2, default=("fr", "en"))
    parser.add_argument("--counts", required=True, help="words.tsv of the French side")
    parser.add_argument("--files", nargs="+", help="stems; all train-* and what is made by default")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    counts = Counter(WordCounts(Path(args.counts).read_bytes()))
    french = french_entries(args.folder)
    swap = tuple(args.languages) == ("en", "fr")
    forms = french_forms(args.folder, french)
    if swap:
        fr_words = Dictionary(b"", form_lines(forms))
        entries = english_entries(french, counts)
        with ProcessPoolExecutor(args.processes) as pool:
            files = sorted(args.folder.glob("train-*.tsv.xz"), key=lambda f: -f.stat().st_size)
            counts = sum(pool.map(count_english, files), Counter[str]())
        forms = english_forms(entries, counts)
        lemmas: Lemmas = lambda word: set(fr_words.lemmas(word))  # noqa: E731
    else:
        entries, lemmas = french, english_lemmas
    data = {ENTRIES_FILE: entry_lines(entries, counts), FORMS_FILE: form_lines(forms)}
    for name, lines in data.items():
        (args.out / name).write_bytes(lines)
        print(name, len(lines))
    Job.hinter = Hinter(Dictionary(*data.values()), counts, lemmas)
    Job.swap, Job.folder, Job.out = swap, args.folder, args.out
    stems = sorted(f.name.removesuffix(".tsv.xz") for f in args.folder.glob("train-*.tsv.xz"))
    numbers = [
        f"made-numbers{stem.removeprefix('train')}" for stem in stems if "numbers" not in stem
    ]
    names = args.files or [*stems, *numbers, "dictionary-examples", "made-carriers"]
    names.sort(key=lambda name: "europarl" not in name)  # the longest first
    tasks = [
        (n, p, parts)
        for n in names
        for parts in [1 if n.startswith("made-numbers") else 6 if "europarl" in n else 2]
        for p in range(parts)
    ]
    total = Counter[str]()
    with ProcessPoolExecutor(args.processes) as pool:
        for name, count, hints, seen in pool.map(work, tasks):
            total += seen
            print(name, count, hints, flush=True)
    (args.out / WORDS_FILE).write_bytes(write_counts(total))


if __name__ == "__main__":
    main()
