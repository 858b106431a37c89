"""Documents that keep their form: Markdown, HTML, subtitles, Word files, lines of plain text.

A document is passages, which are translated, and marks, which stay: tags, code, time codes. A mark
inside of a passage, such as <b> or a link, stands in its text as a tag of ours: <x0>here</x0>.
"""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from regard.errors import DataError, UsageError, bad_byte
from regard.files import check_places

DOING = "translating a document"
OWN_TAG = re.compile(r"(</?x\d+>)")


class Mark(NamedTuple):
    """What stands in a document and is no text of it."""

    form: Any
    """What is written: a string, items where it holds passages, or something of a Word file."""
    name: str = ""
    """What opens and what closes it have one name; "" does neither."""
    closes: bool = False


@dataclass(eq=False)
class Passage:
    """A stretch of a document that is translated as one text."""

    text: str
    marks: dict[str, Mark]
    """Our tags in the text and what they stand for."""
    lines: list[str]
    """As it was written."""
    indent: str
    """Before each line but the first."""

    def restore(self, answer: str) -> Iterator[str | Mark]:
        """A translation in lines as long as they were, with its marks.

        Where these are not as they were, all stand in front, so that none is lost.
        """
        if len(self.lines) > 1:
            wrap = textwrap.TextWrapper(break_long_words=False, break_on_hyphens=False)
            wrap.width = max(map(len, self.lines))
            if len(wrap.wrap(answer)) > len(self.lines):
                wrap.width = max(wrap.width, len(answer) // len(self.lines) + 8)
            answer = f"\n{self.indent}".join(wrap.wrap(answer))
        parts = OWN_TAG.split(answer)
        open_tags, nested = list[str](), sorted(parts[1::2]) == sorted(self.marks)
        for tag in parts[1::2]:
            if tag.startswith("</"):
                nested = nested and open_tags[-1:] == [f"<{tag[2:]}"]
                del open_tags[-1:]
            elif f"</{tag[1:]}" in self.marks:
                open_tags.append(tag)
        if not nested:
            parts = [*self.marks, " ".join("".join(parts[::2]).split())]
        yield from (self.marks.get(part, part) for part in parts)


Items: TypeAlias = list[str | Mark | Passage]


def gather(items: Iterable[str | Mark], indent: str | None = None) -> Items:
    """Texts and marks as one passage, with the marks and blanks around it."""
    rest = [item for item in items if item]
    partner = pair_marks(rest)

    def is_outside(n: int) -> bool:
        item = rest[n]
        return n not in partner if isinstance(item, Mark) else not item.strip()

    first, end = 0, len(rest)
    while first < end:
        if is_outside(first):
            first += 1
        elif is_outside(end - 1):
            end -= 1
        elif partner.get(first) == first + 1:  # nothing between the two
            first += 2
        elif partner.get(first) == end - 1:
            first, end = first + 1, end - 1
        else:
            break
    text, marks = "", dict[str, Mark]()
    for n, item in enumerate(rest[first:end], first):
        if isinstance(item, Mark):
            opener = min(n, partner.get(n, n))
            tag = f"<x{n}>" if opener == n else f"</x{opener}>"
            marks[tag] = item
        text += tag if isinstance(item, Mark) else item
    inner = text.strip()
    if not any(map(str.isalpha, OWN_TAG.sub("", inner))):
        return [*rest]
    before, _, after = text.partition(inner)
    lines = inner.split("\n")
    if indent is None and len(lines) > 1:
        indent = lines[1][: len(lines[1]) - len(lines[1].lstrip())]
    passage = Passage(" ".join(inner.split()), marks, lines, indent or "")
    return [*rest[:first], before, passage, after, *rest[end:]]


def pair_marks(items: Sequence[str | Mark]) -> dict[int, int]:
    """Marks that open and close the same, both ways; others have no partner."""
    partner, open_marks = dict[int, int](), list[tuple[str, int]]()
    for n, item in enumerate(items):
        if not isinstance(item, Mark) or not item.name:
            continue
        if not item.closes:
            open_marks.append((item.name, n))
            continue
        for at in range(len(open_marks) - 1, -1, -1):
            name, opener = open_marks[at]
            if name == item.name:
                partner |= {n: opener, opener: n}
                del open_marks[at:]
                break
    return partner


def cut_marks(text: str, pattern: re.Pattern[str]) -> Iterator[str | Mark]:
    """A text cut at its marks; the pattern's groups say of which kind each is."""
    at, opened = 0, set[str]()
    for match in pattern.finditer(text):
        kind, written = match.lastgroup, match[0]
        if kind is None:  # a mark that is written for itself: \*
            continue
        yield text[at : match.start()]
        at = match.end()
        if kind == "both":
            yield Mark(written, written, written in opened)
            opened ^= {written}
        elif kind == "link":
            yield Mark(written, "link", written[0] == "]")
        else:
            name = re.match(r"</?(\w+)", written) if kind == "tag" else None
            yield Mark(written, name[1] if name else "", written.startswith("</"))
    yield text[at:]


# Texts --------------------------------------------------------------------------------------------


def read_plain(text: str, name: str) -> Items:
    """Each line is a passage."""
    items: Items = []
    for line in text.splitlines(keepends=True):
        items += gather([line])
    return items


SUBTITLE_MARK = re.compile(r"(?P<tag></?[A-Za-z][^<>]*>)|(?P<code>\{\\[^{}]*\}|<\d[\d:.]*>)")
TIMES = re.compile(r"\s*(?:\d+:)?\d+:\d+[.,]\d+\s+-->\s+(?:\d+:)?\d+:\d+[.,]\d+")
SPEECH = re.compile(r"(?<=\n)(?=\s*[-–—])")  # what another one says begins with a dash


def read_subtitles(text: str, name: str) -> Items:
    """What each cue says is a passage, of a dialogue each line; numbers and times stay."""
    items: Items = []
    number, cues = 1, 0
    for block in re.split(r"(\n(?:[ \t]*\n)+)", text):
        lines = block.split("\n")
        timed = next((n for n, line in enumerate(lines, 1) if TIMES.match(line)), 0)
        if timed:
            cues += 1
            items.append(Mark("".join(f"{line}\n" for line in lines[:timed])))
            for speech in SPEECH.split("\n".join(lines[timed:])):
                said = speech.lstrip(" \t-–—")
                dash = speech[: len(speech) - len(said)]
                items += [Mark(dash), *gather(cut_marks(said, SUBTITLE_MARK))]
        elif block.strip() and not text.startswith("WEBVTT"):  # which has notes and styles too
            problem = f"{name}, line {number}: {lines[0][:40]!r}"
            raise DataError(DOING, problem, "a number and a line 00:00:01,000 --> 00:00:02,000")
        else:
            items.append(Mark(block))
        number += len(lines) - 1
    if not cues:
        raise DataError(DOING, f"{name} has no times", "lines 00:00:01,000 --> 00:00:02,000")
    return items


MARKDOWN_MARK = re.compile(
    r"\\[^\w\s]"
    r"|(?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|<(?:https?|mailto):[^<>]*>"
    r"|\[\^[^\]]+\]|!\[\]\([^()]*\)|\A\[[ xX]\])"
    r"|(?P<tag></?[A-Za-z][^<>]*>)"
    r"|(?P<link>!?\[(?=(?:!\[[^\[\]]*\]\([^()]*\)|[^\[\]])*\][(\[])"
    r"|\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\[\]]*\]))"
    r"|(?P<both>(?:\*{1,3}+|~~)(?!\s)|(?<!\s)(?:\*{1,3}+|~~)|(?<!\w)__?(?=\S)|(?<=\S)__?(?!\w))",
    re.DOTALL,
)
FRONT_MATTER = re.compile(r"---\n.*?\n(?:---|\.\.\.)\n", re.DOTALL)


def read_markdown(text: str, name: str) -> Items:
    """Paragraphs, headings, items of lists and cells of tables are passages; code stays."""
    from markdown_it import MarkdownIt

    front = FRONT_MATTER.match(text)
    at = front.end() if front else 0
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text[at:])
    starts = [at]
    for line in text[at:].split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    items: Items = [Mark(text[:at])]
    for token in parsed:
        if token.type != "inline" or token.map is None:
            continue
        spans = list[tuple[int, int]]()
        for number, line in enumerate(token.content.split("\n"), token.map[0]):
            start = text.find(line.strip(), max(at, starts[number]), starts[number + 1])
            if start >= 0:  # a cell with an escaped bar is written otherwise
                spans.append((start, start + len(line.strip())))
        while spans:
            breaks = (n for n, (_, end) in enumerate(spans, 1) if text[end : end + 2] == "  ")
            size = next(breaks, len(spans))
            (start, _), (_, end) = spans[0], spans[size - 1]
            second = spans[1][0] if size > 1 else 0
            joined = "\n".join(text[slice(*span)] for span in spans[:size])
            indent = text[text.rfind("\n", 0, second) + 1 : second]
            items += [Mark(text[at:start]), *gather(cut_marks(joined, MARKDOWN_MARK), indent)]
            at, spans = end, spans[size:]
    return [*items, Mark(text[at:])]


PAGE_MARK = re.compile(
    r"<!--.*?-->|<[!?][^>]*>|</?([A-Za-z][\w:-]*)(?:[^<>\"']|\"[^\"]*\"|'[^']*')*+>", re.DOTALL
)
INLINE = frozenset(
    "a abbr b bdi bdo big cite code del dfn em font i img ins kbd label mark q s samp small "
    "span strike strong sub sup time tt u var wbr".split()
)
UNTOUCHED = frozenset("code kbd math pre samp script style svg template textarea var".split())
NO_TRANSLATION = re.compile(r"\stranslate\s*=\s*[\"']?no\b", re.IGNORECASE)
ATTRIBUTE = re.compile(
    r"(?<=\s)(?:alt|title|placeholder|aria-label)\s*=\s*([\"'])(?P<value>.*?)\1",
    re.DOTALL | re.IGNORECASE,
)


def read_page(text: str, name: str) -> Items:
    """What stands between tags of blocks is a passage; titles and texts for pictures are too."""
    items: Items = []
    inline = list[str | Mark]()
    at = 0

    def fail(start: int, problem: str, expected: str) -> DataError:
        line = text.count("\n", 0, start) + 1
        return DataError(DOING, f"{name}, line {line}: {problem}", expected)

    while at < len(text):
        match = PAGE_MARK.search(text, at)
        start, end = match.span() if match else (len(text), len(text))
        if broken := re.search(r"<[/A-Za-z!]", text[at:start]):
            shown = text[at + broken.start() :].split("\n")[0][:40]
            raise fail(at + broken.start(), f"a tag without end: {shown}", "a > after each <")
        inline.append(html.unescape(text[at:start]))
        if match is None:
            break
        tag, written, at = (match[1] or "").lower(), match[0], end
        closes = written.startswith("</")
        if not closes and (tag in UNTOUCHED or NO_TRANSLATION.search(written)):
            depth = 0 if written.endswith("/>") else 1
            both = re.compile(rf"<(/?){tag}\b[^>]*>", re.IGNORECASE)
            while depth:
                other = both.search(text, at)
                if other is None:
                    raise fail(start, f"<{tag}> is never closed", f"</{tag}>")
                at, depth = other.end(), depth + (-1 if other[1] else 1)
            mark = Mark(text[start:at])
        else:
            mark = Mark(read_attributes(written), tag, closes)
        if tag and tag not in INLINE:
            items += [*gather(inline), mark]
            inline = []
        else:
            inline.append(mark)
    return [*items, *gather(inline)]


def read_attributes(tag: str) -> str | Items:
    """A tag as it is written or, where attributes are read by people, its items."""
    items: Items = []
    at = 0
    for match in ATTRIBUTE.finditer(tag):
        start, end = match.span("value")
        items += [Mark(tag[at:start]), *gather([html.unescape(tag[start:end])])]
        at = end
    return [*items, Mark(tag[at:])] if items else tag


class TextDocument:
    """A document that is a text."""

    def __init__(self, text: str, name: str, suffix: str) -> None:
        read, self.escape = READERS.get(suffix, (read_plain, str))
        self.bom = "\ufeff" if text.startswith("\ufeff") else ""
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.items = read(text.removeprefix(self.bom).replace("\r\n", "\n"), name)
        self.passages = list(find_passages(self.items))

    def write(self, answers: Mapping[Passage, str]) -> bytes:
        """The document with translations instead of its passages."""
        text = "".join(write_items(self.items, answers, self.escape))
        return (self.bom + text.replace("\n", self.newline)).encode()


def find_passages(items: Iterable[str | Mark | Passage]) -> Iterator[Passage]:
    """All passages, also those inside of marks."""
    for item in items:
        if isinstance(item, Passage):
            yield item
            yield from find_passages(item.marks.values())
        elif isinstance(item, Mark) and isinstance(item.form, list):
            yield from find_passages(item.form)


def write_items(
    items: Iterable[str | Mark | Passage],
    answers: Mapping[Passage, str],
    escape: Callable[[str], str],
) -> Iterator[str]:
    """What stands in the document."""
    for item in items:
        if isinstance(item, Passage):
            yield from write_items(item.restore(answers[item]), answers, escape)
        elif isinstance(item, str):
            yield escape(item)
        elif isinstance(item.form, list):  # of a tag: quotes are escaped too
            yield from write_items(item.form, answers, html.escape)
        else:
            yield item.form


# Word files ---------------------------------------------------------------------------------------

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
WORD_TEXTS = re.compile(r"/word/(?:document|header\d*|footer\d*)\.xml")
UNSEEN = (f"{WORD}rPr", f"{WORD}lastRenderedPageBreak", f"{WORD}softHyphen")
SPELT = {f"{WORD}t": "", f"{WORD}noBreakHyphen": "-"}
CONTAINERS = (f"{WORD}hyperlink", f"{WORD}ins", f"{WORD}smartTag")


class WordDocument:
    """A Word file; each paragraph is a passage, runs of another form than most of it are marked."""

    def __init__(self, data: bytes, name: str) -> None:
        try:
            import docx
        except ImportError:
            wrong, fix = "python-docx is not installed", "pip install regard[docx]"
            raise UsageError(DOING, wrong, "what reads Word files", fix) from None
        try:
            self.file = docx.Document(io.BytesIO(data))
        except Exception as error:  # of a zip, of XML, or of the library, for lack of a part
            problem = f"{name} is no Word file: {type(error).__name__}: {error}"
            raise DataError(DOING, problem, "a .docx file, a zip archive of XML") from None
        self.paragraphs = dict[Any, Items]()
        for part in self.file.part.package.iter_parts():
            if WORD_TEXTS.fullmatch(str(part.partname)):
                self.paragraphs |= {p: read_paragraph(p) for p in part.element.iter(f"{WORD}p")}
        listed = (find_passages(items) for items in self.paragraphs.values())
        self.passages = [passage for each in listed for passage in each]

    def write(self, answers: Mapping[Passage, str]) -> bytes:
        """The file with translations instead of its passages."""
        for paragraph, items in self.paragraphs.items():
            if any(isinstance(item, Passage) for item in items):
                write_paragraph(paragraph, items, answers)
        data = io.BytesIO()
        self.file.save(data)
        return data.getvalue()


class RunForm(NamedTuple):
    """What runs share: the paragraph or the link that they stand in, and their properties."""

    parent: Any
    properties: bytes


def paragraph_runs(paragraph: Any) -> list[Any]:
    """The runs of a paragraph and of links in it, not of text boxes."""
    direct = [child for child in paragraph if child.tag in (f"{WORD}r", *CONTAINERS)]
    runs = (child.findall(f"{WORD}r") if child.tag in CONTAINERS else [child] for child in direct)
    return [run for each in runs for run in each]


def read_paragraph(paragraph: Any) -> Items:
    """Its text as a passage, and what else stands in it; the form of most of it comes first."""
    from lxml import etree

    def form_of(run: Any) -> RunForm:
        properties = run.find(f"{WORD}rPr")
        return RunForm(run.getparent(), b"" if properties is None else etree.tostring(properties))

    runs = paragraph_runs(paragraph)
    letters = Counter[RunForm]()
    for run in runs:
        letters[form_of(run)] += sum(len(text.text or "") for text in run.findall(f"{WORD}t"))
    if not letters:
        return []
    usual = max(letters, key=lambda form: (form.parent is paragraph, letters[form]))
    items = list[str | Mark]([Mark(usual)])
    for number, (form, group) in enumerate(groupby(runs, form_of)):
        inner = list[str | Mark]()
        for child in (child for run in group for child in run):
            if child.tag in SPELT:
                inner.append(SPELT[child.tag] or child.text or "")
            elif child.tag not in UNSEEN:
                inner.append(Mark(child))
        if form != usual:
            inner = [Mark(form, str(number)), *inner, Mark(usual, str(number), True)]
        items += inner
    return gather(items)


def write_paragraph(paragraph: Any, items: Items, answers: Mapping[Passage, str]) -> None:
    """Put the translation into a paragraph, as runs of the forms that were there."""
    from lxml import etree

    runs = paragraph_runs(paragraph)
    parents = [run.getparent() for run in runs]
    at = paragraph.index(runs[0] if parents[0] is paragraph else parents[0])
    for run, parent in zip(runs, parents, strict=True):
        parent.remove(run)
        if parent is not paragraph and not len(parent):
            paragraph.remove(parent)
    parts = (item.restore(answers[item]) if isinstance(item, Passage) else [item] for item in items)
    new, place = list[Any](), list[Any]()
    for part in (part for each in parts for part in each if part):
        if isinstance(part, Mark) and isinstance(part.form, RunForm):
            parent, properties = part.form
            place = new
            if parent is not paragraph:
                place = parent.makeelement(parent.tag, dict(parent.attrib), parent.nsmap)
                new.append(place)
            continue
        run = etree.fromstring(f'<w:r xmlns:w="{WORD[1:-1]}"/>')
        if properties:
            run.append(etree.fromstring(properties))
        if isinstance(part, Mark):
            run.append(part.form)
        else:
            run.append(run.makeelement(f"{WORD}t", {XML_SPACE: "preserve"}))
            run[-1].text = part
        place.append(run)
    paragraph[at:at] = new


# Files --------------------------------------------------------------------------------------------


def escape_text(text: str) -> str:
    """A text between tags; models that read pages in training may write &amp; themselves."""
    return html.escape(html.unescape(text), quote=False)


READERS: dict[str, tuple[Callable[[str, str], Items], Callable[[str], str]]] = {
    ".html": (read_page, escape_text),
    ".htm": (read_page, escape_text),
    ".md": (read_markdown, str),
    ".markdown": (read_markdown, str),
    ".srt": (read_subtitles, str),
    ".vtt": (read_subtitles, str),
}
FORMATS = (".docx", *READERS)
"""What files with a form of their own end with; others are lines of text."""


def open_document(file: Path, out: Path | None) -> TextDocument | WordDocument:
    """A document, and a check that it can be written."""
    suffix = file.suffix.lower()
    if out is None and suffix == ".docx":
        raise UsageError(DOING, f"{file} would go to the terminal", "a new file as --out")
    if out is not None:
        check_places(out)
        if out.exists():
            raise UsageError(DOING, f"{out} is there already", "a new file as --out")
        if suffix in FORMATS and out.suffix.lower() != suffix:
            raise UsageError(DOING, f"{file} as {out}", f"an --out that ends in {suffix}")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataError(DOING, f"{file}: {error.strerror or error}", "a file") from None
    if suffix == ".docx":
        return WordDocument(data, str(file))
    try:
        return TextDocument(data.decode(), str(file), suffix)
    except UnicodeDecodeError as error:
        expected = f"UTF-8 text, or one of {' '.join(FORMATS)}"
        raise DataError(DOING, f"{file}: {bad_byte(error)}", expected) from None
