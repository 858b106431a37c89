"""Before attention: word vectors, clusters, entropy, n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard.history import results
from regard.history.config import Alphabet
from regard.verbs import FILES, Amount, Count, File, ModelLike, verb

if TYPE_CHECKING:
    from regard.history.ngram_model import NgramModel
    from regard.history.word_vectors import WordVectors

    VectorsLike = str | Path | WordVectors
    NgramsLike = str | Path | NgramModel
    Lines = str | Path | Sequence[str]
    PredictorLike = ModelLike | NgramModel
else:
    PredictorLike = ModelLike
    Lines = File
    VectorsLike = NgramsLike = Annotated[str, FILES]
"""A folder or a file, or what `regard.load` made of it."""
Matrix = Literal["in", "out"]


@verb
def neighbours(
    vectors: VectorsLike, word: str, *, top: Count = 10, matrix: Matrix = "in"
) -> results.Neighbours:
    """The words nearest to a word.

    Args:
        vectors: a folder of `regard train w2v`, or a file of word2vec's, text or binary.
        word: whose neighbours.
        top: neighbours.
        matrix: vectors of words as inputs, or as what is predicted.

    Example:
        >>> regard.history.neighbours("vectors", "king", top=3).neighbours[0].word
        $ regard history neighbours vectors king
        $ regard history neighbours vectors.bin king --top 20
        $ regard history neighbours vectors king --matrix out --json
    """
    return results.Neighbours(word, open_vectors(vectors, matrix).neighbours(word, top))


@verb
def analogy(
    vectors: VectorsLike, a: str, b: str, c: str, *, top: Count = 10, matrix: Matrix = "in"
) -> results.Analogy:
    """Man is to woman as king is to whom? By vectors of words.

    Args:
        vectors: a folder of `regard train w2v`, or a file of word2vec's, text or binary.
        a: a is to b,
        b: as c
        c: is to whom?
        top: answers.
        matrix: vectors of words as inputs, or as what is predicted.

    Example:
        >>> regard.history.analogy("vectors", "man", "woman", "king").answers[0].word
        $ regard history analogy vectors man woman king
        $ regard history analogy vectors.bin France Paris Italy
        $ regard history analogy vectors man woman king --top 3 --json
    """
    answers = open_vectors(vectors, matrix).analogy(a, b, c, top)
    return results.Analogy([a, b, c], [a, b, c], answers)


@verb
def cluster(
    text: File,
    *,
    k: Count,
    top: Count = 10,
    tokens: Literal["words", "spaced"] = "words",
    lower: bool = False,
    min_count: Count = 5,
) -> results.Clusters:
    """Words of a text in classes, by the words beside them (Brown 1992).

    Args:
        text: a text, compressed or not.
        k: clusters.
        top: words of each that are shown.
        tokens: words and marks apart, or what stands between blanks.
        lower: read the text in lower case.
        min_count: rarer words are left out.

    Example:
        >>> regard.history.cluster("tale.txt", k=50).classes[0].words
        $ regard history cluster tale.txt --k 50
        $ regard history cluster tale.txt --k 50 --lower --save classes.json
        $ regard history cluster tale.txt --k 20 --min-count 2 --json
    """
    from regard.history.clusters import cluster_text
    from regard.history.word2vec import read_texts

    return cluster_text(read_texts(text, tokens, lower, min_count), k, top)


def open_vectors(vectors: VectorsLike, matrix: Matrix) -> WordVectors:
    """Word vectors that a path names; opened ones are themselves."""
    from regard.history.word_vectors import WordVectors, read_vectors
    from regard.model_kinds import VECTORS, check_kind

    if isinstance(vectors, WordVectors):
        return vectors
    check_kind(str(vectors), VECTORS)
    return read_vectors(vectors, matrix)


@verb
def entropy(
    path: File,
    *,
    model: PredictorLike | None = None,
    order: Count = 6,
    alphabet: Alphabet | None = None,
    letters: Count | None = None,
) -> results.Entropy:
    """Bits per letter of a text: Shannon's F0 … FN, and what an arithmetic coder reaches.

    Args:
        path: a text, compressed or not.
        model: a model folder or ARPA file that predicts the text too; its tokens may be any.
        order: up to F_N, and letters that the learning n-grams look at.
        alphabet: 27: a to z and the blank; 26: a to z; as-is: every character (27; with a model
            as-is).
        letters: of the file's beginning (all).

    Example:
        >>> regard.history.entropy("tale.txt", order=3).F
        $ regard history entropy tale.txt
        $ regard history entropy tale.txt --model m
        $ regard history entropy tale.txt --order 8 --alphabet 26 --json
    """
    from regard.evaluate import open_text_model
    from regard.history.predictors import predict_texts
    from regard.history.shannon import measure_entropy

    predictor = None if model is None else predict_texts(open_text_model(model))
    return measure_entropy(path, predictor, order, alphabet, letters)


@verb
def guess(
    path: File,
    *,
    auto: bool = False,
    model: list[PredictorLike] | None = None,
    orders: list[Count] | None = None,
    letters: Count | None = None,
    alphabet: Alphabet = "27",
) -> results.Guesses:
    """Shannon's game: guess a text letter by letter, beside the models.

    Args:
        path: a text, compressed or not.
        auto: only models play.
        model: models that play too, whose tokens are characters.
        orders: n-grams that play, trained on the rest of the file (1 2 3 5 8).
        letters: letters to guess (50; where only models play 1000).
        alphabet: 27: a to z and the blank; 26: a to z; as-is: every character.

    Example:
        >>> regard.history.guess("tale.txt", auto=True, orders=[3]).players[0].upper
        $ regard history guess tale.txt
        $ regard history guess tale.txt --auto --letters 2000
        $ regard history guess tale.txt --auto --model m --json
    """
    from regard.evaluate import open_text_model
    from regard.history.predictors import predict_texts
    from regard.history.shannon import play_game

    models = [predict_texts(open_text_model(name)) for name in model or ()]
    return play_game(path, models, orders or (1, 2, 3, 5, 8), letters, alphabet, auto)


@verb
def sample(
    model: NgramsLike,
    prompt: str | None = None,
    *,
    orders: list[Count] | None = None,
    max_new: Count = 40,
) -> results.Samples:
    """Texts drawn by the smoothed probabilities of n-grams of every order, side by side.

    Args:
        model: a folder of `regard train ngram`, `bow` or `classes`, or an ARPA file.
        prompt: words to go on from.
        orders: orders to show (1 to the model's); shorter ones are smoothed like the model.
        max_new: words of each text.

    Example:
        >>> regard.history.sample("m", "the king of", max_new=20)
        $ regard history sample m
        $ regard history sample m "the king of" --orders 1 2 3 --max-new 20
        $ regard history sample m --seed 7 --json
    """
    from regard.history.ngram_model import NgramModel, draw_samples
    from regard.model_kinds import NGRAMS, check_kind

    if not isinstance(model, NgramModel):
        check_kind(str(model), NGRAMS)
        model = NgramModel.open(Path(model))
    return draw_samples(model, prompt, orders, max_new)


@verb
def lookup(
    query: str, titles: Lines, *, top: Count = 5, sharpness: Amount = 20.0
) -> results.Lookup:
    """Look titles up softly: attention of a query to keys, each a vector of its letters.

    Args:
        query: what is looked for; it may be misspelt.
        titles: a file with a title on each line; in Python also a list of titles.
        top: titles that are listed; the weights of all sum to 1.
        sharpness: times the cosine, before the softmax: the more, the nearer to a plain lookup.

    Example:
        >>> regard.history.lookup("jurafsky martin", "titles.txt").titles[0].weight
        $ regard history lookup "jurafsky martin" titles.txt
        $ regard history lookup "jurafski" titles.txt --top 3 --sharpness 50
        $ regard history lookup "attention" titles.txt --json
    """
    from regard.data.text_files import read_lines
    from regard.history.letters import soft_lookup

    lines = read_lines(titles) if isinstance(titles, str | Path) else titles
    return soft_lookup(query, [line for line in lines if line.strip()], top, sharpness)


@verb
def ladder(
    data: File,
    *,
    valid: File | None = None,
    test: File | None = None,
    minutes: Amount = 20.0,
    steps: Count | None = None,
    rungs: str | None = None,
    out: str | Path | None = None,
    tokens: str | None = None,
    vocab: Count | None = None,
    min_count: Count = 2,
    dim: Count = 128,
    watts: Amount | None = None,
) -> results.Ladder:
    """Train every rung from counting words to the Transformer.

    Args:
        data: sentence pairs (.tsv: source TAB target) or a text, compressed or not.
        valid: validation data of the same form (a part of the file's end is held out).
        test: test data of the same form (a part of the file's end is held out).
        minutes: budget of all rungs together; those that are trained share what is left.
        steps: train so many steps instead, however long they take: the same figures every time.
        rungs: some of them, with commas: bayes,logreg,ibm1,fixed,additive,transformer; of a text
            1-gram,2-gram,3-gram,5-gram,classes,word2vec,mlp,rnn,lstm,gru,transformer (all).
        out: keep the split and the models in this new or empty folder.
        tokens: of a text: spaced (default), words, chars, bpe; of pairs: pieces.
        vocab: tokens at most (pairs: 4000).
        min_count: of words: how often one must stand in the text to be known.
        dim: width of the trained rungs.
        watts: of a busy core, for the energy, instead of the machine's counters (10 W without any).

    Example:
        >>> regard.ladder("pairs.tsv", minutes=20, out="ladder")
        $ regard ladder pairs.tsv --minutes 20 --out ladder
        $ regard ladder tale.txt --tokens chars --rungs 5-gram,lstm,transformer
        $ regard ladder train.tsv.xz --valid dev.tsv --test test.tsv --json
    """
    options: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in locals().items()
    }
    from regard import evaluate, train
    from regard.history.rungs import Climb

    return Climb(**options, train=train, evaluate=evaluate).climb()
