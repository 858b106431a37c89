"""The one fixture of the property tests: a property is written once and holds for every model."""

import pytest

from tests.properties.small_models import EVERY, small_kit
from tests.properties.threads import one_thread, with_threads  # noqa: F401


@pytest.fixture(params=EVERY)
def every_preset(request):
    """A tiny model of each shape; parametrise it indirectly to run on some of them only."""
    return small_kit(request.param)


@pytest.fixture(params=[False, True], ids=["ordinary", "strict"])
def strict(request):
    """Both modes."""
    return request.param


@pytest.fixture
def two_threads():
    """Threads that share the work of one product, as in use."""
    yield from with_threads(2)
