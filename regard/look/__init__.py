"""Looking inside a model: where it attends, what its parts do, and what it computes on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from regard.look.results import (
    AttentionMaps,
    Extraction,
    GradientReach,
    HeadMeasure,
    HeadScores,
    Lens,
    StackName,
)
from regard.verbs import (
    MOST,
    Bound,
    Count,
    EditsLike,
    File,
    ModelLike,
    Natural,
    Precision,
    Text,
    Texts,
    verb,
)


@verb
def attention(
    model: ModelLike,
    text: Text,
    *,
    target: str | None = None,
    head: str | None = None,
    stack: StackName | None = None,
    effects: bool | None = None,
    max_tokens: Count = 5000,
    precision: Precision = "auto",
    edit: EditsLike = (),
) -> AttentionMaps:
    """Where the heads of a model look in a text, and what each head does.

    `--save look.html` writes a page on which all heads can be looked at and switched off, `--save
    look.png` a picture.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        text: what the model reads; of an encoder-decoder the source.
        target: what an encoder-decoder has written; without it, its own translation.
        head: block.head, such as 5.3, to list and to draw (the mean of all heads).
        stack: which attention of an encoder-decoder to list and to draw (cross).
        effects: whether to run the text without each head too (where that takes a few minutes
            at most).
        max_tokens: tokens of either side at most.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.look.attention("fr-en", "Bonjour.").save("look.html")
        $ regard look attention fr-en "L'animal n'a pas traversé la rue." --save look.html
        $ regard look attention folder "When Mary and John went to the bar, John gave it to"
        $ regard look attention folder "The cat sat." --head 5.3 --save head.png
    """
    from regard.loading import open_kit
    from regard.look.attention_maps import map_attention

    kit = open_kit(model, precision)
    with kit.edit(edit):
        return map_attention(
            kit,
            text,
            target,
            stack=stack,
            head=head,
            effects=effects,
            max_tokens=max_tokens,
            heading=f"{name_of(model)}: {text}"[:200],
        )


@verb
def heads(
    model: ModelLike,
    *,
    text: str | None = None,
    corpus: File | None = None,
    length: Count | None = None,
    batch: Count = 4,
    sort: HeadMeasure | None = None,
    top: Count | None = None,
    edit: EditsLike = (),
) -> HeadScores:
    """What each attention head does: induction, previous token, entropy, distance, norm.

    Scores of induction, previous and duplicate tokens are measured on random tokens that are
    repeated (Olsson 2022).

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        text: measure entropy, distance and norm on this (else on the random tokens too).
        corpus: measure them on each line of this file.
        length: tokens of the random half that is repeated (100, or what the model reads).
        batch: rows of random tokens, and lines of the corpus that run together.
        sort: largest first, of entropy smallest first (as the model has them).
        top: show so many heads (all).
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.look.heads("folder", sort="induction", top=3).heads[0].name
        '5.1'
        $ regard look heads folder --sort induction --top 10
        $ regard look heads folder --corpus test.txt --sort entropy
        $ regard look heads folder --length 50 --batch 8 --seed 7 --json
    """
    from regard.data.text_files import read_lines
    from regard.errors import UsageError
    from regard.loading import open_kit
    from regard.look.head_scores import measure_heads

    if text is not None and corpus is not None:
        raise UsageError("measuring heads", "a text and a corpus", "one of the two")
    lines = read_lines(corpus) if corpus is not None else None if text is None else [text]
    kit = open_kit(model, None)
    with kit.edit(edit):
        return measure_heads(
            kit,
            name_of(model),
            lines,
            length=length,
            rows=batch,
            sort=sort,
            top=top,
            measured_on=text if corpus is None else str(corpus),
        )


@verb
def lens(
    model: ModelLike,
    text: Text,
    *,
    target: str | None = None,
    against: str | None = None,
    neurons: bool = False,
    top: Count = 20,
    edit: EditsLike = (),
) -> Lens:
    """What each layer would say next, and which heads and MLPs wrote the answer.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        text: what comes before; with <mask> for BERT; source TAB beginning for an
            encoder-decoder.
        target: the token to follow through the layers (the one the model finds likeliest).
        against: take the difference of its logit and this one's apart.
        neurons: whether each neuron stands for itself, instead of a block's MLP as one.
        top: show so many contributions.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.look.lens("gpt2", "The Eiffel Tower is in").layers[-1].likeliest
        'ĠParis'
        $ regard look lens folder "When Mary and John went to the bar, John gave a drink to"
        $ regard look lens folder "Mary and John … a drink to" --target Mary --against John
        $ regard look lens bert "Paris is the <mask> of France." --target capital --json
    """
    from regard.loading import open_kit
    from regard.look.logit_lens import read_lens

    kit, words = open_kit(model, None), {"target": target, "against": against}
    with kit.edit(edit):
        return read_lens(kit, name_of(model), text, **words, neurons=neurons, top=top)


@verb
def extract(
    model: ModelLike,
    texts: Texts,
    *,
    tap: list[str] | str,
    out: str | Path,
    position: str | int = "all",
    head: Natural | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
    shard_mb: Count = 256,
    batch_tokens: Count | None = None,
    force: bool = False,
    edit: EditsLike = (),
) -> Extraction:
    """Write the activations of texts to a folder, row by row; `regard.Extracted` opens it.

    An interrupted run keeps its finished shards; the same call goes on after them.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        texts: the corpus; source TAB target for a decoder's taps in an encoder-decoder.
        tap: names or patterns of taps, as `regard info --taps` lists them.
        out: the folder.
        position: which tokens have a row: all, last, an index, or mean for one row a text.
        head: one head of attn.q, k, v or z (all, side by side).
        precision: of the numbers on the disk; the model runs in float32.
        shard_mb: megabytes of a shard; twice as many are held in memory.
        batch_tokens: tokens of a batch, padding counted (1024; 16384 on a GPU); changes no number.
        force: whether to write over an earlier extraction.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.look.extract("folder", ["one text"], tap=["*.resid_post"], out="acts").rows
        3
        $ regard look extract folder --file corpus.txt --tap '*.resid_post' --out acts
        $ regard look extract folder --tap blocks.5.attn.z --head 3 --out z < a.txt
        $ regard look extract fr-en --file pairs.tsv --tap 'decoder.*.mlp.post' --out acts
    """
    from regard.loading import open_kit
    from regard.look.activation_store import check_free
    from regard.look.extraction import extract_corpus, parse_position

    check_free(Path(out), force)  # before a model is opened
    kit = open_kit(model, "fp32")
    with kit.edit(edit):
        return extract_corpus(
            kit,
            name_of(model),
            [texts] if isinstance(texts, str) else texts,
            tap,
            Path(out),
            position=parse_position(position),
            head=head,
            precision=precision,
            shard_mb=shard_mb,
            batch_tokens=batch_tokens,
            force=force,
            edits=edit,
        )


@verb
def gradients(
    models: Sequence[ModelLike] = (),
    *,
    text: File | None = None,
    kinds: list[Literal["mlp", "rnn", "lstm", "gru", "transformer"]] | None = None,
    length: Annotated[int, Bound(2, MOST, "a whole number from 2 up")] = 64,
    rows: Count = 8,
    dim: Count = 64,
    depth: Count = 1,
) -> GradientReach:
    """How far back the gradient of a loss reaches in MLP, RNN, LSTM, GRU and Transformer.

    Args:
        models: trained language models (none: fresh ones of each kind).
        text: what trained models read.
        kinds: of fresh models (all).
        length: tokens before the loss.
        rows: texts that the mean goes over.
        dim: width of fresh models.
        depth: layers of fresh models.

    Example:
        >>> regard.look.gradients(kinds=["rnn", "lstm"], length=200).models[1].gradient[-1]
        $ regard look gradients --save gradients.png
        $ regard look gradients --kinds rnn lstm --length 200 --json
        $ regard look gradients lstm/final gpt/final --text test.txt
    """
    from regard.errors import UsageError
    from regard.loading import open_kit
    from regard.look.gradient_reach import DOING, KINDS, compare_fresh, compare_trained

    if not models:
        return compare_fresh(kinds or KINDS, length, rows, dim, depth)
    if text is None or kinds is not None:
        found = "folders without --text" if text is None else "folders and --kinds"
        raise UsageError(DOING, found, "--text FILE for trained models, --kinds for fresh ones")
    kits = [(name_of(model), open_kit(model)) for model in models]
    return compare_trained(kits, text, length, rows)


def name_of(model: ModelLike) -> str:
    """A model as it was called, or the folder it was opened from."""
    return str(getattr(model, "path", model))
