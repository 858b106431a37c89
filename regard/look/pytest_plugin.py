"""The pytest plug-in: a fixture for tests of what happens inside a model.

Nothing heavy is imported here: every run of pytest loads this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from regard.look.mechanism import Mechanism


@pytest.fixture
def mechanism() -> type[Mechanism]:
    """`mechanism(model or folder)`: assertions about what happens inside it."""
    from regard.look.mechanism import Mechanism

    return Mechanism
