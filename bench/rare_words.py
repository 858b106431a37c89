"""Rare words: how many of the reference's words for them a translator writes; and BLEU.

    python bench/rare_words.py FOLDER dev-*.tsv [--judge FOLDER] [--seen 1 3] [--beams 4]
        [--only] [--show] [--json]

A case is a content word of a source that training saw 1 to 3 times, with the words of the reference
that came from it. Counts and alignments are those of the judge, the model in the box: the cases are
the same for each FOLDER. Recall is the share of those words that stand in the translation, of all
words and of cases that have all of theirs. BLEU is of all sentences, and of those with a case;
--only translates no others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

from regard.ambient import track
from regard.data.pairs import Pair, all_pairs
from regard.data.word_frequencies import count_words, words
from regard.evaluate.bleu import bleu_chrf
from regard.kit import Kit
from regard.loading import open_kit
from regard.translation import open_translator
from regard.translation.config import TranslateConfig
from regard.translation.explanation import align_pairs, seen_in_training
from regard.translation.memory import BATCH, SMALL, find_phrase, is_content


class Case(NamedTuple):
    """A rare word of a sentence, and the reference's words for it."""

    sentence: int
    word: str
    wanted: list[str]


def find_cases(
    judge: Kit, pairs: Sequence[Pair], counts: Mapping[str, int], least: int, most: int
) -> Iterator[Case]:
    """Words seen `least` to `most` times, no names and not copied, whose phrase is clear."""
    small = {word for word, _ in count_words(target for _, target in pairs).most_common(SMALL)}
    rare = dict[int, list[int]]()
    for n, (source, target) in enumerate(pairs):
        said = target.lower()
        rare[n] = [
            at
            for at, word in enumerate(words(source))
            if is_content(word) and word not in said and least <= counts.get(word, 0) <= most
        ]
    order = sorted((n for n in rare if rare[n]), key=lambda n: len(pairs[n][0]))
    for start in track(range(0, len(order), BATCH), "aligning the references"):
        batch = order[start : start + BATCH]
        for n, weights in zip(batch, align_pairs(judge, [pairs[n] for n in batch]), strict=True):
            heard, said = words(pairs[n][0]), words(pairs[n][1].lower())
            little = {k for k, w in enumerate(said) if w in small or not w[0].isalnum()}
            for at in rare[n]:
                if span := find_phrase(weights, at, little):
                    inside = range(span[0], span[1] + 1)
                    yield Case(n, heard[at], [said[k] for k in inside if k not in little])


def recall(cases: Sequence[Case], texts: Mapping[int, str]) -> tuple[float, float]:
    """The share of the wanted words that stand in the translations, and of cases with all."""
    hits = [
        sum(word in {*words(texts[case.sentence].lower())} for word in case.wanted)
        for case in cases
    ]
    whole = sum(hit == len(case.wanted) for hit, case in zip(hits, cases, strict=True))
    return sum(hits) / sum(len(case.wanted) for case in cases), whole / len(cases)


def translate_lines(folder: str, lines: Sequence[str], beams: int) -> list[str]:
    """The best translation of each line."""
    config = TranslateConfig(beams)
    with open_translator(folder, config, len(lines)) as translator:
        return [document.translations[0].text for document in translator.translate(lines)]


def main() -> None:
    """Print the recall and BLEU."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--judge", default="fr-en")
    parser.add_argument("--seen", nargs=2, type=int, default=(1, 3))
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--only", action="store_true", help="translate sentences with a case only")
    parser.add_argument("--show", action="store_true", help="print each case")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    judge, pairs = open_kit(args.judge), list(all_pairs(args.files))
    cases = list(find_cases(judge, pairs, seen_in_training(judge) or {}, *args.seen))
    some = sorted({case.sentence for case in cases})
    chosen = some if args.only else list(range(len(pairs)))
    lines = translate_lines(args.folder, [pairs[n][0] for n in chosen], args.beams)
    texts = dict(zip(chosen, lines, strict=True))
    part, whole = recall(cases, texts)

    def bleu(numbers: Sequence[int]) -> float:
        return bleu_chrf([texts[n] for n in numbers], [pairs[n][1] for n in numbers], False)[0]

    scores = {"cases": len(cases), "sentences": len(some), "recall": part, "whole": whole}
    scores |= {"bleu_rare": bleu(some)} | ({} if args.only else {"bleu": bleu(chosen)})
    if args.show:
        for case in sorted(cases):
            print(case.word, case.wanted, pairs[case.sentence][0], texts[case.sentence], sep="\t")
    print(json.dumps(scores) if args.json else "\n".join(f"{k:10} {v}" for k, v in scores.items()))


if __name__ == "__main__":
    main()
