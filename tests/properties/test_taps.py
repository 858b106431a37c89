"""Taps: idle ones cost nothing and change nothing, attached ones never go unheard (section 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import regard
from regard.core.tap import Tap, taps
from regard.errors import UsageError
from tests.properties.small_models import (
    PAIRS,
    Example,
    assert_near,
    example,
    run_alone,
)

T, S = 7, 11  # what the last stack and an encoder-decoder's encoder read


def on(*names):
    return pytest.mark.parametrize("every_preset", names, indirect=True)


def arguments(one):
    return one.inputs[None], None if one.target is None else one.target[None]


@pytest.fixture
def one(every_preset) -> Example:
    return example(every_preset, T, 1, S)


def shapes(kit, one):
    """Documented shape of every tap of a small model, for a batch of one."""
    config = kit.model.config
    found = {}
    source = S if config.front.kind == "text" else {"image": 17, "audio": 30}[config.front.kind]
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        if stack is None:
            continue
        both = config.encoder is not None and config.decoder is not None
        length = source if name == "encoder" and (both or config.front.kind != "text") else T
        block, stream = stack.block, (1, length, stack.block.dim)
        heads = (1, length, block.heads, block.width)
        found |= {f"{name}.embed": stream, f"{name}.final": stream}
        for layer in range(stack.depth):
            path = f"{name}.blocks.{layer}"
            found |= {f"{path}.resid_{at}": stream for at in ("pre", "mid", "post")}
            for part, keys in (("attn", length), ("cross", source)):
                if part == "cross" and not block.cross:
                    continue
                square, kv = (1, block.heads, length, keys), (1, keys, block.groups, block.width)
                found |= {f"{path}.{part}.{at}": heads for at in ("q", "z")}
                found |= {f"{path}.{part}.{at}": kv for at in ("k", "v")}
                found |= {f"{path}.{part}.{at}": square for at in ("scores", "pattern")}
                found[f"{path}.{part}.out"] = stream
            found |= {f"{path}.mlp.{at}": (1, length, block.hidden) for at in ("pre", "post")}
            found[f"{path}.mlp.out"] = stream
    size = config.head.size
    return found | {"logits": (1, size) if config.head.take == "first" else (1, T, size)}


# Listing and firing ---------------------------------------------------------------------------


def test_every_listed_tap_fires_with_its_documented_shape(every_preset, one):
    expected = shapes(every_preset, one)
    assert set(every_preset.taps) == set(expected)
    _, seen = every_preset.run(*arguments(one), taps="*")
    assert {name: tuple(x.shape) for name, x in seen.items()} == expected
    assert list(seen) == [name for name in every_preset.taps if name in seen]


def test_each_tap_fires_once_in_a_forward_pass(every_preset, one):
    counted = dict.fromkeys(every_preset.taps, 0)

    def counter(name):
        def count(x):
            counted[name] += 1
            return x

        return count

    for name, tap in taps(every_preset.model).items():
        tap.fn = counter(name)
    run_alone(every_preset, one)
    assert set(counted.values()) == {1}


@on(*PAIRS, "whisper")
def test_keys_of_the_memory_fire_once_per_source(every_preset):
    """With a cache the memory is projected in the first call; all else fires in each."""
    one = example(every_preset, 6, 1, S)
    counted = dict.fromkeys(every_preset.taps, 0)
    for name, tap in taps(every_preset.model).items():
        tap.fn = lambda x, name=name: counted.update({name: counted[name] + 1}) or x
    cache = every_preset.cache(1, 6)
    for part in one.target.split(2):
        every_preset.logits(one.inputs[None], part[None], cache=cache)
    for name, count in counted.items():
        once = name.startswith("encoder.") or name.endswith(("cross.k", "cross.v"))
        assert count == (1 if once else 3), name


def test_idle_taps_change_no_bit(every_preset, one, monkeypatch):
    idle = run_alone(every_preset, one)
    monkeypatch.setattr(Tap, "__call__", lambda self, x: x)  # no taps at all
    assert torch.equal(run_alone(every_preset, one), idle)


def test_reading_changes_no_bit_unless_attention_leaves_the_kernel(every_preset, one):
    idle = run_alone(every_preset, one)
    outside = [n for n in every_preset.taps if not n.endswith(("scores", "pattern"))]
    output, seen = every_preset.run(*arguments(one), taps=outside)
    assert torch.equal(output.logits[0], idle) and list(seen) == outside
    assert torch.equal(run_alone(every_preset, one), idle)  # and nothing stays behind


def test_reading_any_tap_gives_the_same_logits(every_preset, one):
    idle = run_alone(every_preset, one)
    for name in every_preset.taps:
        output, seen = every_preset.run(*arguments(one), taps=name)
        assert list(seen) == [name]
        assert_near(output.logits[0], idle)


@torch.no_grad()
def test_what_is_read_is_what_was_computed(every_preset, one):
    """Taps agree with one another by the definition of each."""
    kit = every_preset
    _, seen = kit.run(*arguments(one), taps="*")
    for name in (n for n in seen if n.endswith(".pattern")):
        path, part = name.removesuffix(".pattern"), kit.model.get_submodule(name[:-8])
        q, k, v = (seen[f"{path}.{at}"].transpose(1, 2) for at in "qkv")
        k, v = part.per_head(k), part.per_head(v)
        pattern = seen[name]
        assert_near(pattern, seen[f"{path}.scores"].softmax(-1))
        assert_near(pattern.sum(-1), torch.ones(pattern.shape[:-1]))
        assert_near((pattern @ v).transpose(1, 2), seen[f"{path}.z"])
        assert_near(part.o(seen[f"{path}.z"].flatten(-2)), seen[f"{path}.out"])
        free = kit.model.config.last.position not in ("alibi", "relative")
        real = seen[f"{path}.scores"].isfinite()
        if free:
            raw = q @ k.transpose(-1, -2) * part.scale
            assert_near(raw[real], seen[f"{path}.scores"][real])
        assert (pattern[~real] == 0).all()
    for name in (n for n in seen if n.endswith("resid_post")):
        path = name.removesuffix("resid_post")
        following = path.replace(f".{path.split('.')[2]}.", f".{int(path.split('.')[2]) + 1}.")
        if f"{following}resid_pre" in seen:
            assert torch.equal(seen[name], seen[f"{following}resid_pre"])
        block = kit.model.get_submodule(path[:-1])
        if block.pre and block.cross is None:
            before, attn = seen[f"{path}resid_pre"], seen[f"{path}attn.out"]
            middle, mlp = seen[f"{path}resid_mid"], seen[f"{path}mlp.out"]
            assert torch.equal(before + attn, middle) and torch.equal(middle + mlp, seen[name])


# Compiled -------------------------------------------------------------------------------------


class Counting:
    """A compiler backend that runs the graph as it is and remembers how many there were."""

    def __init__(self):
        self.ops = []

    def __call__(self, graph, inputs):
        self.ops.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
        return graph.forward


@pytest.fixture
def counting():
    torch._dynamo.reset()
    yield Counting()
    torch._dynamo.reset()


compiled_on = on("gpt2", "transformer")


def compile_kit(kit, backend):
    kit.model.compile(backend=backend, fullgraph=True, dynamic=False)


@on("gpt2", "llama", "alibi", "bert", "t5", "vit", "whisper")
def test_idle_taps_add_no_op_to_a_compiled_graph(every_preset, one, counting, monkeypatch):
    plain = run_alone(every_preset, one)
    compile_kit(every_preset, counting)
    assert_near(run_alone(every_preset, one), plain)
    torch._dynamo.reset()
    monkeypatch.setattr(Tap, "__call__", lambda self, x: x)
    run_alone(every_preset, one)
    with_taps, without = counting.ops
    assert with_taps == without > 20


@compiled_on
def test_taps_attached_after_compilation_fire(every_preset, one, counting):
    """All are read, with the values of the model that is not compiled; then none is."""
    plain, expected = every_preset.run(*arguments(one), taps="*")
    idle = run_alone(every_preset, one)
    compile_kit(every_preset, counting)
    first = run_alone(every_preset, one)
    output, seen = every_preset.run(*arguments(one), taps="*")
    assert set(seen) == set(every_preset.taps) and len(counting.ops) == 2
    assert_near(output.logits, plain.logits)
    for name, value in expected.items():
        real = value.isfinite()
        assert torch.equal(seen[name].isfinite(), real)
        assert_near(seen[name][real], value[real])
    assert torch.equal(run_alone(every_preset, one), first)  # detached: the first graph
    assert_near(first, idle)
    every_preset.run(*arguments(one), taps="*")  # attached again: the second graph
    assert len(counting.ops) == 2


@compiled_on
def test_writing_every_tap_is_the_same_compiled(every_preset, one, counting):
    edits = {name: regard.add(0.3, position=2) for name in every_preset.taps}
    with every_preset.edit(edits):
        expected = run_alone(every_preset, one)
    assert (expected - run_alone(every_preset, one)).abs().max() > 0.1
    compile_kit(every_preset, counting)
    with every_preset.edit(edits):
        assert_near(run_alone(every_preset, one), expected)


KINDS = {
    "zero": lambda n: regard.zero(head=n % 4, position=[n % 5, 6]),
    "mean": lambda n: regard.mean(head=n % 4),
    "patch": lambda n: regard.patch(torch.full((1, T, 4, 8), float(n)), head=[n % 4]),
    "add": lambda n: regard.add(float(n), head=n % 4),
}


@on("gpt2")
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_edits_of_a_kind_compile_once(every_preset, one, counting, kind):
    place = "decoder.blocks.1.attn.z"
    edits = [KINDS[kind](n) for n in range(20)]
    expected = []
    for edit in edits:
        with every_preset.edit({place: edit}):
            expected.append(run_alone(every_preset, one))
    idle = run_alone(every_preset, one)
    compile_kit(every_preset, counting)
    run_alone(every_preset, one)
    for edit, value in zip(edits, expected, strict=True):
        with every_preset.edit({place: edit}):
            assert_near(run_alone(every_preset, one), value)
    assert len(counting.ops) == 2  # idle, edited
    assert_near(run_alone(every_preset, one), idle)
    assert len(counting.ops) == 2  # detached: back to the first graph


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@on("gpt2")
def test_inductor_hears_taps_too(every_preset, one):
    """The compiler that people use, once: idle, a pattern read, a head zeroed, idle again."""
    torch._dynamo.reset()
    idle = run_alone(every_preset, one)
    _, expected = every_preset.run(*arguments(one), taps="blocks.1.attn.pattern")
    with every_preset.edit({"blocks.1.attn.z": regard.zero(head=2)}):
        zeroed = run_alone(every_preset, one)
    every_preset.model.compile(fullgraph=True)
    assert_near(run_alone(every_preset, one), idle)
    _, seen = every_preset.run(*arguments(one), taps="blocks.1.attn.pattern")
    assert_near(*seen.values(), *expected.values())
    with every_preset.edit({"blocks.1.attn.z": regard.zero(head=2)}):
        assert_near(run_alone(every_preset, one), zeroed)
    assert_near(run_alone(every_preset, one), idle)
    torch._dynamo.reset()


# Editing --------------------------------------------------------------------------------------


def test_writing_any_tap_is_the_same_fused_and_explicit(every_preset, one):
    """Each tap is heard: an edit there changes the answer, alike whether attention is fused."""
    idle = run_alone(every_preset, one)
    generator = torch.Generator().manual_seed(0)
    for name, shape in shapes(every_preset, one).items():
        noise = torch.randn(shape, generator=generator)  # one vector for all keys changes nothing
        with every_preset.edit({name: regard.add(noise)}):
            fused = run_alone(every_preset, one)
            explicit, _ = every_preset.run(*arguments(one), taps="*.pattern")
        assert_near(explicit.logits[0], fused)
        changed = float((fused - idle).abs().max())
        assert changed > 1e-4, f"{name}: an edit changed the logits by {changed}"
    assert torch.equal(run_alone(every_preset, one), idle)


@on("gpt2")
def test_semantics_of_the_four_edits_by_hand(every_preset, one):
    """Each edit at z, against the activation that was there; out follows by the projection."""
    kit, place = every_preset, "blocks.1.attn.z"
    _, seen = kit.run(*arguments(one), taps=place)
    (z,) = seen.values()
    other, steer = torch.randn(z.shape), torch.randn(z.shape[-1])
    every = slice(None)
    cases = [  # edit, index of what it changes, what stands there afterwards
        (regard.zero(), every, torch.zeros(())),
        (regard.zero(head=2), (every, every, 2), torch.zeros(())),
        (regard.zero(position=[0, 3]), (every, [0, 3]), torch.zeros(())),
        (regard.mean(), every, z.mean((0, 1))),
        (regard.mean(head=1), (every, every, 1), z[:, :, 1].mean((0, 1))),
        (regard.mean(other), every, other.mean((0, 1))),
        (regard.patch(other, head=3), (every, every, 3), other[:, :, 3]),
        (regard.patch(other, position=4, neuron=1), (every, 4, every, 1), other[:, 4, :, 1]),
        (regard.add(steer, head=[0, 2]), (every, every, [0, 2]), z[:, :, [0, 2]] + steer),
        (regard.add(1.5), every, z + 1.5),
    ]
    for edit, index, value in cases:
        expected = z.clone()
        expected[index] = value
        with kit.edit({place: edit}):
            output, seen = kit.run(*arguments(one), taps=[place, "blocks.1.attn.out"])
        found, out = seen.values()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(out, kit.model.decoder.blocks[1].attn.o(found.flatten(-2)))
        assert torch.equal(output.logits[0], edited_logits(kit, one, place, found))


def edited_logits(kit, one, place, value):
    """Logits when a plain function puts `value` there."""
    tap = taps(kit.model)[f"decoder.{place}"]
    tap.fn = lambda x: value
    try:
        return run_alone(kit, one)
    finally:
        tap.fn = None


@on("gpt2")
def test_the_mean_of_patterns_is_over_the_batch_of_each_head(every_preset):
    ids = torch.stack([example(every_preset, T, n).ids for n in range(3)])
    place = "blocks.0.attn.pattern"
    _, seen = every_preset.run(ids, taps=place)
    (pattern,) = seen.values()
    for edit in (regard.mean(head=1), regard.mean(pattern, head=1)):
        with every_preset.edit({place: edit}):
            _, seen = every_preset.run(ids, taps=place)
        (found,) = seen.values()
        expected = pattern.clone()
        expected[:, 1] = pattern[:, 1].mean(0)
        torch.testing.assert_close(found, expected)


@on("gpt2")
def test_edits_at_one_tap_apply_in_order_and_nest(every_preset, one):
    place = "blocks.0.mlp.out"

    def read():
        _, seen = every_preset.run(*arguments(one), taps=place)
        return next(iter(seen.values()))

    plain = read()
    with every_preset.edit({place: [regard.zero(), regard.add(1.0)]}):
        assert torch.equal(read(), torch.ones_like(plain))
        with every_preset.edit({place: regard.add(2.0)}):
            assert torch.equal(read(), torch.full_like(plain, 3.0))
            assert torch.equal(read(), torch.full_like(plain, 3.0))
        assert torch.equal(read(), torch.ones_like(plain))
    assert torch.equal(read(), plain)


@on("gpt2")
def test_an_exception_restores_the_model(every_preset, one):
    idle = run_alone(every_preset, one)
    with pytest.raises(ZeroDivisionError), every_preset.edit({"blocks.*.attn.z": regard.zero()}):
        assert not torch.equal(run_alone(every_preset, one), idle)
        1 / 0  # noqa: B018
    assert all(tap.fn is None for tap in taps(every_preset.model).values())
    assert torch.equal(run_alone(every_preset, one), idle)


@on("gpt2")
def test_a_run_that_fails_leaves_no_reader(every_preset, one):
    with every_preset.edit({"logits": regard.patch(torch.zeros(3, 3, 3))}):
        with pytest.raises(UsageError, match="shape"):
            every_preset.run(*arguments(one), taps="*")
    assert all(tap.fn is None for tap in taps(every_preset.model).values())


@on("gpt2")
def test_gradients_flow_through_a_station(every_preset, one):
    model, held = every_preset.model, []
    steer = torch.zeros(32, requires_grad=True)
    with every_preset.edit({"blocks.0.resid_post": regard.add(steer)}):
        held.append(model(every_preset.batch(*arguments(one))))
    held[0].square().sum().backward()
    assert steer.grad.abs().max() > 0


# Names ----------------------------------------------------------------------------------------


@on("gpt2")
@pytest.mark.parametrize(
    ("wrong", "close"),
    [
        ("decoder.blocks.1.attn.patern", "decoder.blocks.1.attn.pattern"),
        ("blocks.0.mlp.outt", "blocks.0.mlp.out"),
        ("logit", "logits"),
        ("decoder.blocks.9.attn.z", "decoder.blocks.0.attn.z"),
    ],
)
def test_an_unknown_tap_is_refused_with_the_nearest_names(every_preset, one, wrong, close):
    with pytest.raises(UsageError, match=rf"{close}"):
        every_preset.run(*arguments(one), taps=wrong)
    with pytest.raises(UsageError, match=rf"{close}"), every_preset.edit({wrong: regard.zero()}):
        pass


@on("gpt2")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("blocks.0.hook_resid_pre", "blocks.0.resid_pre"),
        ("blocks.0.hook_resid_mid", "blocks.0.resid_mid"),
        ("blocks.1.hook_resid_post", "blocks.1.resid_post"),
        ("blocks.1.resid.pre", "blocks.1.resid_pre"),
        ("blocks.0.attn.hook_q", "blocks.0.attn.q"),
        ("blocks.0.attn.hook_k", "blocks.0.attn.k"),
        ("blocks.0.attn.hook_v", "blocks.0.attn.v"),
        ("blocks.0.attn.hook_rot_q", "blocks.0.attn.q"),
        ("blocks.0.attn.hook_attn_scores", "blocks.0.attn.scores"),
        ("blocks.0.attn.hook_pattern", "blocks.0.attn.pattern"),
        ("blocks.0.attn.hook_z", "blocks.0.attn.z"),
        ("blocks.0.hook_attn_out", "blocks.0.attn.out"),
        ("blocks.0.mlp.hook_pre", "blocks.0.mlp.pre"),
        ("blocks.0.mlp.hook_post", "blocks.0.mlp.post"),
        ("blocks.0.hook_mlp_out", "blocks.0.mlp.out"),
        ("blocks.0.hook_in", "blocks.0.resid_pre"),
        ("blocks.1.hook_out", "blocks.1.resid_post"),
        ("blocks.0.attn.hook_out", "blocks.0.attn.out"),
        ("blocks.0.mlp.hook_out", "blocks.0.mlp.out"),
        ("ln_final.hook_out", "final"),
        ("decoder.final", "final"),
    ],
)
def test_names_of_transformerlens_and_short_forms(every_preset, one, theirs, ours):
    _, seen = every_preset.run(*arguments(one), taps=theirs)
    assert list(seen) == [f"decoder.{ours}"]


@pytest.mark.parametrize(
    ("every_preset", "theirs", "ours"),
    [
        ("gpt2", "hook_embed", "embed, which has both"),
        ("gpt2", "ln_final.hook_normalized", "final, which is after"),
        ("gpt2", "blocks.0.attn.hook_result", "head_results"),
        ("llama", "blocks.0.attn.hook_q", "after them"),
        ("llama", "blocks.*.attn.hook_k", "after them"),
    ],
    indirect=["every_preset"],
)
def test_names_that_mean_something_else_in_transformerlens_are_refused(every_preset, theirs, ours):
    for use in (
        lambda: every_preset.run([[1, 2]], taps=theirs),
        lambda: every_preset.edit({theirs: regard.zero()}).__enter__(),
        lambda: every_preset.capture(theirs).__enter__(),
    ):
        with pytest.raises(UsageError, match=ours):
            use()


@on("llama")
def test_their_embedding_is_ours_where_no_positions_are_added(every_preset):
    _, seen = every_preset.run([[1, 2]], taps=["hook_embed", "blocks.0.attn.hook_rot_q"])
    assert list(seen) == ["decoder.embed", "decoder.blocks.0.attn.q"]
    with pytest.raises(UsageError, match="names or patterns"):
        every_preset.run([[1, 2]], taps=3)
    with pytest.raises(UsageError, match=r"regard.patch\(None\)"):
        regard.patch(None)
    for edit in (regard.add, regard.mean):
        with pytest.raises(UsageError, match="editing an activation: regard.*'x'"):
            edit("x")


@on("t5")
def test_two_stacks_need_the_name_of_theirs(every_preset, one):
    with pytest.raises(UsageError, match="blocks.0.attn.z"):
        every_preset.run(*arguments(one), taps="blocks.0.attn.z")
    _, seen = every_preset.run(*arguments(one), taps="*.blocks.0.attn.z")
    assert list(seen) == ["encoder.blocks.0.attn.z", "decoder.blocks.0.attn.z"]


@on("llama")
@pytest.mark.parametrize(("place", "heads"), [("z", 4), ("q", 4), ("pattern", 4), ("v", 2)])
def test_a_head_out_of_range_is_refused(every_preset, place, heads):
    name = f"blocks.0.attn.{place}"
    with every_preset.edit({name: regard.zero(head=heads - 1)}):
        pass
    with pytest.raises(UsageError, match=f"heads 0 to {heads - 1}"):
        with every_preset.edit({name: regard.zero(head=heads)}):
            pass
    with pytest.raises(UsageError, match=f"heads 0 to {heads - 1}"):
        with every_preset.edit({name: regard.zero(head=-heads - 1)}):
            pass


@on("gpt2")
@pytest.mark.parametrize("place", ["logits", "blocks.0.resid_post", "blocks.0.mlp.post"])
def test_a_head_where_there_are_none_is_refused(every_preset, place):
    with (
        pytest.raises(UsageError, match="pattern"),
        every_preset.edit({place: regard.zero(head=0)}),
    ):
        pass


# Strict ---------------------------------------------------------------------------------------


@on("gpt2")
def test_strict_runs_are_not_read(every_preset, one):
    with pytest.raises(UsageError, match="strict mode"):
        replace(every_preset, strict=True).run(one.inputs, taps="*")


def test_edits_hold_in_strict_mode(every_preset, one):
    name = next(name for name in every_preset.taps if name.endswith("attn.z"))
    idle = run_alone(every_preset, one, strict=True)
    with every_preset.edit({name: regard.zero(head=1)}):
        strict, plain = (run_alone(every_preset, one, strict=s) for s in (True, False))
    assert_near(strict, plain)
    assert (strict - idle).abs().max() > 1e-4
