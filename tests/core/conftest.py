"""Small tensors on one thread."""

from tests.properties.threads import one_thread  # noqa: F401
