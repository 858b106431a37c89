"""Documents keep their form: only passages change, and what cannot be read is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.translation.formats import TextDocument, open_document

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

> Une citation qui va
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


def shout(document: Any) -> str:
    """The document with capitals instead of translations; our own tags stay."""
    answers = {}
    for passage in document.passages:
        text = passage.text.upper()
        for tag in passage.marks:
            text = text.replace(tag.upper(), tag)
        answers[passage] = text
    return str(document.write(answers).decode())


@pytest.mark.parametrize(
    ("text", "suffix"),
    [(PAGE, ".html"), (MARKDOWN, ".md"), (SUBTITLES, ".srt"), (CUES, ".vtt"), (" a\n\nb\t\nc", "")],
)
@pytest.mark.parametrize("form", ["{}", "\ufeff{}"])
def test_a_document_with_its_own_passages_is_itself(text: str, suffix: str, form: str) -> None:
    for newline in ("\n", "\r\n"):
        whole = form.format(text.replace("\n", newline))
        document = TextDocument(whole, "x", suffix)
        own = {passage: passage.text for passage in document.passages}
        assert document.write(own).decode() == whole


def test_of_a_page_only_what_people_read_changes() -> None:
    assert shout(TextDocument(PAGE, "x", ".html")) == (
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


def test_of_markdown_only_words_change() -> None:
    lines = shout(TextDocument(MARKDOWN, "x", ".md")).split("\n")
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
        "> UNE CITATION QUI VA",
        "> SUR DEUX LIGNES.",
        "",
        "| NOM | ÂGE |",
        "|-----|----:|",
        "| LE CHAT | 3 |",
    ]
    assert lines[21:24] == ["```python", 'print("Bonjour")', "```"] and lines[25] == "    code"
    last = 'UN <span class="x">MOT</span>, 2 * 3 = 6, UN_NOM_LONG, [ICI][ref] ET UNE NOTE[^1].'
    assert lines[27:] == [last, "", '[ref]: https://x.fr "Titre"', ""]


def test_of_subtitles_only_what_is_said_changes() -> None:
    document = TextDocument(SUBTITLES, "x", ".srt")
    said = [passage.text for passage in document.passages]
    assert said == ["<x0>Le chat dort</x0> sur le lit.", "Bonjour.", "Salut !"]
    assert "- {\\an8}SALUT !\n" in shout(document) and "00:00:03,000 --> " in shout(document)
    assert shout(TextDocument(CUES, "x", ".vtt")) == CUES.replace(
        "Bonjour les amis.", "BONJOUR LES AMIS."
    )


def test_a_cue_is_one_text_and_has_no_more_lines_than_before() -> None:
    document = TextDocument("1\n00:01:00,0 --> 00:01:01,0\nOui\nbien sûr\n", "x", ".srt")
    (passage,) = document.passages
    written = document.write({passage: "Yes, of course, without any doubt"}).decode()
    assert written.split("\n")[2:] == ["Yes, of course, without", "any doubt", ""]


@pytest.mark.parametrize(
    "answer", ["cat", "<x1>cat", "</x1>cat<x1>", "<x1>cat</x1><x1>", "<x9>cat</x9>"]
)
def test_marks_that_a_translation_lost_stand_before_it(answer: str) -> None:
    document = TextDocument("<p>Le <b>chat</b> dort</p>", "x", ".html")
    (passage,) = document.passages
    assert document.write({passage: answer}).decode() == "<p><b></b>cat</p>"


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("x.html", b"<p>\n<b", "line 2: a tag without end: <b"),
        ("x.html", b"<p>a\n\n<script>b", "line 3: <script> is never closed"),
        ("x.srt", b"1\n00:00:01,000 --> 00:00:02,000\nOui\n\nNon\n", "line 5: 'Non'"),
        ("x.vtt", b"WEBVTT\n\nBonjour\n", "has no times"),
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
        open_document(file, tmp_path / f"new{file.suffix}")
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
    with pytest.raises(UsageError, match="one document"):
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


def test_a_word_file_keeps_its_runs_tables_links_and_headers(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    from docx.oxml import OxmlElement

    file = docx.Document()
    file.add_heading("Le rapport", 1)
    paragraph = file.add_paragraph("Le chat ")
    paragraph.add_run("noir").bold = True
    paragraph.add_run(" dort")
    paragraph.add_run(" sur le lit.\tFin.")
    link = OxmlElement("w:hyperlink")
    link.append(file.add_paragraph("Voir ").add_run("la page")._r)
    file.paragraphs[-1]._p.append(link)
    file.add_table(1, 2).cell(0, 0).text = "Nom"
    file.tables[0].cell(0, 1).text = "3"
    file.sections[0].header.paragraphs[0].text = "Bonjour"
    file.save(str(tmp_path / "a.docx"))
    document: Any = open_document(tmp_path / "a.docx", tmp_path / "b.docx")
    texts = [passage.text for passage in document.passages]
    said = "Le chat <x2>noir</x2> dort sur le lit.<x7>Fin."
    assert {*texts} == {"Le rapport", said, "Voir <x2>la page</x2>", "Nom", "Bonjour"}
    answers = dict(zip(document.passages, texts, strict=True))
    answers |= {
        passage: "The <x2>black</x2> cat.<x7>End." for passage in answers if passage.text == said
    }
    (tmp_path / "b.docx").write_bytes(document.write(answers))
    new = docx.Document(str(tmp_path / "b.docx"))
    assert [p.text for p in new.paragraphs] == [
        "Le rapport",
        "The black cat.\tEnd.",
        "Voir la page",
    ]
    assert new.paragraphs[0].style.name == "Heading 1"
    runs = [(run.text, run.bold) for run in new.paragraphs[1].runs]
    assert runs == [("The ", None), ("black", True), (" cat.", None), ("\t", None), ("End.", None)]
    assert new.paragraphs[2].hyperlinks[0].text == "la page"
    assert [cell.text for cell in new.tables[0].rows[0].cells] == ["Nom", "3"]
    assert new.sections[0].header.paragraphs[0].text == "Bonjour"
    (tmp_path / "c.docx").write_bytes(b"PK no zip")
    with pytest.raises(DataError, match="c.docx is no Word file"):
        open_document(tmp_path / "c.docx", tmp_path / "d.docx")
