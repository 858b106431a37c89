"""Small stores for the tests of batches."""

from regard.data.token_store import Store, Writer


def make_store(path, documents, sides=1, vocab=1000):
    """A store of these lists of ids."""
    with Writer(path, vocab, {"sides": sides}) as writer:
        writer.add(documents)
    return Store(path)
