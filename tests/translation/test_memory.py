"""Memory: what rare words became in training, the user's own pairs, and files that are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.data.word_frequencies import words, write_counts
from regard.errors import DataError
from regard.kit import Kit
from regard.tokens.trainers import train_tokenizer
from regard.translation import memory as module
from regard.translation.document import Segment
from regard.translation.explanation import (
    AlignConfig,
    align_pairs,
    align_tokens,
    look_across,
)
from regard.translation.memory import (
    INFLECTIONS_FILE,
    MEMORY_FILE,
    TranslationMemory,
    choose_pairs,
    find_phrase,
    learn_memory,
    read_memory,
)
from regard.translation.results import Example, Explanation, SourceWord, TargetWord
from tests.properties.threads import one_thread  # noqa: F401
from tests.translation.test_segment import CORPUS
from tests.translation.test_translator import made

FRENCH = "Deux députés ont été entartés."
ENGLISH = "Two of our Members were hit in the face by a pie."
LINES = [
    "\ta by in of our the were",
    "balbuzard\t1-1\tnews:9\tLe balbuzard dort.\tThe osprey is asleep.",
    f"entartés\t5-11\tnews:7\t{FRENCH}\t{ENGLISH}",
]
ENDINGS = [["", "s"], ["er", "é", "és"]]
LANGUAGES = ("fr", "en")


@pytest.fixture(scope="module")
def bare() -> Kit:
    """A translator of random weights."""
    tokenizer = train_tokenizer(CORPUS, "bpe", 400, specials=("pad", "eos"), wrap="eos")
    kit = made(tokenizer)
    kit.config["languages"] = list(LANGUAGES)
    return kit


@pytest.fixture(scope="module")
def kit(bare: Kit) -> Kit:
    """The translator with a memory, and with words that are frequent."""
    counts: Any = {"le": 900, "dort": 900, "chat": 900, "les": 900}
    files = {
        MEMORY_FILE: "\n".join([*LINES, ""]).encode(),
        INFLECTIONS_FILE: json.dumps(ENDINGS).encode(),
        "words.tsv": write_counts(counts),
    }
    return replace(bare, files=bare.files | files)


# The folder's pairs -----------------------------------------------------------------------------


def test_a_word_is_found_by_any_of_its_inflections(kit: Kit) -> None:
    memory = TranslationMemory(kit)
    for word in ("entartés", "Entarté", "entarter"):
        (example,) = memory.lookup(word)
        assert example.word == "entartés" and example.origin == "news:7"
        assert example.phrase == "hit in the face by a pie"
        assert (example.source, example.target) == (FRENCH, ENGLISH)
    assert memory.lookup("balbuzards")[0].phrase == "osprey"
    assert not memory.lookup("entartiez") and not memory.lookup("xés")


def test_hints_are_short(kit: Kit) -> None:
    memory = TranslationMemory(kit)
    assert memory.hints("entarté") == ["hit face pie"]  # of seven words, without the small ones
    assert memory.hints("balbuzard") == ["osprey"] and memory.hints("chat") == []


def test_a_folder_without_memory(bare: Kit) -> None:
    assert (
        TranslationMemory(bare).lookup("entartés") == []
        and TranslationMemory(bare).hints("entartés") == []
    )


@pytest.mark.parametrize("line", ["entartés\tnews:1\tonly three\n", "entartés\t1-1\ta:1\tb\tc"])
def test_a_broken_memory_is_said(bare: Kit, line: str) -> None:
    kit = replace(bare, files=bare.files | {MEMORY_FILE: line.encode()})
    with pytest.raises(DataError, match=r"memory\.tsv"):
        TranslationMemory(kit).lookup("entartés")


def test_the_explanation_shows_the_line(kit: Kit) -> None:
    result = kit.translate("Le chat entarté dort.", explain=True, max_new=8)
    (reason,) = result.explain
    assert [example.origin for example in reason.examples] == ["news:7"]
    assert result.to_dict()["explain"][0]["examples"][0]["target"] == ENGLISH
    assert "“entartés” became “hit in the face by a pie” in news:7" in str(result)
    (plain,) = kit.translate("Le chat dort.", explain=True, max_new=8).explain
    assert plain.examples == []


def test_a_rare_word_as_in_an_example() -> None:
    rare, written = (
        SourceWord("magnat", ["magn", "at"], 3, True),
        TargetWord("tycoon", 0.25, ["magnat"]),
    )
    shown = Example("magnats", "tycoon", "Des magnats.", "Tycoons.", "news:3")
    reason = Explanation("magnat", "tycoon", [rare], [written], [(0, 0)], [[1.0]], examples=[shown])
    assert reason.notes[0].endswith("“tycoon” (25%) is as in news:3.")
    assert "is a guess" in replace(reason, words=[TargetWord("magnate", 0.25, ["magnat"])]).notes[0]


# Learning -----------------------------------------------------------------------------------------


def test_the_phrase_of_a_word() -> None:
    """Target words that come from it most, without small words at the edges; not too faint."""
    weights = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.3, 0.6], [0.1, 0.9], [0.8, 0.2]])
    assert find_phrase(weights, 1, {1, 3}) == (2, 4)
    assert find_phrase(weights, 1, {1, 2, 3, 4}) is None  # small words alone
    assert find_phrase(weights, 0, set()) == (0, 0)  # the surest of two places
    assert find_phrase(weights * 0.5, 1, set()) is None  # faint
    assert find_phrase(weights[[4] * 8], 1, set()) is None  # a whole sentence


def test_batches_align_as_single_pairs(bare: Kit) -> None:
    """The marks are left out: no word comes from a stop."""
    pairs = [("Le chat dort.", "The cat sleeps on the mat."), (FRENCH, ENGLISH)]
    for (source, target), weights in zip(pairs, align_pairs(bare, pairs), strict=True):
        tokens = bare.text_tokenizer.encode(target, special=False, side="target")
        (patterns,) = look_across(bare, [bare.text_tokenizer.encode(source)], [tokens])
        alone, _ = align_tokens(
            bare, Segment((0, 0), source, [0], False), tokens, patterns[AlignConfig().block]
        )
        letters = [
            [any(map(str.isalpha, word)) for word in words(side)] for side in (target, source)
        ]
        alike = torch.tensor(letters[0])[:, None] == torch.tensor(letters[1])
        torch.testing.assert_close(weights, alone * alike, atol=1e-4, rtol=1e-4)


COMMON = "le chat dort sur la table et mange du pain avec nous"
COUNTS = dict.fromkeys(COMMON.split(), 1000) | {"balbuzard": 3, "tanguait": 2, "gatto": 1}


def write_pairs(tmp_path: Path) -> Path:
    pairs = [
        ("le balbuzard dort sur la table et mange", "the osprey sleeps on the table and eats"),
        ("le balbuzard dort", "the osprey sleeps"),
        ("le chat dort avec Balbuzard", "the cat sleeps with him"),  # a name
        ("le balbuzard mange", "the balbuzard eats"),  # copied
        ("il balbuzard sopra il gatto tanguait", "the osprey above the cat"),  # another language
        ("le balbuzard " * 40, "the osprey " * 40),  # long
        ("le chat tanguait et mange du pain", "the cat rocked"),
        ("le chat dort", "the cat sleeps"),
    ]
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return file


def test_pairs_that_teach_something(tmp_path: Path) -> None:
    for seen, each, wanted in (
        (3, 2, {"pairs:1": ["balbuzard"], "pairs:2": ["balbuzard"], "pairs:7": ["tanguait"]}),
        (3, 1, {"pairs:2": ["balbuzard"], "pairs:7": ["tanguait"]}),
        (2, 2, {"pairs:7": ["tanguait"]}),
    ):
        chosen = choose_pairs([write_pairs(tmp_path)], COUNTS, seen, each, lambda word: [word])
        assert {entry.origin: taught for entry, taught in chosen.items()} == wanted


def test_a_long_pair_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept for a word that has no other, but not where an inflection of it has one."""
    monkeypatch.setattr(module, "LONG", 40)
    long = "et mange du pain avec nous sur la table"
    lines = ["le chat tanguait\tthe cat rocked", f"le chat tanguaient {long}\tthe cats rocked so"]
    file = write(tmp_path, "\n".join(lines), "pairs.tsv")
    alone = choose_pairs([file], COUNTS, 3, 2, lambda word: [word])
    assert [*alone.values()] == [["tanguait"], ["tanguaient"]]
    both = choose_pairs([file], COUNTS, 3, 2, lambda word: ["tanguait", "tanguaient"])
    assert [*both.values()] == [["tanguait"]]


def test_what_is_learnt_can_be_looked_up(
    bare: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second_word(kit: Kit, pairs: list[tuple[str, str]]) -> Any:
        for source, target in pairs:
            yield torch.eye(len(words(target)), len(words(source)))

    monkeypatch.setattr(module, "align_pairs", second_word)
    counted: Any = COUNTS
    kit = replace(bare, files=bare.files | {"words.tsv": write_counts(counted)})
    monkeypatch.setattr(module, "SMALL", 1)
    learnt = learn_memory(kit, tmp_path, [write_pairs(tmp_path)], seen=3, each=1)
    data = (tmp_path / MEMORY_FILE).read_bytes()
    assert (learnt.words, learnt.pairs, learnt.bytes) == (2, 2, len(data))
    memory = TranslationMemory(replace(kit, files={MEMORY_FILE: data}))
    (example,) = memory.lookup("balbuzard")
    assert (example.phrase, example.origin) == ("osprey", "pairs:2")
    with pytest.raises(DataError, match="no pair with a word seen at most 1 times"):
        learn_memory(kit, tmp_path, [write_pairs(tmp_path)], seen=1, each=1)


# The user's files ---------------------------------------------------------------------------------


def write(tmp_path: Path, text: str, name: str = "mine.tsv") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_sentence_of_the_memory_is_translated_so(bare: Kit, tmp_path: Path) -> None:
    text = "Le chat dort.\tThe cat is having a nap.\n\nOui. Non.\tYes and no at /etc.\n"
    mine, other = write(tmp_path, text), "La table est là."
    plain = bare.translate(other, max_new=8).text
    result = bare.translate(f"Le  chat dort. {other}", memory=[mine], explain=True, max_new=8)
    assert result.text == f"The cat is having a nap. {plain}"
    assert result.explain[0].notes == ["This translation stands in mine.tsv:1."]
    assert bare.translate("Oui. Non.", memory=mine, max_new=8).text == "Yes and no at /etc."
    (again,) = bare.translate(["Le chat dort."], memory=str(mine), begin="on", max_new=8)
    assert again.text.startswith("on")  # a wish goes first


def test_words_of_the_memory_are_shown(kit: Kit, tmp_path: Path) -> None:
    mine = write(tmp_path, "Le gypaète dort.\tThe vulture is asleep.\n")
    (example,) = TranslationMemory(kit, [mine]).lookup("gypaète")
    assert (example.target, example.origin) == ("The vulture is asleep.", "mine.tsv:1")
    assert TranslationMemory(kit, [mine]).lookup("entarté")  # beside those of the folder


TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="fr-FR"/><body>
<tu><tuv xml:lang="EN-us"><seg>A <bpt i="1">{b}</bpt><hi>small</hi> cat &amp; dog</seg></tuv>
<tuv xml:lang="fr_CA"><seg>Un petit
chat</seg></tuv><tuv xml:lang="de"><seg>Eine Katze</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>Seul</seg></tuv></tu></body></tmx>
"""


def test_translation_memory_exchange(tmp_path: Path) -> None:
    (entry,) = read_memory(write(tmp_path, TMX, "mine.tmx"), LANGUAGES)
    assert (entry.source, entry.target) == ("Un petit chat", "A small cat & dog")
    assert entry.origin == "mine.tmx:1"


BOMB = TMX.replace('"tmx14.dtd"', '"t" [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]')
FAULTS = {
    "no-tab.tsv": ("Le chat.\tThe cat.\n\nLe chien\n", "line 3.*0 TABs"),
    "tabs.tsv": ("a\tb\tc\n", "line 1.*2 TABs"),
    "half.tsv": ("Le chat.\t \n", "line 1"),
    "long.tsv": ("x" * 20_000 + "\ty\n", "line 1: 20,002 characters"),
    "swapped.tsv": ("The cat is on the mat.\tLe chat est sur la table.\n" * 3, "sources in 'en'"),
    "german.tsv": ("Le chat est là.\tDie Katze ist nicht auf dem Tisch.\n" * 3, "targets in 'de'"),
    "german.tmx": (TMX.replace("fr", "it"), r"no pair of \('fr', 'en'\), but en, it, de"),
    "bomb.tmx": (BOMB, "line 2: <!ENTITY"),
    "cut.tmx": (TMX[:300], "unclosed|no element"),
    "empty.tmx": ("", "no element"),
    "long.tmx": (TMX.replace("Un petit", "x" * 20_000), "unit 1: 20,\\d+ characters"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_a_users_memory(tmp_path: Path, name: str) -> None:
    text, message = FAULTS[name]
    with pytest.raises(DataError, match=message) as caught:
        read_memory(write(tmp_path, text, name), LANGUAGES)
    assert name in str(caught.value)


def test_a_memory_that_is_not_there(bare: Kit, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        bare.translate("Le chat.", memory=tmp_path / "nowhere.tsv")
