"""The folder that several tests of regard/tokens open."""

from pathlib import Path

import pytest
from tokenizers import processors

from tests.tokens.small_tokenizers import byte_bpe, write_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with tokenizer.json and its settings, in the manner of GPT-2 with <s> … </s>."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    rust = byte_bpe(specials)
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    rust.enable_padding(length=32)
    rust.enable_truncation(8)
    rust.save(str(tmp_path / "tokenizer.json"))
    names = ("bos", "pad", "eos", "unk", "mask")
    tokens = {f"{name}_token": token for name, token in zip(names, specials, strict=True)}
    write_json(
        tmp_path / "tokenizer_config.json",
        tokens | {"tokenizer_class": "PreTrainedTokenizerFast"},
    )
    return tmp_path
