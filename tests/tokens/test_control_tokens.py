import pytest

from regard.errors import DataError
from regard.tokens.control_tokens import TokenizerSettings

VOCAB = {"<s>": 0, "</s>": 1, "<pad>": 2, "[MASK]": 3, "<e>": 4}


def test_declared_tokens_come_first():
    settings = TokenizerSettings(
        tokenizer={"eos_token": {"content": "<e>", "lstrip": False}},
        special={"pad_token": "<pad>", "eos_token": "</s>"},
        model={"eos_token_id": 1, "bos_token_id": [4, 0]},
    )
    roles = settings.roles(VOCAB.get)
    assert roles == {"bos": 4, "eos": 4, "pad": 2, "mask": 3}


def test_null_means_that_nobody_plays_the_role():
    settings = TokenizerSettings(tokenizer={"bos_token": None}, model={"bos_token_id": 0})
    assert "bos" not in settings.roles(VOCAB.get)


def test_well_known_names_when_no_file_speaks():
    assert TokenizerSettings().roles(VOCAB.get) == {"bos": 0, "eos": 1, "pad": 2, "mask": 3}


def test_a_declared_token_that_the_vocabulary_lacks_is_an_error():
    with pytest.raises(DataError, match="pad_token '<none>'") as caught:
        TokenizerSettings(tokenizer={"pad_token": "<none>"}).roles(VOCAB.get)
    assert "tokenizer_config.json" in caught.value.fix
