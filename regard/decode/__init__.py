"""Decoding: greedy, sampling, beam and constrained search, and scores of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from regard import verbs
from regard.ambient import current, note
from regard.decode import results
from regard.decode.results import ChatReply, Embedding, FilledGaps, Generation, TokenScores
from regard.errors import DataError, UsageError
from regard.result import Failed
from regard.verbs import Count, EditsLike, Files, ModelLike, Natural, Precision, Texts, Words, verb

TOGETHER = 32  # prompts of a stream that run in one batch


@verb
def generate(
    model: ModelLike,
    texts: Texts,
    *,
    max_new: Count = 64,
    greedy: bool = False,
    temperature: float | None = None,
    top_k: Count | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    typical: float | None = None,
    repetition: float | None = None,
    frequency: float | None = None,
    presence: float | None = None,
    beams: Count | None = None,
    top: Count = 1,
    alpha: float = 0.6,
    groups: Count = 1,
    diversity: float = 0.5,
    search: Literal["exhaustive"] | None = None,
    min_new: Natural = 0,
    no_repeat: Count | None = None,
    ban: Sequence[str] = (),
    stop: Sequence[str] = (),
    strict: bool | None = None,
    precision: Precision = "auto",
    edit: EditsLike = (),
    nv: verbs.Share = 0.0,
    nv_text: Files | None = None,
    watch: Callable[[str], None] | None = None,
) -> Generation | Iterator[Generation | Failed]:
    """Go on with texts: greedily, by drawing or by beam search.

    The seed of the settings is that of the draws: the same seed gives the same text, whatever
    else is in the batch.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        texts: what to go on from: one text, or several, which give an iterator of results.
        max_new: new tokens at most.
        greedy: the likeliest token each time, which is what happens if nothing else is asked for.
        temperature: draw; below 1 sharper, above 1 flatter, 0 greedy, inf uniform.
        top_k: draw from this many likeliest tokens.
        top_p: draw from the likeliest tokens that reach this probability (Holtzman 2020).
        min_p: draw from tokens at least this share as likely as the best.
        typical: draw from tokens of typical surprise that reach this probability (Meister 2023).
        repetition: draw; scores of tokens that occurred are divided by this (Keskar 2019).
        frequency: draw; subtract this from a score for each time it occurred.
        presence: draw; subtract this from the score of tokens that occurred.
        beams: beam search of this width instead.
        top: the so many best of a search, each with its score; without beams as many beams.
        alpha: of a search: strength of the length penalty (Wu 2016); 0 prefers short texts.
        groups: of beams, each of which avoids what those before it write (Vijayakumar 2018).
        diversity: of groups: taken from a score for each earlier group with the same token.
        search: exhaustive scores every sequence of max_new tokens, for tiny vocabularies.
        min_new: new tokens at least.
        no_repeat: write no run of so many tokens twice.
        ban: words that are never written.
        stop: texts before which to end.
        strict: the same bits whatever is in the batch; slower.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.
        nv: how strongly its attention is regularised, from 0 to 1 (`regard.nvib.regularise`).
        nv_text: text to measure the prior of that on (some of the box's).
        watch: told of each new stretch of text as it is written.

    Example:
        >>> regard.generate("folder", "Once upon a time", max_new=20).text
        ' there was a cat.'
        $ regard generate folder "Dear" --temperature 0.8 --top-p 0.95 --seed 7
        $ regard generate folder "Dear" --beams 6 --top 3 --no-repeat 3 --ban Sir
        $ regard generate folder --max-new 20 --greedy --json < prompts.txt
    """
    from regard.decode.beam import BeamConfig, length_penalty
    from regard.decode.continuation import DOING, Writer
    from regard.decode.sampling import SampleConfig
    from regard.loading import open_kit, wrong_network

    draws = _draws(locals())
    config = SampleConfig(**draws, seed=current().seed)  # which checks the ranges
    if beams is None and search is None and max(top, groups) > 1:
        beams = max(top, groups)
    others: dict[str, Any] = {"greedy": greedy, "beams": beams, "search": search}
    if search:
        others |= {"stop": stop, "ban": ban, "no_repeat": no_repeat, "min_new": min_new}
    ways = [name for name, value in others.items() if value]
    if len(ways) + bool(draws) > 1:
        several = " and ".join([*ways, *draws][:2])
        raise UsageError("choosing tokens", several, "one way of choosing")
    if min_new > max_new:
        raise UsageError(DOING, f"min_new = {min_new}", f"at most max_new = {max_new}")
    kit = open_kit(model, precision, bool(strict))
    if kit.model.decoder is None:
        raise wrong_network(DOING, kit, "a model that writes")
    size = kit.model.config.head.size
    if beams is not None and size is not None and beams > size:
        note(f"{beams} beams, but {size} words in the vocabulary: {size} beams")
        beams, top = size, min(top, size)
    how: SampleConfig | BeamConfig | None = config if draws else None
    if beams is not None or search is not None:
        width = top if beams is None else beams
        how = BeamConfig(width, top, length_penalty("gnmt", alpha), groups, diversity)
    ban, stop = ((each,) if isinstance(each, str) else tuple(each) for each in (ban, stop))
    alone = search is not None or isinstance(texts, Sequence)
    watch = watch if alone and not ban and not isinstance(how, BeamConfig) else None
    writer = Writer(**verbs.fields_of(Writer, locals()))
    together = 1 if alone else TOGETHER
    return verbs.answer_texts(texts, partial(kit.edit, edit, nv, nv_text), writer.write, together)


@verb
def chat(
    model: ModelLike,
    messages: Annotated[str | Iterable[Any], Words("each")],
    *,
    system: str | None = None,
    max_new: Count = 256,
    temperature: float | None = None,
    top_k: Count | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition: float | None = None,
    probs: Natural = 0,
    precision: Precision = "auto",
    edit: EditsLike = (),
    watch: Callable[[str], None] | None = None,
) -> ChatReply | Iterator[ChatReply | Failed]:
    """Talk with a model by its folder's chat template.

    Lines that begin with / are commands.

    Without words on the command line, the lines of a terminal or pipe are asked in turn, and the
    history is kept; /help lists the commands. `regard.Chat` is such a conversation in Python.

    Args:
        model: a folder, a .gguf file, or an opened Kit.
        messages: one question; a conversation, as {"role": "user", "content": …} and so on; or
            several questions of one conversation, which give an iterator of answers.
        system: the system prompt.
        max_new: new tokens at most of an answer.
        temperature: draw; below 1 sharper, above 1 flatter (the likeliest token each time).
        top_k: draw from this many likeliest tokens.
        top_p: draw from the likeliest tokens that reach this probability (Holtzman 2020).
        min_p: draw from tokens at least this share as likely as the best.
        repetition: draw; scores of tokens that occurred are divided by this (Keskar 2019).
        probs: show the probability of each token beside so many others.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3, or a steering
            vector: decoder.blocks.9.resid_post=add,file=calm.safetensors,scale=4.
        watch: told of each new stretch of text as it is written.

    Example:
        >>> regard.chat("folder", "What is the capital of France?").reply
        'The capital of France is Paris.'
        $ regard chat model.gguf
        $ regard chat folder "What is the capital of France?" --probs 3
        $ regard chat folder --system "Be brief." --temperature 0.7 --seed 1 --json < questions.txt
    """
    from regard.decode.conversation import Chat, converse
    from regard.loading import open_kit, wrong_network

    kit = open_kit(model, precision)
    if kit.model.decoder is None or kit.model.encoder is not None:
        raise wrong_network("talking", kit, "a decoder with a chat template")
    how = _draws(locals())
    how |= dict(system=system, max_new=max_new, probs=probs, edit=edit, watch=watch)
    if isinstance(messages, str):
        return Chat(kit, **how).say(messages)
    if isinstance(messages, list | tuple) and all(isinstance(each, Mapping) for each in messages):
        return Chat(kit, messages, **how).reply()
    return converse(Chat(kit, **how), messages)


def _draws(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a verb's arguments that say how to draw, as far as they were given."""
    from regard.decode.sampling import SampleConfig

    draws = verbs.fields_of(SampleConfig, arguments)
    return {name: value for name, value in draws.items() if value is not None}


@verb
def score(
    model: ModelLike, texts: Texts, *, precision: Precision = "auto", edit: EditsLike = ()
) -> TokenScores | Iterator[TokenScores | Failed]:
    """The log-probability of each token of texts.

    A decoder reads from left to right; of an encoder each token is hidden in turn (Salazar 2020).

    Args:
        model: a folder, a .gguf file, the name of a model in the box, n-grams, or an opened Kit.
        texts: one text, or several, which give an iterator of results; source TAB target for an
            encoder-decoder.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.score("folder", "The cat sat on the mat.").perplexity
        21.3
        $ regard score folder "The cat sat on the mat."
        $ regard score folder --json < lines.txt
        $ regard score translator < pairs.tsv
    """
    from regard.decode.scoring import score_by_ngrams, score_text
    from regard.history.ngram_model import NgramModel
    from regard.kit import Kit
    from regard.loading import open_kit
    from regard.look.labels import token_labels
    from regard.model_kinds import is_ngrams

    counted = model if isinstance(model, NgramModel) else None
    if counted is None and not isinstance(model, Kit) and is_ngrams(str(model)) and not edit:
        counted = NgramModel.open(Path(model))
    kit = None if counted is not None else open_kit(model, precision)

    def score_one(group: list[str], done: int) -> list[TokenScores]:
        if counted is not None:
            return [score_by_ngrams(counted, group[0])]  # whose tokens are words
        assert kit is not None
        scores = score_text(kit, group[0], done + 1)
        return [replace(scores, pieces=token_labels(kit.text_tokenizer, scores.tokens, "target"))]

    inside = nullcontext if kit is None else partial(kit.edit, edit)
    return verbs.answer_texts(texts, inside, score_one)


@verb
def fill(
    model: ModelLike,
    texts: Texts,
    *,
    top: Count = 5,
    precision: Precision = "auto",
    edit: EditsLike = (),
) -> FilledGaps | Iterator[FilledGaps | Failed]:
    """The likeliest words for the gaps in texts.

    Args:
        model: a masked language model such as BERT: a folder, or an opened Kit.
        texts: a text with <mask> in it, or several, which give an iterator of results.
        top: words for each gap.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.fill("folder", "Paris is the <mask> of France.").masks[0][0].word
        'capital'
        $ regard fill folder "Paris is the <mask> of France"
        $ regard fill folder "Paris is the <mask> of France" --top 10
        $ regard fill folder --json < lines.txt
    """
    from regard.decode.scoring import fill_gaps
    from regard.loading import open_kit, wrong_network

    kit = open_kit(model, precision)
    mask = kit.text_tokenizer.specials.get("mask")
    if mask is None or kit.model.encoder is None or kit.model.decoder is not None:
        raise wrong_network("filling a gap", kit, "a masked language model such as BERT")

    return verbs.answer_texts(
        texts, partial(kit.edit, edit), lambda group, done: [fill_gaps(kit, group[0], mask, top)]
    )


@verb
def embed(
    model: ModelLike,
    texts: Texts = (),
    *,
    word: str | None = None,
    files: Files = (),  # type: ignore[assignment]
    layer: str | None = None,
    top: Count = 6,
    edit: EditsLike = (),
) -> Embedding | results.WordSenses | Iterator[Embedding | Failed]:
    """A vector for each text; or what context makes of one word.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        texts: one text, or several, which give an iterator of vectors.
        word: compare its vectors, the mean of its tokens', within and between `files`.
        files: with a word: lines that hold it, one file for each sense.
        layer: with a word: the stream after this block, or all (the last block's).
        top: with a word: nearest words of the lines that are shown.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> len(regard.embed("folder", "a cat").vector)
        384
        $ regard embed folder "a cat" "a kitten" --json
        $ regard embed folder --file sentences.txt --json > vectors.jsonl
        $ regard embed folder --word bank --files river.txt money.txt --layer all
    """
    from regard.loading import open_kit
    from regard.look.text_limits import max_tokens_of
    from regard.look.word_senses import DOING, study_word

    if word is None and (layer or files):
        raise UsageError(DOING, "a layer or files, but no word", "a word")
    if word is not None and not (files and word.strip()):
        raise UsageError(DOING, "a word that is blank, or without files", "word, files")
    kit = open_kit(model, "fp32")
    if word is not None:
        name = str(getattr(model, "path", model))
        with kit.edit(edit):
            return study_word(kit, name, word, verbs.list_files(files), layer, top)
    max_tokens_of(kit, DOING)  # says so where no text is read

    def embed_group(group: list[str], done: int) -> Iterator[Embedding]:
        try:
            vectors = kit.embed_batch(group).float().tolist()
        except DataError as error:
            wrong = f"text {done + 1}: {error.found}"
            raise DataError(error.doing, wrong, error.expected, error.fix) from None
        return (Embedding(number, vector) for number, vector in enumerate(vectors, done + 1))

    return verbs.answer_texts(texts, partial(kit.edit, edit), embed_group, TOGETHER)
