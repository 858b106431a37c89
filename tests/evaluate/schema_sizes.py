"""Schemas about sizes: the A does not fit in the B because it is too big, or too small."""

from __future__ import annotations

from itertools import product

from regard.evaluate.winograd_schemas import Schema

CONTENTS, CONTAINERS = ("coin", "ball", "trophy"), ("purse", "suitcase", "van")
FORMS = ("the {a} did not fit in the {b} because ", "in the {b} the {a} did not fit because ")


def size_schemas() -> list[Schema]:
    """Both members of each pair; content and container are mentioned first equally often."""
    made = []
    for a, b, form in product(CONTENTS, CONTAINERS, FORMS):
        for answer, word in enumerate(("big", "small")):
            candidates, after = (f"the {a}", f"the {b}"), f" was too {word}"
            made.append(Schema(f"{a}, {b}", form.format(a=a, b=b), after, candidates, answer))
    return made
