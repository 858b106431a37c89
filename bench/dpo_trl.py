"""Twenty DPO losses of TRL on a tiny random Llama, for tests/tune/test_dpo_trl.py to be equal to.

    python bench/dpo_trl.py FOLDER      # in an environment with trl (1.16) and torch

`make_inputs` writes the model and the pairs, from NumPy's generator alone; `main` trains with TRL's
DPOTrainer: batches of 4 pairs in their order, AdamW, constant rate, float32, and prints the losses.
"""

from __future__ import annotations

import json
import string
import sys
from pathlib import Path

import numpy as np

STEPS, ROWS, PAIRS, RATE, BETA = 20, 4, 40, 1e-3, 0.1


def make_inputs(folder: Path) -> tuple[Path, Path]:
    """(a Llama with its tokenizer of letters, pairs.jsonl), the same in every environment."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    draw = np.random.RandomState(0)
    vocab = {token: n for n, token in enumerate(["<pad>", "</s>", *string.ascii_lowercase, " "])}
    letters = Tokenizer(models.WordLevel(vocab, unk_token="<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.decoder = decoders.Fuse()
    named = PreTrainedTokenizerFast(
        tokenizer_object=letters, eos_token="</s>", pad_token="<pad>", unk_token="<pad>"
    )
    named.save_pretrained(folder / "model")
    model = LlamaForCausalLM(
        LlamaConfig(
            **dict(vocab_size=len(vocab), hidden_size=32, intermediate_size=64),
            **dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2),
            **dict(max_position_embeddings=64, bos_token_id=1, eos_token_id=1, pad_token_id=0),
        )
    )
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            values = draw.randn(*parameter.shape) * 0.2 + (parameter.dim() == 1)
            parameter.copy_(torch.tensor(values, dtype=torch.float32))
    model.save_pretrained(folder / "model")

    def words(most: int) -> str:
        lengths = draw.randint(2, 6, draw.randint(1, most))
        return " ".join("".join(draw.choice([*string.ascii_lowercase], n)) for n in lengths)

    lines = [
        json.dumps({"prompt": f"{words(4)} ", "chosen": words(5), "rejected": words(5)})
        for _ in range(PAIRS)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "model", folder / "pairs.jsonl"


def main(folder: Path) -> list[float]:
    """TRL's losses."""
    from datasets import Dataset
    from torch.utils.data import SequentialSampler
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    class InOrder(DPOTrainer):
        def _get_train_sampler(self, *args: object, **named: object) -> SequentialSampler:
            return SequentialSampler(self.train_dataset)

    place, pairs = make_inputs(folder)
    config = DPOConfig(
        str(folder / "out"),
        **dict(per_device_train_batch_size=ROWS, max_steps=STEPS, logging_steps=1, beta=BETA),
        **dict(learning_rate=RATE, lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.0),
        **dict(adam_beta2=0.95, max_grad_norm=1.0, bf16=False, use_cpu=True, report_to=[]),
        **dict(save_strategy="no", disable_tqdm=True, max_length=None),
        gradient_checkpointing=False,
    )
    model = AutoModelForCausalLM.from_pretrained(place, dtype="float32")
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    trainer = InOrder(
        model,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(place),
    )
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
