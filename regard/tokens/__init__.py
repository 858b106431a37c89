"""Text to ids and back: tokenizers read from folders, GGUF and llama2.c files, or trained here."""

from regard.tokens.folder import open_tokenizer
from regard.tokens.gguf import from_gguf
from regard.tokens.scored import from_llama2c
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.train import train_tokenizer

__all__ = ["Tokenizer", "from_gguf", "from_llama2c", "open_tokenizer", "train_tokenizer"]
