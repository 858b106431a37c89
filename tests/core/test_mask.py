"""Masks against brute force: True = may attend (MISSION #34, #36)."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core import mask as masks


def brute(queries, keys, rule):
    """(1, 1, T, S) by asking the rule for each pair."""
    return torch.tensor([[[[rule(i, j) for j in range(keys)] for i in range(queries)]]])


@given(keys=st.integers(1, 7), cut=st.integers(0, 6))
def test_causal_with_the_queries_at_the_end(keys, cut):
    queries = max(1, keys - cut)
    expected = brute(queries, keys, lambda i, j: j <= i + keys - queries)
    assert torch.equal(masks.causal(queries, keys), expected)


def test_padding_is_about_keys():
    real = torch.tensor([[True, True, False], [False, True, True]])
    found = masks.padding(real).expand(2, 1, 4, 3)
    for b in range(2):
        for t in range(4):
            assert torch.equal(found[b, 0, t], real[b])


@given(length=st.integers(1, 8), width=st.integers(1, 9))
def test_window_with_causal_sees_width_positions_itself_included(length, width):
    places = torch.arange(length)[None]
    found = masks.window(places, places, width) & masks.causal(length, length)
    assert torch.equal(found, brute(length, length, lambda i, j: 0 <= i - j < width))
    if width >= length:
        assert torch.equal(found, masks.causal(length, length))


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    keys=st.integers(1, 6),
    cut=st.integers(0, 5),
)
def test_prefix_is_full_inside_and_causal_after(lengths, keys, cut):
    queries = max(1, keys - cut)
    found = masks.prefix(torch.tensor(lengths), queries, keys)
    for row, prefix in enumerate(lengths):
        expected = brute(queries, keys, lambda i, j, p=prefix: j <= i + keys - queries or j < p)
        assert torch.equal(found[row : row + 1], expected)


@given(documents=st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_documents_see_themselves_only(documents):
    given = torch.tensor([documents])
    expected = brute(len(documents), len(documents), lambda i, j: documents[i] == documents[j])
    assert torch.equal(masks.documents(given, given), expected)


@settings(max_examples=50)
@given(rows=st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=9))
def test_positions_count_real_tokens_of_the_same_document(rows):
    real = torch.tensor([[r for r, _ in rows]])
    document = torch.tensor([[d for _, d in rows]])
    plain, packed = masks.positions(real)[0], masks.positions(real, document)[0]
    for t, (token, number) in enumerate(rows):
        if token:  # at padding, any position that is in range will do
            assert int(plain[t]) == sum(r for r, _ in rows[:t])
            assert int(packed[t]) == sum(r for r, d in rows[:t] if d == number)
        assert 0 <= int(plain[t]) < len(rows) and 0 <= int(packed[t]) < len(rows)


def test_padding_left_or_right_changes_no_position():
    left, right = torch.tensor([[False, False, True, True], [True, True, False, False]])
    assert masks.positions(left[None])[0, 2:].tolist() == [0, 1]
    assert masks.positions(right[None])[0, :2].tolist() == [0, 1]


def test_dead_rows_are_opened_and_named():
    allow = torch.tensor([[[[True, False], [False, False]]]])
    opened, live = masks.live_rows(allow)
    assert opened.tolist() == [[[[True, False], [True, True]]]]
    assert live.tolist() == [[[[True], [False]]]]
