"""Same tokens, same answer: alone, batched, padded, packed, cached or not (MISSION #36, N6).

Ordinary mode agrees to 1e-5 of the largest logit in float32; strict mode agrees bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.properties.small_models import (
    CONFIGS,
    DECODERS,
    EVERY,
    PAIRS,
    TEXT,
    VOCAB,
    WRITERS,
    Example,
    assert_near,
    example,
    run_alone,
    small_kit,
)

LENGTHS = (33, 1, 70, 31, 32)  # around the tile of strict mode


def on(*names):
    return pytest.mark.parametrize("every_preset", names, indirect=True)


def examples(kit, lengths=LENGTHS):
    """One example per length; sources of an encoder-decoder have other lengths than targets."""
    return [example(kit, n, seed, lengths[seed - 1] + 3) for seed, n in enumerate(lengths)]


def check(kit, found, given, strict):
    """`found`: logits of each example at its own tokens."""
    for logits, one in zip(found, given, strict=True):
        expected = run_alone(kit, one, strict=strict)
        assert expected.abs().max() > 1  # of an order at which a wrong bit can be seen
        if strict:
            assert torch.equal(logits, expected)
        else:
            assert_near(logits, expected)


def padded(rows, side, more=2):
    """Rows of ids with random ids as padding, `more` even at the longest row, and their mask."""
    if rows[0].dim() > 1:
        return torch.stack(rows), None
    width = max(map(len, rows)) + more
    ids = torch.randint(0, VOCAB, (len(rows), width), generator=torch.Generator().manual_seed(9))
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, given in enumerate(rows):
        at = slice(0, len(given)) if side == "right" else slice(width - len(given), width)
        ids[row, at], mask[row, at] = given, True
    return ids, mask


def inputs_of(given, side, more=2):
    """Arguments of Kit.logits for padded examples, and the mask of the last stack's tokens."""
    inputs, mask = padded([one.inputs for one in given], side, more)
    if given[0].target is None:
        return {"inputs": inputs, "mask": mask}, mask
    target, target_mask = padded([one.target for one in given], side, more)
    return {
        "inputs": inputs,
        "target": target,
        "source_mask": mask,
        "mask": target_mask,
    }, target_mask


def test_batched(every_preset, strict):
    kit = every_preset
    given = [example(kit, 33, seed, 40) for seed in range(3)]
    inputs = torch.stack([one.inputs for one in given])
    target = None if given[0].target is None else torch.stack([one.target for one in given])
    check(kit, kit.logits(inputs, target, strict=strict), given, strict)


@on(*TEXT, "whisper")
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded(every_preset, side, strict):
    given = examples(every_preset)
    arguments, mask = inputs_of(given, side)
    logits = every_preset.logits(**arguments, strict=strict)
    found = [row[real] for row, real in zip(logits, mask, strict=True)]
    check(every_preset, found, given, strict)


@on(*PAIRS)
def test_source_and_target_padded_on_different_sides(every_preset, strict):
    given = examples(every_preset)
    arguments, mask = inputs_of(given, "right")
    arguments["inputs"], arguments["source_mask"] = padded([one.inputs for one in given], "left")
    logits = every_preset.logits(**arguments, strict=strict)
    found = [row[real] for row, real in zip(logits, mask, strict=True)]
    check(every_preset, found, given, strict)


def packed(rows, groups):
    """Several rows of ids in one, as many as there are groups: ids, mask, documents."""
    joined = [torch.cat([rows[n] for n in group]) for group in groups]
    ids, mask = padded(joined, "right")
    documents = torch.zeros_like(ids)
    for row, group in enumerate(groups):
        numbers = [torch.full((len(rows[n]),), n) for n in group]
        documents[row, : len(joined[row])] = torch.cat(numbers)
    return ids, mask, documents


GROUPS = [[3, 0, 1], [4], [2]]  # examples by their number; row 0 has three documents


def unpacked(logits, mask, documents):
    """Logits of each document, in the order of their numbers."""
    return [logits[mask & (documents == n)] for n in range(len(LENGTHS))]


@on(*TEXT)
def test_packed(every_preset, strict):
    given = examples(every_preset)
    inputs, mask, documents = packed([one.inputs for one in given], GROUPS)
    arguments = {"inputs": inputs, "mask": mask, "documents": documents}
    if given[0].target is not None:
        arguments |= {"source_mask": mask, "source_documents": documents}
        target, mask, documents = packed([one.target for one in given], GROUPS)
        arguments |= {"target": target, "mask": mask, "documents": documents}
    logits = every_preset.logits(**arguments, strict=strict)
    check(every_preset, unpacked(logits, mask, documents), given, strict)


@on(*PAIRS, "whisper")
def test_several_targets_packed_for_one_source(every_preset, strict):
    source = example(every_preset, 1, 7, 20).inputs
    targets = [example(every_preset, n, n).target for n in LENGTHS]
    ids, mask, documents = packed(targets, [range(3), range(3, 5)])
    inputs = torch.stack([source, source])
    logits = every_preset.logits(inputs, ids, mask=mask, documents=documents, strict=strict)
    found = unpacked(logits, mask, documents)
    check(every_preset, found, [Example(source, target) for target in targets], strict)


def in_calls(kit, arguments, mask, sizes, strict):
    """Logits of all columns, fed to a cache a few columns at a time."""
    ids = arguments["inputs"] if "target" not in arguments else arguments["target"]
    cache = kit.cache(len(ids), ids.shape[1], strict=strict)
    found, start = [], 0
    for size in sizes:
        part = slice(start, start + size)
        column = {"mask": mask[:, part]}
        if "target" in arguments:
            column |= {"inputs": arguments["inputs"], "target": ids[:, part]}
            column |= {"source_mask": arguments["source_mask"]}
        else:
            column |= {"inputs": ids[:, part]}
        if "documents" in arguments:
            column["documents"] = arguments["documents"][:, part]
        found.append(kit.logits(**column, cache=cache, strict=strict))
        start += size
    assert start == ids.shape[1]
    return torch.cat(found, 1)


CALLS = {"step by step": [1] * 70, "in chunks": [5, 27, 1, 20, 17], "at once": [70]}


@on(*WRITERS)
@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_cached(every_preset, calls, side, strict):
    """Rows of unequal length in one cache; a row may be padding in some calls, token in others."""
    given = examples(every_preset)
    arguments, mask = inputs_of(given, side, more=0)  # a strict call needs one token at least
    logits = in_calls(every_preset, arguments, mask, CALLS[calls], strict)
    found = [row[real] for row, real in zip(logits, mask, strict=True)]
    check(every_preset, found, given, strict)


@on(*WRITERS)
def test_cached_alone_without_a_mask(every_preset, strict):
    """The paths of a cache whose rows are even: the kernel's own causal mask, and none."""
    one = example(every_preset, 70, 3, 40)
    for sizes in ([70], [1] * 70, [40, 1, 1, 28]):
        cache = every_preset.cache(1, 80, strict=strict)
        parts = one.ids.split(sizes)
        if one.target is None:
            calls = [(part[None], None) for part in parts]
        else:
            calls = [(one.inputs[None], part[None]) for part in parts]
        found = [every_preset.logits(*call, cache=cache, strict=strict)[0] for call in calls]
        check(every_preset, [torch.cat(found)], [one], strict)


@on("gpt2", "bert", "transformer")
def test_bits_with_two_threads(every_preset, two_threads):
    """Threads split a product by its shape, which strict mode keeps the same."""
    test_batched(every_preset, True)
    test_padded(every_preset, "left", True)
    if every_preset.model.decoder is not None:
        test_cached(every_preset, "in chunks", "right", True)


@on(*DECODERS)
@pytest.mark.parametrize("sizes", [[1] * 70, [20, 1, 30, 19]], ids=["steps", "chunks"])
def test_packed_documents_continue_across_calls(every_preset, sizes, strict):
    """Tokens of several documents come interleaved; each sees its own document only."""
    documents = torch.arange(70) % 3
    ids = example(every_preset, 70, 5).ids
    arguments = {"inputs": ids[None], "documents": documents[None]}
    mask = torch.ones(1, 70, dtype=torch.bool)
    logits = in_calls(every_preset, arguments, mask, sizes, strict)[0]
    given = [Example(ids[documents == n]) for n in range(3)]
    check(every_preset, [logits[documents == n] for n in range(3)], given, strict)


@on("bert")
def test_segments_travel_with_their_tokens(every_preset, strict):
    given = [example(every_preset, n, n) for n in (5, 33)]
    halves = [(torch.arange(len(one.ids)) > 2).long() for one in given]
    ids, mask = padded([one.ids for one in given], "left")
    segments = torch.zeros_like(ids)
    segments[mask] = torch.cat(halves)
    logits = every_preset.logits(ids, mask=mask, segments=segments, strict=strict)
    for row, real, one, half in zip(logits, mask, given, halves, strict=True):
        alone = every_preset.logits(one.ids[None], segments=half[None], strict=strict)[0]
        assert torch.equal(row[real], alone) if strict else assert_near(row[real], alone) is None
        assert not torch.equal(alone, run_alone(every_preset, one, strict=strict))


@on(*EVERY)
def test_strict_mode_gives_the_ordinary_answer(every_preset):
    one = example(every_preset, 70, 2, 50)
    assert_near(run_alone(every_preset, one, strict=True), run_alone(every_preset, one))


@on(*WRITERS)
def test_greedy_continuation_is_the_same_alone_and_in_a_batch(every_preset, strict):
    if every_preset.model.config.target is None:
        prompts = [example(every_preset, n, n).ids.tolist() for n in (3, 33, 7)]
    else:
        rows = [example(every_preset, 1, n, n).inputs for n in (3, 33, 7)]
        prompts = rows if rows[0].dim() > 1 else [row.tolist() for row in rows]
    joined = torch.stack(prompts) if isinstance(prompts[0], torch.Tensor) else prompts
    together = every_preset.generate(joined, max_new=6, strict=strict)
    for row, prompt in zip(together, prompts, strict=True):
        one = prompt[None] if isinstance(prompt, torch.Tensor) else [prompt]
        assert torch.equal(every_preset.generate(one, max_new=6, strict=strict)[0], row)


@on("gpt2")
def test_greedy_continuation_is_the_argmax_loop(every_preset):
    ids = example(every_preset, 5, 1).ids
    made = every_preset.generate(ids[None], max_new=8)[0]
    for token in made:
        assert int(every_preset.logits(ids[None])[0, -1].argmax()) == int(token)
        ids = torch.cat([ids, token[None]])


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_queries_in_the_cache(kv_heads, strict):
    """One key-value head for all queries (multi-query), as many as heads, and between."""
    decoder = CONFIGS["llama"].decoder
    kit = small_kit(
        "llama", decoder=replace(decoder, block=replace(decoder.block, kv_heads=kv_heads))
    )
    one = example(kit, 35, 1)
    cache = kit.cache(1, 35, strict=strict)
    calls = [kit.logits(part[None], cache=cache, strict=strict)[0] for part in one.ids.split(4)]
    check(kit, [torch.cat(calls)], [one], strict)
