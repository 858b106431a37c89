"""English texts → pairs whose French is drawn from a translator: training data for the other way.

    python recipes/back_translate.py en-fr OUT FILE COUNT [FILE COUNT …] [--device cuda]

A FILE holds pairs (French TAB English), or English text (.txt.xz) as WikiText has it, of which
the sentences are taken; of each English sentence COUNT translations are drawn (a share below 1
takes as many of the sentences). What is written into OUT, train-drawn-NAME.tsv.xz with French TAB
English, is what `recipes/prepare.py` reads. A model that has read its sources often knows them by
heart; drawn ones it has not read (Sennrich 2016; Edunov 2018). Tokens below a twentieth of the
likeliest are never drawn.
"""

from __future__ import annotations

import argparse
import lzma
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import regard
from regard.decode.loop import search_kit
from regard.decode.sampling import SampleConfig
from regard.kit import Kit

ROWS = 2048  # drawn at once on a GPU, an eighth of it on a CPU
LONGEST = 80  # tokens of a source


def sentences(line: str) -> list[str]:
    """The whole sentences of a line of WikiText, with blanks as people write them."""
    if "<unk>" in line or not re.search(r"[.?!] ?$", line):  # a heading
        return []
    text = re.sub(r" @(\W)@ ", r"\1", line)
    text = re.sub(r' " ([^"]*) " ', r' "\1" ', text)
    text = re.sub(r" ([.,;:?!)\]'%]|n't\b)", r"\1", re.sub(r"([(\[$£€]) ", r"\1", text))
    parts = re.split(r"(?<=[a-z)\"][.?!]) (?=[A-Z])", text.strip())
    return [part for part in parts if 20 < len(part) < 250 and part.count('"') % 2 == 0]


def english(path: Path, count: float, draw: random.Random) -> list[str]:
    """The English sentences of a file, each as often as translations of it are drawn."""
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        if path.name.endswith(".txt.xz"):
            texts = [sentence for line in lines for sentence in sentences(line)]
        else:
            texts = [line.rstrip("\n").split("\t")[1] for line in lines]
    whole, rest = divmod(count, 1)
    return [t for t in texts for _ in range(int(whole) + (draw.random() < rest)) if t.strip()]


def translations(kit: Kit, texts: list[str], seed: int) -> Iterator[tuple[str, str]]:
    """(French that is drawn, English) of each text that is no longer than LONGEST."""
    rows = kit.text_tokenizer.encode_batch(texts)
    order = sorted((n for n, r in enumerate(rows) if len(r) <= LONGEST), key=lambda n: len(rows[n]))
    rows_of_batch = ROWS if kit.model.device.type == "cuda" else ROWS // 8
    for at in range(0, len(order), rows_of_batch):
        some = order[at : at + rows_of_batch]
        how = SampleConfig(min_p=0.05, seed=seed, first=at)
        batch = kit.batch([rows[n] for n in some])
        answers = search_kit(kit, batch, 20 + len(rows[some[-1]]) * 3 // 2, how)
        for n, (drawn, *_) in zip(some, answers, strict=True):
            if drawn.finished and (text := kit.text(drawn.tokens).strip()):
                yield text, texts[n]


def main() -> None:
    """Translate the files one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="+", metavar="FILE COUNT")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    precision = "bf16" if given.device == "cuda" else "int8"
    kit = regard.load(given.folder, precision=precision, device=given.device)
    kit = replace(kit, driver="plain")  # too many shapes to record
    for name, count in zip(given.files[::2], given.files[1::2], strict=True):
        stem = Path(name).name.split(".")[0].removeprefix("train-")
        texts = english(Path(name), float(count), random.Random(f"{given.seed} {stem}"))
        out = given.out / f"train-drawn-{stem}.tsv.xz"
        with lzma.open(out, "wt", encoding="utf-8", newline="\n", preset=0) as file:
            pairs = dict.fromkeys(translations(kit, texts, given.seed))
            file.writelines(f"{fr}\t{en}\n" for fr, en in pairs if not set(fr) & {*"\t\n"})
        print(f"{out}: {len(pairs):,} of {len(texts):,}", flush=True)


if __name__ == "__main__":
    main()
