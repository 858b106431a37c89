"""Translation on a CPU: regard in float32, bf16 and int8, beside each other or beside peers.

    python bench/cpu_translate.py [--json] [--peers A,B] [--batch N] [--beam N] [--rounds N]

measures target tokens per CPU-second at one thread, the peers taking turns, so that a neighbour on
the machine disturbs all. Two shapes with fresh weights: 6 + 6 blocks of width 512 with 32,000
words, and (`-deep`) 8 + 2 blocks with 16,000 words. `-short` scores only the words of a shortlist,
with lists as long as those of French news (4,346 words for one sentence, 5,764 for 32).
`ct2-int8-deep` gives the same weights to CTranslate2, where that is installed. A harness that races
peers takes this file as it is: PEERS maps a name to a factory, a factory takes the settings (batch,
beam, src, tokens, threads) and returns a function that translates once and says how many tokens it
wrote.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

from bench.race import Run, race

Settings = dict[str, Any]
END = 0  # closes a source; never written, so that every answer has all its tokens
SHAPES = {"": (6, 6, 32000), "-deep": (8, 2, 16000)}  # encoder and decoder blocks, words


def fresh_model(shape: str) -> Any:
    """A pre-norm encoder-decoder of width 512 whose end token is never the best."""
    from dataclasses import replace

    import torch

    from regard.model.model import Model
    from regard.model.presets import transformer

    encoder, decoder, vocab = SHAPES[shape]
    config = transformer(512, encoder, 8, vocab, pre=True)
    assert config.decoder is not None
    model = Model.fresh(replace(config, decoder=replace(config.decoder, depth=decoder)))
    with torch.no_grad():
        model.head.out.bias[END] = -1e4
    return model


def sources(settings: Settings, shape: str) -> list[list[int]]:
    """Random sources whose lengths vary by a quarter."""
    draw, vocab = random.Random(0), SHAPES[shape][2]
    low, high = int(settings["src"] * 0.75), int(settings["src"] * 1.25)
    return [
        [draw.randrange(2, vocab - 1) for _ in range(draw.randint(low, high))] + [END]
        for _ in range(settings["batch"])
    ]


def shortlist(vocab: int) -> Any:
    """Random lists that grow with the sentences of a batch as those of French news do."""
    import numpy as np

    from regard.decode.shortlist import Shortlist

    always, others, each = 4262, 2100, 4
    draw = random.Random(0)
    words = [END, *draw.sample(range(2, vocab - 1), always + others - 1)]
    lists = [sorted(draw.sample(words[always:], each)) for _ in range(vocab)]
    bounds = np.arange(vocab + 1) * each
    return Shortlist(np.sort(words[:always]), np.concatenate(lists), bounds, vocab)


def prepare(settings: Settings, precision: str | None, shape: str = "", short: bool = False) -> Run:
    """regard, ready to translate."""
    import torch

    from regard.decode.beam import BeamConfig
    from regard.decode.loop import run_search
    from regard.decode.sampling import Ends
    from regard.model.batch import Batch
    from regard.model.precision import set_precision

    torch.set_num_threads(settings["threads"])
    model = fresh_model(shape)
    set_precision(model, precision)
    rows = [torch.tensor(row) for row in sources(settings, shape)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    real, start = ids >= 0, torch.full((len(rows), 1), SHAPES[shape][2] - 1)
    batch = Batch(ids.clamp(min=0), start, source_mask=None if bool(real.all()) else real)
    how = BeamConfig(settings["beam"]) if settings["beam"] > 1 else None
    few = shortlist(SHAPES[shape][2]) if short else None

    def run() -> int:
        found = run_search(model, batch, settings["tokens"], how, Ends([END]), shortlist=few)
        return sum(len(row[0].tokens) for row in found)

    return run


def prepare_ctranslate2(settings: Settings, kind: str, shape: str) -> Run:
    """CTranslate2 with the same weights."""
    import ctranslate2  # type: ignore[import-not-found, unused-ignore]

    from tools.ctranslate2_folder import build_spec

    names = ["</s>", "<unk>", *(f"t{n}" for n in range(2, SHAPES[shape][2] - 1)), "<start>"]
    with tempfile.TemporaryDirectory() as folder:
        spec = build_spec(fresh_model(shape), (names, names), len(names) - 1, END, 1)
        spec.validate()
        spec.optimize(quantization=kind)
        spec.save(folder)
        threads = settings["threads"]
        translator = ctranslate2.Translator(folder, compute_type=kind, intra_threads=threads)
    rows = [[names[n] for n in row] for row in sources(settings, shape)]
    count = settings["tokens"]

    def run() -> int:
        found = translator.translate_batch(
            rows,
            beam_size=settings["beam"],
            min_decoding_length=count,
            max_decoding_length=count,
            max_batch_size=0,
        )
        return sum(len(row.hypotheses[0]) for row in found)

    return run


PEERS: dict[str, Callable[[Settings], Run]] = {
    f"regard-{precision or 'fp32'}{shape}": partial(prepare, precision=precision, shape=shape)
    for shape in SHAPES
    for precision in (None, "int8")
} | {
    f"ct2-int8{shape or '-base'}": partial(prepare_ctranslate2, kind="int8", shape=shape)
    for shape in SHAPES
}
for kind in (None, "int8"):
    name = f"regard-{kind or 'fp32'}-deep-short"
    PEERS[name] = partial(prepare, precision=kind, shape="-deep", short=True)


def main() -> int:
    """Race the peers and print tokens per CPU-second."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", default="regard-fp32,regard-int8", metavar="A,B")
    for name, number in (("batch", 1), ("beam", 1), ("src", 20), ("tokens", 25), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N")
    args = parser.parse_args()
    settings = {name: getattr(args, name) for name in ("batch", "beam", "src", "tokens")}
    runs = {name: PEERS[name](settings | {"threads": 1}) for name in args.peers.split(",")}
    race(runs, args.rounds, settings, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
