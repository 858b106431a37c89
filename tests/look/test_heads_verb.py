"""`regard.look.heads`: against the functions behind it, and wrong calls."""

from __future__ import annotations

import pytest

import regard
from regard.errors import UsageError
from regard.kit import Kit
from regard.tokens.trainers import train_tokenizer
from tests.cli.small_folders import masker, pair  # noqa: F401
from tests.look.planted import planted_induction


@pytest.fixture(scope="module")
def planted():
    """A planted induction head, on letters."""
    made = train_tokenizer(["abcdefghijklmnopqrstuvwx"], "chars", 30, specials=())
    return Kit(planted_induction(made.size, 50), made)


def test_the_planted_head_comes_first(planted):
    found = regard.look.heads(planted, sort="induction", top=3)
    assert (found.rows, found.length, len(found.heads)) == (4, 24, 3)
    assert found.heads[0].name == "1.2" and found.heads[0].induction > 0.9
    (first,) = regard.look.heads(planted, sort="previous", top=1).heads
    assert first.name == "0.1" and first.previous > 0.9


def test_all_heads_as_the_model_has_them_and_by_seed(planted):
    found = regard.look.heads(planted, length=9)
    places = [(head.block, head.head) for head in found.heads]
    assert places == [(block, head) for block in range(2) for head in range(4)]
    assert found.length == 9 and found.seed == 0
    assert regard.look.heads(planted, length=9) == found
    with regard.settings(seed=1):
        assert regard.look.heads(planted, length=9).heads != found.heads


def test_encoders_and_pairs(masker, pair):  # noqa: F811
    assert len(regard.look.heads(masker).heads) == 4  # 2 blocks of 2 heads
    kit = regard.load(pair)
    found = regard.look.heads(kit).heads
    cross = [head for head in found if head.layer.endswith(".cross")]
    assert len(found) == 12 and len(cross) == 4
    assert {(head.previous, head.duplicate, head.induction) for head in cross} == {(None,) * 3}


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"length": 26}, UsageError, "at most 24"),
        ({"length": 1}, UsageError, "2 to 24"),
        ({"sort": "inductoin"}, UsageError, "did you mean induction"),
        ({"top": 0}, UsageError, "from 1 up"),
    ],
)
def test_wrong_calls(changes, error, said, planted):
    with pytest.raises(error, match=said):
        regard.look.heads(planted, **changes)
