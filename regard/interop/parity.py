"""Parity: how far our scores are from transformers' on the same folder, measured and recorded."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from regard import __version__
from regard.ambient import current, track
from regard.errors import DataError
from regard.files import write_whole
from regard.interop.folder import STORED
from regard.interop.results import Parity
from regard.model.batch import Batch
from regard.model.config import AudioConfig, ImageConfig, ModelConfig, TextConfig

if TYPE_CHECKING:
    from regard.kit import Kit

BAR = 2e-5  # of the largest score, in float32
SIZES = ((1, 7), (3, 12), (2, 33))  # batch and length of what is compared


def parity_file(path: Path) -> Path:
    """Where the parity of a folder, or of a .gguf file, is written."""
    return path / "parity.json" if path.is_dir() else path.with_suffix(".parity.json")


def measure_parity(kit: Kit, path: Path) -> Parity | str:
    """Compare a loaded float32 model with transformers' on random batches, and note the result.

    Returns why nothing could be compared where that is so.
    """
    if find_spec("transformers") is None:
        return "transformers is not installed"
    if kit.binding is None:
        return "transformers has no such architecture"
    if STORED in kit.config:
        return "transformers does not open weights that are stored as int8"
    seed, model = current().seed, kit.model
    theirs = open_theirs(path, kit).to(model.device)
    generator = torch.Generator().manual_seed(seed)
    pad = kit.config.get("pad_token_id")
    compared = list(batches(model.config, generator, 0 if pad is None else int(pad)))
    difference = largest = 0.0
    for batch in track(compared, "comparing batches"):
        batch = batch.to(model.device)
        with torch.no_grad():
            ours, others = model(batch), their_scores(theirs, batch, model.config)
        if ours.shape != others.shape:
            fault = f"scores of shape {tuple(ours.shape)}, theirs {tuple(others.shape)}"
            raise DataError("comparing with transformers", fault, "equal shapes")
        if batch.mask is not None and ours.dim() == 3:  # at padding scores mean nothing
            ours, others = ours[batch.mask], others[batch.mask]
        if not (ours.isfinite().all() and others.isfinite().all()):
            raise DataError("comparing with transformers", "scores that are not finite numbers")
        difference = max(difference, (ours - others).abs().max().item())
        largest = max(largest, others.abs().max().item())
    relative = difference / max(largest, 1e-30)
    figures = relative <= BAR, difference, relative, largest, BAR, len(compared), seed
    versions = {"regard": __version__, **{n: version(n) for n in ("torch", "transformers")}}
    place = "float32", str(model.device), versions, datetime.now(UTC).isoformat(timespec="seconds")
    parity = Parity(kit.binding.architecture, *figures, *place)
    write_whole(parity_file(path), (json.dumps(asdict(parity), indent=2) + "\n").encode())
    return parity


def open_theirs(path: Path, kit: Kit) -> nn.Module:
    """transformers' model in float32, without a word or a look at the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    library: Any = transformers
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    assert kit.binding is not None
    kind = getattr(library, kit.binding.architecture)
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # its bars know no switch
        warnings.simplefilter("ignore")
        if path.is_dir():
            model = kind.from_pretrained(path, dtype=torch.float32, local_files_only=True)
        else:  # its from_pretrained wants one more library for a .gguf file; its reader does not
            from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

            model = kind(kind.config_class(**kit.config | load_gguf_checkpoint(path)["config"]))
            model.load_state_dict(load_gguf_checkpoint(path, True, model)["tensors"], strict=False)
            model.tie_weights()
    opened: nn.Module = model.eval()
    return opened


def batches(config: ModelConfig, generator: torch.Generator, pad: int) -> Iterator[Batch]:
    """Random batches, each as it is and, for text, with rows of unequal length."""
    front, target = config.front, config.target
    for number, (count, length) in enumerate(SIZES):
        inputs, mask = draw(front, count, length, generator, pad)
        padded = inputs if mask is None else inputs.where(mask, pad)
        if target is None:
            kinds, segments = getattr(front, "segments", 0), None
            if kinds > 1 and number:
                segments = torch.randint(kinds, inputs.shape, generator=generator)
            yield Batch(inputs, segments=segments)
            if mask is not None:
                yield Batch(padded, mask=mask, segments=segments)
            continue
        ids, target_mask = draw(target, count, length + 2, generator, pad)
        yield Batch(inputs, ids)
        if target_mask is not None:
            yield Batch(padded, ids.where(target_mask, pad), mask=target_mask, source_mask=mask)


def draw(
    front: TextConfig | ImageConfig | AudioConfig,
    count: int,
    length: int,
    generator: torch.Generator,
    pad: int,
) -> tuple[Tensor, Tensor | None]:
    """Random inputs, and for several texts a mask of unequal lengths, padding on the right."""
    if isinstance(front, ImageConfig):
        shape = count, front.channels, front.height, front.width
        return torch.randn(shape, generator=generator), None
    if isinstance(front, AudioConfig):
        return torch.randn(count, front.mels, 2 * front.length, generator=generator), None
    if front.position == "learned":
        length = min(length, (front.length or 512) - front.offset)
    ids = torch.randint(front.vocab - 1, (count, length), generator=generator)
    ids = ids + (ids >= pad)  # never the padding id: some families count positions by it
    if count == 1 or length < 2:
        return ids, None
    lengths = torch.randint(1, length, (count, 1), generator=generator)
    lengths[0] = length
    return ids, torch.arange(length) < lengths


def their_scores(theirs: nn.Module, batch: Batch, config: ModelConfig) -> Tensor:
    """Scores of transformers' model; where ours gives vectors, its vectors."""
    source, x = cast(str, theirs.main_input_name), batch.inputs
    if source == "input_values":  # samples, or a spectrogram with time first
        x = x[:, 0] if x.dim() == 3 else x[:, 0].mT
    inputs: dict[str, Tensor | None] = {source: x}
    if batch.target is None:
        inputs |= {"attention_mask": batch.mask, "token_type_ids": batch.segments}
    else:
        inputs |= {"decoder_input_ids": batch.target, "decoder_attention_mask": batch.mask}
        inputs |= {"attention_mask": batch.source_mask}
    out = theirs(**{name: value for name, value in inputs.items() if value is not None})
    if config.head.size is not None:
        scores: Tensor = out.logits
        return scores
    return out.pooler_output if config.head.transform else out.last_hidden_state  # type: ignore[no-any-return]
