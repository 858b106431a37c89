"""Tiny random transformers models beside what regard makes of their folders."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.utils import logging as their_logging

import regard
from regard.interop import weights
from regard.interop.families import bind, recognise
from regard.interop.folder import INDEX, SINGLE
from regard.interop.table import Binding, TensorRow, braces
from regard.interop.weights import export_tensors
from regard.kit import Kit
from regard.model.config import ModelConfig
from regard.model.model import Model

BAR = 2e-5  # of the largest logit, in float32
FAR = 1e-2  # what a wrong table must exceed, 500 times the bar
PADDING = ["none", "right", "left"]


@dataclass(eq=False)
class Case:
    """A transformers class, its config's arguments, and later edits of its config.json."""

    architecture: str
    config: dict[str, Any]
    edit: dict[str, Any] = field(default_factory=dict)
    """Keys to set in config.json; None removes the key."""
    low: int = 2
    """Smallest id in a text: those below are special."""


@dataclass(eq=False)
class Pair:
    """One folder, opened by transformers and by regard."""

    case: Case
    folder: Path
    theirs: Any
    ours: Kit


def their_class(architecture: str) -> Any:
    return getattr(transformers, architecture)


def randomise(model: torch.nn.Module, seed: int = 0) -> None:
    """Draw every parameter and buffer that is learned, norms and biases too."""
    generator = torch.Generator().manual_seed(seed)
    learned = dict(model.named_parameters())
    learned |= {n: b for n, b in model.named_buffers() if n == "final_logits_bias"}
    with torch.no_grad():
        for name, weight in learned.items():
            # Marian's positions are a fixed table that it never writes to a file.
            if "Marian" in type(model).__name__ and "embed_positions" in name:
                continue
            drawn = torch.randn(weight.shape, generator=generator)
            scale = name.endswith("weight") and weight.dim() == 1  # of a norm
            weight.copy_(1 + drawn / 2 if scale else 0.3 * drawn)


def make_theirs(case: Case) -> Any:
    cls = their_class(case.architecture)
    model = cls(cls.config_class(**case.config)).eval()
    randomise(model)
    head = getattr(getattr(model, "cls", None), "predictions", getattr(model, "lm_head", None))
    if hasattr(head, "decoder") and not model.config.tie_word_embeddings:
        # An untied BERT or RoBERTa stores this bias twice and computes with the decoder's.
        head.bias.data = head.decoder.bias.data.clone()
    return model


def edit_json(path: Path, edits: dict[str, Any]) -> None:
    held = json.loads(path.read_text()) | edits
    path.write_text(json.dumps({k: v for k, v in held.items() if v is not None or k not in edits}))


def make_pair(case: Case, folder: Path) -> Pair:
    theirs = make_theirs(case)
    theirs.save_pretrained(folder)
    edit_json(folder / "config.json", case.edit)
    return Pair(case, folder, theirs, regard.load(folder))


# Differences ------------------------------------------------------------------------------------


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference over the largest value; the shapes must be equal."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    assert torch.isfinite(ours).all() and theirs.abs().max() > 1e-3
    return float((ours - theirs).abs().max() / theirs.abs().max())


def assert_close(ours: Tensor, theirs: Tensor, bar: float = BAR) -> None:
    found = difference(ours, theirs)
    assert found <= bar, f"largest difference {found:.1e} of the largest value, bar {bar:.0e}"


def texts(pair: Pair, equal: bool, side: str = "source", seed: int = 0) -> list[list[int]]:
    """Random ids of equal or unequal lengths, from the vocabulary of a side."""
    config = pair.ours.model.config
    front = config.front if side == "source" else config.target
    generator = torch.Generator().manual_seed(seed)
    lengths = (9, 9, 9) if equal else (6, 9, 3)
    low = pair.case.low
    return [torch.randint(low, front.vocab, (n,), generator=generator).tolist() for n in lengths]


def lay(rows: list[list[int]], side: str, pad: int = 0) -> tuple[Tensor, Tensor | None]:
    """Rows of unequal length as one tensor with its mask; None when nothing is padded."""
    if side == "none":
        return torch.tensor(rows), None
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for n, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[n, place], mask[n, place] = torch.tensor(row), True
    return ids, mask


def places(mask: Tensor) -> Tensor:
    """The position of each token in its own text."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def answer(output: Any, like: Kit) -> Tensor:
    """The part of a transformers output that regard's head gives."""
    if hasattr(output, "logits"):
        return output.logits
    return output.pooler_output if like.model.config.head.transform else output.last_hidden_state


@torch.no_grad()
def run(pair: Pair, model: Any = None, **inputs: Any) -> Tensor:
    return answer((model or pair.theirs)(**inputs), pair.ours)


def check_text(pair: Pair, padding: str, pad: int = 0, numbered: bool = True) -> None:
    """A model with one text stack, against the padded batch and against each row alone.

    `numbered`: transformers needs position_ids, without which it counts the padding too.
    """
    rows = texts(pair, padding == "none")
    ids, mask = lay(rows, padding, pad)
    ours = pair.ours.logits(ids, mask=mask)
    more = {} if mask is None else {"attention_mask": mask.long()}
    if mask is not None and numbered:
        more["position_ids"] = places(mask)
    theirs = run(pair, input_ids=ids, **more)
    alone = [run(pair, input_ids=torch.tensor([row]))[0] for row in rows]
    if pair.ours.model.config.head.take != "all":
        assert_close(ours, torch.stack(alone))
        assert_close(ours, theirs)
        return
    assert_close(torch.cat([our[m] for our, m in each(ours, mask)]), torch.cat(alone))
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    assert_close(ours[real], theirs[real])


def each(ours: Tensor, mask: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Each row of an answer with the places that are not padding."""
    real = torch.ones(ours.shape[:2], dtype=torch.bool) if mask is None else mask
    yield from zip(ours, real, strict=True)


def check_pairs(pair: Pair, source_padding: str, target_padding: str, columns: bool) -> None:
    """An encoder-decoder on texts; `columns`: transformers counts padding on the left as places."""
    sources = texts(pair, source_padding == "none")
    targets = texts(pair, target_padding == "none", "target", seed=1)[::-1]
    source, source_mask = lay(sources, source_padding)
    target, mask = lay(targets, target_padding)
    ours = pair.ours.logits(source, target, source_mask=source_mask, mask=mask)
    alone = [
        run(pair, input_ids=torch.tensor([s]), decoder_input_ids=torch.tensor([t]))[0]
        for s, t in zip(sources, targets, strict=True)
    ]
    assert_close(torch.cat([our[m] for our, m in each(ours, mask)]), torch.cat(alone))
    if columns and "left" in (source_padding, target_padding):
        return
    more = {} if source_mask is None else {"attention_mask": source_mask.long()}
    more |= {} if mask is None else {"decoder_attention_mask": mask.long()}
    theirs = run(pair, input_ids=source, decoder_input_ids=target, **more)
    real = torch.ones_like(target, dtype=torch.bool) if mask is None else mask
    assert_close(ours[real], theirs[real])


def inputs_of(ours: Kit, low: int = 2) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
    """A plain batch for any model: transformers' keywords and our arguments."""
    generator = torch.Generator().manual_seed(3)
    config = ours.model.config

    def words(vocab: int, length: int) -> Tensor:
        return torch.randint(min(low, vocab - 1), vocab, (2, length), generator=generator)

    front = config.front
    if front.kind == "text":
        named = {"input_ids": words(front.vocab, 7)}
    elif front.kind == "image":
        shape = (2, front.channels, front.height, front.width)
        named = {"pixel_values": torch.randn(shape, generator=generator)}
        if front.stride:  # a spectrogram, which transformers wants with time first
            return {"input_values": named["pixel_values"][:, 0].mT}, tuple(named.values())
    elif front.kind == "wave":
        wave = torch.randn((2, 1, 400), generator=generator)
        return {"input_values": wave[:, 0]}, (wave,)
    else:
        shape = (2, front.mels, 2 * front.length)
        named = {"input_features": torch.randn(shape, generator=generator)}
    if config.target is not None:
        named["decoder_input_ids"] = words(config.target.vocab, 5)
    return named, tuple(named.values())


def gap(ours: Kit, theirs: Any, low: int = 2) -> float:
    """How far two models are apart on a plain batch."""
    named, given = inputs_of(ours, low)
    with torch.no_grad():
        return difference(ours.logits(*given), answer(theirs(**named), ours))


# Wrong tables -----------------------------------------------------------------------------------


def swap_norms(binding: Binding) -> Binding:
    """The same table with the norms before attention and before the MLP taken for each other."""
    rows, theirs = list[TensorRow](), dict[str, str]()
    for row in binding.table.rows:
        both = [braces(name.replace("{i}", "#")) for name in (row.ours, row.theirs)]
        apart = len(both[0]) == len(both[1])  # a row that lists names on both sides is one of each
        for one, other in zip(*both, strict=True) if apart else [(row.ours, row.theirs)]:
            names = (one.replace("#", "{i}"), other.replace("#", "{i}"))
            theirs.update([names])
            rows.append(TensorRow(*names, *row.ops, when=row.when))
    parts, swapped = {".attn.norm": ".mlp.norm", ".mlp.norm": ".attn.norm"}, 0
    for n, row in enumerate(rows):
        for one, other in parts.items():
            if row.ours.endswith(one):
                partner = theirs[row.ours.removesuffix(one) + other]
                rows[n] = TensorRow(row.ours, partner, *row.ops, when=row.when)
                swapped += 1
    assert swapped >= 2
    return replace(binding, table=replace(binding.table, rows=tuple(rows)))


def check_control(pair: Pair, monkeypatch: Any) -> None:
    """The comparison sees a wrong table: loaded through it, the model is far off."""
    assert gap(pair.ours, pair.theirs, pair.case.low) <= BAR
    with monkeypatch.context() as patch:
        patch.setattr(weights, "recognise", lambda *a: swap_norms(recognise(*a)))
        wrong = regard.load(pair.folder)
    assert gap(wrong, pair.theirs, pair.case.low) > FAR


# Out and in again -------------------------------------------------------------------------------


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, single or sharded."""
    if (folder / SINGLE).exists():
        return load_file(folder / SINGLE)
    files = sorted(folder.glob("model-*.safetensors"))
    assert files and (folder / INDEX).exists()
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def assert_same_tensors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert set(found) == set(expected), set(found) ^ set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def check_round_trip(pair: Pair, tmp_path: Path) -> None:
    """Exporting what was loaded gives each tensor back, bit for bit, in float32 and bfloat16."""
    held = read_tensors(pair.folder)
    assert {t.dtype for t in held.values()} == {torch.float32}
    made = list(export_tensors(pair.ours.model, pair.ours.binding))
    assert len({name for name, _ in made}) == len(made)
    assert_same_tensors(dict(made), held)
    half = their_class(pair.case.architecture).from_pretrained(pair.folder, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "half")
    held = read_tensors(tmp_path / "half")
    assert torch.bfloat16 in {t.dtype for t in held.values()}
    ours = regard.load(tmp_path / "half", dtype="auto")
    assert_same_tensors(dict(export_tensors(ours.model, ours.binding)), held)
    ours.save(tmp_path / "again")
    assert_same_tensors(read_tensors(tmp_path / "again"), held)


class Listener(logging.Handler):
    """Keeps what transformers logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect transformers' log messages and all warnings of a block."""
    their_logging.warning_once.cache_clear()  # else a message is shown to the first test only
    their_logging.info_once.cache_clear()
    listener = Listener()
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield listener.messages
            listener.messages.extend(str(w.message) for w in caught)
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)


def open_quietly(architecture: str, folder: Path, expected: tuple[str, ...] = ()) -> Any:
    """Open a folder in transformers; it must find all and say nothing but what is expected."""
    with listening() as messages:
        model, info = their_class(architecture).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert len(messages) == len(expected), messages
    assert all(part in said for part, said in zip(expected, messages, strict=True)), messages
    return model.eval()


def check_save(pair: Pair, tmp_path: Path, expected: tuple[str, ...] = ()) -> None:
    """transformers opens what we save in silence and computes what we compute."""
    pair.ours.save(tmp_path)
    theirs = open_quietly(pair.case.architecture, tmp_path, expected)
    assert gap(pair.ours, theirs, pair.case.low) <= BAR
    assert_same_tensors(read_tensors(tmp_path), read_tensors(pair.folder))
    again = regard.load(tmp_path)
    assert again.model.config == pair.ours.model.config
    assert_same_tensors(again.model.state_dict(), pair.ours.model.state_dict())


def check_born(
    config: ModelConfig,
    architecture: str,
    tmp_path: Path,
    expected: tuple[str, ...] = (),
    low: int = 2,
) -> None:
    """A model made here is saved with a config.json that transformers understands."""
    ours = Kit(Model.fresh(config), None, bind(architecture))
    randomise(ours.model)
    ours.save(tmp_path)
    theirs = open_quietly(architecture, tmp_path, expected)
    assert type(theirs).__name__ == architecture
    assert gap(ours, theirs, low) <= BAR
    again = regard.load(tmp_path)
    assert again.model.config == config
    assert_same_tensors(again.model.state_dict(), ours.model.state_dict())


def check_shards(pair: Pair, tmp_path: Path) -> None:
    """A folder in many files is the same model."""
    pair.theirs.save_pretrained(tmp_path, max_shard_size="4KB")
    edit_json(tmp_path / "config.json", pair.case.edit)
    assert not (tmp_path / SINGLE).exists() and len(list(tmp_path.glob("model-*"))) > 2
    ours = regard.load(tmp_path)
    assert ours.model.config == pair.ours.model.config
    assert_same_tensors(ours.model.state_dict(), pair.ours.model.state_dict())


def copy_with(pair: Pair, folder: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    """The pair's folder with other tensors."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes((pair.folder / "config.json").read_bytes())
    edit_json(folder / "config.json", config)
    save_file({n: t.clone().contiguous() for n, t in tensors.items()}, folder / SINGLE)
    return folder


def check_duplicates(pair: Pair, tmp_path: Path, names: dict[str, str]) -> None:
    """A file that stores tied weights more than once (copy → original) is the same model."""
    held = read_tensors(pair.folder)
    assert not set(names) & set(held)
    more = {copy: held[original] for copy, original in names.items()}
    ours = regard.load(copy_with(pair, tmp_path / "more", held | more))
    assert gap(ours, pair.theirs, pair.case.low) <= BAR
    ours.save(tmp_path / "out")
    theirs = open_quietly(pair.case.architecture, tmp_path / "out")
    assert gap(ours, theirs, pair.case.low) <= BAR
