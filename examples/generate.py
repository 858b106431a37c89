"""Train a small decoder on a page of tongue twisters, let it continue one, look at its heads.

You will see the loss fall, three continuations, and for one of them the characters that the most
focused head of each block looks back at. No network, no data beside this file; under a minute on
two cores.
"""

from __future__ import annotations

import tempfile
import time

import torch
import torch.nn.functional as F

import regard
from regard.interop.families import bind
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import llama

TEXT = """\
Peter Piper picked a peck of pickled peppers.
A peck of pickled peppers Peter Piper picked.
If Peter Piper picked a peck of pickled peppers,
where is the peck of pickled peppers Peter Piper picked?

She sells sea shells by the sea shore.
The shells she sells are surely sea shells.
So if she sells shells on the sea shore,
I am sure she sells sea shore shells.

Betty Botter bought some butter,
but she said the butter is bitter.
If I put it in my batter, it will make my batter bitter.
But a bit of better butter will make my batter better.

How much wood would a woodchuck chuck
if a woodchuck could chuck wood?
He would chuck, he would, as much as he could,
and chuck as much wood as a woodchuck would
if a woodchuck could chuck wood.
"""


def train(kit: regard.Kit, data: torch.Tensor, steps: int = 250, width: int = 96) -> None:
    """Predict each next byte of random windows."""
    model = kit.model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, steps)
    draw = torch.Generator().manual_seed(0)
    start = time.perf_counter()
    for step in range(1, steps + 1):
        at = torch.randint(len(data) - width, (16, 1), generator=draw)
        window = data[at + torch.arange(width + 1)]  # (16, width + 1)
        logits = model(Batch(window[:, :-1]))
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 0:
            speed = step * window[:, 1:].numel() / (time.perf_counter() - start)
            print(f"  step {step:3d}  loss {loss.item():.3f}  {speed:,.0f} bytes/s", flush=True)
    model.eval()


def show(byte: int) -> str:
    """One byte as a visible character."""
    return {10: "⏎", 32: "␣"}.get(byte, chr(byte))


def main() -> None:
    """Train, continue, look, save."""
    torch.manual_seed(0)
    config = llama(dim=96, depth=2, heads=4, kv_heads=2, hidden=256, vocab=256, length=256)
    kit = regard.Kit(Model.fresh(config), binding=bind("LlamaForCausalLM"))
    print(f"{kit} learns {len(TEXT)} bytes:")
    train(kit, torch.tensor(list(TEXT.encode())))

    for prompt in ("Peter Piper", "She sells", "How much wood"):
        ids = kit.generate(list(prompt.encode()), max_new=60)
        print(f"\n{prompt}|{bytes(ids[0].tolist()).decode(errors='replace')}")

    prompt = list(b"She sells sea sh")
    out, seen = kit.run([prompt], taps="decoder.blocks.*.attn.pattern")
    best = show(int(out.logits[0, -1].argmax()))
    print(f"\nAfter 'She sells sea sh' it writes '{best}'. At that moment")
    for name, pattern in seen.items():
        last = pattern[0, :, -1]  # (heads, keys)
        head = int(last.amax(-1).argmax())
        weight, key = last[head].topk(3)
        looked = ", ".join(
            f"'{show(prompt[k])}' at {k} ({w:.0%})"
            for w, k in zip(weight.tolist(), key.tolist(), strict=True)
        )
        print(f"  {name.removesuffix('.pattern')}, head {head}, looks at {looked}")

    with tempfile.TemporaryDirectory() as folder:
        kit.save(folder)
        again = regard.load(folder)
        same = torch.equal(again.logits([prompt]), kit.logits([prompt]))
        print(f"\nSaved as a Hugging Face folder and loaded again: same bits {same}")


if __name__ == "__main__":
    main()
