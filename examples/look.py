"""Where heads look: pronouns in the translator in the box, and a page of each sentence.

    python examples/look.py [FOLDER]

The sentences are those of lectures on attention. *Il* is the tired animal and *elle* the wide
street; the car is blue and expensive, and it is the car that is totaled; Doug lends John what John
has not. What a pronoun stands for and where heads look need not agree: here heads find the animal
for *elle* too. Without FOLDER the pages go to a temporary one; they open without network.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import regard

SENTENCES = {  # page → sentence, the pronoun, and what it could stand for
    "tired": (
        "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
        "il",
        ("animal", "rue"),
    ),
    "wide": (
        "L'animal n'a pas traversé la rue parce qu'elle était trop large.",
        "elle",
        ("animal", "rue"),
    ),
    "car": (
        "Elle a acheté une voiture bleue très chère, mais son fils l'a détruite hier.",
        "l'",
        ("voiture", "fils"),
    ),
    "doug": (
        "Doug a prêté sa voiture à John parce qu'il n'en avait pas.",
        "il",
        ("Doug", "John"),
    ),
}


def places(kit: regard.Kit, text: str, word: str) -> list[int]:
    """The tokens of a word where it stands last."""
    start, end = [match.span() for match in re.finditer(rf"\b{word}\b", text)][-1]
    return [n for n, (a, b) in enumerate(kit.tokenizer.offsets(text)) if a < end and b > start]


def main() -> None:
    """Look at each sentence."""
    kit = regard.load("fr-en")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="regard-look-"))
    folder.mkdir(parents=True, exist_ok=True)
    for name, (text, pronoun, candidates) in SENTENCES.items():
        maps = regard.look.attention(kit, text)
        print(f"\n{text}\n→ {''.join(maps.tokens['target'][1:]).strip()}")
        query = places(kit, text, pronoun)[-1]
        for candidate in candidates:
            keys = places(kit, text, candidate)
            found = [
                (float(head.dense()[query, keys].sum()), f"{block}.{number}")
                for block, heads in enumerate(maps.stack("encoder").heads)
                for number, head in enumerate(heads)
            ]
            best = ", ".join(
                f"{weight:.0%} by head {head}" for weight, head in sorted(found)[:-4:-1]
            )
            print(f"  “{pronoun}” looks at “{candidate}”: {best}")
        page = folder / f"{name}.html"
        maps.save(page)
        print(f"  page: {page}")


if __name__ == "__main__":
    main()
