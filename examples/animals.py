"""Which rule is behind two blocks of animal words? Four answers, and the questions that decide.

    python examples/animals.py

The first block keeps a rule that the second breaks. The obvious one, leeuw … olifant … leeuw, has
an exception; three others have none, and the 26 lines cannot tell them apart. Two further lines
could: here they are asked, and answered as each of the rules would answer.
"""

from __future__ import annotations

import regard
from regard.rules.results import Discovery


def tell(found: Discovery, count: int) -> None:
    """The first rules with their evidence."""
    for number, one in enumerate(found.hypotheses[:count], 1):
        print(f"  {number}. {one.right}/{one.lines}, {one.bits} bits: {one.rule}")


def main() -> None:
    """Discover, ask, discover again."""
    found = regard.discover(animals=True)
    print(f"p = {found.p_value:.3f}; rules, best first:")
    tell(found, 5)
    rules = [one.rule for one in found.hypotheses]
    obvious = rules.index("contains leeuw … olifant … leeuw in this order")
    chance = found.hypotheses[obvious].by_chance
    assert chance is not None
    kept = f"{chance.expected:.2f} would keep rule {obvious + 1}; {chance.observed} does"
    print(f"of 13 random lines {kept}")
    for number, one in enumerate(found.hypotheses[:3], 1):
        answers = [
            f"{probe.text} : {'yes' if one.accepts(probe.sequence) else 'no'}"
            for probe in found.probes[:2]
        ]
        print(f"{', '.join(answers)}. Then rule {number} is left:")
        tell(regard.discover(animals=True, label=answers), 1)


if __name__ == "__main__":
    with regard.settings(progress=False):
        main()
