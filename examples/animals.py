"""Which rule is behind two blocks of animal words? Four answers, and the questions that decide.

    python examples/animals.py

The first block keeps a rule that the second breaks. The obvious one, leeuw … olifant … leeuw, has
an exception; three others have none, and the 26 lines cannot tell them apart. Two further lines
could: here they are asked, and answered as each of the rules would answer.
"""

from __future__ import annotations

from pathlib import Path

import regard.rules
from regard.rules.discovery import Discovery, discover
from regard.rules.labelled_lines import Cut, Line, read_blocks

ANIMALS = Path(regard.rules.__file__).with_name("animals.txt")


def tell(found: Discovery, count: int) -> None:
    """The first rules with their evidence."""
    for number, one in enumerate(found.hypotheses[:count], 1):
        lines = one.right + len(one.exceptions)
        print(f"  {number}. {one.right}/{lines}, {one.bits} bits: {one.rule.reading}")


def main() -> None:
    """Discover, ask, discover again."""
    lines = list(read_blocks(ANIMALS, Cut()))
    found = discover(lines)
    print(f"p = {found.p_value:.3f}; rules, best first:")
    tell(found, 5)
    readings = [one.rule.reading for one in found.hypotheses]
    obvious = readings.index("contains leeuw … olifant … leeuw in this order")
    chance = found.hypotheses[obvious].chance
    assert chance is not None
    kept = f"{chance.expected:.2f} would keep rule {obvious + 1}; {chance.observed} does"
    print(f"of 13 random lines {kept}")
    rules = [one.rule.compile() for one in found.hypotheses[:3]]
    asked = [probe.tokens for probe in found.probes[:2]]
    for number, accepts in enumerate(rules, 1):
        answers = [Line(word, accepts(word), "answer", n, "") for n, word in enumerate(asked, 1)]
        said = ", ".join(f"{' '.join(a.tokens)}: {'yes' if a.positive else 'no'}" for a in answers)
        print(f"{said}. Then rule {number} is left:")
        tell(discover([*lines, *answers]), 1)


if __name__ == "__main__":
    main()
