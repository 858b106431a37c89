"""Model: fronts, encoder, decoder, head; `model/recurrent.py` puts other parts in their place."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.core.attention import View
from regard.core.block import Context
from regard.core.cache import Cache
from regard.core.mlp import activation
from regard.core.norm import build_norm
from regard.core.position import Learned
from regard.core.stack import Stack, cross_view
from regard.core.tap import Taps
from regard.errors import ResourceError, UsageError
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ModelConfig
from regard.model.fronts import GraphFront, Sequence, TextFront, build_front
from regard.native.inference import reorder

DEVIATION = 0.02  # of newly drawn weights


class Memory(NamedTuple):
    """An encoder's output, as a decoder looks at it."""

    x: Tensor
    """(B, S, D)"""
    real: Tensor | None = None
    """(B, S): True = token, False = padding; None when all are real."""
    document: Tensor | None = None
    """(B, S): number of the document in a packed row."""


class Head(nn.Module):
    """Take positions, transform them (dense, activation, norm), score them; each step optional."""

    def __init__(self, config: HeadConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(dim, dim) if config.transform else None
        self.act = activation(config.transform) if config.transform else None
        self.norm = build_norm("layer" if config.norm else "none", dim, config.eps)
        self.out = nn.Linear(dim, config.size, bias=config.bias) if config.size else None

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, T, size), or (B, size) when a row has one answer."""
        x = self.prepare(x, real)
        return x if self.out is None else self.out(x)

    def prepare(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """All but the scores; training computes those in chunks (`train/cross_entropy.py`)."""
        x = self.pool(x, real)
        if self.dense is not None and self.act is not None:
            x = self.act(self.dense(x))
        x = self.norm(x)
        return x if self.config.scale is None else x * self.config.scale

    def pool(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, D), or x itself where every position is scored.

        Padding, where `real` (B, T) is False, may be on either side: the first token of a row need
        not be in its first column.
        """
        take = self.config.take
        if take == "all":
            return x
        if take == "pair":
            return x[:, :2].mean(1)
        if real is None:
            return x.mean(1) if take == "mean" else x[:, 0 if take == "first" else -1]
        if take == "mean":
            kept = x.masked_fill(~real[..., None], 0.0)  # padding may hold anything, NaN too
            return kept.sum(1) / real.sum(1, keepdim=True).clamp(min=1)
        columns = torch.arange(x.shape[1], device=x.device)
        at = real.int().argmax(-1) if take == "first" else torch.where(real, columns, 0).amax(-1)
        return x[torch.arange(len(x), device=x.device), at]


class Model(nn.Module):
    """Encoder, decoder or encoder-decoder, by which stacks the config has."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.front = config, build_front(config.front)
        self.encoder = self.build_part("encoder")
        self.target = None if config.target is None else build_front(config.target)
        self.decoder = self.build_part("decoder")
        self.head, self.at = Head(config.head, config.width), Taps("logits")
        self.tie()

    def build_part(self, name: str) -> Stack | None:
        """The stack `encoder` or `decoder`, where the config has one."""
        stack = getattr(self.config, name)
        return None if stack is None else Stack(stack)

    @classmethod
    def fresh(cls, config: ModelConfig, seed: int = 0) -> Model:
        """A model with newly drawn weights; the same seed gives the same weights."""
        model = cls(config)
        initialise(model, seed)
        return model.eval()

    @property
    def stacks(self) -> list[Stack]:
        """Those of a Transformer: encoder, decoder or both; a recurrent model has none."""
        return [s for s in (self.encoder, self.decoder) if isinstance(s, Stack)]

    @property
    def reader(self) -> nn.Module:
        """The front that feeds the last stack."""
        return self.front if self.target is None else self.target

    def tie(self) -> None:
        """Make shared weights one parameter; called again after loading."""
        if self.config.shared and isinstance(self.target, TextFront):
            assert isinstance(self.front, TextFront)
            self.target.tokens.weight = self.front.tokens.weight
        if self.config.head.tied and self.head.out is not None:
            assert isinstance(self.reader, TextFront)
            self.head.out.weight = self.reader.tokens.weight

    def forward(self, batch: Batch, cache: Cache | None = None) -> Tensor:
        """Scores of each position (B, T, V), or of the whole sequence (B, V), by the head."""
        return self.score(self.hidden(batch, cache), batch.mask)

    def score(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Final vectors (B, T, D), with padding where `real` (B, T) is False → scores."""
        return self.at.logits(self.head(x, real))

    def hidden(self, batch: Batch, cache: Cache | None = None) -> Tensor:
        """The last stack's output (B, T, D)."""
        if self.encoder is None or self.decoder is None:
            if batch.target is not None:
                raise UsageError("running a model", "a target", "an encoder-decoder model")
            return self.decode(batch, None, cache) if self.encoder is None else self.encode(batch).x
        if batch.target is None:
            raise UsageError("running an encoder-decoder", "no target ids", "source and target")
        if cache is not None and cache.source is not None:
            memory = Memory(*cache.source)  # read once, in the first call with this cache
        else:
            memory = self.encode(batch)
            if cache is not None:
                cache.source = memory
        return self.decode(batch, memory, cache)

    def encode(self, batch: Batch) -> Memory:
        """Read the whole input, of a pair its source → memory (B, S, D)."""
        return self.read(self.embed(self.front, batch.source))

    def read(self, source: Sequence) -> Memory:
        """Run the encoder on what its front made."""
        assert self.encoder is not None
        view = self.encoder.view(source.x, source.positions, source.real, source.document)
        return Memory(self.encoder(source.x, Context(view, View())), source.real, source.document)

    def decode(
        self, batch: Batch, memory: Memory | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Vectors that predict the token after each that is written, given memory and cache."""
        return self.write(self.embed(self.reader, batch.written, cache), memory, cache)

    def write(self, target: Sequence, memory: Memory | None, cache: Cache | None) -> Tensor:
        """Run the decoder on what its front made."""
        assert self.decoder is not None
        x, positions, real, document = target
        own = self.decoder.view(x, positions, real, document, cache)
        if memory is None:
            out: Tensor = self.decoder(x, Context(own, View()))
            return out
        pair = None
        if document is not None and memory.document is not None:
            pair = document, memory.document
        out = self.decoder(x, Context(own, cross_view(memory.real, pair, cache)), memory.x)
        return out

    def embed(self, front: nn.Module, side: Batch, cache: Cache | None = None) -> Sequence:
        """Run a front; only text knows packing, segments and caches, and graphs know padding."""
        sequence: Sequence
        if isinstance(front, TextFront):
            sequence = front(side.inputs, side.mask, side.documents, side.segments, cache)
        elif isinstance(front, GraphFront) and side.documents is None:
            sequence = front(side.inputs, side.mask, side.paths)
        elif side.mask is None and side.documents is None:
            sequence = front(side.inputs)
        else:
            raise UsageError("reading pixels or sound", "a mask or documents", "neither")
        return sequence

    def cache(self, batch: int, size: int, tile: int = 1) -> Cache:
        """An empty cache for the decoder, in the model's dtype and on its device."""
        if self.decoder is None:
            raise UsageError("making a cache", "a model without decoder", "a decoder")
        weight = next(self.decoder.parameters())
        cache = Cache(self.decoder.config, batch, size, weight.dtype, weight.device, tile)
        cache.move = reorder
        return cache

    def carry(self, rows: int) -> Cache | None:
        """A state that goes on from batch to batch in training; a Transformer has none."""
        return None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device


@torch.no_grad()
def initialise(model: nn.Module, seed: int = 0) -> None:
    """Fill every parameter; the same seed gives the same weights.

    | parameter                        | start                                                    |
    |----------------------------------|----------------------------------------------------------|
    | linear, embedding, learned table | normal, standard deviation 0.02 (GPT-2, BERT)            |
    | attn.o, cross.o, mlp.down        | this / sqrt(2 · depth): the stream's variance stays flat |
    | norm weight / bias, linear bias  | 1 / 0                                                    |
    | relative bias table              | 0: the model starts blind to distance                    |
    | convolution                      | torch's own (fan-in uniform)                             |
    """
    generator = torch.Generator().manual_seed(seed)

    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | Learned):
            module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * DEVIATION)
        elif isinstance(module, nn.Conv1d | nn.Conv2d):
            spread = torch.rand(module.weight.shape, generator=generator) * 2 - 1
            module.weight.copy_(spread * module.weight[0].numel() ** -0.5)
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d) and module.bias is not None:
            module.bias.zero_()
    for stack in (module for module in model.modules() if isinstance(module, Stack)):
        for name, weight in stack.named_parameters():
            if name.endswith(("attn.o.weight", "cross.o.weight", "mlp.down.weight")):
                weight.mul_((2 * stack.config.depth) ** -0.5)


def empty_model(config: ModelConfig, kind: type[Model] = Model) -> Model:
    """The model of a shape without memory (the meta device), to be filled or only looked at."""
    try:
        with torch.device("meta"), Undrawn():
            return kind(config).eval()
    except RuntimeError as error:  # torch cannot even count the bytes of a matrix
        fix = "no batch fits: a smaller model"
        raise ResourceError("laying out a model", str(error), "sizes of a machine", fix) from None


class Undrawn(TorchFunctionMode):
    """Parameters are not drawn: to draw on the meta device, torch loads its compiler (1 to 2 s)."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return options["tensor"] if "tensor" in options else args[0]
        return func(*args, **options)
