"""`regard entropy` and `regard guess`, as a user types them."""

from __future__ import annotations

import io
import json
import lzma
import math
import os
import sys

import numpy as np
import pytest

from regard.cli.guess import ask, two_lines
from regard.cli.main import main
from regard.history.shannon import LETTERS, letters_of
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import save_model, writer  # noqa: F401

WORDS = "the cat sat on a mat and then the dog ate that hat in the sun".split()
DICE = np.random.default_rng(0)
TALE = " ".join(WORDS[n] for n in DICE.integers(0, len(WORDS), 450)).capitalize() + ".\n"


@pytest.fixture
def tale(tmp_path):
    path = tmp_path / "tale.txt"
    path.write_text(TALE)
    return path


@pytest.fixture(scope="module")
def chars(tmp_path_factory):
    """A decoder with random weights whose tokens are characters."""
    folder = tmp_path_factory.mktemp("chars")
    made = train_tokenizer([TALE, LETTERS, "\n"], "chars", specials=["eos"])
    sizes = dict(n_embd=16, n_layer=1, n_head=2, vocab_size=made.size, n_positions=24)
    eos = made.specials["eos"]
    save_model(folder, "GPT2LMHeadModel", "GPT2Config", **sizes, bos_token_id=eos, eos_token_id=eos)
    made.save(folder)
    return folder


def call(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def measured(capsys, *words):
    code, said, notes = call(capsys, "entropy", *words, "--json")
    assert code == 0, notes
    return json.loads(said)


def test_a_table_and_its_reasons(tale, capsys):
    code, said, _ = call(capsys, "entropy", tale, "--order", 4)
    assert code == 0
    lines = said.splitlines()
    assert "27 symbols (a to z and the blank" in lines[0]
    (third,) = (line for line in lines if line.startswith("  F3"))
    assert third.split()[-1] == "3.10" and "over two words" in said
    assert [line.split()[0] for line in lines if line.startswith("  F")] == [
        f"F{n}" for n in range(5)
    ]
    assert "learning 4-grams" in said and "gave the same text" in said
    assert "Shannon" not in call(capsys, "entropy", tale, "--alphabet", "as-is", "-n", 2)[1]


def test_what_json_holds(tale, capsys):
    found = measured(capsys, tale, "--order", 3)
    assert found["F"][0] == pytest.approx(math.log2(27)) and len(found["F"]) == 4
    assert len(found["miller_madow"]) == len(found["held_out"]) == 4
    assert found["F"] == sorted(found["F"], reverse=True)
    assert found["letters"] == len(TALE) - 2 and found["shannon"] == [4.76, 4.03, 3.32, 3.1]
    (coded,) = found["coded"]
    assert coded["bits_per_letter"] == found["prequential"] < found["F"][1]
    assert coded["decoded_back"]
    bits = coded["bits_per_letter"] * found["letters"]
    assert bits < coded["bytes"] * 8 < bits + 40
    assert coded["excess"] == pytest.approx(coded["bytes"] * 8 / bits - 1)
    assert coded["bytes"] * 8 / found["letters"] == pytest.approx(coded["coded_bits_per_letter"])
    few = measured(capsys, tale, "--alphabet", "26", "--order", 1, "--letters", 100)
    assert (few["symbols"], few["letters"], few["shannon"][1]) == (26, 100, 4.14)
    cut = measured(capsys, tale, "--order", 1, "--letters", TALE.index(" ", 50) + 1)  # at a blank
    assert cut["coded"][0]["tokens"] == cut["letters"] == TALE.index(" ", 50) + 1


def test_compressed_files_are_read(tale, capsys):
    packed = tale.with_suffix(".txt.xz")
    packed.write_bytes(lzma.compress(tale.read_bytes()))
    assert measured(capsys, packed, "-n", 2)["F"] == measured(capsys, tale, "-n", 2)["F"]


def test_many_characters_go_as_bytes(tmp_path, capsys):
    text = "".join(chr(0x4E00 + n) for n in DICE.integers(0, 700, 900))
    (tmp_path / "plain").write_text(text, encoding="utf-8")
    found = measured(capsys, tmp_path / "plain", "-n", 1, "--alphabet", "as-is")
    assert found["symbols"] > 256 and found["letters"] == 900
    assert found["coded"][0]["tokens"] == 2700


@pytest.mark.parametrize("which", ["writer", "chars"])
def test_a_transformer_codes_and_decodes(tale, capsys, request, which):
    folder = request.getfixturevalue(which)
    found = measured(capsys, tale, "--letters", 300, "--model", folder, "-n", 2)
    learnt, coded = found["coded"]
    assert coded["by"] == str(folder) and coded["decoded_back"]
    assert coded["bytes"] * 8 <= coded["bits_per_letter"] * 300 * 1.01 + 40


def test_ngrams_of_words_and_another_model(tale, capsys):
    for name, kind in (("words", "spaced"), ("letters", "chars")):
        train = ("train", "ngram", tale, "--out", tale.parent / name, "--tokens", kind)
        assert call(capsys, *train, "--order", 2, "-q", "--json")[0] == 0
    words, letters = (tale.parent / name for name in ("words", "letters"))
    assert measured(capsys, tale, "--model", letters, "-n", 2)["coded"][1]["decoded_back"]
    code, said, notes = call(capsys, "entropy", tale, "--model", words, "--json", "-n", 2)
    found = json.loads(said)
    assert code == 0 and "was trained on this file" in notes
    assert found["coded"][1]["tokens"] == 451  # and the end of the line
    code, said, _ = call(capsys, "eval", "lm", words, tale, "--json", "--allow-overlap")
    assert found["coded"][1]["bits_per_letter"] == pytest.approx(json.loads(said)["bits_per_byte"])
    tale.write_text(TALE + "zebra zebra\n")
    code, said, _ = call(capsys, "entropy", tale, "--model", words, "-n", 2)
    assert code == 0 and "2 of 454 tokens are unknown words" in said


@pytest.mark.parametrize(
    ("text", "options", "code", "said"),
    [
        ("", [], 3, "no letters"),
        ("12 + 3!", [], 3, "no letters"),
        ("abcdef", [], 3, "6 letters"),
        (TALE, ["--order", 0], 2, "--order 0"),
        (TALE, ["--order", -1], 2, "--order -1"),
        (TALE, ["--alphabet", "28"], 2, "as-is"),
        (TALE, ["--model", "nothing"], 3, "nothing"),
    ],
)
def test_bad_input(tale, capsys, text, options, code, said):
    tale.write_text(text)
    found = call(capsys, "entropy", tale, *options)
    assert found[:2] == (code, "") and said in found[2]


def test_no_file_at_all(tale, capsys):
    assert call(capsys, "entropy")[0] == 2
    assert call(capsys, "entropy", tale.parent / "none.txt")[0] == 3


# The game -----------------------------------------------------------------------------------------


def test_models_play(tale, capsys, chars):
    options = ("--auto", "--letters", 200, "--orders", 1, 4, "--model", chars)
    code, said, _ = call(capsys, "guess", tale, *options, "--json")
    found = json.loads(said)
    assert code == 0 and len(found["text"]) == 200 and found["text"] in TALE.lower()
    players = {row["player"]: row for row in found["players"]}
    assert list(players) == ["1-grams", "4-grams", str(chars)]
    for row in players.values():
        assert len(row["ranks"]) == 200 and sum(row["q"]) == pytest.approx(1)
        assert row["mean"] == pytest.approx(np.mean(row["ranks"]))
    assert players["4-grams"]["upper"] < 2 < players["1-grams"]["upper"]
    assert call(capsys, "guess", tale, *options, "--json")[1] == said
    code, other, _ = call(capsys, "guess", tale, *options, "--json", "--seed", 1)
    assert code == 0 and json.loads(other)["begin"] != found["begin"]
    code, said, _ = call(capsys, "guess", tale, *options)
    assert code == 0 and "guesses by 4-grams" in said and "lower" in said


def test_the_passage_is_no_training_text(tale, capsys):
    tale.write_text("ab " * 200 + "qz" * 50)
    options = ("--auto", "--letters", 60, "--orders", 3, "--json", "--alphabet", "26", "--seed", 3)
    code, said, _ = call(capsys, "guess", tale, *options)
    assert code == 0 and len(json.loads(said)["players"][0]["ranks"]) == 60


def test_who_may_not_play(tale, capsys, writer, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc"))
    code, _, said = call(capsys, "guess", tale)
    assert code == 2 and "not a terminal" in said and "--auto" in said
    code, _, said = call(capsys, "guess", tale, "--auto", "--model", writer)
    assert code == 2 and "tokens such as" in said and "entropy --model" in said
    assert call(capsys, "guess", tale, "--auto", "--orders", 0)[0] == 2
    tale.write_text("ab")
    code, _, said = call(capsys, "guess", tale, "--auto")
    assert code == 3 and "2 letters" in said


def test_a_person_types():
    letters = letters_of("at a hat", "27")
    keys, drawn = iter("aTe_ t\nt a?_h" + "at"), list[str]()
    ranks = ask(letters.ids, letters.ids[:2], letters.symbols, lambda: next(keys), drawn.append)
    # for the fourth letter a blank, t, a key that is none, t and a blank again, a: three guesses
    assert ranks.tolist() == [1, 1, 2, 3, 27, 2, 1, 1]
    assert drawn[0].startswith("at▏ 1/8") and any("not e" in line for line in drawn)


def test_a_person_leaves_early():
    letters = letters_of("abc", "27")
    keys = iter("abxy\x04")
    ranks = ask(
        letters.ids, letters.ids[:0], letters.symbols, lambda: next(keys), lambda text: None
    )
    assert ranks.tolist() == [1, 1]


def test_two_lines_as_shannon_printed_them():
    assert two_lines("a cat", [1, 2, 10, 9, 1]) == ["a_cat", "12+91"]
    assert two_lines("ab" * 9, [1] * 18, 4, 2) == ["abab", "1111", "abab", "1111", "…"]


def test_a_terminal(tale):
    """Keys count at once, without the return key."""
    pty = pytest.importorskip("pty")
    environment = {**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", "guess", str(tale), "--letters", "3"]
    child, handle = pty.fork()
    if child == 0:
        os.execve(sys.executable, [*command, "--orders", "2"], environment)
    shown = b""
    while b"1/3" not in shown:
        shown += os.read(handle, 4096)
    os.write(handle, ("".join(LETTERS) + "_").encode() * 3)
    try:
        while part := os.read(handle, 4096):
            shown += part
    except OSError:  # the other side is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    text = shown.decode()
    assert "you" in text and "2-grams" in text and "Shannon's reader" in text


def test_what_an_unsmoothed_bag_rules_out_is_told_in_words(tmp_path, capsys):
    (tmp_path / "train.txt").write_text("the cat sat\nthe dog sat\n" * 3)
    (tmp_path / "test.txt").write_text("the cat\n\nthe owl saw the cat\nsat\n")
    for name, more in (("plain", ["--no-smoothing"]), ("smooth", [])):
        out = str(tmp_path / name)
        assert main(["train", "bow", str(tmp_path / "train.txt"), "--out", out, *more]) == 0
    capsys.readouterr()
    command = ["entropy", str(tmp_path / "test.txt"), "--model", str(tmp_path / "plain")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "2 of 11 tokens have probability 0, the first is 'owl'" in said
    assert "∞" in said and "inf" not in said and "-100" not in said
    assert main([*command, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["coded"][1]
    assert row["impossible"] == 2 and row["first_impossible"] == "owl"
    assert row["bits_per_letter"] is None and row["excess"] is None and row["decoded_back"]
    assert main([*command[:-1], str(tmp_path / "smooth"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["coded"][1]
    assert "impossible" not in row and row["bits_per_letter"] > 0
