"""Stop strings."""

from __future__ import annotations

from regard.decode.constraints import StopText

LETTERS = "abcdefghijklmnopqrstuvwxyz \n"


def decode(tokens):
    return "".join(LETTERS[token] for token in tokens)


def encode(text):
    return [LETTERS.index(letter) for letter in text]


def test_true_once_the_text_holds_one():
    stop = StopText(decode, ["the end", "\n"])
    tokens = encode("this is the end of it")
    ends = [n for n in range(len(tokens) + 1) if stop(tokens[:n])]
    assert ends[0] == len("this is the end")
    assert stop(encode("a\n")) and not stop(encode("a")) and not stop([])


def test_only_the_end_is_decoded():
    asked = []
    stop = StopText(lambda tokens: asked.append(len(tokens)) or decode(tokens), ["abc"])
    assert not stop(encode("x" * 1000)) and asked == [7]


def test_cut_at_the_first():
    stop = StopText(decode, ["b", "cd"])
    assert stop.cut("aacdb") == "aa" and stop.cut("xyz") == "xyz" and stop.cut("b") == ""


def test_empty_strings_stop_nothing():
    stop = StopText(decode, ["", ""])
    assert not stop(encode("abc")) and stop.cut("abc") == "abc"
