"""How good a model is, on tasks and test sets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from regard import verbs
from regard.ambient import current, progress
from regard.errors import DataError, UsageError
from regard.evaluate import results
from regard.history import Matrix, VectorsLike
from regard.look.results import IndirectObjects
from regard.result import name_of
from regard.verbs import Count, EditsLike, File, Files, ModelLike, Precision, Share, fields_of, verb

Split = Literal["train", "valid", "test"]
QUESTION = "Question: {question}\nAnswer: {answer}"

if TYPE_CHECKING:
    from regard.history.ngram_model import NgramModel
    from regard.kit import Kit


@verb
def lm(
    model: ModelLike,
    test: File,
    *,
    train: Files | None = None,
    allow_overlap: bool = False,
    length: Count | None = None,
    stride: Count | None = None,
    by_position: bool = False,
    speech: bool = False,
    precision: Precision = "auto",
    edit: EditsLike = (),
    nv: Share = 0.0,
    nv_text: Files | None = None,
) -> results.Perplexity | results.SpeechPerplexity:
    """Perplexity, bits per token and bits per byte of a text.

    Test lines that stand in the training data are an error.

    Args:
        model: a folder, a .gguf file, n-grams, or an opened Kit.
        test: a text file.
        train: training files, to find test lines that stand in them (those of the run's receipt).
        allow_overlap: evaluate even so, and mark the numbers.
        length: tokens of a window (what the model was made for, at most 1024).
        stride: tokens between windows (as length: they do not overlap).
        by_position: perplexity by the number of tokens before; `--save curve.png` draws it.
        speech: a transcript as spoken, without fillers and restarts, and shuffled.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.
        nv: how strongly its attention is regularised, from 0 to 1 (`regard.nvib.regularise`).
        nv_text: text to measure the prior of that on (some of the box's).

    Example:
        >>> regard.evaluate.lm("run/final", "test.txt").perplexity
        $ regard evaluate lm folder test.txt
        $ regard evaluate lm folder test.txt --train train.txt --stride 256
        $ regard evaluate lm folder test.txt.gz --json
    """
    from regard.evaluate.overlap import check_overlap
    from regard.evaluate.perplexity import evaluate_speech, evaluate_text
    from regard.kit import Kit

    opened = open_text_model(model, precision)
    if not isinstance(opened, Kit) and (edit or nv):
        fault = f"--{'edit' if edit else 'nv'} with n-grams, which have no activations"
        raise UsageError(f"evaluating {name_of(model)}", fault, "a network")
    overlap = check_overlap(name_of(model), test, train, allow_overlap)

    def measure(file: str | Path) -> results.Perplexity:
        return evaluate_text(opened, file, length, stride, by_position)

    with opened.edit(edit, nv, nv_text) if isinstance(opened, Kit) else nullcontext():
        if speech:
            return replace(evaluate_speech(measure, test, current().seed), overlap=overlap)
        return replace(measure(test), overlap=overlap)


@verb
def translate(
    model: ModelLike,
    test: File,
    *,
    train: Files | None = None,
    allow_overlap: bool = False,
    by_length: bool = False,
    beams: Count = 4,
    shortlist: bool = True,
    workers: Count | None = None,
    strict: bool = False,
    precision: Precision = "auto",
    edit: EditsLike = (),
    nv: Share = 0.0,
    nv_text: Files | None = None,
) -> results.TranslationScores:
    """BLEU and chrF of translations, with sacrebleu's signatures.

    Test pairs of which a side stands in the training data are an error.

    Args:
        model: a translator: a folder, the name of a model in the box, or an opened Kit.
        test: source TAB target on each line.
        train: training files, to find test pairs that stand in them (those of the run's receipt).
        allow_overlap: evaluate even so, and mark the numbers.
        by_length: BLEU by the number of words of the source too.
        beams: width of the beam.
        shortlist: on a CPU, whether to score only the words that the folder's shortlist allows,
            where it has one.
        workers: processes for many lines on a CPU (as many as cores).
        strict: the same bits whatever is in the batch; slower.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.
        nv: how strongly its attention is regularised, from 0 to 1 (`regard.nvib.regularise`).
        nv_text: text to measure the prior of that on (some of the box's).

    Example:
        >>> regard.evaluate.translate("fr-en", "test.tsv").bleu
        $ regard evaluate translate folder test.tsv --train train.tsv
        $ regard evaluate translate folder test.tsv --beams 1 --json
        $ regard evaluate translate fr-en test.tsv --by-length --allow-overlap
    """
    from regard.data.pairs import read_pairs
    from regard.evaluate.bleu import bleu_by_length, bleu_chrf
    from regard.evaluate.overlap import check_overlap
    from regard.evaluate.perplexity import check_tokenizer
    from regard.translation import open_translator
    from regard.translation.config import TranslateConfig
    from regard.translation.translator import Translator

    pairs = list(read_pairs(test))
    if not any(source.strip() and target.strip() for source, target in pairs):
        fault = f"{len(pairs):,} pairs, none with words on both sides" if pairs else "no pairs"
        raise DataError(f"evaluating on {test}", fault, "one or more")
    config = TranslateConfig(**fields_of(TranslateConfig, locals()))
    with progress("translating") as say, open_translator(model, config, len(pairs)) as translator:
        if isinstance(translator, Translator):
            check_tokenizer(translator.kit)
        overlap = check_overlap(name_of(model), test, train, allow_overlap, pairs)

        def tell(done: int, total: int) -> None:
            say(f"{len(pairs) * done // total:,} of {len(pairs):,} lines")

        documents = translator.translate([source for source, _ in pairs], tell)
    texts = [" ".join(document.translations[0].text.split()) for document in documents]
    spaced = not isinstance(translator, Translator)  # models that count words put blanks between
    return results.TranslationScores(
        *bleu_chrf(texts, [target for _, target in pairs], spaced),
        lines=len(pairs),
        beams=translator.config.beams,
        overlap=overlap,
        by_length=bleu_by_length(pairs, texts, spaced) if by_length else None,
    )


@verb
def classify(
    model: ModelLike,
    test: File,
    *,
    text: str | None = None,
    label: str | None = None,
    precision: Precision = "auto",
) -> results.ClassScores:
    """Accuracy, F1, confusion and calibration of the classes of texts.

    `--save table.png` draws what was taken for what.

    Args:
        model: the folder `final` of `regard tune classify`, or any classifier of texts.
        test: CSV, TSV or JSONL with columns text and label; TSV may be text TAB label alone.
        text: the column of the texts (text, sentence).
        label: the column of the labels (label, labels).
        precision: of the matrix products; less is faster.

    Example:
        >>> regard.evaluate.classify("run/final", "test.tsv").accuracy
        $ regard evaluate classify run/final test.tsv
        $ regard evaluate classify run/final mails.csv --text body --label topic --json
        $ regard evaluate classify run/final test.tsv --save confusion.png
    """
    return cast(results.ClassScores, _score_labels("classify", **locals()))


@verb
@verbs.extends(classify)
def tag(*args: Any, **named: Any) -> results.ClassScores:
    """Accuracy, F1, confusion and calibration of the tags of words.

    Args:
        model: the folder `final` of `regard tune tag`, or any tagger of transformers.
        test: a CoNLL file, or JSONL with lists tokens and tags.
        text: of no use here: sentences are made of their words.
        label: the column of the tags (upos, or the last one; JSONL: tags).
        precision: of the matrix products; less is faster.

    Example:
        >>> regard.evaluate.tag("run/final", "dev.conllu").accuracy
        $ regard evaluate tag run/final test.conllu
        $ regard evaluate tag run/final test.conllu --label xpos --json
        $ regard evaluate tag run/final test.jsonl --save confusion.png
    """
    return cast(results.ClassScores, _score_labels("tag", *args, **named))


@verb
@verbs.extends(classify)
def regress(*args: Any, **named: Any) -> results.NumberScores:
    """Correlations and errors of the numbers of texts.

    Args:
        model: the folder `final` of `regard tune regress`.
        test: CSV, TSV or JSONL with columns text and label; TSV may be text TAB number alone.
        text: the column of the texts (text, sentence).
        label: the column of the numbers (label, labels).
        precision: of the matrix products; less is faster.

    Example:
        >>> regard.evaluate.regress("run/final", "test.tsv").pearson
        $ regard evaluate regress run/final test.tsv
        $ regard evaluate regress run/final prices.csv --label price
        $ regard evaluate regress run/final test.tsv --json
    """
    return cast(results.NumberScores, _score_labels("regress", *args, **named))


@verb
def image(model: ModelLike, test: Files, *, precision: Precision = "auto") -> results.ClassScores:
    """Accuracy, F1, confusion and calibration of the classes of pictures.

    `--save table.png` draws what was taken for what.

    Args:
        model: the folder `final` of `regard train image`, or any classifier of pictures.
        test: folders, .tar, .npz, CSV or TSV, as `regard train image` reads them; several at once.
        precision: of the matrix products; less is faster.

    Example:
        >>> regard.evaluate.image("run/final", "test.npz").accuracy
        $ regard evaluate image run/final shapes-test
        $ regard evaluate image run/final test/ more.tar.xz --json
        $ regard evaluate image run/final test.npz --save confusion.png
    """
    from regard.loading import open_kit
    from regard.vision.picture_classes import IMAGE_RUN

    kit = open_kit(model, precision, text=False)
    return cast(results.ClassScores, IMAGE_RUN.score(kit, verbs.list_files(test)))


@verb
def pixels(model: ModelLike, test: Files, *, precision: Precision = "auto") -> results.PixelScores:
    """How likely pictures are to a model that draws them: nats per token, bits per dimension.

    Args:
        model: the folder `final` of `regard train pixels`, or ImageGPT with its preprocessor.
        test: pictures as `regard train image` reads them; their classes are not looked at.
        precision: of the matrix products; less is faster.

    Example:
        >>> regard.evaluate.pixels("run/final", "test.npz").nats_per_token
        $ regard evaluate pixels run/final shapes-test
        $ regard evaluate pixels run/final test/ more.tar.xz --json
        $ regard evaluate pixels run/final test.npz --precision bf16
    """
    from regard.loading import open_kit
    from regard.vision.pixel_tokens import PIXEL_RUN

    return PIXEL_RUN.score_tokens(open_kit(model, precision, text=False), verbs.list_files(test))


@verb
def sound(
    model: ModelLike,
    test: Files,
    *,
    beam: Count = 1,
    lm: File | None = None,
    lm_weight: verbs.Amount = 0.5,
    precision: Precision = "auto",
) -> results.ClassScores | results.TranscriptScores:
    """Accuracy, F1, confusion of the classes of sounds; error rates of transcripts.

    Args:
        model: the folder `final` of `regard train sound`, or any AST classifier.
        test: folders, .tar, CSV or TSV, as `regard train sound` reads them; several at once.
        beam: transcripts: texts that a prefix beam search keeps (1: the likeliest letters).
        lm: transcripts: n-grams of `regard train ngram --tokens chars`, which the search weighs in.
        lm_weight: how much they count.
        precision: of the matrix products; less is faster.

    Example:
        >>> regard.evaluate.sound("run/final", "tones-test").accuracy
        $ regard evaluate sound run/final tones-test
        $ regard evaluate sound run/final list.tsv clips.tar.xz --json
        $ regard evaluate sound run/final test/ --save confusion.png
    """
    from regard.history.ngram_model import NgramModel
    from regard.loading import open_kit
    from regard.speech.sound_classes import SoundKind

    kind = SoundKind(beam, NgramModel.open(Path(lm)) if lm else None, lm_weight)
    scores: results.ClassScores | results.TranscriptScores
    scores = kind.score(open_kit(model, precision, text=False), verbs.list_files(test))
    return scores


@verb
def graph(
    model: ModelLike, test: Files, *, label: str | None = None, split: Split = "test"
) -> results.ClassScores | results.NumberScores:
    """Accuracy of the classes of graphs or of nodes; errors of the numbers of graphs.

    Args:
        model: the folder `final` of `regard train graph`, or a Kit.
        test: files as `regard train graph` reads them.
        label: the column of the labels (what it was trained on, label, or the last one).
        split: which labels, of files that say so; of others all.

    Example:
        >>> regard.evaluate.graph("run/final", "molecules.csv").accuracy
        $ regard evaluate graph run/final cora.npz --json
        $ regard evaluate graph run/final molecules.csv --split valid
        $ regard evaluate graph run/final some.csv more.csv --json
    """
    from regard.graphs.graph_tasks import predict_graphs
    from regard.loading import open_kit
    from regard.tune.prediction import score_answers

    kit, doing = open_kit(model, text=False), f"evaluating on {', '.join(verbs.list_files(test))}"
    scores: results.ClassScores | results.NumberScores
    scores = score_answers(kit, doing, predict_graphs(kit, test, label, split))
    return scores


@verb
def nvae(
    model: ModelLike,
    test: Files,
    *,
    train: Files | None = None,
    count: Annotated[int, verbs.Bound(2, verbs.MOST, "a whole number from 2 up")] = 500,
    samples: Count = 1000,
) -> results.AutoencoderScores:
    """How well an autoencoder says texts again, from how many vectors, and how good samples are.

    Args:
        model: the folder `final` of `regard train nvae`, or a Kit.
        test: files with a text on each line.
        train: texts that it was trained on: samples of the prior are judged by n-grams of them.
        count: the first texts of the test that are said again.
        samples: texts that are drawn, with `train`.

    Example:
        >>> regard.evaluate.nvae("run/final", "test.txt").bleu
        $ regard evaluate nvae run/final test.txt --json
        $ regard evaluate nvae run/final test.txt --train train.txt
        $ regard evaluate nvae run/final test.txt --count 100
    """
    from itertools import islice

    from regard.data.text_files import read_lines
    from regard.nvib.text_autoencoder import open_autoencoder, score_autoencoder

    texts = list(islice((line for line in read_lines(test) if line.strip()), count))
    return score_autoencoder(*open_autoencoder(model), texts, train, samples)


def _score_labels(
    kind: str, model: ModelLike, test: File, precision: Precision = "auto", **columns: Any
) -> Any:
    from regard.loading import open_kit
    from regard.tune.prediction import score_file

    return score_file(open_kit(model, precision), test, kind, **columns)


@verb
def winograd(
    model: ModelLike,
    schemas: File,
    *,
    count: Count | None = None,
    precision: Precision = "auto",
    edit: EditsLike = (),
) -> results.WinogradScores:
    """Which noun does the pronoun mean? Accuracy on single schemas and on pairs.

    Args:
        model: a folder, a .gguf file, or an opened Kit: a decoder.
        schemas: WSC's .xml, or a table with the columns text, a, b, answer.
        count: the first schemas (all).
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.evaluate.winograd("folder", "schemas.tsv").pairs.accuracy
        $ regard evaluate winograd folder wsc273.xml
        $ regard evaluate winograd folder schemas.tsv --count 100
        $ regard evaluate winograd folder schemas.jsonl --json
    """
    from regard.evaluate.winograd_schemas import evaluate_schemas, read_schemas

    chosen, kit = read_schemas(schemas)[:count], _open_decoder(model, precision)
    with kit.edit(edit):
        scores = evaluate_schemas(kit, chosen)
    return replace(scores, file=str(schemas))


@verb
def blimp(
    model: ModelLike,
    pairs: File,
    *,
    count: Count | None = None,
    score: Literal["sum", "mean"] = "sum",
    precision: Precision = "auto",
    edit: EditsLike = (),
) -> results.MinimalPairs:
    """Minimal pairs: is the acceptable sentence likelier than the other (Warstadt 2020)?

    Sentences are read after the token that begins texts, where the tokenizer has one.

    Args:
        model: a decoder: a folder, a .gguf file, or an opened Kit.
        pairs: JSONL with sentence_good and sentence_bad, perhaps UID and linguistics_term, by which
            accuracy is counted.
        count: the first pairs of each UID (all).
        score: of a sentence: the sum of the log-probabilities of its tokens, or their mean.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.evaluate.blimp("folder", "blimp.jsonl", count=100).accuracy
        $ regard evaluate blimp folder blimp.jsonl
        $ regard evaluate blimp model.gguf blimp.jsonl.xz --count 20
        $ regard evaluate blimp folder blimp.jsonl --edit '*.9.attn.z=zero,head=3' --json
    """
    from regard.evaluate.multiple_choice import evaluate_pairs

    kit = _open_decoder(model, precision)
    with kit.edit(edit):
        return evaluate_pairs(kit, pairs, count, score == "mean")


@verb
def fewshot(
    model: ModelLike,
    test: File,
    *,
    train: File | None = None,
    k: Sequence[verbs.Natural] | None = None,
    orders: Count = 8,
    count: Count | None = None,
    template: str | None = None,
    labels: Sequence[str] = (),
    score: Literal["sum", "mean"] = "sum",
    precision: Precision = "auto",
    edit: EditsLike = (),
) -> results.FewShot:
    """Multiple choice by log-probability, with k examples in the prompt (Brown 2020).

    Each order draws other examples; accuracy has an interval over orders and questions. The
    calibrated answers divide by what the model says to prompts without content (Zhao 2021).

    Args:
        model: a decoder: a folder, a .gguf file, or an opened Kit.
        test: a table with the columns text and label (.csv, .tsv, which needs no header, .jsonl),
            or JSONL with question, choices and answer (its place from 0, its letter or its text).
        train: a table of the same kind that examples are drawn from.
        k: numbers of examples (0, and with `train` 1, 4 and 16).
        orders: draws of examples.
        count: the first questions (all).
        template: a question with its {answer}, other columns in braces too
            ("{text}\\nAnswer: {answer}").
        labels: words for labels, such as 0=negative 1=positive.
        score: of an answer: the sum of the log-probabilities of its tokens, or their mean.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.evaluate.fewshot("folder", "questions.jsonl").by_k[0].accuracy
        $ regard evaluate fewshot folder test.tsv --train train.tsv --labels 0=negative 1=positive
        $ regard evaluate fewshot folder questions.jsonl --score mean
        $ regard evaluate fewshot folder test.tsv --train train.tsv --k 0 8 --save curve.png
    """
    from collections import Counter

    from regard.evaluate.multiple_choice import evaluate_fewshot, read_questions

    words = dict(pair.split("=", 1) for pair in labels if "=" in pair)
    asked, *rest = read_questions([test] if train is None else [test, train], words)
    asked = asked[:count]
    pool = [each for part in rest for each in part if each not in asked]
    counts = k or ((0, 1, 4, 16) if rest else (0,))
    if not asked or max(counts) > len(pool):
        fault = f"{len(asked)} questions, {len(pool)} others to draw {max(counts)} examples from"
        raise UsageError("answering questions", fault, "questions, and as many in `train`")
    default = "{text}\nAnswer: {answer}" if "label" in asked[0].cells else QUESTION
    template = default if template is None else template.replace("\\n", "\n")
    kit = _open_decoder(model, precision)
    with kit.edit(edit):
        runs = {k: orders if k else 1 for k in counts}
        rows = evaluate_fewshot(kit, asked, pool, template, runs, score == "mean", current().seed)
    ((_, most),) = Counter(each.answer for each in asked).most_common(1)
    return results.FewShot(len(asked), orders, score, most / len(asked), rows)


@verb
def ioi(
    model: ModelLike, *, count: Count = 64, heads: bool = False, top: Count = 5
) -> IndirectObjects:
    """Who is the indirect object? Logit difference, and the heads that find out (Wang 2022).

    Args:
        model: a language model.
        count: prompts.
        heads: list the heads that do most too, by class where one fits: paths to the end, and
            attention between names.
        top: heads of a class that are listed.

    Example:
        >>> regard.evaluate.ioi("folder").logit_difference
        $ regard evaluate ioi folder
        $ regard evaluate ioi folder --count 200 --heads
        $ regard evaluate ioi folder --heads --seed 7 --receipt ioi.json
    """
    from regard.loading import open_kit
    from regard.look.ioi_task import measure_ioi

    return measure_ioi(open_kit(model, None), count, heads=heads, top=top)


@verb
def analogies(
    vectors: VectorsLike, questions: File | None = None, *, matrix: Matrix = "in"
) -> results.AnalogyScores:
    """Share of analogies that vectors of words solve.

    Args:
        vectors: a folder of `regard train w2v`, or a file of word2vec's, text or binary.
        questions: lines `a b c d` in sections `: name` (without it a small set of our own).
        matrix: vectors of words as inputs, or as what is predicted.

    Example:
        >>> regard.evaluate.analogies("vectors", "questions-words.txt").accuracy
        $ regard evaluate analogies vectors
        $ regard evaluate analogies vectors questions-words.txt
        $ regard evaluate analogies vectors.bin questions-words.txt --json
    """
    from regard.evaluate.multiple_choice import accuracy
    from regard.history import open_vectors
    from regard.history.analogies import OWN, read_questions, solve

    solved = solve(open_vectors(vectors, matrix), read_questions(questions or OWN))
    right, asked, skipped = (sum(column) for column in zip(*solved.values(), strict=True))
    if not asked:
        fault = f"none of {skipped:,} questions has vectors for its four words"
        raise DataError("solving analogies", fault, "questions in the language of the vectors")
    sections = {
        name: results.SectionScore(**vars(accuracy(*counts[:2])), skipped=counts[2])
        for name, counts in solved.items()
    }
    return results.AnalogyScores(**vars(accuracy(right, asked)), skipped=skipped, sections=sections)


@verb
def similarity(
    vectors: VectorsLike, pairs: File, *, matrix: Matrix = "in"
) -> results.SimilarityScore:
    """How far vectors of words agree with people on what is alike (Spearman's rank correlation).

    Args:
        vectors: a folder of `regard train w2v`, or a file of word2vec's, text or binary.
        pairs: lines of two words and how alike people find them, such as WordSim-353.
        matrix: vectors of words as inputs, or as what is predicted.

    Example:
        >>> regard.evaluate.similarity("vectors", "wordsim353.tsv").spearman
        $ regard evaluate similarity vectors wordsim353.tsv
        $ regard evaluate similarity vectors.bin simlex999.txt --json
        $ regard evaluate similarity vectors wordsim353.tsv --matrix out
    """
    from regard.history import open_vectors
    from regard.history.analogies import agree, read_similarity

    return results.SimilarityScore(*agree(open_vectors(vectors, matrix), read_similarity(pairs)))


# Opening ----------------------------------------------------------------------------------------


def _open_decoder(model: ModelLike, precision: Precision, expected: str = "a decoder") -> Kit:
    """A network that predicts texts from left to right."""
    from regard.loading import open_kit, wrong_network

    kit = open_kit(model, precision)
    if kit.model.decoder is None or kit.model.encoder is not None:
        raise wrong_network("predicting a text", kit, expected)
    return kit


def open_text_model(
    model: ModelLike | NgramModel, precision: Precision = "auto"
) -> Kit | NgramModel:
    """A decoder with its own tokenizer, or n-grams."""
    from regard.evaluate.perplexity import check_tokenizer
    from regard.history.ngram_model import NgramModel
    from regard.model_kinds import NETWORK, NGRAMS, check_kind

    if isinstance(model, NgramModel):
        return model
    if isinstance(model, str | Path) and check_kind(str(model), NETWORK, NGRAMS) is NGRAMS:
        return NgramModel.open(Path(model))
    kit = _open_decoder(model, precision, "a decoder, or n-grams")
    check_tokenizer(kit)
    return kit
