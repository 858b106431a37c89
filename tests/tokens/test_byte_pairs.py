"""The teaching BPE: the Peter Piper oracle (MISSION row 6) and the edges."""

from __future__ import annotations

from regard.tokens.byte_pairs import Merge, learn_merges, replay_merges

PETER = "Peter Piper picked a peck of pickled peppers"


def test_peter_piper():
    merges, words = learn_merges(PETER)
    assert [(*m.pair, m.count) for m in merges] == [
        ("p", "e", 4),
        ("c", "k", 3),
        ("pe", "r", 2),
        ("p", "i", 2),
        ("pi", "ck", 2),
        ("e", "d", 2),
    ]
    cut = "P e t e r / P i per / pick ed / a / pe ck / o f / pick l ed / pe p per s"
    assert " / ".join(" ".join(word) for word in words) == cut


def test_limit_stops_early_and_late():
    assert [m.count for m in learn_merges(PETER, 2)[0]] == [4, 3]
    assert len(learn_merges(PETER, 100)[0]) == 6
    assert learn_merges(PETER, 0)[1][0] == list("Peter")


def test_equals_go_to_the_pair_seen_first():
    assert learn_merges("xy ab ab xy", 1)[0] == [Merge(("x", "y"), 2)]


def test_overlapping_pairs_join_from_the_left():
    merges, words = learn_merges("aaaaa")
    assert merges[0] == Merge(("a", "a"), 4) and words == [["aa", "aa", "a"]]
    assert learn_merges("") == ([], [])


def test_replay_takes_the_pair_learnt_first():
    ranks = {("b", "c"): 0, ("a", "b"): 1, ("a", "bc"): 2}
    steps = ["a b c", "a bc  (merge 1)", "abc  (merge 3)"]
    assert list(replay_merges("abc", ranks, str)) == steps
