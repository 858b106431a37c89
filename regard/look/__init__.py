"""Look inside a model: attention, circuits, reasons, probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from regard import verbs
from regard.look import results
from regard.result import name_of
from regard.verbs import Count, EditsLike, File, ModelLike, Text, verb

if TYPE_CHECKING:
    from regard.kit import Kit
    from regard.look.patching import Pairs
    from regard.model.model import Model

Metric = Callable[..., Any]
"""A function of logits, which gives one number a row."""


@verb
def attention(
    model: ModelLike,
    text: Text,
    *,
    target: str | None = None,
    head: str | None = None,
    stack: results.StackName | None = None,
    effects: bool = True,
    precision: verbs.Precision = "auto",
    edit: EditsLike = (),
) -> results.AttentionMaps:
    """Where the heads of a model look in a text, a picture or a graph, and what each head does.

    The page that `--save look.html` writes shows all heads, and switches them off by click; a
    picture, a spectrogram or a graph is drawn by `--save look.png`.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        text: what the model reads; of an encoder-decoder the source, of pictures and sounds the
            file of one, of graphs the file of one, or SMILES.
        target: what an encoder-decoder has written; without it, its own translation.
        head: block.head, such as 5.3, to list and to draw (the mean of all heads).
        stack: which attention of an encoder-decoder to list and to draw (cross).
        effects: whether to run the text without each head too.
        precision: of the matrix products; less is faster.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.look.attention("fr-en", "Bonjour.").save("look.html")
        $ regard look attention fr-en "L'animal n'a pas traversé la rue." --save look.html
        $ regard look attention folder "When Mary and John went to the bar, John gave it to"
        $ regard look attention folder "The cat sat." --head 5.3 --save head.png
    """
    from regard.graphs.graph_tasks import map_graph
    from regard.look.attention_maps import map_attention
    from regard.vision.picture_maps import map_picture, open_reader

    kit, kind = open_reader(model, precision)
    how: dict[str, Any] = {"stack": stack, "head": head, "effects": effects}
    how |= {"heading": f"{name_of(model)}: {text}"[:200]}
    with kit.edit(edit):
        if kind is not None:
            return map_picture(kit, kind, text, target, **how)
        if kit.model.config.front.kind == "graph":
            return map_graph(kit, text, target, **how)
        return map_attention(kit, text, target, **how)


@verb
def heads(
    model: ModelLike,
    *,
    length: Count | None = None,
    batch: Count = 4,
    sort: results.HeadMeasure | None = None,
    top: Count | None = None,
    edit: EditsLike = (),
) -> results.HeadScores:
    """What each attention head does: induction, previous token, entropy, distance, norm.

    Measured on random tokens that are repeated (Olsson 2022); what heads do in a text of yours
    `look attention` shows.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        length: tokens of the random half that is repeated (100, or what the model reads).
        batch: rows of random tokens.
        sort: largest first, of entropy smallest first (as the model has them).
        top: show so many heads (all).
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.look.heads("folder", sort="induction", top=3).heads[0].name
        '5.1'
        $ regard look heads folder --sort induction --top 10
        $ regard look heads folder --sort entropy --edit *.0.attn.z=zero,head=1
        $ regard look heads folder --length 50 --batch 8 --seed 7 --json
    """
    from regard.loading import open_kit
    from regard.look.head_scores import measure_heads

    kit = open_kit(model, None)
    with kit.edit(edit):
        return measure_heads(kit, name_of(model), length, batch, sort, top)


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
) -> results.Lens:
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
        ' Paris'
        $ regard look lens folder "When Mary and John went to the bar, John gave a drink to"
        $ regard look lens folder "Mary and John … a drink to" --target Mary --against John
        $ regard look lens bert "Paris is the <mask> of France." --target capital --json
    """
    from regard.loading import open_kit
    from regard.look.logit_lens import read_lens

    kit = open_kit(model, None)
    with kit.edit(edit):
        return read_lens(kit, name_of(model), text, target, against, neurons, top)


@verb
def extract(
    model: ModelLike,
    texts: verbs.Texts,
    *,
    tap: list[str] | str,
    out: str | Path,
    position: results.Position = "all",
    edit: EditsLike = (),
) -> results.Extraction:
    """Write the activations of texts to a folder, row by row; `regard.Extracted` opens it.

    Numbers are float32; the heads of attn.q, k, v and z stand side by side.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        texts: the corpus; source TAB target for a decoder's taps in an encoder-decoder.
        tap: names or patterns of taps, as `regard info --taps` lists them.
        out: a new folder.
        position: which tokens of a text have a row.
        edit: changes of activations meanwhile, such as *.9.attn.z=zero,head=3.

    Example:
        >>> regard.look.extract("folder", ["one text"], tap=["*.resid_post"], out="acts").rows
        3
        $ regard look extract folder --file corpus.txt --tap '*.resid_post' --out acts
        $ regard look extract folder --tap blocks.5.attn.z --position last --out z < a.txt
        $ regard look extract fr-en --file pairs.tsv --tap 'decoder.*.mlp.post' --out acts
    """
    from regard.files import check_new
    from regard.loading import open_kit
    from regard.look.activation_store import DOING
    from regard.look.extraction import extract_corpus

    check_new(Path(out), DOING)  # before a model is opened
    kit, several = open_kit(model, "fp32"), [texts] if isinstance(texts, str) else texts
    with kit.edit(edit):
        return extract_corpus(kit, name_of(model), several, tap, Path(out), position)


@verb
def explain(
    model: ModelLike,
    text: Text,
    *,
    target: str | None = None,
    against: str | None = None,
    method: results.Method = "ig",
    compare: bool = False,
    steps: Count = 50,
    samples: Count | None = None,
    baseline: str | None = None,
    metric: Metric | None = None,
) -> results.Attribution | results.AttributionComparison:
    """Which words of the input an answer comes from: ig, lime, shap, attention, rollout.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        text: what it reads; with <mask> in it for a masked language model; of pictures the file
            of one, whose patches or pixels (ig, gradient) are scored.
        target: the word, or class, that is explained (the likeliest); of an encoder-decoder, how
            its answer begins: the next word is explained.
        against: explain why the target and not this one: the difference of both.
        method: how; rollout follows attention through all layers.
        compare: all methods, how faithful each is, and how they agree.
        steps: points of the path of ig, more where they are too few.
        samples: texts that lime runs (1000); orders that shap draws (all up to 15 tokens, then
            100).
        baseline: what an absent token is: zero, pad, mask or a token (mask where the model has
            one, else zero; without added positions, pad or eos).
        metric: a function of the logits (rows, vocabulary) that predict the answer, which gives one
            number a row: explained instead of a logit (from Python).

    Example:
        >>> regard.look.explain("folder", "When Mary and John went out, John gave it to").scores
        $ regard look explain folder "When Mary and John went out, John gave a drink to"
        $ regard look explain folder "Paris is the <mask> of France" --method shap --against city
        $ regard look explain fr-en "Le chat dort." --target "The cat" --compare
    """
    from regard.look.attribution import explain_text
    from regard.vision.picture_maps import explain_picture, open_reader

    kit, kind = open_reader(model, None)  # plain maps: packed ones have no gradient
    if kind is not None:
        which = "compare" if compare else method
        return explain_picture(kit, kind, text, (target, against), which, steps)
    how = method, compare, steps, samples, baseline, metric
    return explain_text(kit, text, target, against, *how)


@verb
def patch(
    model: ModelLike,
    pairs: File | None = None,
    *,
    task: Literal["ioi"] | None = None,
    count: Count = 64,
    over: results.Over = "heads",
    to: list[str] | None = None,
    top: Count = 15,
    metric: Metric | None = None,
) -> results.PatchEffects:
    """Put activations of one prompt into another, and see what comes back.

    Activation patching (Meng 2022) and path patching (Wang 2022). `--save map.png` draws a heat
    map.

    Args:
        model: a language model, masked or not, or an encoder-decoder.
        pairs: lines of clean TAB corrupted TAB answer [TAB other answer [TAB template]].
        task: prompts made here instead of pairs: ioi (who is the indirect object?).
        count: prompts of the task.
        over: what is patched: each head, each MLP, or the stream at each position.
        to: paths: what each head does through these taps alone, such as
            decoder.blocks.9.attn.q:3; or end.
        top: places shown.
        metric: a function of the logits (rows, vocabulary) that predict the answer, or of them and
            a goal with ids `good` and `bad` (rows,), which gives one number a row (from Python).

    Example:
        >>> regard.look.patch("folder", "pairs.tsv").effects[0].effect
        $ regard look patch folder pairs.tsv
        $ regard look patch folder pairs.tsv --over stream --save map.png
        $ regard look patch folder --task ioi --to end --json
    """
    from regard.loading import open_kit
    from regard.look.patching import measure_effects

    kit = open_kit(model, None)
    prompts = _read_pairs(kit, pairs, task, count, metric)
    return measure_effects(kit.hooked, prompts, over, to=to or (), top=top)


@verb
def circuit(
    model: ModelLike,
    pairs: File | None = None,
    *,
    task: Literal["ioi"] | None = None,
    count: Count = 64,
    kind: results.Ablation = "resample",
    keep: verbs.Share = 0.9,
    heads_only: bool = False,
    draws: Count = 100,
    edges: verbs.Natural = 15,
    metric: Metric | None = None,
) -> results.Circuit:
    """The few heads and MLPs that do a task, with a certificate.

    A circuit is found on one half of the prompts and judged on the other: faithfulness,
    completeness, minimality, and how random circuits do. `--save map.png` draws all parts.

    Args:
        model: a language model, masked or not, or an encoder-decoder.
        pairs: lines of clean TAB corrupted TAB answer [TAB other answer [TAB template]].
        task: prompts made here instead of pairs: ioi (who is the indirect object?).
        count: prompts of the task.
        kind: what stands in place of parts outside: values of the corrupted twin, of all that have
            its template and length on average, or 0.
        keep: share of the task that the circuit must do.
        heads_only: whether MLPs stay alive.
        draws: random circuits to compare with.
        edges: edges between its parts that are listed.
        metric: a function of the logits instead of answers, as `patch` takes it (from Python).

    Example:
        >>> regard.look.circuit("folder", "pairs.tsv").nodes[0].tap
        $ regard look circuit folder pairs.tsv
        $ regard look circuit folder --task ioi --kind mean --heads-only
        $ regard look circuit folder pairs.tsv --json --receipt circuit.json
    """
    from regard.ambient import current
    from regard.loading import open_kit
    from regard.look.circuit_search import CircuitConfig, find_circuit

    how = CircuitConfig(kind, keep, not heads_only, draws, seed=current().seed)
    kit = open_kit(model, None)
    prompts = _read_pairs(kit, pairs, task, count, metric)
    asked = str(task if pairs is None else pairs)
    return find_circuit(kit.hooked, prompts, how, edges=edges, model=name_of(model), prompts=asked)


@verb
def probe(
    model: ModelLike,
    treebank: File,
    *,
    label: list[str] | None = None,
    tree: bool = False,
    speech: bool = False,
    layer: str | int = "all",
    kind: results.ProbeKind = "linear",
    control: bool = False,
    count: Count = 1000,
    rank: Count = 64,
) -> results.LabelProbe | results.LabelProbes | results.TreeProbe | results.SpeechTreeProbes:
    """What labels, or trees, can be read off a model's vectors, layer by layer.

    The last token of a word stands for it, in an encoder the first.

    Args:
        model: a folder, a .gguf file, the name of a model in the box, or an opened Kit.
        treebank: CoNLL-U, or lines of form and label, with a blank line between sentences; of a
            model of pictures, pictures by class.
        label: columns to be read off the vectors: upos, xpos, deprel, or others of the file;
            several: which layer knows what.
        tree: structural probe of the heads, instead of labels.
        speech: with tree: also without fillers and restarts (UD's reparandum too).
        layer: the stream after block N, the last, or all: embeddings and every block.
        kind: of probe.
        control: also a control task, random labels by word type: selectivity.
        count: sentences, or pictures, evenly spaced in the file.
        rank: of the structural probe's matrix.

    Example:
        >>> regard.look.probe("folder", "dev.conllu", label=["upos"]).taps[-1].accuracy
        $ regard look probe folder dev.conllu --label upos --control
        $ regard look probe folder dev.conllu --label upos deprel --kind mlp
        $ regard look probe folder dev.conllu --tree --count 500 --json
    """
    from regard.data.speech import clean_tree
    from regard.data.text_files import evenly
    from regard.data.treebank import heads_of, read_treebank
    from regard.errors import DataError, UsageError
    from regard.loading import open_kit
    from regard.look.probing import choose_taps, probe_labels, read_corpus
    from regard.look.structural_probe import probe_trees
    from regard.vision.picture_maps import open_reader, probe_pictures

    if not (tree or label or speech):
        kit, reads = open_reader(model, "fp32")
        if reads is not None:
            return probe_pictures(kit, reads, [str(treebank)], layer, kind, count)
    if tree == bool(label):
        raise UsageError("probing", "labels and trees, or neither", "one of the two")
    if speech and not tree:
        raise UsageError("probing", "speech without tree", "both")
    sentences = evenly(read_treebank(treebank, ["head"] if tree else label or []), count)
    if not sentences:
        raise DataError(f"reading {treebank}", "no sentences", "words, one on each line")
    for sentence in sentences if tree else ():
        heads_of(treebank, sentence)  # says what is no tree, before a model is opened
    cleaned = [clean_tree(sentence) for sentence in sentences] if speech else []
    if speech and cleaned == sentences:
        problem = "no fillers and no restarts"
        raise DataError(f"cleaning {treebank}", problem, "a treebank of spontaneous speech")
    kit = open_kit(model, "fp32")
    chosen = choose_taps(kit, layer)
    corpus = read_corpus(kit, sentences)
    if label:
        return probe_labels(kit, corpus, label, chosen, kind, control=control)
    probed = probe_trees(kit, corpus, treebank, chosen, rank)
    if not speech:
        return probed
    other = read_corpus(kit, cleaned)
    return results.SpeechTreeProbes(probed, probe_trees(kit, other, treebank, chosen, rank))


@verb
def gradients(
    *,
    kinds: list[Literal["mlp", "rnn", "lstm", "gru", "transformer"]] | None = None,
    length: Annotated[int, verbs.Bound(2, verbs.MOST, "a whole number from 2 up")] = 64,
    rows: Count = 8,
    dim: Count = 64,
    depth: Count = 1,
) -> results.GradientReach:
    """How far back the gradient of a loss reaches in MLP, RNN, LSTM, GRU and Transformer.

    Args:
        kinds: of fresh models (all).
        length: tokens before the loss.
        rows: texts that the mean goes over.
        dim: width of the models.
        depth: their layers.

    Example:
        >>> regard.look.gradients(kinds=["rnn", "lstm"], length=200).models[1].gradient[-1]
        $ regard look gradients --save gradients.png
        $ regard look gradients --kinds rnn lstm --length 200 --json
        $ regard look gradients --dim 128 --depth 2
    """
    from regard.look.gradient_reach import KINDS, compare_fresh

    return compare_fresh(kinds or KINDS, length, rows, dim, depth)


def _read_pairs(
    kit: Kit, pairs: str | Path | None, task: str | None, count: int, metric: Metric | None
) -> Pairs:
    """The prompts of a file, or of a task."""
    from regard.ambient import current
    from regard.errors import UsageError
    from regard.look.ioi_task import ioi_prompts
    from regard.look.prompts import make_pairs, read_prompts

    if (pairs is None) == (task is None):
        raise UsageError("patching activations", "pairs and a task, or neither", "one of them")
    prompts = ioi_prompts(kit, count, current().seed) if pairs is None else read_prompts(pairs)
    read = make_pairs(kit, prompts)
    return read if metric is None else read._replace(goal=replace(read.goal, metric=metric))


def as_kit(model: ModelLike | Model) -> Kit:
    """What is named, opened; a bare model as a Kit without tokenizer."""
    from regard.kit import Kit
    from regard.loading import open_kit
    from regard.model.model import Model

    return Kit(model) if isinstance(model, Model) else open_kit(model, None, text=False)
