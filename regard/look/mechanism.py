"""Mechanism tests: claims about what happens inside a model, as a pytest plug-in.

    def test_it_still_copies(mechanism):
        model = mechanism("folder")
        model.some_head("induction", at_least=0.5)
        model.head(3, 5).scores("previous", at_least=0.9)
        model.unused("decoder.blocks.2.attn.z", head=3, on=["The cat sat on the mat."])
        model.head(0, 1).unused_by(model.head(3, 5), "q", on=["The cat sat on the mat."])

A fine-tune that destroys the induction heads then fails the build. The fixture `mechanism` is in
pytest_plugin.py.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from regard.errors import DataError, UsageError, check_known
from regard.look import as_kit
from regard.look.attention_patterns import find_attention
from regard.look.edits import zero
from regard.look.head_scores import RandomRepeats, best_heads, repeats_for, score_heads
from regard.look.logit_lens import copy_score
from regard.look.patching import head_sites, last_stack, mlp_sites, send_along_paths, taps_of
from regard.look.results import HeadScore, Site
from regard.model.batch import Batch
from regard.model.model import Model
from regard.verbs import ModelLike

SHOWN = 5  # heads that a failure names
KINDS = ("induction", "previous", "duplicate")


class Mechanism:
    """A model about which claims are tested; a folder, a Kit, or a Model without tokenizer."""

    def __init__(
        self, model: ModelLike | Model, length: int | None = None, rows: int = 4, seed: int = 0
    ) -> None:
        self.kit = as_kit(model)
        self.length, self.rows, self.seed = length, rows, seed

    @cached_property
    def repeats(self) -> RandomRepeats:
        """Random tokens, twice: the same for the same seed."""
        return repeats_for(self.kit, self.length, self.rows, self.seed)

    @cached_property
    def scores(self) -> list[HeadScore]:
        """Every head, measured once."""
        return score_heads(self.kit.hooked, self.repeats)

    def some_head(
        self, kind: str, at_least: float = 0.5, blocks: Container[int] | None = None
    ) -> HeadScore:
        """Claim that a head of some block has this score of induction, previous or duplicate."""
        __tracebackhide__ = True
        check_known(kind, KINDS, "testing a mechanism")
        inside = [s for s in self.scores if blocks is None or s.block in blocks]
        best = best_heads(inside, kind, SHOWN)
        if best and getattr(best[0], kind) >= at_least:
            return best[0]
        where = "" if blocks is None else f" in blocks {blocks}"
        none = f"no {kind} head of at least {at_least:g}{where}"
        raise AssertionError(f"{none}; the best: {listing(best, kind)}")

    def head(self, block: int, head: int, layer: str | None = None) -> HeadClaim:
        """One head: of the last stack's self-attention, or of the attention at the path `layer`."""
        claim = HeadClaim(self, block if layer is None else layer, head)
        if not 0 <= head < claim.count:
            problem = f"head {head} of {claim.layer}"
            raise UsageError("testing a mechanism", problem, f"0 to {claim.count - 1}")
        return claim

    def unused(
        self,
        tap: str,
        on: Sequence[Any] | Tensor,
        head: int | Sequence[int] | None = None,
        change_below: float = 0.01,
    ) -> float:
        """Claim that no log-probability of these texts changes much without an activation.

        `on` are texts, rows of ids, or (source, target) of an encoder-decoder. Looked at is the
        next token at each place, or the likeliest answer of a model that does not write.
        """
        __tracebackhide__ = True
        batch = self.batch(on)
        with torch.no_grad():
            before, _ = self.kit.hooked.run(batch)
            after, _ = self.kit.hooked.run(batch, edits={tap: zero(head=head)})
        which = "" if head is None else f" head {head}"
        return self.small_change(before, after, batch, change_below, f"{tap}{which} is used")

    def small_change(
        self, before: Tensor, after: Tensor, batch: Batch, below: float, else_so: str
    ) -> float:
        """Claim that no log-probability (B, T, V) or (B, classes) looked at changes much."""
        __tracebackhide__ = True
        real, wanted = batch.mask, before.argmax(-1)
        if before.dim() == 2:
            real = None
        elif self.kit.model.decoder is not None:  # all but the first are predicted by those before
            before, after, wanted = before[:, :-1], after[:, :-1], batch.ids[:, 1:]
            real = None if real is None else real[:, 1:] & real[:, :-1]
        change = (after.log_softmax(-1) - before.log_softmax(-1)).gather(-1, wanted[..., None])
        change = change[..., 0].abs() if real is None else change[..., 0].abs()[real]
        if change.numel() == 0:
            raise DataError("testing a mechanism", "texts of one token", "texts of two or more")
        if (largest := float(change.max())) < below:
            return largest
        raise AssertionError(
            f"{else_so}: without it a log-probability changes by {largest:.4g}, "
            f"not by less than {below:g}"
        )

    def batch(self, on: Sequence[Any] | Tensor) -> Batch:
        """Texts, ids or pairs as a batch."""
        if self.kit.model.target is None:
            return self.kit.batch(on)
        sources, targets = zip(*on, strict=True)
        encode = None if self.kit.tokenizer is None else self.kit.tokenizer.encode
        ids = [encode(t, side="target") if encode and isinstance(t, str) else t for t in targets]
        return self.kit.batch(list(sources), [[self.kit.start, *row] for row in ids])


class HeadClaim:
    """Claims about one head; each gives its score back."""

    def __init__(self, model: Mechanism, layer: int | str, head: int) -> None:
        self.model, self.number = model, head
        self.layer, attention = find_attention(model.kit.hooked, layer)
        self.count: int = attention.heads  # type: ignore[assignment]
        self.groups: int = getattr(attention, "groups", self.count)  # additive attention has none

    def copies(self, at_least: float = 0.5, top: int = 5) -> float:
        """What it writes for a token favours that token (Wang 2022): a share of random tokens."""
        __tracebackhide__ = True
        hooked = self.model.kit.hooked
        batch = self.model.repeats.batch.to(hooked.model.device)
        score = copy_score(hooked, self.layer, self.number, batch, top)
        if score >= at_least:
            return score
        who = f"{self.layer} head {self.number}"
        raise AssertionError(f"{who} copies {score:.3f} of the tokens, not {at_least:g}")

    def unused_by(
        self,
        reader: HeadClaim,
        into: Literal["q", "k", "v"],
        on: Sequence[Any] | Tensor,
        change_below: float = 0.01,
    ) -> float:
        """Claim that nothing comes of what a later head reads of this one into its q, k or v.

        That is the edge alone: all other heads and MLPs are held at what they were until the
        reader (Wang 2022). Heads that share keys and values read together.
        """
        __tracebackhide__ = True
        if into not in ("q", "k", "v"):
            raise UsageError("testing a mechanism", f"an edge into {into!r}", "q, k or v")
        last_stack(self.model.kit.model, "testing a mechanism")  # says so where there are no blocks
        (stack, *here), (other, *there) = self.layer.split("."), reader.layer.split(".")
        places = [(int(block), kind == "cross") for _, block, kind in (here, there)]
        later = stack == other and places[0] < places[1]
        if not (stack == "encoder" if there[-1] == "cross" and into != "q" else later):
            problem = f"an edge from {self.layer} into {into} of {reader.layer}"
            raise UsageError("testing a mechanism", problem, "a reader that comes after the head")
        hooked, batch = self.model.kit.hooked, self.model.batch(on)
        written, read = f"{self.layer}.z", f"{reader.layer}.{into}"
        group = reader.number * (reader.groups if into != "q" else reader.count) // reader.count
        with torch.no_grad():
            before, held = hooked.run(batch, taps_of([*head_sites(hooked), *mlp_sites(hooked)]))
            sent = {written: zero(head=self.number)}
            after = send_along_paths(hooked, batch, held, sent, [Site(read, group)])
        edge = f"{written} head {self.number} → {read} head {reader.number} is used"
        return self.model.small_change(before, after, batch, change_below, edge)

    def scores(self, kind: str, at_least: float = 0.5) -> float:
        """Claim that it looks one token back (previous), at the same token, where that stood before
        (duplicate), or at what came after that (induction)."""
        __tracebackhide__ = True
        check_known(kind, KINDS, "testing a mechanism")
        (mine,) = (s for s in self.model.scores if (s.layer, s.head) == (self.layer, self.number))
        value: float | None = getattr(mine, kind)
        if value is None:
            problem = f"the {kind} score of {mine.name}"
            raise UsageError("testing a mechanism", problem, "a head of self-attention")
        if value >= at_least:
            return value
        raise AssertionError(
            f"the {kind} score of head {mine.name} is {value:.3f}, not {at_least:g}; "
            f"the best: {listing(best_heads(self.model.scores, kind, SHOWN), kind)}"
        )


def listing(scores: Sequence[HeadScore], kind: str) -> str:
    """Heads with their scores, in words."""
    return ", ".join(f"head {s.name} {getattr(s, kind):.3f}" for s in scores) or "none there"
