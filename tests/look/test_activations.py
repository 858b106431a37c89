"""Capture while writing: the values of one forward pass over the finished text, at each position.

Cached, batched, rows that leave early, beams that change places.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import regard
from regard.decode.beam import BeamConfig
from regard.decode.sampling import Ends, SampleConfig
from regard.errors import UsageError
from regard.kit import Kit
from regard.model.config import HeadConfig, RecurrentConfig, TextConfig
from regard.model.precision import set_precision
from regard.model.recurrent import Recurrent
from tests.properties.small_models import (
    DECODERS,
    PAIRS,
    VOCAB,
    WRITERS,
    assert_near,
    example,
    random_ids,
    randomise,
    small_kit,
)

TAPS = ["*.embed", "*.resid_post", "*.attn.q", "*.k", "*.z", "*.mlp.post", "*.final"]
HOW = {
    "greedy": None,
    "sampling": SampleConfig(1.5, seed=3),
    "beam": BeamConfig(4),
    "diverse": BeamConfig(4, groups=2, diversity=0.5),
}
ENDS = range(9)  # several ids end a text, so that rows leave at different steps
TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(4))


def stir(logits, history):
    """A model of random weights repeats itself; with this its texts differ, and beams cross."""
    last = history[:, -1] if history.shape[1] else torch.zeros(len(logits), dtype=torch.long)
    logits = logits / logits.std(-1, keepdim=True) + TABLE[last]
    if history.shape[1] < 2:
        logits[:, : len(ENDS)] = -torch.inf
    return logits


def batch_of(kit, lengths=(7, 2, 11, 4, 1)):
    if kit.model.config.front.kind != "text":
        return kit.batch(torch.stack([example(kit, 3, n).inputs for n in range(3)]))
    return kit.batch([random_ids(length, n).tolist() for n, length in enumerate(lengths)])


def check(kit, batch, found, captured, taps):
    """Each capture against one run of its text alone."""
    assert len(captured) == len(found) == len(batch.ids)
    for row, ((best, *_), one) in enumerate(zip(found, captured, strict=True)):
        real = slice(None) if batch.mask is None else batch.mask[row]
        prompt = batch.ids[row][real].tolist()
        ids = [*prompt, *best.tokens[:-1]]
        assert one.ids.tolist() == ids and one.given == len(prompt)
        if batch.target is None:
            _, seen = kit.run([ids], taps=taps)
        elif batch.inputs.dim() == 2:
            own = slice(None) if batch.source_mask is None else batch.source_mask[row]
            assert one.source.tolist() == batch.inputs[row][own].tolist()
            _, seen = kit.run([batch.inputs[row][own].tolist()], [ids], taps=taps)
        else:
            assert one.source is None
            _, seen = kit.run(batch.inputs[row][None], [ids], taps=taps)
        assert list(one.values) and set(one.values) == set(seen)
        for name, x in seen.items():
            if name.endswith("scores"):
                assert torch.equal(one.values[name].isinf(), x[0].isinf())
                x = x.masked_fill(x.isinf(), 0.0)
                one.values[name].masked_fill_(one.values[name].isinf(), 0.0)
            assert_near(one.values[name], x[0], 1e-4)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", WRITERS)
def test_values_are_those_of_one_pass_over_the_text(name, how):
    kit = small_kit(name)
    batch = batch_of(kit)
    with kit.capture(TAPS) as captured:
        limits = [8, 5, 7, 4, 8][: len(batch.ids)]
        found = kit.search(batch, limits, HOW[how], Ends(ENDS), processes=[stir])
    lengths = {len(row[0].tokens) for row in found}
    assert len(lengths) > 1 and max(lengths) > 3
    check(kit, batch, found, captured, TAPS)


@pytest.mark.parametrize("name", ["gpt2", "llama", "window", "t5"])
def test_scores_and_patterns_grow_with_the_text(name):
    kit, taps = small_kit(name), ["*.pattern", "*.scores"]
    batch = batch_of(kit)
    for how in (None, BeamConfig(3)):
        with kit.capture(taps) as captured:
            found = kit.search(batch, 6, how, Ends(ENDS), processes=[stir])
        check(kit, batch, found, captured, taps)


def test_padding_on_the_left():
    kit, ids = small_kit("llama"), torch.stack([random_ids(9, n) for n in range(3)])
    mask = torch.arange(9) >= torch.tensor([[0], [6], [3]])
    batch = kit.batch(ids, mask=mask)
    with kit.capture(TAPS) as captured:
        found = kit.search(batch, 5, BeamConfig(2), Ends(ENDS), processes=[stir])
    check(kit, batch, found, captured, TAPS)


@pytest.mark.parametrize("attention", [None, "none", "additive"])
def test_recurrent_models(attention):
    text, head = TextConfig(8, VOCAB), HeadConfig(VOCAB)
    if attention is None:
        model = Recurrent(RecurrentConfig(text, head, hidden=8, depth=2)).eval()
    else:
        config = RecurrentConfig(text, head, target=text, hidden=8, attention=attention)
        model = Recurrent(config).eval()
    randomise(model)
    kit = Kit(model)
    taps = ["decoder.*"] if attention is None else ["decoder.*", "encoder.embed"]
    batch = batch_of(kit)
    for how in (None, BeamConfig(3)):
        with kit.capture(taps) as captured:
            found = kit.search(batch, 6, how, Ends(ENDS), processes=[stir])
        check(kit, batch, found, captured, taps)


@pytest.mark.parametrize("driver", ["fixed", "compiled", "plain"])
def test_the_answers_stay_and_nothing_is_left_behind(driver):
    kit = replace(small_kit("llama"), driver=driver)
    plain = small_kit("llama")
    batch = batch_of(kit)
    wanted = plain.search(batch, 6, BeamConfig(3), Ends(ENDS))
    with kit.capture("*.resid_post") as captured:
        found = kit.search(batch, 6, BeamConfig(3), Ends(ENDS))
        more = kit.search(batch, 3, None, Ends(ENDS))
    assert [row[0].tokens for row in found] == [row[0].tokens for row in wanted]
    assert len(captured) == len(found) + len(more)
    check(plain, batch, more, captured[len(found) :], ["*.resid_post"])
    assert all(tap.fn is None for tap in kit.hooked.taps.values())
    with pytest.raises(RuntimeError), kit.capture("*.z"):
        raise RuntimeError
    assert kit.hooked.keep is None and all(t.fn is None for t in kit.hooked.taps.values())


def test_packed_products():
    kit = small_kit("gpt2")
    set_precision(kit.model, "int8")
    batch = batch_of(kit)
    with kit.capture("*.resid_post") as captured:
        found = kit.search(batch, 6, None, Ends(ENDS))
    check(kit, batch, found, captured, ["*.resid_post"])


def test_texts_and_edits():
    kit = small_kit("gpt2")
    prompt = [random_ids(4, 1).tolist(), random_ids(2, 2).tolist()]
    with kit.edit({"*.0.attn.z": regard.zero(head=1)}), kit.capture("*.resid_post") as captured:
        made = kit.generate(prompt, 5)
        _, seen = kit.run([captured[1].ids.tolist()], taps="*.resid_post")
    assert captured[1].ids.tolist() == [*prompt[1], *made[1].tolist()[:-1]]
    for name, x in seen.items():
        assert_near(captured[1].values[name], x[0], 1e-4)


@pytest.mark.parametrize("strict", [False, True])
def test_scores_and_strict_texts(strict):
    """The scores of each new token are those that it was chosen by."""
    kit = small_kit("llama")
    with kit.capture(["logits", "*.z"]) as captured:
        made = kit.generate(
            [random_ids(4, 1).tolist(), random_ids(2, 2).tolist()], 5, strict=strict
        )
    for one, new in zip(captured, made, strict=True):
        assert one.values["logits"][one.given - 1 :].argmax(-1).tolist() == new.tolist()
        assert len(one.values["decoder.blocks.0.attn.z"]) == len(one.ids) == one.given + 4


def test_one_capture_at_a_time():
    kit = small_kit("gpt2")
    with pytest.raises(UsageError, match="one at a time"), kit.capture("*.z"), kit.capture("*.z"):
        pass


# Edits of positions while a text is written -------------------------------------------------------


def slow_greedy(kit, ids, source, steps, edits):
    """One whole pass for each token, without a cache."""
    ids, start = list(ids), len(ids)
    for _ in range(steps):
        with kit.edit({tap: make(len(ids)) for tap, make in edits.items()}):
            logits = kit.logits([ids]) if source is None else kit.logits([source], [ids])
        history = torch.tensor([ids[start:]], dtype=torch.long)
        ids.append(int(stir(logits[:, -1], history).argmax()))
    return ids[len(ids) - steps :]


@pytest.mark.parametrize("name", [*DECODERS, *PAIRS])
@pytest.mark.parametrize("beams", [0, 1])
def test_positions_are_those_of_the_text(name, beams):
    kit = small_kit(name)
    batch = batch_of(kit)
    vector = 3 * torch.randn(32, generator=torch.Generator().manual_seed(0))
    edits = {  # of a text of so many tokens
        "decoder.blocks.0.resid_post": lambda length: regard.add(
            vector if length > 1 else 0, position=[n for n in (1, 5, 8) if n < length] or [0]
        ),
        "decoder.blocks.1.attn.z": lambda length: regard.zero(head=2, position=slice(3, None)),
    }
    if batch.target is not None:
        edits["encoder.blocks.0.resid_post"] = lambda length: regard.add(vector, position=0)
    plain = kit.search(batch, 6, None, Ends(), processes=[stir])
    with kit.edit({tap: make(99) for tap, make in edits.items()}):
        how = BeamConfig(1) if beams else None
        found = kit.search(batch, 6, how, Ends(), processes=[stir])
    changed = 0
    for row, (best, *_) in enumerate(found):
        real = slice(None) if batch.mask is None else batch.mask[row]
        source = None
        if batch.target is not None:
            own = slice(None) if batch.source_mask is None else batch.source_mask[row]
            source = batch.inputs[row][own].tolist()
        wanted = slow_greedy(kit, batch.ids[row][real].tolist(), source, 6, edits)
        assert best.tokens == wanted
        changed += best.tokens != plain[row][0].tokens
    assert changed


def test_a_mean_of_a_run_is_refused_and_strict_mode_has_positions():
    kit, prompt = small_kit("gpt2"), [random_ids(40, 1).tolist(), random_ids(3, 2).tolist()]
    with pytest.raises(UsageError, match="mean of a run"), kit.edit({"*.z": regard.mean()}):
        kit.generate([[1, 2]], 3)
    with kit.edit({"*.0.resid_post": regard.add(9.0, position=[1, 36])}):
        assert_near(kit.logits(prompt, strict=True)[0], kit.logits(prompt)[0])
        assert torch.equal(kit.generate(prompt, 4, strict=True), kit.generate(prompt, 4))
    with (
        pytest.raises(UsageError, match="being written"),
        kit.edit({"*.z": regard.zero(position=-1)}),
    ):
        kit.generate([[1, 2]], 3)


def test_positions_of_a_recurrent_model_go_on():
    config = RecurrentConfig(TextConfig(8, VOCAB), HeadConfig(VOCAB), hidden=8, depth=2)
    model = Recurrent(config).eval()
    randomise(model)
    kit, prompt = Kit(model), [random_ids(5, 1).tolist(), random_ids(2, 2).tolist()]
    with kit.edit({"decoder.cells.0.state": regard.add(3.0, position=[1, 4])}):
        together, alone = kit.logits(prompt), [kit.logits([row]) for row in prompt[:1]]
        assert_near(together[0], alone[0][0])
        left = torch.tensor([prompt[0], [0, 0, 0, *prompt[1]]])
        mask = torch.tensor([[True] * 5, [False] * 3 + [True] * 2])
        assert_near(kit.logits(left, mask=mask)[1, 3:], together[1, :2])
        text = list(prompt[0])
        for _ in range(3):
            text.append(int(kit.logits([text])[0, -1].argmax()))
        assert kit.generate(prompt[:1], 3).tolist() == [text[5:]]
    with kit.edit({"decoder.cells.0.state": regard.add(3.0, position=4)}):
        wanted = kit.logits(prompt[:1])
    with kit.edit({"decoder.cells.0.state": regard.add(3.0, position=-1)}):
        assert_near(kit.logits(prompt[:1]), wanted)


# The model in the box -----------------------------------------------------------------------------


@pytest.mark.parametrize("wishes", [{}, {"shortlist": False}, {"must": ["house"]}])
def test_translations_with_and_without_a_shortlist(wishes):
    kit = regard.load("fr-en")
    texts = ["Le chat dort sur la table.", "Il dort."]
    if "must" in wishes:
        texts = ["La maison est grande."]
    taps = ["decoder.*.resid_post", "encoder.*.resid_post"]
    wanted = [found.text for found in kit.translate(texts, **wishes)]
    with kit.capture(taps) as captured:
        assert [found.text for found in kit.translate(texts, **wishes)] == wanted
    assert len(captured) >= len(texts)
    for text, answer in zip(texts, wanted, strict=True):
        source = kit.tokenizer.encode(text)
        (one,) = [c for c in captured if c.source.tolist() == source]
        assert kit.text(one.ids.tolist()[one.given :]) == answer
        _, seen = kit.run([source], [one.ids.tolist()], taps=taps)
        for name, x in seen.items():
            assert_near(one.values[name], x[0], 1e-4)
