"""Small stores for the tests of batches."""

from regard.data.token_store import write_store


def make_store(path, documents, sides=1, vocab=1000):
    """A store of these lists of ids."""
    return write_store(path, vocab, {"sides": sides}, [(documents, False)])
