"""Small tokenizers, trained on a few lines, for all tests of regard/tokens."""

import io
import json
import os
from pathlib import Path

from tokenizers import Tokenizer as Rust
from tokenizers import decoders, models, pre_tokenizers, trainers

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

CORPUS = [
    "the cat sat on the mat, and the dog sat on the log",
    "naïve café, déjà vu; a façade and a piñata",
    "in 1984 we've seen 12345 sheep, haven't we?",
    "Hello world! How are you today? I'm fine, thanks.",
    "日本語のテスト と 漢字",
] * 20

TEXTS = [
    "",
    "the cat",
    "Hello, WORLD! it's 1984",
    "  two  spaces ",
    "naïve café e\u0301",
    "emoji 🎉 and 👩\u200d👧",
    "日本語 漢字",
    "tabs\tand\nlines\r\n\nend",
    "</s> <s> <mask> [MASK] [SEP] <|endoftext|>",
]


def byte_bpe(specials: list[str], size: int = 350) -> Rust:
    """A byte-level BPE with these control tokens as its first ids."""
    rust = Rust(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    rust.train_from_iterator(CORPUS, trainer)
    return rust


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def train_spm(corpus: list[str] = CORPUS, **options: object) -> bytes:
    """The bytes of a small SentencePiece model."""
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **options,
    )
    return model.getvalue()
