"""Numbers, times, dates and prices of a French text: how many an English translation gets right.

    python bench/translate_numbers.py [FOLDER] [--seed N] [--wrong FILE] [--json]

All of 0 to 1,000 in words, 200 times of day, 200 dates, 200 prices and decimals, each in one of
several carrier sentences. A translation is right if it has the values of its source and no others,
in digits or in words, times on a clock of 12 or 24 hours; a unit (€, %, kg) must stay. FOLDER is a
translator (fr-en); `--wrong` writes the sentences that came out wrong, as TSV.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import regard

UNITS = "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze"
UNITS_FR = [*f"{UNITS} seize dix-sept dix-huit dix-neuf".split()]
TENS_FR = ["", "dix", "vingt", "trente", "quarante", "cinquante", "soixante"]
MONTHS_FR = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
MONTHS_EN = "January February March April May June July August September October November December"
DAYS_FR = "lundi mardi mercredi jeudi vendredi samedi dimanche".split()
SMALL_EN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS_EN = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS_EN = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth"
).split()
VALUES = (
    {word: n for n, word in enumerate(SMALL_EN)}
    | {word: 10 * n for n, word in enumerate(TENS_EN, 2)}
    | {word: n for n, word in enumerate(ORDINALS_EN, 1)}
    | {"twentieth": 20, "thirtieth": 30, "hundred": 100, "thousand": 1000}
)


class Item(NamedTuple):
    """A sentence, and what its translation must hold."""

    kind: str
    source: str
    values: list[float]
    """Numbers, or minutes since midnight."""
    holds: str = ""
    """A pattern of what else must be there."""


# French ----------------------------------------------------------------------------------------


def in_french(n: int, feminine: bool = False) -> str:
    """A number up to 9,999 in words, hyphens between what is less than a hundred."""
    if n >= 1000:
        before = "" if n < 2000 else f"{in_french(n // 1000)} "
        return f"{before}mille" + (f" {in_french(n % 1000, feminine)}" if n % 1000 else "")
    if n >= 100:
        before = "" if n < 200 else f"{in_french(n // 100)} "
        several = "s" if n >= 200 and n % 100 == 0 else ""
        rest = f" {in_french(n % 100, feminine)}" if n % 100 else ""
        return f"{before}cent{several}{rest}"
    if n >= 80:
        rest = in_french(n - 80, feminine)
        return "quatre-vingts" if n == 80 else f"quatre-vingt-{rest}"
    if n >= 20:
        ten = 6 if n >= 60 else n // 10
        rest, one = n - 10 * ten, n % 10 == 1
        join = " et " if one else "-"
        return TENS_FR[ten] + (f"{join}{in_french(rest, feminine)}" if rest else "")
    return "une" if feminine and n == 1 else UNITS_FR[n]


COUNTED = [  # a masculine or feminine noun in two forms, and sentences around it
    ("mouton", "moutons", False, "Le berger garde {} près de la rivière."),
    ("marche", "marches", True, "L'escalier de la tour compte {}."),
    ("page", "pages", True, "Son nouveau roman fait {}."),
    ("kilomètre", "kilomètres", False, "Le village se trouve à {} de la frontière."),
    ("élève", "élèves", False, "Cette école accueille {} cette année."),
    ("voix", "voix", True, "La motion a recueilli {}."),
    ("euro", "euros", False, "La réparation m'a coûté {}."),
    ("lettre", "lettres", True, "Nous avons reçu {} pendant les vacances."),
    ("soldat", "soldats", False, "Au matin, {} avaient traversé le pont."),
    ("habitant", "habitants", False, "Il ne reste plus que {} dans la vallée."),
    ("minute", "minutes", True, "Faites cuire le gâteau pendant {}."),
    ("arbre", "arbres", False, "Les bénévoles ont planté {} dans le parc."),
]
BARE = [
    "Il habite au numéro {} de cette rue.",
    "Ouvrez votre livre à la page {}.",
    "La réponse est {}.",
    "Elle a répété le chiffre {} à haute voix.",
    "Le thermomètre indique {} degrés.",
    "Prenez la chambre {}, au bout du couloir.",
]


def numbers(chance: random.Random) -> Iterator[Item]:
    """All of 0 to 1,000, in words."""
    for n in range(1001):
        if n > 1 and chance.random() < 0.3:
            yield Item("numbers in words", chance.choice(BARE).format(in_french(n)), [n])
            continue
        one, many, feminine, sentence = chance.choice(COUNTED)
        noun = many if n > 1 else one
        sentence = sentence.replace("avaient", "avaient" if n > 1 else "avait")
        counted = sentence.format(f"{in_french(n, feminine)} {noun}")
        yield Item("numbers in words", counted, [n])


AT = [
    "Le bus part à {}.",
    "Rendez-vous devant la mairie à {}.",
    "À {}, tout le monde dormait encore.",
    "L'avion se posera vers {} si tout va bien.",
    "Mon cours de piano finit à {}.",
    "Appelez-moi avant {}.",
]
FROM = [
    "La bibliothèque est ouverte de {} à {}.",
    "Fermé entre {} et {}.",
    "Le match a duré de {} à {}.",
]


def times(chance: random.Random) -> Iterator[Item]:
    """200 times of day."""

    def written(hour: int, minute: int) -> str:
        plain = ["{h} h {m:02}", "{h}h{m:02}", "{h} h {m:02}"] if minute else ["{h} h", "{h}h"]
        form = chance.choice([*plain, "words", *([] if minute else ["{h} heures"])])
        if form != "words":
            return form.format(h=hour, m=minute)
        rest = {0: "", 15: " et quart", 30: " et demie"}.get(minute, f" {in_french(minute, True)}")
        rest = f" {in_french(minute)}" if hour > 12 and minute else rest
        hours = f"{in_french(hour, True)} heure{'s' * (hour > 1)}"
        if hour < 12 and minute == 45:
            hours, rest = f"{in_french(hour + 1)} heures", " moins le quart"
        return f"{hours}{rest}"

    for n in range(200):
        hour, minute = chance.randrange(1, 24), chance.choice([0, 0, 5, 10, 15, 20, 30, 30, 45, 50])
        if n % 4:
            sentence = chance.choice(AT).format(written(hour, minute))
            yield Item("times of day", sentence, [60 * hour + minute])
        else:
            later, half = chance.randrange(hour, 24), chance.choice([0, 30])
            later = min(23, later + 1)
            sentence = chance.choice(FROM).format(written(hour, minute), written(later, half))
            yield Item("times of day", sentence, [60 * hour + minute, 60 * later + half])


ON = [
    "Elle est née {}.",
    "Le contrat a été signé {}.",
    "Les travaux commenceront {}.",
    "Le musée a rouvert {}, après dix mois de fermeture.",
    "Il a quitté la ville {} avec toute sa famille.",
]


def dates(chance: random.Random) -> Iterator[Item]:
    """200 dates."""
    months = list(zip(MONTHS_FR.split(), MONTHS_EN.split(), strict=True))
    for n in range(200):
        day, year = chance.randrange(1, 29), chance.randrange(1650, 2040)
        french, english = chance.choice(months)
        first = "1er" if day == 1 else str(day)
        sentence = chance.choice(ON)
        months_later = [10] if "dix mois" in sentence else []
        if n % 5 == 0:
            text, values = f"en {french} {year}", [year]
        elif n % 5 == 1:
            text, values = f"le {chance.choice(DAYS_FR)} {first} {french}", [day]
        elif n % 5 == 2:
            day = max(2, day)
            text, values = f"le {in_french(day)} {french} {in_french(year)}", [day, year]
        else:
            text, values = f"le {first} {french} {year}", [day, year]
        yield Item("dates", sentence.format(text), [*values, *months_later], rf"\b{english}\b")


COSTS = [
    "Le loyer est de {} par mois.",
    "Ce manteau coûte {}.",
    "Elle a économisé {} en un an.",
    "La facture s'élève à {}, taxes comprises.",
    "On m'a remboursé {} hier.",
]
MEASURES = [
    ("kg", "Le colis pèse {} kg.", r"kg|kilo"),
    ("m", "La table mesure {} m de long.", r"\d ?m\b|met(er|re)"),
    ("km", "Le sentier fait {} km.", r"\bkm|kilomet"),
    ("l", "Versez {} l d'eau dans la casserole.", r"\d ?l\b|lit(er|re)"),
    ("%", "Le chômage a reculé de {} % en un an.", r"(?<!from )(?<![\d.])[\d.]+ ?(%|per ?cent)"),
    (
        "%",
        "Les ventes ont augmenté de {} % au printemps.",
        r"(?<!from )(?<![\d.])[\d.]+ ?(%|per ?cent)",
    ),
    ("%", "Le taux est passé à {} %.", r"%|per ?cent"),
    ("°C", "Il faisait {} °C dans la cave.", r"°|degree"),
]


def prices(chance: random.Random) -> Iterator[Item]:
    """200 prices and decimals."""
    for n in range(200):
        if n % 2:
            euros = chance.choice([chance.randrange(2, 100), chance.randrange(100, 99_999)])
            cents = chance.choice([0, 0, 50, 99, chance.randrange(1, 100)])
            whole = f"{euros:,}".replace(",", chance.choice([" ", "\u202f", "\u00a0"]))
            part = f",{cents:02}" if cents else ""
            sign, name = chance.choice([("€", "€|euro|EUR")] * 3 + [("$", r"\$|dollar|USD")])
            text = f"{whole}{part} {sign}"
            value = euros + cents / 100
            yield Item("prices and decimals", chance.choice(COSTS).format(text), [value], name)
        else:
            _, sentence, unit = chance.choice(MEASURES)
            places = chance.choice([1, 1, 2, 3])
            value = round(chance.choice([0, 1, 2, 7, 12, 38]) + chance.random(), places)
            text = f"{value:.{places}f}".replace(".", ",")
            yield Item("prices and decimals", sentence.format(text), [value], unit)


# English ---------------------------------------------------------------------------------------

FIGURES = r"(?<![\d.,])(\d{1,3}(?:[ ,\u202f\u00a0]\d{3})+(?!\d)|\d+)(?:\.(\d+))?(?![\d])(?![.,]\d)"
RUN = rf"(?:{'|'.join(sorted(VALUES, key=len, reverse=True))})"
WORDS = re.compile(rf"\b(?:an? (?=hundred|thousand))?{RUN}(?:(?:-|,? and |,? ){RUN})*\b", re.I)


def read_words(match: re.Match[str]) -> str:
    """A number in words as digits; several that stand together stay several."""
    numbers, total, group, room = list[int](), 0, 0, 0
    for word in re.findall(RUN, match[0].lower()):
        value = VALUES[word]
        if value == 1000 and group:
            total, group, room = 1000 * group, 0, 1000
        elif value == 100 and 0 < group < 100:
            group, room = 100 * group, 100
        elif 0 < value < room:
            group, room = group + value, 10 if value >= 20 else 0
        elif value >= 100:
            group, room = value, value
        else:
            numbers += [total + group] if room or group or total else []
            total, group, room = 0, value, 10 if value >= 20 else 0
    numbers.append(total + group)
    if len(numbers) == 2 and 10 <= numbers[0] < 100 and numbers[1] >= 10:  # nineteen ninety-six
        numbers = [100 * numbers[0] + numbers[1]]
    return " ".join(map(str, numbers))


def read_values(text: str) -> list[float]:
    """The numbers of an English text."""
    plain = WORDS.sub(read_words, text)
    plain = re.sub(r"(\d)(?:st|nd|rd|th)\b", r"\1", plain)
    found = [
        float(re.sub(r"[ ,\u202f\u00a0]", "", whole) + (f".{part}" if part else ""))
        for whole, part in re.findall(FIGURES, plain)
    ]
    left = re.sub(FIGURES, "", plain)
    return [*found, *([-1.0] if re.search(r"\d", left) else [])]


CLOCK = re.compile(
    r"(?:(?P<half>half past|half-past)|(?P<quarter>quarter)\W(?:past|after|(?P<to>to|before))"
    r"|(?P<some>\d+)(?: minutes?)? (?:past|after|(?P<before>to|before)))? ?"
    r"\b(?P<hour>noon|midnight|midday|\d{1,2}(?!\d))(?:[:.h](?P<minute>\d\d)(?!\d))?"
    r"(?P<oclock> o'clock| hours)?(?: ?(?P<m>[ap])\.?\s?m\b)?",
    re.I,
)


def read_times(text: str) -> list[set[int]]:
    """Minutes since midnight that each time of an English text may mean."""
    late = re.search(r"\b(evening|afternoon|night|tonight)\b", text)
    plain, found = WORDS.sub(read_words, text), []
    for match in CLOCK.finditer(re.sub(r"\b(\d\d?) (\d\d)\b", r"\1:\2", plain)):
        named = {"noon": 12, "midday": 12, "midnight": 0}
        hour = (
            named[match["hour"].lower()] if match["hour"].lower() in named else int(match["hour"])
        )
        shift = int(match["minute"] or 0) + 30 * bool(match["half"])
        some = 15 if match["quarter"] else int(match["some"] or 0)
        time = 60 * hour + shift + (-some if match["to"] or match["before"] else some)
        if match["m"] and hour > 12:
            found.append({-1})
        elif match["m"]:
            time = (60 * (hour % 12) + time - 60 * hour) + 720 * (match["m"].lower() == "p")
            found.append({time})
        else:
            found.append({time, time + 720} if late and hour <= 12 else {time % 1440})
    return found


def is_right(item: Item, text: str) -> bool:
    """Whether a translation has the values of its source and no others."""
    if item.holds and not re.search(item.holds, text, re.IGNORECASE):
        return False
    if item.kind != "times of day":
        found, wanted = sorted(read_values(text)), sorted(item.values)
        if wanted == [1] and re.search(r"\b(an?|one|single)\b", text, re.I):
            return found in ([], [1])
        if wanted == [0] and re.search(r"\b(no|none)\b", text, re.I):
            return found in ([], [0])
        return found == wanted
    clocks = read_times(text)
    # Words do not say which half of the day; "at 3 o'clock" may be one.
    spoken = not re.search(r"\d", item.source)
    allowed = [
        {int(v), int(v + 720) % 1440} if spoken and v < 780 else {int(v)} for v in item.values
    ]
    return len(clocks) == len(allowed) and all(a & b for a, b in zip(clocks, allowed, strict=True))


def main() -> int:
    """Translate the set and print how much of each kind is right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", default="fr-en")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wrong", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    items = [item for make in (numbers, times, dates, prices) for item in make(chance)]
    results = regard.translate([item.source for item in items], model=args.folder)
    rows: dict[str, list[bool]] = {}
    wrong = []
    for item, result in zip(items, results, strict=True):
        right = is_right(item, result.text)
        rows.setdefault(item.kind, []).append(right)
        wrong += [] if right else [f"{item.kind}\t{item.source}\t{result.text}\n"]
    if args.wrong:
        args.wrong.write_text("".join(wrong), encoding="utf-8")
    table = {kind: (sum(right), len(right)) for kind, right in rows.items()}
    table["all"] = (sum(a for a, _ in table.values()), sum(b for _, b in table.values()))
    for kind, (right, total) in table.items():
        if args.json:
            print(json.dumps({"kind": kind, "right": right, "of": total}))
        else:
            print(f"{kind:20}{right:6,} of {total:6,}{100 * right / total:8.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
