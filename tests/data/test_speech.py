"""Fillers and restarts, and transcripts and trees without them."""

from __future__ import annotations

import random

import pytest

from regard.data.speech import clean, clean_tree, find_marks, show_marks
from regard.data.treebank import ConllSentence, heads_of


@pytest.mark.parametrize(
    ("said", "shown", "cleaned"),
    [
        ("so um I I went", "so {um} [I] I went", "so I went"),
        ("and uh we had we had five", "and {uh} [we had] we had five", "and we had five"),
        ("I wan- I want to go", "[I [wan-]] I want to go", "I want to go"),
        ("well the, uh, the dog", "well [the, {uh,}] the dog", "well the dog"),
        ("the the the dog", "[the] [the] the dog", "the dog"),
    ],
)
def test_marks(said, shown, cleaned):
    assert show_marks(said.split(), find_marks(said.split())) == shown
    assert clean(said) == cleaned and not find_marks(cleaned.split())


@pytest.mark.parametrize(
    "text",
    [
        "He is small. Small houses are cheap.",
        "pre- and post-war houses",
        "a very very long day that had had no end, no, no",
        "um 8 Uhr geht er nach Hause",
        "Nous nous levons, vous vous couchez",
        "The band The Tap Tap played = = twice",
        "it ended with exam-",
        "call 5 5 5 now",
    ],
)
def test_written_text_has_none(text):
    assert find_marks(text.split()) == [] and clean(text) == text


def test_what_was_put_in_is_taken_out():
    """Lines of different words; any mix of fillers, repeats and broken words comes out again."""
    rng = random.Random(0)
    for _ in range(300):
        words = [f"{a}{b}ok" for a in "bdfk" for b in "aeiou"]
        line = rng.sample(words, rng.randrange(4, 12))
        spoken: list[str] = []
        at = 0
        while at < len(line):
            size, how = rng.randrange(1, 4), rng.randrange(5)
            part = line[at : at + size]
            if how == 0:
                spoken += [*part, rng.choice(["uh", "hmm", "Uhm,"])]
            elif how == 1:
                spoken += part
            elif how == 2:
                spoken += [part[0][:2] + "-"]
            spoken += part if how != 1 else []
            at += size
        if spoken[-1].rstrip(",").lower() in ("uh", "hmm", "uhm"):
            spoken.pop()
        assert clean(" ".join(spoken)) == " ".join(line)


def test_trees_without_restarts_are_trees(tmp_path):
    forms = "I uh want I need a a book".split()
    heads = "5 1 5 5 0 8 8 5".split()  # want: a restart that only the treebank knows
    relations = "reparandum discourse x nsubj root det det obj".split()
    given = ConllSentence(1, {"form": forms, "head": heads, "deprel": relations})
    made = clean_tree(given)
    assert made.forms == ["want", "I", "need", "a", "book"]
    assert heads_of("x", made) == [2, 2, -1, 4, 2] and given.forms == forms
    root = clean_tree(ConllSentence(1, {"form": "um the dog".split(), "head": ["0", "3", "1"]}))
    assert root.forms == ["the", "dog"] and heads_of("x", root) == [1, -1]


def test_random_trees_keep_what_is_above():
    rng = random.Random(1)
    for _ in range(200):
        count = rng.randrange(2, 12)
        order = rng.sample(range(count), count)
        heads = ["0"] * count
        for n, word in enumerate(order[1:], 1):
            heads[word] = str(order[rng.randrange(n)] + 1)
        forms = [rng.choice(["uh", f"w{n}x"]) for n in range(count)]
        made = clean_tree(ConllSentence(1, {"form": forms, "head": heads}))
        if "uh" in forms and set(forms) != {"uh"}:
            assert made.forms == [form for form in forms if form != "uh"]
        heads_of("x", made)  # a tree, or an error
