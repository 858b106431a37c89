"""int8 products on a CPU: weights packed once for a kernel, and undone.

`set_precision(model, "int8")` gives linear maps another class; `weight` and `bias` stay under their
names. Everything else goes on in float32: embeddings, norms, attention, taps. What is
saved are the float weights, and `set_precision(model, None)` gives the plain maps back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.attention import Attention
from regard.core.norm import LayerNorm
from regard.core.position import Alibi, RelativeBias
from regard.errors import UsageError
from regard.heap import give_back_memory, large_apart
from regard.model.int8 import int8_map
from regard.model.model import Model
from regard.native.inference import attend, library, normalise

Map = Callable[[Tensor], Tensor]  # rows (M, K) → (M, N)
Pack = Callable[[Tensor, Tensor | None], Map]  # of a weight and a bias
UNDO = "set_precision(model, None) first"
PLAIN = "load it with precision=None"


def set_precision(model: nn.Module, precision: str | None) -> None:
    """Compute the linear maps in int8; None is plain linear maps again.

    Models that hear have peaks behind their GELUs, beside which a byte leaves nothing of the rest
    (Whisper tiny.en: 1.5 points of word errors): of them some maps of the encoder are in bfloat16,
    and `mlp.down` of the decoder stays as it is.
    """
    if precision not in (None, "int8"):
        raise UsageError("setting the precision", repr(precision), "int8 or None")
    linears: dict[str, Any] = dict(model.named_modules())
    linears = {n: m for n, m in linears.items() if type(m) in (nn.Linear, PackedLinear)}
    pack = dict[str, Pack]()
    if any(isinstance(m, nn.Conv1d) for m in model.modules()):
        linears = {n: m for n, m in linears.items() if not re.match(r"decoder.*mlp\.down", n)}
        pack = {n: bfloat16_map for n in linears if re.match(r"encoder.*(mlp\.down|attn\.o)$", n)}
    if precision is not None:
        check_packable(model)
    for name, linear in linears.items():
        linear.__class__ = nn.Linear if precision is None else PackedLinear
        linear.packed = precision and PackedProduct([linear], pack.get(name, int8_map))
    model.requires_grad_(precision is None)  # packed kernels have no gradients
    for module in model.modules():
        if isinstance(module, Attention):
            module.joint = None if module.cross else join(module.q, module.k, module.v)
            module.kernel = None if precision is None else attend
        elif isinstance(module, LayerNorm):
            module.kernel = None if precision is None else normalise


def same_in_any_company(model: Model) -> bool:
    """Whether the bits of a translation cannot depend on the rows beside it, nor on padding.

    So it is where every map is in int8 (sums of whole numbers are exact) and attention runs in the
    native kernel, which adds in an order of its own row. Whoever listens to a tap may change that.
    """
    if library() is None or len(model.stacks) < 2:
        return False
    for module in model.modules():
        if isinstance(module, Attention):
            taken = module.at.scores.fn or module.at.pattern.fn or not module.fusible
            if taken or module.kernel is not attend or module.width % 16:
                return False
        elif isinstance(module, nn.Linear):
            if not isinstance(module, PackedLinear):
                return False
        elif isinstance(module, nn.Conv1d | nn.Conv2d | RelativeBias | Alibi):
            return False  # patches and sound; a bias on the scores, which the kernel does not take
    return True


def packed_in_int8(model: nn.Module) -> bool:
    """Whether linear maps of a model run in int8."""
    return any(isinstance(m, PackedLinear) for m in model.modules())


def forget_weights(model: Model) -> None:
    """Keep packed maps without their float weights: they are four fifths of an int8 model.

    It can translate and be looked into, but no more be saved, trained or put into another
    precision. Weights that embeddings share stay.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    joint = [m.joint for m in model.modules() if isinstance(m, Attention)]
    alone = [m.packed for m in model.modules() if isinstance(m, PackedLinear)]
    with large_apart():
        for packed in (*joint, *alone):  # one after the other, so that little is held twice
            if not isinstance(packed, PackedProduct) or not all(
                m.weight.numel() and id(m.weight) not in tables for m in packed.maps
            ):
                continue
            packed.prepare()
            for linear in packed.maps:
                linear.weight = nn.Parameter(torch.empty(0), requires_grad=False)
    give_back_memory()


def check_packable(model: nn.Module) -> None:
    """Packed weights are float32, on a CPU, and not being trained."""
    doing = "setting the precision to int8"
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            fix = "fp32 or bf16; or --device cpu"
            raise UsageError(doing, f"{name} on {parameter.device}", "a model on the CPU", fix)
        if parameter.dtype != torch.float32:
            fault = f"{name} of {parameter.dtype}"
            raise UsageError(doing, fault, "float32 weights", "regard.load(…, dtype='float32')")
    if model.training:
        raise UsageError(doing, "a model in training", "one that is not", "model.eval()")


def bfloat16_map(weight: Tensor, bias: Tensor | None) -> Map:
    """A linear map with factors in bfloat16, or float32 where the CPU does not multiply those."""
    half = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
    low = torch.bfloat16 if half else torch.float32
    weight, bias = weight.to(low), None if bias is None else bias.to(low)
    return lambda x: F.linear(x.to(low), weight, bias).float()


def join_maps(maps: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Weights and biases under each other; where one map has a bias, others add zero."""
    weight = torch.cat([m.weight.detach() for m in maps])
    if all(m.bias is None for m in maps):
        return weight, None
    zeros = weight.new_zeros
    return weight, torch.cat([zeros(m.out_features) if m.bias is None else m.bias for m in maps])


class PackedProduct:
    """One or more linear maps of one input as one product; packed when it is first used."""

    def __init__(self, maps: Sequence[nn.Linear], pack: Pack = int8_map) -> None:
        self.maps, self.pack = list(maps), pack
        self.sizes = [linear.out_features for linear in maps]
        self.run: Map | None = None

    def product(self, x: Tensor) -> Tensor:
        """(…, K) → (…, N), N the outputs of all maps, in float32."""
        if x.requires_grad and torch.is_grad_enabled():
            fault = "a model that computes in packed int8"
            raise UsageError("taking gradients", fault, "plain linear maps", PLAIN)
        return self.prepare()(x)

    def prepare(self) -> Map:
        """The packed product, made now if it was not yet."""
        if self.run is None:
            with torch.inference_mode(False):  # it outlives a search that needs it first
                self.run = self.pack(*join_maps(self.maps))
        return self.run

    def __call__(self, x: Tensor) -> list[Tensor]:
        """What each map makes of x."""
        return list(self.product(x).split_with_sizes(self.sizes, -1))


class PackedLinear(nn.Linear):
    """A linear map computed from packed weights; `weight` and `bias` stay as they were."""

    packed: PackedProduct

    def forward(self, x: Tensor) -> Tensor:
        """(…, K) → (…, N)."""
        return self.packed.product(x)

    def train(self, mode: bool = True) -> PackedLinear:
        """Refused: packed weights would not follow the training."""
        if mode:
            raise UsageError("training", "a model that computes in int8", "plain linear maps", UNDO)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PackedLinear:
        raise UsageError("moving or converting a model", "one that computes in int8", fix=UNDO)


def join(*maps: nn.Linear) -> PackedProduct | None:
    """Packed maps of one input as one product; None when one of them is plain."""
    return PackedProduct(maps) if all(isinstance(m, PackedLinear) for m in maps) else None
