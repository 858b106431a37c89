"""The same sentence gives the same tokens however it is decoded (MISSION #64, N6).

Alone, in a batch of 64 of unequal lengths, padded on the left or the right, by greedy search or a
beam of 1 or 4, with a cache or without.
"""

from __future__ import annotations

import pytest
import torch

from regard.decode.beam import BeamConfig, length_penalty
from regard.decode.constraints import no_repeat
from regard.decode.loop import run_search
from regard.decode.sampling import Ends, SampleConfig
from regard.model.batch import Batch
from tests.decode.toy import beam, generate
from tests.properties.small_models import VOCAB, WRITERS, Example, example, small_kit

LIMIT, ROWS = 7, 64
NEW = [no_repeat(1)]  # random models say one word for ever
HOW = {
    "greedy": None,
    "beam 1": BeamConfig(1, 1, length_penalty("none")),
    "beam 4": BeamConfig(4, 3),
    "sample": SampleConfig(temperature=0.8, top_p=0.9, seed=3),
}


class Uncached:
    """A step that runs each row alone, from its beginning, every time."""

    def __init__(self, model, one: Example) -> None:
        self.model, self.one, self.rows = model, one, None

    def __call__(self, ids):
        old = [[]] if self.rows is None else self.rows
        self.rows = [[*row, *new] for row, new in zip(old, ids.tolist(), strict=True)]
        found = [self.model(self.batch(torch.tensor([row])))[0, -1] for row in self.rows]
        return torch.stack(found).detach()

    def batch(self, ids):
        return Batch(ids) if self.one.target is None else Batch(self.one.inputs[None], ids)

    def select(self, rows, group=1):
        self.rows = [list(self.rows[row]) for row in rows.tolist()]


def make_rows(kit):
    """64 sentences of 1 to 23 tokens; an encoder-decoder's target begins with one token."""
    given = [example(kit, 1 + 5 * n % 23, n) for n in range(ROWS)]
    if kit.model.config.target is None:
        return given
    return [Example(one.inputs, torch.tensor([4])) for one in given]


def alone(one):
    target = None if one.target is None else one.target[None]
    return Batch(one.inputs[None], target)


def together(given, side):
    """All in one batch, random ids as padding."""
    target = None if given[0].target is None else torch.stack([one.target for one in given])
    if given[0].inputs.dim() > 1:
        return Batch(torch.stack([one.inputs for one in given]), target)
    width = max(len(one.inputs) for one in given)
    ids, mask = torch.randint(0, VOCAB, (len(given), width)), torch.zeros(len(given), width).bool()
    for row, one in enumerate(given):
        size = len(one.inputs)
        at = slice(width - size, width) if side == "left" else slice(0, size)
        ids[row, at], mask[row, at] = one.inputs, True
    return Batch(ids, target, **{"mask" if target is None else "source_mask": mask})


def some_ends(kit, given):
    """Two tokens that end some of the rows."""
    free = run_search(kit.model, together(given, "right"), LIMIT, processes=NEW)
    return Ends({free[1][0].tokens[2], free[2][0].tokens[4]})


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", WRITERS)
def test_same_tokens(name, how):
    kit = small_kit(name)
    given, config = make_rows(kit), HOW[how]
    ends = some_ends(kit, given)
    left = run_search(kit.model, together(given, "left"), LIMIT, config, ends, NEW)
    right = run_search(kit.model, together(given, "right"), LIMIT, config, ends, NEW)
    ended = 0
    for row, (a, b) in enumerate(zip(left, right, strict=True)):
        assert [h.tokens for h in a] == [h.tokens for h in b]
        assert [h.logprob for h in a] == pytest.approx([h.logprob for h in b], abs=1e-4)
        ended += a[0].finished
        if row % 4:
            continue  # alone takes its time
        own = SampleConfig(**{**vars(config), "first": row}) if how == "sample" else config
        single = run_search(kit.model, alone(given[row]), LIMIT, own, ends, NEW)[0]
        assert [h.tokens for h in single] == [h.tokens for h in a]
    assert ended > 0


@pytest.mark.parametrize("name", WRITERS)
def test_without_a_cache(name):
    kit = small_kit(name)
    ends = some_ends(kit, make_rows(kit))
    for one in make_rows(kit)[3:6]:
        start = alone(one).ids
        plain = generate(Uncached(kit.model, one), start, LIMIT, ends=ends, processes=NEW)[0]
        cached = run_search(kit.model, alone(one), LIMIT, None, ends, NEW)[0][0]
        assert plain.tokens == cached.tokens
        assert plain.logprob == pytest.approx(cached.logprob, abs=1e-4)
        wide = HOW["beam 4"]
        searched = beam(Uncached(kit.model, one), start, LIMIT, ends.eos, wide, NEW)[0]
        found = run_search(kit.model, alone(one), LIMIT, wide, ends, NEW)[0]
        assert [h.tokens for h in searched] == [h.tokens for h in found]
        assert [h.logprob for h in searched] == pytest.approx([h.logprob for h in found], abs=1e-4)


@pytest.mark.parametrize("name", ["llama", "transformer"])
@pytest.mark.parametrize("how", ["greedy", "beam 4"])
def test_strict_scores_are_the_same_bits(name, how):
    kit = small_kit(name)
    given, config = make_rows(kit)[:5], HOW[how]
    ends = some_ends(kit, given)
    many = run_search(kit.model, together(given, "left"), LIMIT, config, ends, NEW, strict=True)
    for one, found in zip(given, many, strict=True):
        single = run_search(kit.model, alone(one), LIMIT, config, ends, NEW, strict=True)[0]
        assert single == found  # tokens, and log-probabilities to the last bit
