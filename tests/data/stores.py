"""Small stores for the tests of batches."""

from regard.data.token_store import Store, StoreWriter


def make_store(path, documents, sides=1, vocab=1000):
    """A store of these lists of ids."""
    with StoreWriter(path, vocab, {"sides": sides}) as writer:
        writer.add(documents)
    return Store(path)
