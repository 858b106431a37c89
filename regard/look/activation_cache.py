"""Activation cache: what passed the taps of one run, and what can be made of it.

TransformerLens' `ActivationCache` is the model: stacks over blocks, what each head wrote, and the
stream taken apart into what wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.look.attention_patterns import find_attention, pattern_taps, rebuild_pattern
from regard.look.hooks import HookedModel
from regard.look.logit_lens import head_outputs, stream_parts
from regard.look.patching import last_stack, stream_taps
from regard.model.batch import Batch

DOING = "reading a cache of activations"


class StreamStack(NamedTuple):
    """Vectors of the residual stream, and what each is."""

    names: list[str]
    x: Tensor
    """(names, B, T, D)"""


class ActivationCache(dict[str, Tensor]):
    """Tap → what passed it, in the order of the model; short names and aliases find theirs too."""

    def __init__(self, hooked: HookedModel, batch: Batch, seen: Mapping[str, Tensor]) -> None:
        super().__init__(seen)
        self.hooked, self.batch = hooked, batch

    def __reduce__(self) -> tuple[type, tuple[dict[str, Tensor]]]:
        """Saved without the model, as a plain dict."""
        return dict, (dict(self),)

    def __missing__(self, name: str) -> Tensor:
        """What passed the one tap that a short name, an alias or a pattern means."""
        taps = self.hooked.find(name)
        if len(taps) != 1 or taps[0] not in self:
            problem = f"{len(taps)} taps" if len(taps) != 1 else f"{taps[0]}, which was not read"
            raise UsageError(DOING, f"{name!r}: {problem}", "one tap", f"run(…, taps={name!r})")
        return self[taps[0]]

    def residuals(self) -> StreamStack:
        """The stream after the embedding and after each block: reads `embed`, `*.resid_post`."""
        names = stream_taps(*last_stack(self.hooked.model, DOING))
        return StreamStack(names, torch.stack([self[each] for each in names]))

    def head_results(self, layer: int | str) -> Tensor:
        """What each head of an attention adds to the stream (B, T, H, D), from its `z`.

        `layer` is a block of the last stack, or the path of an attention. Its bias is not in it.
        """
        path, _ = find_attention(self.hooked, layer)
        return head_outputs(self.hooked, self[f"{path}.z"], path)

    def pattern(self, layer: int | str) -> Tensor:
        """Attention weights (B, H, T, S), rebuilt from `q` and `k` where they were not read."""
        path, _ = find_attention(self.hooked, layer)
        taps = [f"{path}.pattern"] if f"{path}.pattern" in self else pattern_taps(self.hooked, path)
        return rebuild_pattern(self.hooked, path, {tap: self[tap] for tap in taps}, self.batch)

    def parts(self) -> StreamStack:
        """What wrote the stream: the embedding, each head, biases and MLPs, which sum to its end.

        Of pre-norm models. Reads `embed`, `*.z` and `*.mlp.out` of the last stack.
        """
        if last_stack(self.hooked.model, DOING)[1].config.block.norm_at != "pre":
            raise UsageError(DOING, "a norm on the stream itself", "a pre-norm model")
        names, written = list[str](), list[Tensor]()
        for parts, x in stream_parts(self.hooked, self):
            ends = {"head": ".{0.head}", "cross": ".{0.head}", "bias": ".bias"}
            names += [part.layer + ends.get(part.kind, "").format(part) for part in parts]
            written += x.unbind(2)
        return StreamStack(names, torch.stack(written))
