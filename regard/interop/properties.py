"""What attention and this model promise, tested on one model with random inputs (#40)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.ambient import current, track
from regard.core.attention import View
from regard.core.block import Context
from regard.core.stack import Stack
from regard.interop.parity import draw
from regard.interop.results import Property
from regard.model.batch import Batch
from regard.model.config import RecurrentConfig

if TYPE_CHECKING:
    from regard.kit import Kit

CLOSE = 1e-5  # of the largest number compared
LENGTHS = (9, 5, 7)


def check_properties(kit: Kit) -> list[Property]:
    """Test every property; one that does not apply says why."""
    if isinstance(kit.model.config, RecurrentConfig):
        return [Property("what attention promises", None, "a recurrent model has none")]
    tester = PropertyTester(kit, current().seed)
    tests = (tester.distributions, tester.causality, tester.agreement, tester.permutation)
    with torch.no_grad():
        return [one for test in track(tests, "testing properties") for one in test()]


class PropertyTester:
    """The tests of one model, on the same random inputs."""

    def __init__(self, kit: Kit, seed: int) -> None:
        self.kit, self.config = kit, kit.model.config
        generator = torch.Generator().manual_seed(seed)
        size = len(LENGTHS), max(LENGTHS), generator, 0
        self.inputs, _ = draw(self.config.front, *size)
        self.target = None if self.config.target is None else draw(self.config.target, *size)[0]
        self.ids = self.inputs if self.target is None else self.target  # the last stack's input
        self.generator = generator

    # Attention --------------------------------------------------------------------------------

    def distributions(self) -> Iterator[Property]:
        """Weights are a distribution over the keys; outputs lie within the values that are seen."""
        _, seen = self.kit.run(self.inputs, self.target, taps=["*.pattern", "*.v", "*.z"])
        patterns = [x for name, x in seen.items() if name.endswith(".pattern")]
        least = min(pattern.min().item() for pattern in patterns)
        off = max((pattern.sum(-1) - 1).abs().max().item() for pattern in patterns)
        detail = f"{len(patterns)} patterns: smallest weight {least:.1e}, sum off by {off:.1e}"
        name = "attention rows are non-negative and sum to 1"
        yield Property(name, least >= 0 and off <= CLOSE, detail)
        worst = 0.0
        for part in (name.removesuffix(".z") for name in seen if name.endswith(".z")):
            z, v = seen[f"{part}.z"], seen[f"{part}.v"]  # (B, T, H, K), (B, S, G, K)
            v = v.repeat_interleave(z.shape[2] // v.shape[2], 2)  # (B, S, H, K)
            low, high = v.amin(1, keepdim=True), v.amax(1, keepdim=True)
            stack = self.config.decoder if part.startswith("decoder.") else self.config.encoder
            if stack is not None and stack.block.causal and part.endswith(".attn"):
                low, high = v.cummin(1).values, v.cummax(1).values  # keys so far
            worst = max(worst, torch.maximum(low - z, z - high).max().item() / v.abs().max().item())
        detail = f"outside by {worst:.1e} of the largest value"
        yield Property("outputs lie in the convex hull of the values", worst <= CLOSE, detail)

    def causality(self) -> Iterator[Property]:
        """A later token changes no earlier output by one bit."""
        name = "a later token changes nothing earlier"
        if self.config.decoder is None:
            yield Property(name, None, "an encoder sees its whole input")
            return
        changed = self.ids.clone()
        vocab = (self.config.target or self.config.front).vocab  # type: ignore[union-attr]
        changed[:, -1] = (changed[:, -1] + 1) % vocab
        before = self.score(self.ids)[:, :-1]
        after = self.score(changed)[:, :-1]
        same = torch.equal(before, after)
        yield Property(name, same, "to the bit" if same else gap_text(before, after))

    def score(self, ids: Tensor, strict: bool = False) -> Tensor:
        """Scores with `ids` as the last stack's input."""
        if self.target is None:
            return self.kit.logits(ids, strict=strict)
        return self.kit.logits(self.inputs, ids, strict=strict)

    # One sequence, whatever comes with it -----------------------------------------------------

    def agreement(self) -> Iterator[Property]:
        """Batched, padded, packed, cached: the same scores as alone."""
        # Pictures and sound have no padding, and their targets are tested by their cache.
        kind = self.config.front.kind
        no_packing = no_padding = None if kind == "text" else f"no padding in {kind}"
        if self.config.head.take != "all":
            no_packing = "one score for a whole row"
        elif self.target is not None:
            no_packing = "tested for one stack only"
        ways: list[tuple[str, str | None, Callable[[bool], Iterator[tuple[Tensor, Tensor]]]]] = [
            ("batch", None, self.batched),
            ("padding", no_padding, self.padded),
            ("packing", no_packing, self.packed),
            ("cache", None if self.config.decoder else "no decoder", self.cached),
        ]
        for name, reason, way in ways:
            for strict in (False, True):
                title = f"{name} changes nothing{', strict: to the bit' if strict else ''}"
                if reason is not None:
                    yield Property(title, None, reason)
                    continue
                pairs = list(way(strict))
                passed = all(torch.equal(*p) if strict else gap(*p) <= CLOSE for p in pairs)
                yield Property(title, passed, gap_text(*map(torch.cat, zip(*pairs, strict=True))))

    def row(self, n: int, strict: bool, length: int | None = None) -> Tensor:
        """Scores of one sequence alone, as far as a length."""
        inputs = self.inputs[n : n + 1]
        if self.config.front.kind == "text":
            inputs = inputs[:, :length]
        target = None if self.target is None else self.target[n : n + 1, :length]
        return self.kit.logits(inputs, target, strict=strict)[0]

    def batched(self, strict: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """(scores in a batch, scores alone) of rows of one length."""
        together = self.kit.logits(self.inputs, self.target, strict=strict)
        for n in range(len(together)):
            yield flat(together[n]), flat(self.row(n, strict))

    def padded(self, strict: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """(scores in a padded batch, scores alone) of rows of unequal length."""
        mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
        mask = mask[:, : self.inputs.shape[1]]
        masks = {"mask": mask} if self.target is None else {"mask": mask, "source_mask": mask}
        together = self.kit.logits(self.inputs, self.target, strict=strict, **masks)  # type: ignore[arg-type]
        for n, real in enumerate(mask):
            kept = together[n][real] if together.dim() == 3 else together[n]
            yield flat(kept), flat(self.row(n, strict, LENGTHS[n]))

    def packed(self, strict: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """(scores in one packed row, scores alone)."""
        rows = [self.inputs[n, :length] for n, length in enumerate(LENGTHS)]
        documents = torch.cat([torch.full((len(row),), n) for n, row in enumerate(rows)])[None]
        together = self.kit.logits(torch.cat(rows)[None], strict=strict, documents=documents)[0]
        for n, scores in enumerate(torch.split(together, [len(row) for row in rows])):
            yield scores, self.row(n, strict, LENGTHS[n])

    def cached(self, strict: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """(scores in pieces through a cache, scores at once)."""
        ids = self.ids
        cache = self.kit.cache(len(ids), ids.shape[1], strict)
        pieces = []
        for piece in (ids[:, :4], *torch.split(ids[:, 4:], 1, 1)):
            batch = Batch(piece) if self.target is None else Batch(self.inputs, piece)
            pieces.append(self.kit.run_batch(batch.to(self.kit.device), cache, strict))
        yield flat(torch.cat(pieces, 1)), flat(self.score(ids, strict))

    # Stacks -----------------------------------------------------------------------------------

    def permutation(self) -> Iterator[Property]:
        """A stack that sees no positions turns permuted vectors into permuted vectors."""
        name = "a stack without positions is permutation equivariant"
        stack = self.kit.model.encoder
        if not isinstance(stack, Stack):
            yield Property(name, None, "a causal stack sees the order")
        elif stack.config.position != "none":
            yield Property(name, None, f"its blocks see {stack.config.position} positions")
        else:
            x = torch.randn(2, 11, stack.config.block.dim, generator=self.generator)
            x, order = x.to(self.kit.device), torch.randperm(11, generator=self.generator)
            whole = Context(View(), View())
            a, b = stack(x[:, order], whole), stack(x, whole)[:, order]
            yield Property(name, gap(a, b) <= CLOSE, f"{gap_text(a, b)} (encoder, after its input)")


def flat(scores: Tensor) -> Tensor:
    """Scores as rows (…, V)."""
    return scores.reshape(-1, scores.shape[-1])


def gap(a: Tensor, b: Tensor) -> float:
    """Largest difference, relative to the largest number."""
    return ((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()


def gap_text(a: Tensor, b: Tensor) -> str:
    """The gap in words."""
    return "equal to the bit" if torch.equal(a, b) else f"differs by {gap(a, b):.1e}"
