"""Whom does a pronoun mean? Attention and attribution from pronouns of the translator in the box.

    python examples/pronouns.py

Two small sets of sentences of our own. *Il* or *elle*: of two nouns, in either order, the pronoun
means the one of its gender; does a head of the encoder look from it at that noun? *Son*: French
does not say whose, English must: "Dans son jardin, ma mère a vu mon père." → "In her garden".
Printed is how often the right noun, or person, has more than the other: of the attention of one
head, chosen on every other sentence and judged on the rest, of the mean of all heads, and of what
each person adds to *her* against *his* (Shapley values, exact). Heads of this translator do not
tell *il* from *elle*, which English does not ask for. That they look at the owner proves little:
the owner stands nearer. That the owner, and not the other person, makes it *her* does.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

import regard
from regard.look.masked_input import MaskedInput
from regard.look.patching import Goal
from regard.look.shap import shapley_values

NOUNS = {  # masculine, feminine
    "chat": "souris",
    "livre": "lettre",
    "camion": "voiture",
    "couteau": "table",
    "train": "maison",
    "verre": "bouteille",
}
CHANGES = ("est tombé{e}", "était trop vieux|vieille", "a disparu", "était sale")
PEOPLE = {  # she, he
    "ma mère": "mon père",
    "ma sœur": "mon frère",
    "la reine": "le roi",
    "la femme": "l'homme",
    "Marie": "Paul",
}
OPENINGS = {"Dans son jardin": "In", "Pour son anniversaire": "For", "Avec son chien": "With"}


class Case(NamedTuple):
    """A sentence, its pronoun, whom it means, whom it does not, and how its translation begins."""

    text: str
    pronoun: str
    right: str
    wrong: str
    begun: str = ""
    answer: tuple[str, str] = ("", "")


def nouns() -> list[Case]:
    """Either gender, either noun first."""
    made = []
    for (he, she), change, female, turned in product(NOUNS.items(), CHANGES, (0, 1), (0, 1)):
        pair = [f"le {he}", f"la {she}"][:: -1 if turned else 1]
        male, _, other = change.replace("{e}", "e" if female else "").partition("|")
        said = male.rsplit(" ", 1)[0] + " " + other if female and other else male
        pronoun, right, wrong = ("elle", she, he) if female else ("il", he, she)
        text = f"Je voulais {pair[0]} et {pair[1]}, mais {pronoun} {said}."
        made.append(Case(text, pronoun, right, wrong))
    return made


def owners() -> list[Case]:
    """Either person first; the first is meant."""
    made = []
    for (opening, begun), (she, he), female in product(OPENINGS.items(), PEOPLE.items(), (0, 1)):
        right, wrong = (she, he) if female else (he, she)
        text = f"{opening}, {right} a vu {wrong}."
        answer = ("her", "his") if female else ("his", "her")
        made.append(Case(text, "son", right, wrong, begun, answer))
    return made


def columns(kit: regard.Kit, text: str, word: str) -> list[int]:
    """The tokens of a word where it stands last."""
    start = text.rindex(word)
    end = start + len(word)
    return [n for n, (a, b) in enumerate(kit.tokenizer.offsets(text)) if a < end and b > start]


def people(kit: regard.Kit, case: Case) -> list[list[int]]:
    """The tokens of the right word and of the other."""
    return [columns(kit, case.text, word) for word in (case.right, case.wrong)]


def favours(kit: regard.Kit, case: Case, weights: Tensor) -> Tensor:
    """How much more of the last dimension (…, S) is at the right word than at the other."""
    right, wrong = people(kit, case)
    return weights[..., right].sum(-1) - weights[..., wrong].sum(-1)


def report(name: str, found: Tensor) -> None:
    """How often heads (N, layers, H) favour what is right."""
    hits = (found > 0).double()
    block, head = divmod(int(hits[::2].mean(0).flatten().argmax()), found.shape[2])
    share = hits[1::2, block, head].mean()
    print(f"  {name}: head {block}.{head} {share:.0%}, mean of all heads", end=" ")
    print(f"{(found.mean((1, 2)) > 0).double().mean():.0%}")


def main() -> None:
    """Both sets."""
    kit = regard.load("fr-en")
    start = kit.config["decoder_start_token_id"]
    cases, found = nouns(), []
    print(f"il and elle, {len(cases)} sentences such as “{cases[0].text}”")
    for case in cases:
        _, seen = kit.run([case.text], [[start]], taps="encoder.blocks.*.attn.pattern")
        row = columns(kit, case.text, f" {case.pronoun} ")[-1]
        found.append(favours(kit, case, torch.stack([x[0, :, row] for x in seen.values()])))
    report("attention from the pronoun to its noun", torch.stack(found))

    cases, found, right, fair = owners(), [], 0, 0
    print(f"son, {len(cases)} sentences such as “{cases[0].text}”")
    for case in cases:
        good, bad = (kit.tokenizer.encode(w, False, side="target")[0] for w in case.answer)
        goal = Goal(torch.tensor([good]), torch.tensor([bad]))
        begun = [start, *kit.tokenizer.encode(case.begun, special=False, side="target")]
        out, seen = kit.run([case.text], [begun], taps="decoder.blocks.*.cross.pattern")
        found.append(favours(kit, case, torch.stack([x[0, :, -1] for x in seen.values()])))
        right += int(goal(out.logits, out.batch)[0] > 0)
        first, second = people(kit, case)
        absent = kit.tokenizer.specials["pad"]
        players = [*first, *second]
        masked = MaskedInput(kit.hooked, out.batch, goal, absent, players)
        shares = shapley_values(masked, len(players)).scores
        fair += int(shares[: len(first)].sum() > shares[len(first) :].sum())
    print(f"  his or her is right: {right / len(cases):.0%}")
    report("attention to the owner where his or her is written", torch.stack(found))
    print(f"  the owner adds more to the right word than the other person: {fair / len(cases):.0%}")


if __name__ == "__main__":
    main()
