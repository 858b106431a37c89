"""Documents that keep their form: Markdown, HTML, subtitles, Word files, lines of plain text.

A document is passages, which are translated, and marks, which stay: tags, code, time codes. A mark
inside of a passage, such as <b> or a link, stands in its text as a tag of ours: <x0>here</x0>.
"""

from __future__ import annotations

import html
import io
import re
import textwrap
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from regard.errors import DataError, UsageError, bad_byte
from regard.files import check_places, write_whole
from regard.translation.results import TranslatedDocument

DOING = "translating a document"
MOST_BYTES = 1 << 30  # of a Word file that is unpacked: a small one may hold any size
OWN_TAG = re.compile(r"(</?x\d+>)")
LAST_TAG = re.compile(r"</?x\d+>\Z")


class Markup(NamedTuple):
    """What stands in a document and is no text of it."""

    form: str | Items
    """As it is written; items where there are passages in it."""
    name: str = ""
    """What opens and what closes have one name; "" does neither."""
    closes: bool = False


@dataclass(eq=False)
class Passage:
    """A stretch of a document that is translated as one text."""

    text: str
    marks: dict[str, Markup]
    """Our tags in the text and what they stand for."""
    lines: list[str]
    """As it was written."""
    indent: str
    """Before each line but the first."""

    def restore(self, answer: str) -> list[str | Markup]:
        """A translation in lines as long as they were, with its marks.

        Where these are not as they were, all stand in front, so that none is lost.
        """
        if len(self.lines) > 1:
            width = max(*map(len, self.lines), len(answer) // len(self.lines) + 8)
            lines = textwrap.wrap(answer, width, break_long_words=False, break_on_hyphens=False)
            answer = f"\n{self.indent}".join(lines)
        parts = OWN_TAG.split(answer)
        tags = parts[1::2]
        pairs, rest = None, "".join(tag for tag in tags if tag[1] == "/" or closing(tag) in tags)
        while pairs != rest:
            pairs, rest = rest, re.sub(r"<(x\d+)></\1>", "", rest)
        if rest or sorted(tags) != sorted(self.marks):
            parts = [*self.marks, " ".join("".join(parts[::2]).split())]
        return [self.marks.get(part, part) for part in parts]


Items: TypeAlias = list[str | Markup | Passage]


def closing(tag: str) -> str:
    """The tag that closes what this one opens."""
    return f"</{tag[1:]}"


def gather(items: Sequence[str | Markup], indent: str | None = None) -> Items:
    """Texts and marks as one passage, with the marks and blanks around it."""
    text, marks, opened = "", dict[str, Markup](), list[tuple[str, str]]()
    for n, item in enumerate(items):
        tag = f"<x{n}>"
        if isinstance(item, Markup):
            if not item.closes:
                opened.append((item.name, tag))
            elif same := [at for at, (name, _) in enumerate(opened) if name == item.name]:
                tag = closing(opened[same[-1]][1])
                del opened[same[-1] :]
            marks[tag] = item
        text += tag if isinstance(item, Markup) else item
    if not any(map(str.isalpha, OWN_TAG.sub("", text))):
        return [*items]
    start, end = 0, len(text)
    while True:
        start, end = end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip())
        first, last = OWN_TAG.match(text, start, end), LAST_TAG.search(text, start, end)
        if first and closing(first[0]) not in marks:
            start = first.end()
        elif last and last[0][1] == "x" and closing(last[0]) not in marks:
            end = last.start()
        elif first and last and last[0] == closing(first[0]):
            start, end = first.end(), last.start()
        else:
            break
    lines = text[start:end].split("\n")
    if indent is None:
        indent = lines[-1][: len(lines[-1]) - len(lines[-1].lstrip())]
    before, inner, after = (OWN_TAG.split(t) for t in (text[:start], text[start:end], text[end:]))
    own = {tag: marks[tag] for tag in inner[1::2]}
    passage = Passage(" ".join(text[start:end].split()), own, lines, indent)
    left, right = ([marks.get(part, part) for part in side] for side in (before, after))
    return [*left, passage, *right]


def cut_marks(text: str, pattern: re.Pattern[str]) -> list[str | Markup]:
    """A text cut at its marks; the pattern's groups say of which kind each is."""
    items, at, opened = list[str | Markup](), 0, set[str]()
    for match in pattern.finditer(text):
        kind, written = match.lastgroup, match[0]
        if kind is None:  # a mark that stands for itself: \*
            continue
        items.append(text[at : match.start()])
        at = match.end()
        tag = re.findall(r"\w+", written)[0] if kind == "tag" else ""
        name = {"both": written, "link": "link"}.get(kind, tag)
        items.append(Markup(written, name, written in opened or written.startswith(("</", "]"))))
        opened ^= {written} if kind == "both" else set()
    return [*items, text[at:]]


# Forms --------------------------------------------------------------------------------------------


def read_plain(text: str, name: str) -> Items:
    """Each line is a passage."""
    return [item for line in text.splitlines(keepends=True) for item in gather([line])]


SUBTITLE_MARK = re.compile(r"(?P<tag></?[A-Za-z][^<>]*>)|(?P<code>\{\\[^{}]*\}|<\d[\d:.]*>)")
TIMES = re.compile(r"^[ \t]*(?:\d+:)?\d+:\d+[.,]\d+[ \t]+-->.*\n?", re.MULTILINE)
SPEECH = re.compile(r"(?:\A|(?<=\n))(?=[ \t]*[-–—])")  # in a dialogue: who speaks next


def read_subtitles(text: str, name: str) -> Items:
    """What each cue says is a passage, of a dialogue each line; numbers and times stay."""
    items: Items = []
    line, notes = 1, text.startswith("WEBVTT") and "-->" in text  # which has blocks without times
    for block in re.split(r"(\n(?:[ \t]*\n)+)", text):
        times = TIMES.search(block)
        if times is None and block.strip() and not notes:
            problem = f"{name}, line {line}: {block.strip()[:40]!r} without a time"
            raise DataError(DOING, problem, "a line 00:00:01,000 --> 00:00:02,000 before each text")
        at = times.end() if times else len(block)
        items.append(Markup(block[:at]))
        for speech in SPEECH.split(block[at:]):
            said = speech.lstrip(" \t-–—")
            items += [Markup(speech.removesuffix(said)), *gather(cut_marks(said, SUBTITLE_MARK))]
        line += block.count("\n")
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
FRONT_MATTER = re.compile(r"(?:---\n.*?\n(?:---|\.\.\.)\n)?", re.DOTALL)


def read_markdown(text: str, name: str) -> Items:
    """Paragraphs, headings, items of lists and cells of tables are passages; code stays."""
    from markdown_it import MarkdownIt

    front = FRONT_MATTER.match(text)
    at = front.end() if front else 0
    starts = [at, *(at + match.end() for match in re.finditer("\n|$", text[at:]))]
    items: Items = [Markup(text[:at])]
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text[at:]):
        first = token.map[0] if token.type == "inline" and token.map else -1
        spans = list[tuple[int, int]]()
        for number, line in enumerate(token.content.split("\n") if first >= 0 else [], first):
            start = text.find(line.strip(), max(at, starts[number]), starts[number + 1])
            if start >= 0:  # a cell with an escaped bar is written otherwise
                spans.append((start, start + len(line.strip())))
        while spans:
            breaks = (n for n, (_, end) in enumerate(spans, 1) if text[end : end + 2] == "  ")
            size = next(breaks, len(spans))
            before, second = spans[0][0], spans[min(1, size - 1)][0]
            joined = "\n".join(text[slice(*span)] for span in spans[:size])
            indent = text[text.rfind("\n", 0, second) + 1 : second]
            items += [Markup(text[at:before]), *gather(cut_marks(joined, MARKDOWN_MARK), indent)]
            at, spans = spans[size - 1][1], spans[size:]
    return [*items, Markup(text[at:])]


PAGE_MARK = re.compile(
    r"<!--.*?-->|<[!?][^>]*>|</?([A-Za-z][\w:-]*)(?:[^<>\"']|\"[^\"]*\"|'[^']*')*+>", re.DOTALL
)
INLINE = frozenset(
    "a abbr b bdi bdo big cite code del dfn em font i img ins kbd label mark q s samp small span "
    "strike strong sub sup time tt u var wbr".split()
)
UNTOUCHED = frozenset("code kbd math pre samp script style svg template textarea var".split())
ATTRIBUTE = re.compile(
    r"(\s(?:alt|title|placeholder|aria-label)\s*=\s*(?:\"(?=[^\"]*\")|'(?=[^']*')))", re.IGNORECASE
)


def read_page(text: str, name: str) -> Items:
    """What stands between tags of blocks is a passage; titles and texts for pictures are too."""
    items: Items = []
    inline = list[str | Markup]()
    at = 0

    def fail(start: int, problem: str, expected: str) -> DataError:
        line = text.count("\n", 0, start) + 1
        return DataError(DOING, f"{name}, line {line}: {problem}", expected)

    while match := PAGE_MARK.search(text, at):
        inline.append(html.unescape(text[at : match.start()]))
        written, tag, at = match[0], (match[1] or "").lower(), match.end()
        mark = Markup(read_attributes(written), tag, written.startswith("</"))
        kept = tag in UNTOUCHED or re.search(r"\stranslate=[\"']?no\b", written)
        depth = 0 if mark.closes or written.endswith("/>") or not kept else 1
        while depth:
            other = re.compile(rf"<(/?){tag}\b[^>]*>", re.IGNORECASE).search(text, at)
            if other is None:
                raise fail(match.start(), f"<{tag}> is never closed", f"</{tag}>")
            at, depth = other.end(), depth + (-1 if other[1] else 1)
            mark = Markup(text[match.start() : at])
        if tag in INLINE or not tag:
            inline.append(mark)
        else:
            items += [*gather(inline), mark]
            inline = []
    if broken := re.compile(r"<[/A-Za-z!].{0,40}").search(text, at):
        raise fail(broken.start(), f"a tag without end: {broken[0]}", "a > after each <")
    return [*items, *gather([*inline, html.unescape(text[at:])])]


def read_attributes(tag: str) -> str | Items:
    """A tag as it is written or, where attributes are read by people, its items."""
    first, *rest = ATTRIBUTE.split(tag)
    items: Items = [Markup(first)]
    for begin, after in zip(rest[::2], rest[1::2], strict=True):
        value, quote, end = after.partition(begin[-1])
        items += [Markup(begin), *gather([html.unescape(value)]), Markup(quote + end)]
    return items if rest else tag


WORD_PART = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
WORD_TEXT = re.compile(r"<w:t(?:\s[^<>]*)?(?<!/)>([^<]*)(?=</w:t>)")
PARAGRAPH = re.compile(r"</?w:p[ >]")
UNSEEN = re.compile(r"<w:(?:lang|noProof|proofErr|lastRenderedPageBreak|bookmark\w+)\b[^<>]*>")
"""What Word writes for itself."""
NEW_RUN = re.compile(r"</w:t></w:r><w:r(?:\s[^<>]*)?>(?:<w:rPr>(.*?)</w:rPr>)?", re.DOTALL)


def read_word(text: str, name: str) -> Items:
    """Each paragraph of a part of a Word file is a passage; a run of another style is marked."""
    items: Items = []
    inline, usual, style = list[str | Markup](), "", ""
    parts = WORD_TEXT.split(text)
    for before, written in zip(parts[::2], [*parts[1::2], ""], strict=True):
        mark = Markup(f'{before}<w:t xml:space="preserve">' if written else before)
        run = NEW_RUN.fullmatch(UNSEEN.sub("", before))
        link = re.search(r"<(/?)w:hyperlink\b", before)
        styles = re.findall(r"<w:r(?:\s[^<>]*)?>(?:<w:rPr>(.*?)</w:rPr>)?", before, re.DOTALL)
        style, last = UNSEEN.sub("", styles[-1]) if styles else style, style
        if PARAGRAPH.search(before) or not written:
            items += [*gather(inline), mark]
            inline, usual = [], style
        elif link:
            inline.append(mark._replace(name="link", closes=bool(link[1])))
        elif run is None or usual not in (style, last):
            inline.append(mark)
        elif style != last:
            inline.append(mark._replace(name=style + last, closes=style == usual))
        inline.append(html.unescape(written))
    return [*items, *inline]


# Files --------------------------------------------------------------------------------------------

READERS = {
    ".html": read_page,
    ".htm": read_page,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".srt": read_subtitles,
    ".vtt": read_subtitles,
    ".docx": read_word,
}
"""What reads files that end so; others are lines of text."""


class DocumentFile:
    """A document, and where its translation is to go."""

    def __init__(self, file: Path, out: Path | None) -> None:
        self.file, self.out, self.suffix = file, out, file.suffix.lower()
        same = out is None or self.suffix not in READERS or out.suffix.lower() == self.suffix
        if not same or (out is None and self.suffix == ".docx"):
            expected = f"a new file that ends in {self.suffix} as --out"
            raise UsageError(DOING, f"{file} to {out or 'the terminal'}", expected)
        check_places(out)
        if out is not None and out.exists():
            raise UsageError(DOING, f"{out} is there already", "a new file as --out")
        try:
            raw = {"": file.read_bytes()}
            if self.suffix == ".docx":
                with zipfile.ZipFile(file) as archive:
                    if (size := sum(i.file_size for i in archive.infolist())) > MOST_BYTES:
                        raise zipfile.BadZipFile(f"{size:,} bytes, more than {MOST_BYTES:,}")
                    raw = {n: archive.read(n) for n in archive.namelist() if WORD_PART.fullmatch(n)}
                    archive.getinfo("word/document.xml")
            texts = {name: data.decode("utf-8-sig") for name, data in raw.items()}
        except OSError as error:
            raise DataError(DOING, f"{file}: {error.strerror or error}", "a file") from None
        except UnicodeDecodeError as error:
            expected = f"UTF-8 text, or one of {' '.join(READERS)}"
            raise DataError(DOING, f"{file}: {bad_byte(error)}", expected) from None
        except (zipfile.BadZipFile, zlib.error, KeyError, RuntimeError) as error:
            expected = "a zip archive as Word writes it"
            raise DataError(DOING, f"{file} is no Word file: {error}", expected) from None
        self.newline = "\r\n" if any("\r\n" in text for text in texts.values()) else "\n"
        read = READERS.get(self.suffix, read_plain)
        self.parts = {
            name: read(text.replace("\r\n", "\n"), str(file)) for name, text in texts.items()
        }
        """The items of the text; of a Word file those of each text in it."""
        self.passages = [p for items in self.parts.values() for p in find_passages(items)]

    def write(self, texts: Iterable[str]) -> TranslatedDocument:
        """The document with translations of its passages, in the new file or as a text."""
        answers = dict(zip(self.passages, texts, strict=True))
        copied = sum(passage.text == answer for passage, answer in answers.items())
        escape = escape_text if self.suffix in (".html", ".htm", ".docx") else str
        written = {
            name: "".join(write_items(items, answers, escape)).replace("\n", self.newline)
            for name, items in self.parts.items()
        }
        count = len(answers)
        if self.out is None:
            return TranslatedDocument(str(self.file), None, count, copied, written[""])
        data = written.get("", "").encode()
        if self.suffix == ".docx":
            stream = io.BytesIO()
            with zipfile.ZipFile(self.file) as old, zipfile.ZipFile(stream, "w") as new:
                for info in old.infolist():
                    new.writestr(info, written.get(info.filename, old.read(info)))
            data = stream.getvalue()
        write_whole(self.out, data)
        return TranslatedDocument(str(self.file), str(self.out), count, copied)


def find_passages(items: Iterable[str | Markup | Passage]) -> Iterator[Passage]:
    """All passages, also those inside of marks."""
    for item in items:
        if isinstance(item, Passage):
            yield item
            yield from find_passages(item.marks.values())
        elif isinstance(item, Markup) and not isinstance(item.form, str):
            yield from find_passages(item.form)


def write_items(
    items: Iterable[str | Markup | Passage],
    answers: Mapping[Passage, str],
    escape: Callable[[str], str],
) -> Iterator[str]:
    """What stands in the document."""
    for item in items:
        if isinstance(item, Passage):
            yield from write_items(item.restore(answers[item]), answers, escape)
        elif isinstance(item, str):
            yield escape(item)
        elif isinstance(item.form, str):
            yield item.form
        else:  # a tag, in whose attributes quotes are escaped too
            yield from write_items(item.form, answers, html.escape)


def escape_text(text: str) -> str:
    """A text between tags; models that saw pages in training may write &amp; themselves."""
    return html.escape(html.unescape(text), quote=False)
