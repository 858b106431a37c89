"""`regard.tokens`: encode, decode, explain, train, info, merges, vocab; streams and bad input."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from typing import get_args

import pytest

import regard
from regard import ambient, tokens
from regard.cli.main import main
from regard.errors import DataError, UsageError
from regard.result import Failed
from regard.tokens.trainers import KINDS, WRAPS, keep_saying, train_tokenizer

CORPUS = ["the cat sat on the mat, and the dog sat on the log; Je suis un chat."] * 9


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tok") / "folder"
    train_tokenizer(CORPUS, "bpe", 300, specials=("pad", "mask"), wrap="bos-eos").save(folder)
    return folder


def test_words_without_a_tokenizer(capsys):
    encoding = regard.tokens.encode("Je suis un chat.")
    assert encoding.pieces == ["Je", "suis", "un", "chat", "."]
    assert encoding.offsets == [(0, 2), (3, 7), (8, 10), (11, 15), (15, 16)]
    assert "no tokenizer" in capsys.readouterr().err
    with regard.settings(quiet=True):
        assert regard.tokens.encode("").ids == []
    assert capsys.readouterr().err == ""


def test_one_text_gives_one_result_and_several_a_stream(trained):
    one = tokens.encode("the cat", tokenizer=trained)
    assert [each.to_dict() for each in tokens.encode(["the cat"], tokenizer=trained)] == [
        one.to_dict()
    ]
    streamed = list(tokens.encode(iter(["the cat", "sat"]), tokenizer=trained))
    assert streamed[0].to_dict() == {"ids": one.ids} and len(streamed) == 2
    assert tokens.encode("", tokenizer=trained, wrap=False).ids == []
    assert "Ġcat" in one._repr_html_() and str(one) == " ".join(map(str, one.ids))


def test_a_line_that_cannot_be_read_does_not_lose_the_others(trained):
    lines = iter(["the", DataError("reading a line", "byte 3 is not UTF-8"), "cat"])
    first, bad, last = tokens.encode(lines, tokenizer=trained)
    assert isinstance(bad, Failed) and "byte 3" in str(bad)
    assert tokens.decode(last.ids, tokenizer=trained).text == "cat" and first.ids != last.ids


def test_there_and_back_through_pipes(run_regard, trained, give_stdin, tmp_path):
    text = "the cat\n\n  Je suis 🎉\n"
    give_stdin(text.encode())
    code, out, err = run_regard("tokens", "encode", "--tokenizer", trained)
    assert (code, err) == (0, "") and len(out.splitlines()) == 3
    (tmp_path / "ids").write_text(out)
    ids = ("--tokenizer", trained, "--file", tmp_path / "ids")
    assert run_regard("tokens", "decode", *ids) == (0, text, "")
    (tmp_path / "text").write_text(text)
    flags = ("--tokenizer", trained, "--file", tmp_path / "text")
    assert run_regard("tokens", "encode", *flags)[1] == out
    rows = run_regard("tokens", "encode", *flags, "--json")[1]
    (tmp_path / "ids").write_text(rows)
    assert run_regard("tokens", "decode", *ids) == (0, text, "")
    listed = [row.removeprefix('{"ids": ').removesuffix("}") for row in rows.splitlines()]
    assert [d.text for d in tokens.decode(listed, tokenizer=trained)] == text.splitlines()
    assert [json.loads(row)["ids"] for row in rows.splitlines()] == [
        [int(id) for id in line.split()] for line in out.splitlines()
    ]


def test_the_json_of_one_encoding_is_read_too(run_regard, trained):
    line = json.dumps(tokens.encode("the [cat] {sat}", tokenizer=trained).to_dict())
    assert tokens.decode(line, tokenizer=trained).text == "the [cat] {sat}"


@pytest.mark.parametrize("kind", get_args(tokens.Kind))
def test_info_says_what_was_trained(kind, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(CORPUS))
    learnt = tokens.train(tmp_path / "a.txt", out=tmp_path / "t", kind=kind)
    assert tokens.info(tmp_path / "t").kind == learnt.kind == kind
    if kind in ("words", "chars"):
        tokens.train(tmp_path / "a.txt", out=tmp_path / "l", kind=kind, lossless=True)
        assert tokens.info(tmp_path / "l").kind == f"{kind}, lossless"


def test_how_much_longer_texts_are_in_tokens_than_in_words(tmp_path):
    (tmp_path / "a.txt").write_text("ab cd ab\nabcd e\n")
    factors = {}
    for kind in ("spaced", "chars", "bytes"):
        learnt = tokens.train(tmp_path / "a.txt", out=tmp_path / kind, kind=kind)
        factors[kind] = tokens.info(tmp_path / kind, files=tmp_path / "a.txt").tokens_per_word
        assert kind == "bytes" or learnt.tokens_per_word == factors[kind]
    assert factors == {"spaced": 1, "chars": 16 / 5, "bytes": 16 / 5}
    assert "3.20 tokens for a word" in str(learnt) or learnt.kind == "bytes"
    assert tokens.info(tmp_path / "chars").tokens_per_word is None


def test_people_see_text_and_not_the_letters_of_bytes(trained):
    shown = str(next(tokens.encode("the café", tokenizer=trained).parts()))
    title = shown.splitlines()[0]
    assert title == "<s> · the · c · a · f · é · é · </s>"  # a character of two bytes
    assert "Ġ" not in str(tokens.explain("the café", tokenizer=trained))


def test_halves_of_surrogate_pairs_there_and_back(trained, run_regard, tmp_path):
    encoding = tokens.encode("a\ud800b", tokenizer=trained)
    decoded = tokens.decode(encoding.ids, tokenizer=trained)
    assert decoded.text == "a\ud800b"
    decoded.save(tmp_path / "text.json")
    assert json.loads((tmp_path / "text.json").read_text()) == {"text": "a\ud800b"}
    ids = map(str, encoding.ids)
    code, out, _ = run_regard("tokens", "decode", *ids, "--tokenizer", trained, "--json")
    assert code == 0 and json.loads(out) == {"text": "a\ud800b"}


def test_control_tokens_need_permission(trained):
    assert 1 not in tokens.encode("<mask>", tokenizer=trained).ids
    allowed = tokens.encode("<mask>", tokenizer=trained, allow_special=True)
    assert allowed.pieces == ["<s>", "<mask>", "</s>"]
    assert tokens.decode([1, 2], tokenizer=trained, special=True).text == "<mask><s>"
    assert tokens.decode("1 2", tokenizer=trained).text == ""


def test_explain_ends_in_the_pieces_of_encode(trained):
    cuts = tokens.explain("the dogma", tokenizer=trained)
    assert [cut.word for cut in cuts.words] == ["the", "␣dogma"]
    encoded = tokens.encode("the dogma", tokenizer=trained, wrap=False)
    spelt = [piece.replace("Ġ", "␣") for piece in encoded.pieces]
    assert [piece for cut in cuts.words for piece in cut.pieces] == spelt
    last = cuts.words[1].steps[-2]
    assert last.partition("  (merge")[0].split(" ") == cuts.words[1].pieces


def test_train_info_and_what_may_not_be_overwritten(tmp_path, capsys):
    corpus, out = tmp_path / "corpus.txt", tmp_path / "out"
    corpus.write_text("\n".join(CORPUS))
    learnt = tokens.train(corpus, out=out, specials="pad,mask", wrap="cls-sep")
    assert learnt.specials == {"pad": 0, "mask": 1, "cls": 2, "sep": 3}
    info = tokens.info(out)
    assert (info.kind, info.size) == ("bpe", learnt.size)
    assert info.around == ["[CLS]", "[SEP]"] and info.specials["mask"].piece == "<mask>"
    assert "<mask>" in str(info)
    with pytest.raises(UsageError, match="--force"):
        tokens.train(corpus, out=out)
    forced = tokens.train([corpus], out=out, force=True, size=9999, kind="words")
    assert "not 9,999: the texts give no more" in capsys.readouterr().err
    assert str(forced).startswith("words, ")


def test_train_from_stdin(run_regard, tmp_path, give_stdin):
    give_stdin("\n".join(CORPUS).encode())
    flags = ("--out", tmp_path, "--kind", "chars", "--lossless")
    assert run_regard("tokens", "train", *flags)[0] == 0
    assert run_regard("tokens", "train", "--out", tmp_path / "b", "--kind", "bytes")[0] == 0


def test_progress_goes_on_while_the_library_merges(monkeypatch, capsys):
    monkeypatch.setattr(ambient, "PATIENCE", 0.0)
    monkeypatch.setattr(ambient, "INTERVAL", 0.1)
    with keep_saying("training a tokenizer", "merging"):
        time.sleep(1.2)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[-1] == "training a tokenizer: merging (1 s)"


def test_reading_says_how_far_it_is(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(ambient, "PATIENCE", 0.0)
    monkeypatch.setattr(ambient, "INTERVAL", 0.0)
    (tmp_path / "a.txt").write_text("one two\n")
    tokens.vocab(tmp_path / "a.txt")
    assert "counting lines: 1" in capsys.readouterr().err


def test_merges(capsys):
    peter = "Peter Piper picked a peck of pickled peppers"
    learnt = tokens.merges(peter)
    assert learnt.merges[0].pair == ("p", "e") and learnt.merges[0].count == 4
    assert str(learnt).endswith(
        "P e t e r / P i per / pick ed / a / pe ck / o f / pick l ed / pe p per s"
    )
    assert len(tokens.merges(peter, top=2).merges) == 2
    tokens.merges(peter, top=9)
    assert capsys.readouterr().err.startswith("6 merges, not 9")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["decode", "x1", "--tokenizer", "{trained}"], 3, "'x1' in line 1"),
        (["decode", "9999", "--tokenizer", "{trained}"], 3, "id 9999"),
        (["encode", "a", "--tokenizer", "nowhere"], 3, "no such file"),
        (["encode", "a", "--file", "b", "--tokenizer", "{trained}"], 2, "one of the two"),
        (["encode", "a", "--kind", "chars", "--tokenizer", "{trained}"], 2, "one of the two"),
        (["decode", "1"], 2, "--tokenizer"),
        (["train", "--out", "x", "--size", "0"], 2, "from 1 up"),
        (["train", "{trained}/none", "--out", "{trained}/x"], 3, "no such file"),
        (["train", "{trained}", "--out", "{trained}/x", "--size", "9"], 2, "at least 259"),
        (["train", "{trained}", "--out", "x", "--specials", "pad,pad"], 2, "a role twice"),
        (["train", "{trained}", "--out", "x", "--specials", "pda"], 2, "did you mean pad?"),
        (["encode", "--tokenizer", "{trained}", "--file", "{trained}/bad.txt"], 3, "byte 3"),
        (["nothing"], 2, "unknown command"),
    ],
)
def test_bad_input(run_regard, trained, arguments, code, said):
    (trained / "bad.txt").write_bytes(b"ab\n\xff")
    words = (word.format(trained=trained) for word in arguments)
    exit_code, _, err = run_regard("tokens", *words)
    assert exit_code == code and said in err and "Traceback" not in err


def test_the_signature_has_the_kinds_and_wraps_of_training():
    assert get_args(tokens.Kind) == tuple(KINDS) and get_args(tokens.Wrap) == tuple(WRAPS)


@pytest.mark.parametrize("kind", ["words", "chars", "graphemes"])
def test_a_vocabulary_is_counted(tmp_path, kind):
    text = "the cat, the mat\ne\u0301 the 🇫🇷 end\n"
    file = tmp_path / "a.txt"
    file.write_text(text)
    pieces = {
        "words": re.findall("[\\w\u0301]+|[^\\w\\s\u0301]+", text),
        "chars": list(text),
        "graphemes": re.findall("e\u0301|🇫🇷|.|\n", text),
    }[kind]
    wanted = Counter(pieces)
    listed = tokens.vocab(file, kind=kind, top=99, out=tmp_path / "vocab.json")
    assert listed.words == dict(wanted) and listed.coverage == 1
    assert list(listed.words.values()) == sorted(wanted.values(), reverse=True)
    assert json.loads((tmp_path / "vocab.json").read_text()) == dict(wanted)
    often = {word: count for word, count in wanted.items() if count > 1}
    listed = tokens.vocab(file, kind=kind, top=99, min_count=2)
    assert listed.words == often and listed.types == len(wanted)
    assert listed.coverage == pytest.approx(sum(often.values()) / len(pieces))
    assert "which cover" in str(listed)


def test_a_vocabulary_of_nothing(run_regard, give_stdin):
    give_stdin(b" \n\n")
    code, _, err = run_regard("tokens", "vocab")
    assert code == 3 and "no tokens" in err
    give_stdin(b"a b a\n")
    code, _, err = run_regard("tokens", "vocab", "--min-count", 3)
    assert code == 3 and "occurs 2 times" in err and "3 times or more" in err


def test_the_help_of_a_command_has_its_arguments_and_examples(capsys):
    assert main(["tokens", "train", "--help"]) == 0
    text = capsys.readouterr().out
    assert text.count("regard tokens train") == 4 and "in bounded memory" in text
