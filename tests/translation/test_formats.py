"""Documents keep their form: only passages change, and what cannot be read is said."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.translation import formats
from regard.translation.formats import DocumentFile

PAGE = """<!DOCTYPE html>
<html><head><title>Un &amp; deux</title><style>p { color: red }</style>
<script>var a = "<p>ici</p>";</script></head><body><!-- note -->
<h1 class="a">Été</h1>
<p>Le <b>chat</b> dort sur <a href="x?a=1&amp;b=2" title="Le &quot;nom&quot;">le lit</a>. <img
 src=a.png alt='Une image'> Et &lt;là&gt;.</p>
<ul><li>Un<li>Deux <code>trois mots</code> quatre</ul>
<pre>pas <b>touché</b></pre><p>Un<br/>Deux</p><p translate="no">nom <p>et</p></p>
<input placeholder="Votre nom"> 2020
</body></html>
"""
MARKDOWN = """---
title: Bonjour
---
# Le **grand** titre #

Un [lien vers *la* page](https://x.fr/a_b(c) "titre") et du `code en ligne`,
qui va sur une autre ligne.  
Après un saut \\*voulu\\*.

- Un point
- [ ] Une image ![un chat](img.png)
  qui continue
  1. Dessous

> Une citation bien longue qui va
> sur deux lignes.

| Nom | Âge |
|-----|----:|
| Le chat | 3 |

```python
print("Bonjour")
```

    code

Un <span class="x">mot</span>, 2 * 3 = 6, un_nom_long, [ici][ref] et une note[^1].

[ref]: https://x.fr "Titre"
"""
SUBTITLES = """1
00:00:01,000 --> 00:00:02,000
<i>Le chat dort</i>
sur le lit.

2
00:00:03,000 --> 00:00:04,500
- Bonjour.
- {\\an8}Salut !
"""
CUES = """WEBVTT - titre

NOTE une note

STYLE
::cue { color: red }

nom
00:01.000 --> 00:02.000 align:start
<v Tom>Bonjour les amis.
"""


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Opens a text as a file that ends so."""

    def open_text(text: str, suffix: str) -> DocumentFile:
        file = tmp_path / f"x{suffix}"
        file.write_bytes(text.encode())
        return DocumentFile(file, None)

    return open_text


def shout(document: DocumentFile) -> str | None:
    """The document with capitals instead of translations; our own tags stay."""
    answers = []
    for passage in document.passages:
        text = passage.text.upper()
        for tag in passage.marks:
            text = text.replace(tag.upper(), tag)
        answers.append(text)
    return document.write(answers).text


@pytest.mark.parametrize(
    ("text", "suffix"),
    [(PAGE, ".html"), (MARKDOWN, ".md"), (SUBTITLES, ".srt"), (CUES, ".vtt"), (" a\n\nb\t\nc", "")],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_document_with_its_own_passages_is_itself(
    read: Any, text: str, suffix: str, newline: str
) -> None:
    whole = text.replace("\n", newline)
    document = read(whole, suffix)
    assert document.write([passage.text for passage in document.passages]).text == whole
    document = read(f"\ufeff{whole}", suffix)
    assert document.write([passage.text for passage in document.passages]).text == whole


def test_of_a_page_only_what_people_read_changes(read: Any) -> None:
    assert shout(read(PAGE, ".html")) == (
        PAGE.replace("Un &amp; deux", "UN &amp; DEUX")
        .replace(">Été<", ">ÉTÉ<")
        .replace("Le <b>chat</b> dort sur", "LE <b>CHAT</b> DORT SUR")
        .replace("Le &quot;nom&quot;", "LE &quot;NOM&quot;")
        .replace("le lit", "LE LIT")
        .replace("Une image", "UNE IMAGE")
        .replace("Et &lt;là&gt;", "ET &lt;LÀ&gt;")
        .replace("<li>Un<li>Deux", "<li>UN<li>DEUX")
        .replace("quatre", "QUATRE")
        .replace(">Un<br/>Deux<", ">UN<br/>DEUX<")
        .replace("Votre nom", "VOTRE NOM")
    )


def test_of_markdown_only_words_change(read: Any) -> None:
    lines = str(shout(read(MARKDOWN, ".md"))).split("\n")
    assert lines[:4] == ["---", "title: Bonjour", "---", "# LE **GRAND** TITRE #"]
    assert lines[5:8] == [
        'UN [LIEN VERS *LA* PAGE](https://x.fr/a_b(c) "titre") ET DU `code en ligne`,',
        "QUI VA SUR UNE AUTRE LIGNE.  ",
        "APRÈS UN SAUT \\*VOULU\\*.",
    ]
    assert lines[9:13] == [
        "- UN POINT",
        "- [ ] UNE IMAGE ![UN CHAT](img.png)",
        "  QUI CONTINUE",
        "  1. DESSOUS",
    ]
    assert lines[14:20] == [
        "> UNE CITATION BIEN LONGUE QUI VA",
        "> SUR DEUX LIGNES.",
        "",
        "| NOM | ÂGE |",
        "|-----|----:|",
        "| LE CHAT | 3 |",
    ]
    assert lines[21:24] == ["```python", 'print("Bonjour")', "```"] and lines[25] == "    code"
    last = 'UN <span class="x">MOT</span>, 2 * 3 = 6, UN_NOM_LONG, [ICI][ref] ET UNE NOTE[^1].'
    assert lines[27:] == [last, "", '[ref]: https://x.fr "Titre"', ""]


def test_of_subtitles_only_what_is_said_changes(read: Any) -> None:
    document = read(SUBTITLES, ".srt")
    said = [passage.text for passage in document.passages]
    assert said == ["<x1>Le chat dort</x1> sur le lit.", "Bonjour.", "Salut !"]
    written = str(shout(document))
    assert "- {\\an8}SALUT !\n" in written and "00:00:03,000 --> " in written
    loud = CUES.replace("Bonjour les amis.", "BONJOUR LES AMIS.")
    assert shout(read(CUES, ".vtt")) == loud


def test_a_cue_is_one_text_and_has_no_more_lines_than_before(read: Any) -> None:
    document = read("1\n00:01:00,0 --> 00:01:01,0\nOui\nbien sûr\n", ".srt")
    written = document.write(["Yes, of course, without any doubt"]).text
    assert written.split("\n")[2:] == ["Yes, of course, without", "any doubt", ""]


@pytest.mark.parametrize(
    "answer", ["cat", "<x1>cat", "</x1>cat<x1>", "<x1>cat</x1><x1>", "<x9>cat</x9>"]
)
def test_marks_that_a_translation_lost_stand_before_it(read: Any, answer: str) -> None:
    document = read("<p>Le <b>chat</b> dort</p>", ".html")
    assert document.passages[0].text == "Le <x1>chat</x1> dort"
    assert document.write([answer]).text == "<p><b></b>cat</p>"


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("x.html", b"<p>\n<b", "line 2: a tag without end: <b"),
        ("x.html", b"<p>a\n\n<script>b", "line 3: <script> is never closed"),
        ("x.srt", b"1\n00:00:01,000 --> 00:00:02,000\nOui\n\nNon\n", "line 5: 'Non'"),
        ("x.vtt", b"WEBVTT\n\nBonjour\n", "line 1: 'WEBVTT' without a time"),
        ("x.docx", b"PK no zip", "is no Word file: File is not a zip file"),
        ("x.md", b"ab\xff", "byte 2 (0xff) is not UTF-8"),
        ("x.pdf", b"%PDF \xe2", "byte 5 (0xe2) is not UTF-8"),
        ("nowhere.md", None, "No such file"),
    ],
)
def test_what_cannot_be_read_is_said(
    tmp_path: Path, name: str, data: bytes | None, problem: str
) -> None:
    file = tmp_path / name
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(DataError) as caught:
        DocumentFile(file, tmp_path / f"new{file.suffix}")
    assert name in caught.value.found and problem in caught.value.found


def test_nothing_is_written_over_or_in_another_form(tmp_path: Path) -> None:
    source, there = tmp_path / "a.md", tmp_path / "there.md"
    source.write_text("Bonjour.")
    there.write_text("mine")
    for out, problem in ((there, "there already"), (tmp_path / "b.html", "b.html")):
        with pytest.raises(UsageError, match=problem):
            regard.translate(source, out=out)
    assert there.read_text() == "mine"
    with pytest.raises(UsageError, match="no folder"):
        regard.translate(source, out=tmp_path / "nowhere" / "b.md")
    with pytest.raises(UsageError, match="texts with a file"):
        regard.translate("Bonjour.", out=tmp_path / "c.md")
    with pytest.raises(UsageError, match="alternatives"):
        regard.translate(source, alternatives=2)
    with pytest.raises(UsageError, match="--out"):
        regard.translate(tmp_path / "a.docx")


def test_a_document_through_both_doors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.md"
    source.write_text("# Bonjour\n\n- Le chat dort.\n- 3\n\n`x`\n")
    result: Any = regard.translate(source, out=tmp_path / "b.md", glossary={"chat": "felid"})
    written = (tmp_path / "b.md").read_text()
    assert (result.passages, result.copied, result.text) == (2, 0, None)
    assert written.startswith("# Hello\n\n- The felid ") and written.endswith("\n- 3\n\n`x`\n")
    terms = tmp_path / "terms.tsv"
    terms.write_text("chat\tfelid\n")
    options = ["translate", "--file", str(source), "--glossary", str(terms)]
    assert main([*options, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["text"] == written and shown["passages"] == 2
    assert main([*options]) == 0
    assert capsys.readouterr().out == written
    assert main([*options, "--out", str(tmp_path / "c.md")]) == 0
    assert (tmp_path / "c.md").read_text() == written


def test_lines_of_a_text_stream_as_they_did_unless_a_file_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("  Le chat dort.\n\nOui\n")
    assert main(["translate", "--file", str(source), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["source"] for line in lines] == ["  Le chat dort.", "", "Oui"]
    assert main(["translate", "--file", str(source), "--out", str(out)]) == 0
    assert out.read_text() == f"  {lines[0]['text']}\n\n{lines[2]['text']}\n"


WORD = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading1"/><w:rPr><w:b/></w:rPr></w:pPr>
<w:r><w:t>Le rapport &amp; sa suite</w:t></w:r></w:p>
<w:p><w:r><w:t xml:space="preserve">Le ch</w:t></w:r><w:proofErr w:type="spellEnd"/>
<w:r w:rsidR="00A1"><w:t xml:space="preserve">at </w:t></w:r>
<w:r><w:rPr><w:b/></w:rPr><w:t>noir</w:t></w:r><w:r><w:t xml:space="preserve"> dort.</w:t></w:r>
<w:r><w:tab/><w:t>Fin.</w:t></w:r></w:p>
<w:tbl><w:tc><w:p><w:r><w:t>Nom</w:t></w:r></w:p></w:tc>
<w:tc><w:p><w:r><w:t>3</w:t></w:r></w:p></w:tc></w:tbl>
<w:p><w:r><w:t xml:space="preserve">Voir </w:t></w:r><w:hyperlink r:id="r1">
<w:r><w:rPr><w:u/></w:rPr><w:t>la page</w:t></w:r></w:hyperlink><w:r><w:t>.</w:t></w:r></w:p>
<w:p><w:r><w:drawing/></w:r></w:p></w:body></w:document>
""".replace(">\n<w", "><w")


def test_a_word_file_keeps_its_styles_tables_and_links(tmp_path: Path) -> None:
    source, out = tmp_path / "a.docx", tmp_path / "b.docx"
    header = "<w:hdr><w:p><w:r><w:t>Bonjour</w:t></w:r></w:p></w:hdr>"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("word/document.xml", WORD)
        archive.writestr("word/header1.xml", header)
        archive.writestr("word/styles.xml", "<w:t>style</w:t>")
    document = DocumentFile(source, out)
    chat, link = "Le chat <x2>noir</x2> dort.<x6>Fin.", "Voir <x1>la page</x1>."
    texts = [passage.text for passage in document.passages]
    assert texts == ["Le rapport & sa suite", chat, "Nom", link, "Bonjour"]
    black = "The <x2>black</x2> cat.<x6>End."
    new = {chat: black, link: "See <x1>the page</x1> < .", "Nom": "Name"}
    result = document.write(new.get(text, text) for text in texts)
    assert (result.passages, result.copied, result.out) == (5, 2, str(out))
    with zipfile.ZipFile(out) as archive:
        written = archive.read("word/document.xml").decode()
        assert archive.read("word/styles.xml") == b"<w:t>style</w:t>"
        assert archive.namelist() == ["word/document.xml", "word/header1.xml", "word/styles.xml"]
    space = ' xml:space="preserve"'
    assert written.replace(space, "") == (
        WORD.replace(space, "")
        .replace(
            'Le ch</w:t></w:r><w:proofErr w:type="spellEnd"/><w:r w:rsidR="00A1"><w:t>at ', "The "
        )
        .replace("noir", "black")
        .replace(" dort.", " cat.")
        .replace("Fin", "End")
        .replace("Nom", "Name")
        .replace("Voir ", "See ")
        .replace("la page", "the page")
        .replace("<w:t>.<", "<w:t> &lt; .<")
    )
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("other.xml", "")
    with pytest.raises(DataError, match="a.docx is no Word file"):
        DocumentFile(source, tmp_path / "c.docx")


def test_a_small_file_that_unpacks_to_a_huge_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MOST_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "a.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", "<w:p>" + "a" * 2000)
    with pytest.raises(DataError, match="2,005 bytes, more than 1,000"):
        DocumentFile(tmp_path / "a.docx", tmp_path / "b.docx")


def test_a_file_of_python_docx_opens_again(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    file = docx.Document()
    file.add_heading("Le rapport", 1)
    paragraph = file.add_paragraph("Le chat ")
    paragraph.add_run("noir").bold = True
    paragraph.add_run(" dort sur le lit.\tFin.")
    file.sections[0].header.paragraphs[0].text = "Bonjour"
    file.save(str(tmp_path / "a.docx"))
    document = DocumentFile(tmp_path / "a.docx", tmp_path / "b.docx")
    document.write([passage.text.replace("noir", "black") for passage in document.passages])
    new = docx.Document(str(tmp_path / "b.docx"))
    assert [p.text for p in new.paragraphs] == [
        "Le rapport",
        "Le chat black dort sur le lit.\tFin.",
    ]
    assert [run.text for run in new.paragraphs[1].runs if run.bold] == ["black"]
    assert new.paragraphs[0].style.name == "Heading 1"
    assert new.sections[0].header.paragraphs[0].text == "Bonjour"
