"""`regard eval translate`: BLEU and chrF of translations."""

from __future__ import annotations

import argparse

from regard.cli.show import Show
from regard.cli.texts import at_least
from regard.cli.translate import at_work, one_line
from regard.data.pairs import read_pairs
from regard.errors import DataError
from regard.evaluate.bleu import bleu_by_length, bleu_chrf
from regard.evaluate.overlap import check_pair_overlap
from regard.evaluate.perplexity import check_tokenizer
from regard.evaluate.results import TranslationScores
from regard.translation.config import TranslateConfig
from regard.translation.translator import Translator


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure, unless the test data was trained on."""
    scores = run_translate(args, show)
    if show.as_json:
        show.result(scores.to_dict())
    else:
        show.line(str(scores))
    return 0


def run_translate(args: argparse.Namespace, show: Show) -> TranslationScores:
    """BLEU and chrF of beam search against one reference."""
    at_least("--beams", args.beams)
    at_least("--workers", args.workers)
    pairs = list(read_pairs(args.test))
    if not any(source.strip() and target.strip() for source, target in pairs):
        what = f"{len(pairs):,} pairs, none with words on both sides" if pairs else "no pairs"
        raise DataError(f"evaluating on {args.test}", what, "one or more")
    config = TranslateConfig(args.beams, shortlist=not args.no_shortlist)
    with show.progress("translating") as progress:
        with at_work(args.path, args, len(pairs), config, show) as crew:
            if isinstance(crew, Translator):
                check_tokenizer(crew.kit)
            known = check_pair_overlap(args.path, args.test, pairs, args.train, args.allow_overlap)

            def tell(done: int, total: int) -> None:
                progress(f"{len(pairs) * done // total:,} of {len(pairs):,} lines")

            answers = crew.translate([source for source, _ in pairs], tell)
    found = [one_line(answer.translations[0].text) for answer in answers]
    spaced = not isinstance(crew, Translator)
    scores = bleu_chrf(found, [target for _, target in pairs], spaced)
    return TranslationScores(
        *scores,
        lines=len(pairs),
        beams=crew.config.beams,
        overlap=known,
        by_length=bleu_by_length(pairs, found, spaced) if args.by_length else None,
        model=args.path,
        test=args.test,
    )
