"""`regard tok`: encode, decode, explain, train, info, merges; streams and exit codes."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections import Counter

import pytest

from regard.cli import show, tok_train
from regard.tokens import train_tokenizer

CORPUS = ["the cat sat on the mat, and the dog sat on the log; Je suis un chat."] * 9


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tok") / "folder"
    train_tokenizer(CORPUS, "bpe", 300, specials=("pad", "mask"), wrap="bos-eos").save(folder)
    return folder


@pytest.fixture
def stdin(monkeypatch):
    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))

    return give


def test_words_without_a_tokenizer(here):
    code, out, err = here("tok", "encode", "Je suis un chat.")
    assert code == 0 and out.startswith("Je · suis · un · chat · .\n") and "--tokenizer" in err
    code, out, _ = here("tok", "encode", "Je suis un chat.", "--json", "-q")
    assert json.loads(out)["offsets"] == [[0, 2], [3, 7], [8, 10], [11, 15], [15, 16]]


def test_the_empty_text_has_no_tokens(here, trained):
    code, out, _ = here("tok", "encode", "", "--json")
    assert code == 0 and json.loads(out)["ids"] == []
    code, out, _ = here("tok", "encode", "", "--json", "--no-wrap", "-t", trained)
    assert code == 0 and json.loads(out)["ids"] == []


def test_there_and_back_through_pipes(here, trained, stdin, tmp_path):
    text = "the cat\n\n  Je suis 🎉\n"
    stdin(text.encode())
    code, out, err = here("tok", "encode", "-t", trained)
    assert (code, err) == (0, "") and len(out.splitlines()) == 3
    (tmp_path / "ids").write_text(out)
    assert here("tok", "decode", "-t", trained, "--file", tmp_path / "ids") == (0, text, "")
    (tmp_path / "text").write_text(text)
    assert here("tok", "encode", "-t", trained, "--file", tmp_path / "text")[1] == out
    code, rows, _ = here("tok", "encode", "-t", trained, "--file", tmp_path / "text", "--json")
    ids = [json.loads(row)["ids"] for row in rows.splitlines()]
    assert [" ".join(map(str, row)) for row in ids] == out.splitlines()


def test_control_tokens_need_permission(here, trained):
    def ids(*options):
        return json.loads(here("tok", "encode", "<mask>", "--json", "-t", trained, *options)[1])

    assert 1 not in ids()["ids"] and ids("--allow-special")["pieces"] == ["<s>", "<mask>", "</s>"]
    code, out, _ = here("tok", "decode", "-t", trained, "--special", "1", "2")
    assert (code, out) == (0, "<mask><s>\n")


def test_explain_ends_in_the_pieces_of_encode(here, trained):
    for arguments in (["explain", "the dogma"], ["encode", "--explain", "the dogma"]):
        code, out, _ = here("tok", *arguments, "-t", trained, "--json")
        words = json.loads(out)["words"]
        assert code == 0 and [word["word"] for word in words] == ["the", "Ġdogma"]
    pieces = [piece for word in words for piece in word["pieces"]]
    encoded = here("tok", "encode", "the dogma", "--no-wrap", "--json", "-t", trained)[1]
    assert pieces == json.loads(encoded)["pieces"]
    last = words[1]["steps"][-2]
    assert last.partition("  (merge")[0].split(" ") == words[1]["pieces"]


def test_train_info_and_what_may_not_be_overwritten(here, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS))
    train = ["tok", "train", tmp_path / "corpus.txt", "--out", tmp_path / "out"]
    code, out, err = here(*train, "--specials", "pad,mask=<m>", "--wrap", "cls-sep", "--json")
    made = json.loads(out)
    assert code == 0 and made["specials"] == {"pad": 0, "mask": 1, "cls": 2, "sep": 3}
    code, out, _ = here("tok", "info", tmp_path / "out", "--json")
    info = json.loads(out)
    assert (info["kind"], info["size"]) == ("BPE", made["size"])
    assert info["around"] == ["[CLS]", "[SEP]"] and info["specials"]["mask"]["piece"] == "<m>"
    assert "<m>" in here("tok", "info", tmp_path / "out")[1]
    code, _, err = here(*train)
    assert code == 2 and "--force" in err
    code, out, err = here(*train, "--force", "--size", "9999", "--kind", "words")
    assert code == 0 and "not 9,999: the texts give no more" in err and out.startswith("words, ")


def test_train_from_stdin(here, tmp_path, stdin):
    stdin("\n".join(CORPUS).encode())
    assert here("tok", "train", "--out", tmp_path, "--kind", "chars", "--lossless")[0] == 0
    assert here("tok", "train", "--out", tmp_path / "b", "--kind", "bytes")[0] == 0


def test_progress_goes_on_while_the_library_merges(monkeypatch, capsys):
    monkeypatch.setattr(show, "PATIENCE", 0.0)
    monkeypatch.setattr(show, "INTERVAL", 0.1)
    with show.Show().progress("training") as progress, tok_train.Ticker(progress) as ticker:
        ticker.say("counting")
        ticker.read(512, 2048)
        time.sleep(0.7)
        ticker.say("merging")
        time.sleep(0.6)
    said = capsys.readouterr().err
    assert "counting, 512 B of 2.0 KiB (25 %)" in said
    assert said.splitlines()[-1].startswith("training: merging (")


def test_merges(here, stdin):
    peter = "Peter Piper picked a peck of pickled peppers"
    code, out, _ = here("tok", "merges", peter)
    assert code == 0 and out.splitlines()[0].split() == ["1", "p+e", "(4×)"]
    assert out.endswith(
        "P e t e r / P i per / pick ed / a / pe ck / o f / pick l ed / pe p per s\n"
    )
    code, _, err = here("tok", "merges", peter, "--limit", "9")
    assert code == 0 and err.startswith("6 merges, not 9")
    stdin(peter.encode())
    assert len(json.loads(here("tok", "merges", "--json", "--limit", "2")[1])["merges"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["decode", "x1", "-t", "{trained}"], 3, "'x1' in line 1"),
        (["decode", "9999", "-t", "{trained}"], 3, "id 9999"),
        (["encode", "a", "-t", "nowhere"], 3, "no such file"),
        (["encode", "a", "--file", "b", "-t", "{trained}"], 2, "one of the two"),
        (["encode", "a", "--explain"], 2, "--tokenizer FOLDER"),
        (["decode", "1"], 2, "--tokenizer"),
        (["train", "--out", "x", "--size", "0"], 2, "from 1 up"),
        (["train", "{trained}/none", "--out", "{trained}/x"], 3, "no such file"),
        (["train", "{trained}", "--out", "{trained}/x", "--size", "9"], 2, "at least 259"),
        (["train", "{trained}", "--out", "x", "--specials", "pad,pad"], 2, "a role twice"),
        (["train", "{trained}", "--out", "x", "--specials", "pda"], 2, "did you mean pad?"),
        (["encode", "-t", "{trained}", "--file", "{trained}/bad.txt"], 3, "byte 3"),
        (["nothing"], 2, "invalid choice"),
    ],
)
def test_bad_input(here, trained, arguments, code, said):
    (trained / "bad.txt").write_bytes(b"ab\n\xff")
    found, out, err = here("tok", *(word.format(trained=trained) for word in arguments))
    assert found == code and said in err and "Traceback" not in err


@pytest.mark.parametrize("action", ["encode", "decode", "explain", "train", "info", "merges"])
def test_each_action_has_three_examples(action, capsys):
    from regard.cli.main import main

    with pytest.raises(SystemExit) as end:
        main(["tok", action, "--help"])
    text = capsys.readouterr().out.partition("examples:")[2]
    assert end.value.code == 0 and text.count(f"regard tok {action}") == 3


def test_help_lists_the_same_kinds_and_wraps_as_training():
    from regard.cli import tok_flags
    from regard.tokens import train

    assert tok_flags.KINDS == tuple(train.KINDS) and tok_flags.WRAPS == tuple(train.WRAPS)


@pytest.mark.parametrize("kind", ["words", "chars", "graphemes"])
def test_a_vocabulary_is_counted(here, tmp_path, kind):
    text = "the cat, the mat\ne\u0301 the 🇫🇷 end\n"
    (tmp_path / "a.txt").write_text(text)
    pieces = {
        "words": re.findall("[\\w\u0301]+|[^\\w\\s\u0301]+", text),
        "chars": list(text),
        "graphemes": re.findall("e\u0301|🇫🇷|.|\n", text),
    }[kind]
    wanted = Counter(pieces)
    flags = ("--kind", kind, "--top", 99, "--json", "-q", "--out", tmp_path / "vocab.json")
    code, out, _ = here("tok", "vocab", tmp_path / "a.txt", *flags)
    found = json.loads(out)
    assert code == 0 and found["words"] == dict(wanted) and found["coverage"] == 1
    assert list(found["words"].values()) == sorted(wanted.values(), reverse=True)
    assert json.loads((tmp_path / "vocab.json").read_text()) == dict(wanted)
    found = json.loads(here("tok", "vocab", tmp_path / "a.txt", *flags, "--min-count", 2)[1])
    often = {word: count for word, count in wanted.items() if count > 1}
    assert found["words"] == often and found["types"] == len(wanted)
    assert found["coverage"] == pytest.approx(sum(often.values()) / len(pieces))
    assert "which cover" in here("tok", "vocab", tmp_path / "a.txt", "--kind", kind)[1]


def test_a_vocabulary_of_nothing(here, stdin, tmp_path):
    stdin(b" \n\n")
    code, _, err = here("tok", "vocab")
    assert code == 3 and "no tokens" in err
    stdin(b"a b a\n")
    code, _, err = here("tok", "vocab", "--min-count", 3)
    assert code == 3 and "occurs 2 times" in err and "3 times or more" in err
