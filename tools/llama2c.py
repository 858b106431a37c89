"""Turn a llama2.c model.bin into a Hugging Face folder: llama2c.py model.bin FOLDER.

Reads the legacy version 0 export (github.com/karpathy/llama2.c), and the tokenizer.bin beside it.
"""

from __future__ import annotations

import argparse
import math
import mmap
import struct
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError, RegardError
from regard.interop.folder import write_folder
from regard.interop.gguf_file import half_split
from regard.tokens.gguf_tokenizer import PieceKind, ScoredPiece, scored_bpe
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.vocabulary_files import surround

HEADER = struct.Struct("<7i")  # dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
NEWER = 0x616B3432  # "ak42", the first word of llama2.c's later exports


class Llama2cSource:
    """A llama2.c file, mapped, under the names and config keys of a Hugging Face Llama."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEADER.size)
            if len(head) < HEADER.size:
                found = f"byte {size}: the file ends inside the header"
                raise self._error(found, f"a header of {HEADER.size} bytes")
            numbers = HEADER.unpack(head)
            self._check_header(numbers)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        dim, hidden, depth, heads, kv_heads, vocab, context = numbers
        # A negative vocab_size says that the output matrix is stored after the rest.
        tied, vocab = vocab > 0, abs(vocab)
        self._heads = {"q_proj": heads, "k_proj": kv_heads}
        self.config: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": dim,
            "intermediate_size": hidden,
            "num_hidden_layers": depth,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "vocab_size": vocab,
            "max_position_embeddings": context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": tied,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "dtype": "float32",
        }
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._offsets: dict[str, int] = {}
        self._lay_out(size)
        self._bytes = torch.frombuffer(mapped, dtype=torch.uint8)

    def tensor(self, name: str) -> Tensor:
        """Read one tensor: mapped memory, except q and k, whose rows are put in order."""
        shape, start = self.shapes[name], self._offsets[name]
        weight = self._bytes[start : start + 4 * math.prod(shape)].view(torch.float32).view(shape)
        part = name.split(".")[-2]
        return half_split(weight, self._heads[part]) if part in self._heads else weight

    def _lay_out(self, size: int) -> None:
        """Place every tensor in a file of `size` bytes, in the order of legacy_export."""
        c = self.config
        dim, hidden, depth = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
        head_dim = dim // c["num_attention_heads"]
        kv_dim = head_dim * c["num_key_value_heads"]
        rows: list[tuple[str, tuple[int, ...]]] = [
            ("model.embed_tokens", (c["vocab_size"], dim)),
            ("model.layers.{i}.input_layernorm", (dim,)),
            ("model.layers.{i}.self_attn.q_proj", (dim, dim)),
            ("model.layers.{i}.self_attn.k_proj", (kv_dim, dim)),
            ("model.layers.{i}.self_attn.v_proj", (kv_dim, dim)),
            ("model.layers.{i}.self_attn.o_proj", (dim, dim)),
            ("model.layers.{i}.post_attention_layernorm", (dim,)),
            ("model.layers.{i}.mlp.gate_proj", (hidden, dim)),
            ("model.layers.{i}.mlp.down_proj", (dim, hidden)),
            ("model.layers.{i}.mlp.up_proj", (hidden, dim)),
            ("model.norm", (dim,)),
            ("", (2, c["max_position_embeddings"], head_dim // 2)),  # rotary cos, sin: not needed
            *([] if c["tie_word_embeddings"] else [("lm_head", (c["vocab_size"], dim))]),
        ]
        # Added up before any name is made: a corrupt depth must not fill memory with names.
        sizes = [4 * math.prod(shape) * (depth if "{i}" in name else 1) for name, shape in rows]
        end = HEADER.size + sum(sizes)
        if size != end:
            header = f"dim {dim}, hidden {hidden}, {depth} layers, vocab {c['vocab_size']}"
            found = f"byte {min(size, end):,}: the file has {size:,} bytes, its header ({header})"
            raise self._error(f"{found} describes {end:,}", f"{end:,} bytes")
        offset = HEADER.size
        for name, shape in rows:
            for i in range(depth if "{i}" in name else 1):
                if name:
                    full = name.format(i=i) + ".weight"
                    self.shapes[full], self._offsets[full] = shape, offset
                offset += 4 * math.prod(shape)

    def _check_header(self, numbers: tuple[int, ...]) -> None:
        dim, hidden, depth, heads, kv_heads, vocab, context = numbers
        if dim == NEWER:
            found = f"byte 0: a llama2.c export of version {hidden}"
            raise self._error(found, "version 0", "run llama2.c's export.py with --version 0")
        positive = min(dim, hidden, depth, heads, kv_heads, context) > 0 and vocab != 0
        if not positive or dim % (2 * heads) or heads % kv_heads:
            found = f"bytes 0 to {HEADER.size}: header {', '.join(map(str, numbers))}"
            raise self._error(
                found,
                "dim, hidden, layers, heads, kv_heads, vocab, context, all positive (vocab may be "
                "negative), dim a multiple of 2 heads and heads a multiple of kv_heads",
            )

    def _error(self, found: str, expected: str, fix: str = "") -> DataError:
        fix = fix or "copy the file again; only llama2.c's legacy model.bin is read"
        return DataError(f"reading llama2.c file {self.path}", found, expected, fix)


def open_tokenizer(path: Path | str, vocab_size: int) -> Tokenizer:
    """The tokenizer of a llama2.c model, from its tokenizer.bin; encoding adds <s>."""
    rust = scored_bpe(read_pieces(Path(path), vocab_size))
    surround(rust, bos=1, eos=None)
    return Tokenizer.from_rust(rust, {"unk": 0, "bos": 1, "eos": 2})


def read_pieces(path: Path, vocab_size: int) -> list[ScoredPiece]:
    """The pieces of tokenizer.bin: int32 longest piece, then float32 score, int32 length, bytes."""
    if vocab_size < 259:
        raise DataError(f"reading {path}", f"{vocab_size} pieces", "3 control tokens and 256 bytes")
    data, place, pieces = path.read_bytes(), 4, []
    for id in range(vocab_size):
        try:
            score, length = struct.unpack_from("<fi", data, place)
            place += 8
            raw = struct.unpack_from(f"{length}s", data, place)[0]
            place += length
            pieces.append(read_piece(id, raw, score))
        except (struct.error, UnicodeDecodeError) as error:
            raise DataError(
                f"reading {path}",
                f"piece {id} at byte {place}: {error}",
                f"{vocab_size} pieces",
                "use the tokenizer.bin that belongs to the model",
            ) from None
    if place != len(data):
        raise DataError(
            f"reading {path}",
            f"{len(data) - place} bytes after piece {vocab_size - 1}",
            f"{vocab_size} pieces, as many as the model has",
            "use the tokenizer.bin that belongs to the model",
        )
    return pieces


def read_piece(id: int, raw: bytes, score: float) -> ScoredPiece:
    """One piece; the format fixes the first 259 ids, which its versions spell differently."""
    if id < 3:
        kind = PieceKind.UNKNOWN if id == 0 else PieceKind.CONTROL
        return ScoredPiece(("<unk>", "<s>", "</s>")[id], score, kind)
    if id < 259:
        return ScoredPiece(f"<0x{id - 3:02X}>", score, PieceKind.BYTE)
    return ScoredPiece(raw.decode().replace(" ", "▁"), score)


def convert(path: Path, folder: Path) -> None:
    """Read a model.bin and write the Hugging Face folder, with the tokenizer where there is one."""
    source, beside = Llama2cSource(path), path.parent / "tokenizer.bin"
    files = {}
    if beside.exists():
        files = open_tokenizer(beside, source.config["vocab_size"]).files
    weights = ((name, source.tensor(name)) for name in source.shapes)
    write_folder(folder, source.config, weights, files)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="a model.bin of llama2.c")
    parser.add_argument("folder", type=Path, help="the folder to write")
    options = parser.parse_args()
    try:
        convert(options.file, options.folder)
    except RegardError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"wrote {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
