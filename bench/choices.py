"""Are the log-probabilities of answers those of transformers, with examples before them?

    python bench/choices.py FOLDER BLIMP.jsonl SST2.tsv [--count 12]

FOLDER is a decoder that both open, such as SmolLM2 saved by `regard.load("….gguf").save`.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import regard
from regard.data.tabular import read_table
from regard.evaluate.multiple_choice import score_options


def main() -> None:
    """Score prompts with two answers each, and pairs of sentences, twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("blimp")
    parser.add_argument("sst2")
    parser.add_argument("--count", type=int, default=12)
    flags = parser.parse_args()
    kit = regard.load(flags.folder)
    tokenizer = AutoTokenizer.from_pretrained(flags.folder)
    model = AutoModelForCausalLM.from_pretrained(flags.folder, dtype=torch.float32).eval()

    def by_transformers(prompt: str, option: str) -> float:
        before = tokenizer(prompt)["input_ids"] if prompt else [tokenizer.bos_token_id]
        ids = (before if not prompt else []) + tokenizer(prompt + option)["input_ids"]
        with torch.inference_mode():
            log = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return float(sum(log[n - 1, ids[n]] for n in range(len(before), len(ids))))

    rows = [row.cells for row in read_table(flags.sst2, names=("text", "label"))]
    words = {"0": " negative", "1": " positive"}
    shots = "".join(f"{r['text']}\nAnswer:{words[r['label']]}\n\n" for r in rows[-16:])
    prompts = [f"{shots}{r['text']}\nAnswer:" for r in rows[: flags.count]]
    options = [tuple(words.values())] * len(prompts)
    lines = list(read_table(flags.blimp))[:: 67000 // flags.count][: flags.count]
    prompts += [""] * len(lines)
    options += [(r.cells["sentence_good"], r.cells["sentence_bad"]) for r in lines]
    ours = score_options(kit, prompts[: flags.count], options[: flags.count])  # examples read once
    ours += score_options(kit, prompts[flags.count :], options[flags.count :])
    pairs = zip(prompts, options, strict=True)
    theirs = [[by_transformers(prompt, text) for text in texts] for prompt, texts in pairs]
    apart = (torch.tensor(ours) - torch.tensor(theirs)).abs().amax(1)
    print(f"with 16 examples: {apart[: flags.count].max():.2e} at most in {flags.count} prompts")
    print(f"minimal pairs: {apart[flags.count :].max():.2e} at most in {len(lines)} pairs")


if __name__ == "__main__":
    main()
