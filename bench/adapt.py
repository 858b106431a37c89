"""Classes of sentences and tags of words beside transformers' Trainer and PEFT: accuracy, seconds.

    python bench/adapt.py MINILM DATA --device cuda --together 4           everything, three seeds
    python bench/adapt.py MINILM DATA --only sst2-full --seeds 1 --epochs 1

MINILM is the folder of an encoder, DATA one with classify/sst2-*.tsv and tag/ud-ewt-*.tsv.xz. Every
job is a process of its own: a task (sst2, upos), a way (full, lora of rank 8 on q and v, scratch:
a small encoder with new weights) and a peer (regard; hf: Trainer, with PEFT for lora), with the
same epochs, rows of a batch and learning rate. Test scores are of the epoch that is best on dev.
"""

from __future__ import annotations

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

JOBS = {  # learning rate, epochs
    "sst2-full": (1e-4, 4),
    "sst2-lora": (1e-3, 6),
    "sst2-scratch": (3e-4, 12),
    "upos-full": (2e-4, 4),
    "upos-lora": (2e-3, 6),
    "upos-scratch": (1e-3, 14),
}
ROWS = 32
SCRATCH = {
    "sst2": {"dim": 128, "depth": 1, "heads": 4, "dropout": 0.6},
    "upos": {"dim": 256, "depth": 3, "heads": 4, "dropout": 0.4},
}
"""Chosen on dev. regard's tagger from scratch has rotary positions and norms before its layers,
its classifiers the mean of their vectors, and from scratch a running mean of the weights."""


def files(data: Path, task: str) -> dict[str, Path]:
    """Train, dev and test of a task."""
    name = "classify/sst2-{}.tsv" if task == "sst2" else "tag/ud-ewt-{}.tsv.xz"
    return {part: data / name.format(part) for part in ("train", "dev", "test")}


# regard -------------------------------------------------------------------------------------------


def run_regard(args: argparse.Namespace, out: Path) -> dict[str, float]:
    """Dev and test accuracy of `regard tune`."""
    import regard
    from regard.core.config import BlockConfig, StackConfig
    from regard.interop.families import bind
    from regard.model import presets
    from regard.model.config import HeadConfig, ModelConfig, TextConfig

    task, way = args.job.split("-")
    parts = files(args.data, task)
    start = args.model
    train = {
        "lr": args.lr,
        "dropout": 0.1,
        "precision": "bf16" if args.device == "cuda" else "fp32",
    }
    if way == "scratch":
        start, size = out / "start", SCRATCH[task]
        kit = regard.load(args.model, device="cpu")
        config, binding = presets.bert(size["dim"], size["depth"], size["heads"]), None
        if task == "upos":
            block = BlockConfig(size["dim"], size["heads"], 4 * size["dim"])
            front, stack = (
                TextConfig(size["dim"], 30522),
                StackConfig(block, size["depth"], "rotary"),
            )
            config = ModelConfig(front, HeadConfig(30522, tied=True), encoder=stack)
        else:
            binding = bind("BertForMaskedLM")
            train["ema"] = 0.99
        regard.Kit(regard.build(config, args.seed).model, kit.tokenizer, binding).save(start)
        train["dropout"] = size["dropout"]
    verb = regard.tune.classify if task == "sst2" else regard.tune.tag
    config = regard.TrainConfig(**train, metric="accuracy", length=128)
    own = {"take": "mean"} if task == "sst2" else {"label": "upos"}
    head = regard.HeadTuning(rows=ROWS, epochs=args.epochs, **own)
    began = time.perf_counter()
    with regard.settings(device=args.device, seed=args.seed, progress=False):
        verb(
            [str(parts["train"])],
            model=str(start),
            dev=[str(parts["dev"])],
            out=out / "run",
            config=config,
            head=head,
            lora=regard.LoRA(r=8) if way == "lora" else None,
        )
        seconds = time.perf_counter() - began
        judge = regard.evaluate.classify if task == "sst2" else regard.evaluate.tag
        scores = {
            p: 100 * judge(out / "run" / "final", str(parts[p])).accuracy for p in ("dev", "test")
        }
    return scores | {"seconds": seconds}


# transformers -------------------------------------------------------------------------------------


def read_words(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Words and tags of each sentence of UD-EWT."""
    words: list[str] = []
    tags: list[str] = []
    for line in [*lzma.open(path, "rt", encoding="utf-8"), "\n"]:
        cells = line.rstrip("\n").split("\t")
        if len(cells) > 2:
            words.append(cells[1])
            tags.append(cells[2])
        elif words:
            yield words, tags
            words, tags = [], []


def read_rows(tokenizer: Any, task: str, path: Path, names: dict[str, int]) -> list[dict[str, Any]]:
    """Ids with their labels, as transformers' models take them."""
    if task == "sst2":
        pairs = (line.rsplit("\t", 1) for line in path.read_text("utf-8").splitlines())
        return [
            {**tokenizer(text, truncation=True, max_length=128), "labels": int(label)}
            for text, label in pairs
        ]
    rows = []
    for words, tags in read_words(path):
        row = tokenizer(words, is_split_into_words=True, truncation=True, max_length=128)
        seen: set[int | None] = {None}
        labels = []
        for word in row.word_ids():
            labels.append(-100 if word in seen else names.setdefault(tags[word], len(names)))
            seen.add(word)
        rows.append({**row, "labels": labels})
    return rows


def run_hf(args: argparse.Namespace, out: Path) -> dict[str, float]:
    """Dev and test accuracy of transformers' Trainer."""
    import numpy as np
    import torch
    import transformers as hf

    task, way = args.job.split("-")
    hf.set_seed(args.seed)
    tokenizer = hf.AutoTokenizer.from_pretrained(args.model)
    names: dict[str, int] = {} if task == "upos" else {"0": 0, "1": 1}
    began = time.perf_counter()
    data = {
        p: read_rows(tokenizer, task, path, names) for p, path in files(args.data, task).items()
    }
    heads = hf.AutoModelForSequenceClassification, hf.AutoModelForTokenClassification
    head, collate = heads[task == "upos"], hf.DataCollatorForTokenClassification(tokenizer)
    if way == "scratch":
        config = hf.AutoConfig.from_pretrained(args.model, num_labels=len(names))
        size = SCRATCH[task]
        config.hidden_size, config.num_hidden_layers = size["dim"], size["depth"]
        config.num_attention_heads, config.intermediate_size = size["heads"], 4 * size["dim"]
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = size["dropout"]
        model = head.from_config(config)
    else:
        model = head.from_pretrained(args.model, num_labels=len(names), dtype=torch.float32)
    if way == "lora":
        import peft

        kind = "SEQ_CLS" if task == "sst2" else "TOKEN_CLS"
        adapter = peft.LoraConfig(task_type=kind, r=8, target_modules=["query", "value"])
        model = peft.get_peft_model(model, adapter)

    def accuracy(result: Any) -> dict[str, float]:
        best, labels = result.predictions.argmax(-1), result.label_ids
        return {"accuracy": float((best == labels)[labels != -100].mean())}

    how = hf.TrainingArguments(
        output_dir=str(out),
        per_device_train_batch_size=ROWS,
        per_device_eval_batch_size=256,
        learning_rate=args.lr,
        num_train_epochs=args.epochs,
        warmup_steps=100,
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        bf16=args.device == "cuda",
        use_cpu=args.device == "cpu",
        seed=args.seed,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = hf.Trainer(
        model=model,
        args=how,
        train_dataset=data["train"],
        eval_dataset=data["dev"],
        data_collator=collate if task == "upos" else hf.DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
    )
    trainer.train()
    seconds = time.perf_counter() - began
    scores = {p: trainer.evaluate(data[p])["eval_accuracy"] for p in ("dev", "test")}
    return {p: 100 * float(np.float64(x)) for p, x in scores.items()} | {"seconds": seconds}


def main() -> None:
    """Run all jobs, or one of them in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", default=list(JOBS))
    parser.add_argument("--peers", nargs="+", default=["regard", "hf"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--together", type=int, default=1, help="processes at a time")
    parser.add_argument("--job")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.job:
        run = {"regard": run_regard, "hf": run_hf}[args.peers[0]]
        with tempfile.TemporaryDirectory() as out:
            print(json.dumps(run(args, Path(out))))
        return

    def start(task: tuple[str, str, int]) -> tuple[tuple[str, str, int], dict[str, float]]:
        job, peer, seed = task
        rate, epochs = args.lr or JOBS[job][0], args.epochs or JOBS[job][1]
        command = [sys.executable, __file__, str(args.model), str(args.data), "--job", job]
        command += ["--peers", peer, "--seed", str(seed), "--device", args.device]
        command += ["--lr", str(rate), "--epochs", str(epochs)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(job, peer, done.stderr[-1500:], flush=True)
            return task, {}
        scores = json.loads(done.stdout.strip().splitlines()[-1])
        print(job, peer, seed, {k: round(v, 2) for k, v in scores.items()}, flush=True)
        return task, scores

    tasks = [(j, p, s) for s in range(args.seeds) for j in args.only for p in args.peers]
    table: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    with ThreadPoolExecutor(args.together) as pool:
        for (job, peer, _), scores in pool.map(start, tasks):
            if scores:
                table[job, peer].append(scores)
    for (job, peer), rows in table.items():
        for part in ("dev", "test", "seconds"):
            values = [row[part] for row in rows]
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
            print(f"{job:14}{peer:8}{part:8}{mean(values):8.2f}{spread}")


if __name__ == "__main__":
    main()
