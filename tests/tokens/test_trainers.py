"""Training: against the bare library, lossless round trips, offsets, control tokens, counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Rust

from regard.data.text_files import read_parts
from regard.errors import DataError, UsageError
from regard.tokens import trainers as ours
from regard.tokens import word_counts
from regard.tokens.tokenizer_folder import open_tokenizer
from regard.tokens.trainers import train_tokenizer
from regard.tokens.word_counts import WordCounts, count_words, repeat, thin
from tests.tokens.small_tokenizers import CORPUS, TEXTS

TEXT = "Je suis un château 🎉\0 e\u0301 <mask></s> [CLS] 日本語\n\n  x"
EVERY = [
    ("bpe", 400, {}),
    ("pieces", 400, {}),
    ("wordpiece", 200, {}),
    ("words", None, {}),
    ("words", None, {"lossless": True}),
    ("chars", None, {}),
    ("chars", None, {"lossless": True}),
    ("graphemes", None, {}),
    ("graphemes", None, {"lossless": True}),
    ("bytes", None, {}),
]
SHORT = ["it's he's we'd I'm they'll you've"] * 30
LOSSLESS = [row for row in EVERY if row[0] in ("bpe", "bytes") or row[2]]
MADE = {
    (kind, bool(options)): train_tokenizer(CORPUS, kind, size, wrap="bos-eos", **options)
    for kind, size, options in EVERY
}


@pytest.mark.parametrize("size", [300, 450])
def test_same_as_the_bare_library_on_the_same_file(tmp_path, size):
    file = tmp_path / "corpus.txt"
    file.write_text(
        "\n".join([*CORPUS, *TEXTS, "", "  two  ", *SHORT]), encoding="utf-8", newline=""
    )
    bare = Rust(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train([str(file)], trainer)
    ours = train_tokenizer(read_parts(file), "bpe", size, min_count=2)
    assert json.loads(ours.files["tokenizer.json"])["model"] == json.loads(bare.to_str())["model"]
    assert ours.size == bare.get_vocab_size() and ours.specials == {"pad": 0, "bos": 1, "eos": 2}


@pytest.mark.parametrize(("kind", "size", "options"), LOSSLESS)
@given(text=st.text(max_size=40))
def test_lossless(kind, size, options, text):
    made = MADE[kind, bool(options)]
    ids = made.encode(text)
    assert made.decode(ids) == text
    assert not set(made.specials.values()) & set(ids[1:-1])
    assert (ids[0], ids[-1]) == (made.specials["bos"], made.specials["eos"])


@pytest.mark.parametrize(("kind", "size", "options"), EVERY)
def test_spelled_control_tokens_stay_text(kind, size, options):
    roles = ("pad", "bos", "eos", "mask", "cls", "sep")
    texts = [*CORPUS, "<mask> mask </s> <pad> [MASK]" * 9]  # spelt in the corpus, too
    made = train_tokenizer(texts, kind, size, specials=roles, **options)
    for role, id in made.specials.items():
        spelt = made.pieces([id])[0]
        assert role == "unk" or id not in made.encode(spelt)
        assert made.encode(spelt, allow_special=True) == [id]


@pytest.mark.parametrize(("kind", "size", "options"), EVERY)
def test_offsets_over_accents_and_emoji(kind, size, options):
    made = MADE[kind, bool(options)]
    spans = made.offsets(TEXT, special=False)
    covered = {at for start, end in spans for at in range(start, end)}
    needed = set(range(len(TEXT)))
    if kind in ("words", "wordpiece") and not options:
        needed = {at for at in needed if not TEXT[at].isspace() and TEXT[at] != "\0"}
    if kind == "pieces":  # blanks become one; an accent becomes part of the letter before it
        needed = {
            at for at in needed if not (TEXT[at].isspace() or unicodedata.combining(TEXT[at]))
        }
    assert needed <= covered and all(start < end for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    if kind == "words" and not options:
        assert [TEXT[s:e] for s, e in spans][:4] == ["Je", "suis", "un", "château"]


def test_words_and_chars_know_what_they_do_not_know():
    words = train_tokenizer(["a b a", "c a b"], "words", specials=("pad",))
    assert words.pieces(words.encode("a b zebra c")) == ["a", "b", "<unk>", "c"]
    assert words.pieces(range(words.size)) == ["<pad>", "<unk>", "a", "b", "c"]
    chars = train_tokenizer(["abba", "a"], "chars", specials=())
    assert chars.pieces(chars.encode("abz")) == ["a", "b", "<unk>"]
    assert train_tokenizer(["a b a c"], "words", 3, specials=()).encode("a b c") == [1, 2, 0]


def test_bytes_are_their_ids():
    made = train_tokenizer((), "bytes")
    assert made.encode("aé\0") == [97, 0xC3, 0xA9, 0] and made.size == 259
    assert made.specials == {"pad": 256, "bos": 257, "eos": 258}


@pytest.mark.parametrize(
    ("wrap", "around"),
    [
        ("none", []),
        ("bos", ["<s>"]),
        ("eos", ["</s>"]),
        ("bos-eos", ["<s>", "</s>"]),
        ("cls-sep", ["[CLS]", "[SEP]"]),
    ],
)
def test_wrap(wrap, around):
    made = train_tokenizer(CORPUS, "bpe", 300, specials=(), wrap=wrap)
    assert made.pieces(made.encode("")) == around
    inside = made.pieces(made.encode("a"))
    assert inside.index("a") == (wrap in ("bos", "bos-eos", "cls-sep"))
    assert made.pieces(made.encode("", special=False)) == []
    assert len(made.specials) == len(around)


@pytest.mark.parametrize(("kind", "size", "options"), EVERY)
def test_transformers_opens_the_folder_with_the_same_ids(tmp_path, kind, size, options):
    from transformers import AutoTokenizer

    made = MADE[kind, bool(options)]
    made.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs = AutoTokenizer.from_pretrained(tmp_path)
    ours = open_tokenizer(tmp_path)
    assert type(theirs).__name__ in ("PreTrainedTokenizerFast", "TokenizersBackend")
    assert ours is not None and ours.specials == made.specials and len(theirs) == made.size
    for role, id in made.specials.items():
        assert getattr(theirs, f"{role}_token_id") == id
    for text in TEXTS[:-1]:  # the last spells control tokens, which transformers reads as such
        assert theirs(text)["input_ids"] == made.encode(text) == ours.encode(text)
        assert theirs.decode(made.encode(text), skip_special_tokens=True) == ours.decode(
            made.encode(text)
        )


def test_same_texts_give_the_same_bytes_in_every_process(tmp_path):
    code = (
        "import sys, hashlib\nfrom regard.tokens.trainers import train_tokenizer\n"
        "from tests.tokens.test_trainers import CORPUS, EVERY\n"
        "for k, n, o in EVERY:\n"
        "    made = train_tokenizer(CORPUS, k, n, wrap='bos-eos', **o)\n"
        "    print(hashlib.md5(made.files['tokenizer.json']).hexdigest())"
    )
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code]
    there = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=True)
    import hashlib

    here = [hashlib.md5(t.files["tokenizer.json"]).hexdigest() for t in MADE.values()]
    assert there.stdout.split() == here


# Counting --------------------------------------------------------------------------------------


def test_counts_do_not_depend_on_chunks(monkeypatch):
    cut = pre_tokenizers.Whitespace()
    whole = count_words(CORPUS, cut).words
    monkeypatch.setattr(word_counts, "CHUNK", 50)
    assert count_words(iter(CORPUS), cut).words == whole == Counter(whole)
    assert whole["the"] == 80 and count_words([], cut).words == {}


def test_rare_words_are_dropped_when_memory_is_short_and_it_is_said(monkeypatch, capsys):
    monkeypatch.setattr(word_counts, "CHUNK", 20)
    texts = ["the cat", *(f"rare{n} the cat" for n in range(200))]
    counts = count_words(texts, pre_tokenizers.Whitespace(), room=100)
    assert counts.lost >= 1 and sum(map(len, counts.words)) <= 100
    for word in ("the", "cat"):
        assert 201 - counts.lost <= counts.words[word] <= 201
    assert WordCounts(room=3).lost == 0
    small = {"room": 100}
    monkeypatch.setattr(ours, "count_words", lambda *a: count_words(*a, **small))
    train_tokenizer(texts, "bpe", 300)
    assert "counts may be too low by" in capsys.readouterr().err


PLAIN = "aé̄1,'漢😀      "
ODD = PLAIN + "\u0d4e\t\r\n\x00\u00a0\u2028"
CUTTING = {
    "words": (pre_tokenizers.Whitespace(), None),
    "bpe": (pre_tokenizers.Split(Regex(ours.WORD), "isolated"), None),
    "pieces": (pre_tokenizers.Split(Regex(ours.PIECE), "isolated"), ours.SENTENCE),
    "wordpiece": (pre_tokenizers.BertPreTokenizer(), ours.BERT),
}


@pytest.mark.parametrize("kind", CUTTING)
@given(st.lists(st.text(PLAIN, max_size=9) | st.text(ODD, max_size=9), max_size=6), st.booleans())
def test_texts_cut_at_spaces_have_the_words_of_whole_texts(kind, texts, ended):
    lines = [text + "\n" if ended else text for text in texts]
    cut, clean = CUTTING[kind]
    pieces = count_words(lines, cut, clean).words
    assert pieces == count_words(lines, cut, clean, whole=True).words


def test_pairs_past_32_bits_keep_their_order(monkeypatch):
    # The library merges with 32 bits and loses a pair seen more often (tokenizers#437).
    counts = Counter({"the": 3 * 2**31, "cat": 2**31, "xy": 5})
    thinned, share = thin(counts)
    assert share == 4 and thinned == {"the": 3 * 2**29, "cat": 2**29, "xy": 1}
    assert thin(Counter({"ab": 2**31 - 1, "cd": 2**31 - 1}))[1] == 1  # no pair is past it
    exact = train_tokenizer(["the " * 40 + "cat " * 8] * 9, "bpe", 264, specials=())
    monkeypatch.setattr(ours, "thin", lambda counts: thin(counts, 100))
    texts = ["the " * 40 + "cat " * 8] * 9
    close = train_tokenizer(texts, "bpe", 264, specials=(), min_count=72)
    assert close.files == exact.files


def test_repeat_says_each_word_as_often_as_counted():
    counts = Counter({"a": 2500, "b": 1000, "c": 3})
    assert Counter(" ".join(repeat(counts)).split()) == counts


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "arguments", "said"),
    [
        (["a"], {"kind": "bep", "size": 9}, "did you mean bpe?"),
        (["a"], {"wrap": "bos_eos", "size": 300}, "did you mean bos-eos?"),
        (["a"], {"size": 258}, "at least 259: 256 bytes and 3 control tokens"),
        (["ab"], {"kind": "wordpiece", "size": 7}, "at least 8: 3 letters"),
        (["a"], {"kind": "wordpiece", "size": 99, "lossless": True}, "bpe, bytes, words or chars"),
        (["a"], {"size": 300, "specials": ("pda",)}, "did you mean pad?"),
        (["a"], {"size": 300, "specials": ("pad", "pad")}, "a role twice"),
        ("a text", {"size": 300}, "a single str"),
        ([b"a"], {"size": 300}, "bytes at index 0"),
    ],
)
def test_a_wrong_call_says_the_limit(texts, arguments, said):
    with pytest.raises(UsageError) as caught:
        train_tokenizer(texts, **arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "words", "chars"])
def test_empty_and_broken_texts(kind):
    for texts in ([], ["", ""]):
        with pytest.raises(DataError, match="expected: at least one word"):
            train_tokenizer(texts, kind, 400)
    with pytest.raises(DataError, match="surrogate pair at character 2 of text 1"):
        train_tokenizer(["fine", "no\ud800"], kind, 400)


def test_a_least_count_that_none_has_names_the_largest():
    with pytest.raises(DataError, match="the most frequent occurs 2 times"):
        train_tokenizer(["a b a"], "words", min_count=3)


def test_an_error_of_the_reader_comes_through(tmp_path):
    (tmp_path / "a").write_bytes(b"fine\n\xff")
    with pytest.raises(DataError, match="byte 5"):
        train_tokenizer(read_parts(tmp_path / "a"), "bpe", 300)


def test_graphemes_stay_whole_and_unseen_ones_fall_apart():
    accent, emoji = "e\u0301", "👩🏽\u200d🚀"
    made = train_tokenizer([f"{accent}t{accent} {emoji}\r\n u\u0301"], "graphemes", lossless=True)
    text = f"{emoji}{accent}\r\nte"
    assert made.pieces(made.encode(text)) == [emoji, accent, "\r\n", "t", "e"]
    spans = made.offsets(text)
    assert [text[a:b] for a, b in spans] == [emoji, accent, "\r\n", "t", "e"]
    assert made.pieces(made.encode("t\u0301")) == ["t", "\u0301"]
    for unseen in ("日本語", "🎉e\u0301x", "\0"):
        assert made.decode(made.encode(unseen)) == unseen


def test_pieces_make_sentences_alike():
    made = train_tokenizer([*CORPUS, "l'animal de l'animal, 1984 et 1985"] * 3, "pieces", 330)
    for text in ("l'animal", "  l’animal ", "l'animal\u00a0", "l'animal\n"):
        assert made.encode(text) == made.encode("l'animal")
        assert made.decode(made.encode(text)) == "l'animal"
    assert made.encode("x l'animal")[-len(made.encode("l'animal")) :] == made.encode("l'animal")
    pieces = [made.decode([i]) for i in made.encode("en 1984")]
    assert pieces[-4:] == ["1", "9", "8", "4"]
    assert made.decode(made.encode("e\u0301té 🎉 日本語")) == "été 🎉 日本語"


@given(text=st.text(max_size=40))
def test_pieces_give_back_what_they_made_of_a_text(text):
    made = MADE["pieces", False]
    once = made.decode(made.encode(text))
    assert made.decode(made.encode(once)) == once
    assert "".join(once.split()) == "".join(
        unicodedata.normalize("NFC", text).replace("’", "'").split()
    )
