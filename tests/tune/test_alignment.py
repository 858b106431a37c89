"""sft, reward, dpo, ppo and grpo as runs: what they learn, how they resume, and one loop."""

import gc
import inspect
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from scipy.stats import spearmanr

import regard
from regard.data.windows import IGNORED
from regard.errors import DataError, UsageError
from regard.model.model import Model
from regard.tune import alignment
from regard.tune.policy_rollouts import open_reward

ROOT = Path(__file__).resolve().parents[2]
OFTEN = dict(warm_up=0, length=64, batch_tokens=512, eval_every=0, save_every=3, log_every=1)
LIVE = []


def train(**changes):
    return regard.TrainConfig(**OFTEN | changes)


@pytest.fixture(autouse=True)
def quiet():
    with regard.settings(quiet=True, device="cpu"):
        yield


@pytest.fixture
def prompts(inputs, tmp_path):
    rows = map(json.loads, inputs[1].read_text().splitlines())
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(row["prompt"] for row in rows) + "\n")
    return path


def count_a(texts, prompts):
    return [text.count("a") - 0.01 * len(text) for text in texts]


def count_models(texts, prompts):
    """A reward that counts the models that are there meanwhile."""
    LIVE.append(live_models())
    return count_a(texts, prompts)


def live_models():
    return sum(issubclass(type(thing), Model) for thing in gc.get_objects())


def constant(texts, prompts):
    return [0.5] * len(texts)


def policy(**changes):
    how = dict(reward=count_a, answers=16, max_new=6, minibatches=2, passes=2, best_of=4)
    return regard.PolicyConfig(**how | changes)


# What is learnt -----------------------------------------------------------------------------------


def test_sft_learns_the_answers_and_ends_them(inputs, tmp_path):
    rows = [{"prompt": f"{letter} is ", "answer": letter * 3} for letter in "abcd"]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    config = train(steps=60, lr=2e-2, save_every=100)
    run = regard.tune.sft(path, model=inputs[0], out=tmp_path / "run", dev=path, config=config)
    for row in rows:
        written = run.kit.generate(row["prompt"], max_new=8)
        assert written.text == row["answer"] and written.finished


def test_planted_rewards_are_recovered(inputs, tmp_path):
    dice = random.Random(0)

    def planted(text):
        return text.count("a") - text.count("b") + 0.5 * text.count("c")

    def answer():
        return "".join(dice.choices("abcd", k=dice.randint(3, 8)))

    lines = []
    for number in range(800):  # pairs as Bradley and Terry draw them, and rankings of three
        drawn = {answer() for _ in range(2 + number % 2)}
        noise = {text: planted(text) - math.log(-math.log(dice.random())) for text in drawn}
        best = sorted(noise, key=noise.get, reverse=True)  # Gumbel noise: the Plackett-Luce model
        lines += [json.dumps({"prompt": "rate ", "answers": best})] if len(best) > 1 else []
    path = tmp_path / "ranked.jsonl"
    path.write_text("\n".join(lines))
    config = train(steps=50, lr=1e-2, length=16, batch_tokens=2048, save_every=100, warm_up=5)
    run = regard.tune.reward(path, model=inputs[0], out=tmp_path / "run", config=config)
    new = [answer() for _ in range(200)]
    scores = open_reward(str(run.path), "cpu")(new, ["rate "] * 200)
    assert spearmanr(scores, [planted(text) for text in new]).statistic >= 0.95
    # Alone and in company, and by transformers: one score.
    from transformers import AutoModelForSequenceClassification

    theirs = AutoModelForSequenceClassification.from_pretrained(run.path).eval()
    ids = [*run.kit.tokenizer.encode(f"rate {new[0]}"), run.kit.tokenizer.specials["eos"]]
    with torch.no_grad():
        score = float(theirs(torch.tensor([ids])).logits)
    assert score == pytest.approx(scores[0], abs=1e-5)


@pytest.mark.parametrize("lora", [None, "r=4"])
def test_dpo_starts_at_ln_2_and_prefers_the_chosen(inputs, tmp_path, lora):
    config = train(steps=24, lr=1e-2 if lora else 1e-3, batch_tokens=1024, save_every=100)
    run = regard.tune.dpo(
        inputs[1], model=inputs[0], out=tmp_path / "run", config=config, lora=lora
    )
    first, *_, last = run.metrics
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6) and abs(first["margin"]) < 1e-5
    assert last["accuracy"] == 1 and last["chosen"] > 0 > last["rejected"]
    assert (run.path / "adapter_config.json").exists() == (lora is not None)


def test_ipo_and_cdpo_start_where_they_should(inputs, tmp_path):
    for name, how, start in (
        ("ipo", dict(loss="ipo", beta=0.01), 2500.0),
        ("cdpo", dict(flipped=0.2), math.log(2)),
        ("mean", dict(per_token=True), math.log(2)),
    ):
        config, own = train(steps=1, save_every=100), regard.PreferenceConfig(**how)
        run = regard.tune.dpo(
            inputs[1], model=inputs[0], out=tmp_path / name, config=config, preference=own
        )
        assert run.loss == pytest.approx(start, rel=1e-5)


def test_rewards_rise_and_best_of_n_stands_beside(inputs, prompts, tmp_path):
    for kind in ("ppo", "grpo"):
        run = getattr(regard.tune, kind)(
            prompts,
            model=inputs[0],
            out=tmp_path / kind,
            config=train(steps=24, lr=2e-2, save_every=100),
            policy=policy(answers=32, minibatches=1, group=4),
        )
        lines = run.metrics
        assert lines[0]["kl"] == 0 and lines[-1]["kl"] > 0.05
        halves = [sum(line["reward"] for line in half) for half in (lines[:12], lines[12:])]
        assert halves[1] > halves[0]
        assert [point.answers for point in run.frontier][-2:] == ["best of 4", "policy"]
        assert {"reward", "kl", "length"} <= set(lines[0])
        assert run.kit.adapters == {"default": 1.0}
    pytest.importorskip("matplotlib")
    run.save(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_a_trained_model_is_a_reward(inputs, prompts, tmp_path):
    config = train(steps=1, save_every=100)
    judge = regard.tune.reward(inputs[1], model=inputs[0], out=tmp_path / "judge", config=config)
    run = regard.tune.grpo(
        prompts,
        model=inputs[0],
        out=tmp_path / "run",
        config=config,
        policy=policy(reward=str(judge.path), group=4),
    )
    assert math.isfinite(run.frontier[-1].reward)


# One loop, one model ------------------------------------------------------------------------------


def test_one_loop():
    """Networks are trained by `train/trainer.py` alone; others fit a matrix or take the time."""
    small = {"history/bag_of_words.py", "history/rungs.py", "look/probing.py"}
    small.add("model/timing.py")
    loops = set()
    for path in (ROOT / "regard").rglob("*.py"):
        if re.search(r"\.backward\(", path.read_text()):
            loops.add(path.relative_to(ROOT / "regard").as_posix())
    assert loops - small == {"train/trainer.py"}


def test_no_second_model(inputs, prompts, tmp_path, monkeypatch):
    gc.collect()
    before = live_models()
    LIVE.clear()
    how = dict(model=inputs[0], config=train(steps=2))
    regard.tune.ppo(prompts, out=tmp_path / "ppo", policy=policy(reward=count_models), **how)
    compare = alignment.comparison_loss

    def watched(*args):
        LIVE.append(live_models())
        return compare(*args)

    monkeypatch.setattr(alignment, "comparison_loss", watched)
    regard.tune.dpo(inputs[1], out=tmp_path / "dpo", **how)
    assert len(LIVE) > 4 and max(LIVE) <= before + 1


# Killed and resumed -------------------------------------------------------------------------------

CODE = """
import regard
with regard.settings(device="cpu", quiet=True):
    regard.tune.{kind}(
        {files!r}, model={model!r}, resume={out!r}, config=regard.TrainConfig(**{config}), **{own}
    )
"""


@pytest.mark.parametrize("kind", ["dpo", pytest.param("ppo", marks=pytest.mark.slow)])
def test_a_killed_run_ends_with_the_same_bits(inputs, prompts, tmp_path, monkeypatch, kind):
    files = str(inputs[1] if kind == "dpo" else prompts)
    (tmp_path / "judge_a.py").write_text(inspect.getsource(count_a))
    monkeypatch.chdir(tmp_path)
    how = policy(reward="judge_a:count_a")
    own = {"policy": how} if kind == "ppo" else {}
    whole = getattr(regard.tune, kind)(
        files, model=inputs[0], out=tmp_path / "whole", config=train(steps=14), **own
    )
    out = tmp_path / "killed"
    words = dict(kind=kind, files=files, model=str(inputs[0]), out=str(out))
    words["config"] = OFTEN | {"steps": 14}
    words["own"] = f"dict(policy=regard.{how})" if own else {}
    reference = out / "data" / "train.reference.safetensors"
    stamps, log = set(), out / "metrics.jsonl"
    for until in (5, None):  # not where checkpoints are, and within a rollout
        process = subprocess.Popen([sys.executable, "-c", CODE.format(**words)])
        while process.poll() is None:
            lines = log.read_text().splitlines() if log.exists() else []
            if until and lines and json.loads(lines[-1])["step"] >= until:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            time.sleep(0.005)
        assert process.returncode == (0 if until is None else -signal.SIGKILL)
        stamps |= {reference.stat().st_mtime_ns} if kind == "dpo" else set()
    assert len(stamps) <= 1  # what the model said at the start was computed once
    result = json.loads((out / "receipt.json").read_text())["results"]
    assert result["last_weights"] == whole.last_weights
    if kind == "ppo":
        assert result["frontier"] == whole.to_dict()["frontier"]

    def losses(folder):
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return [(line["step"], line["loss"]) for line in lines]

    assert losses(out) == losses(tmp_path / "whole")


# Bad input ----------------------------------------------------------------------------------------


def test_bad_input_is_refused_before_any_work(inputs, prompts, tmp_path):
    model, out = inputs[0], tmp_path / "run"
    with pytest.raises(UsageError, match="no model"):
        regard.tune.sft(inputs[1], out=out)
    with pytest.raises(DataError, match="no column 'answer' in line 1"):
        regard.tune.sft(inputs[1], model=model, out=out)
    with pytest.raises(UsageError, match="reward = ''"):
        regard.tune.ppo(prompts, model=model, out=out)
    with pytest.raises(UsageError, match="group = 3"):
        regard.tune.grpo(prompts, model=model, out=out, policy=policy(group=3))
    with pytest.raises(UsageError, match="max_new = 64"):
        regard.tune.ppo(prompts, model=model, out=out, policy=policy(max_new=64), config=train())
    with pytest.raises(DataError, match="a constant reward"):
        how = dict(config=train(steps=2), policy=policy(reward=constant))
        regard.tune.ppo(prompts, model=model, out=out, **how)


def test_prompts_that_are_cut_are_named(inputs, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("short \n" + "very long " * 20 + "\nlast \n")
    how = dict(model=inputs[0], config=train(steps=1, length=24))
    regard.tune.ppo(path, out=tmp_path / "run", policy=policy(), **how)
    assert f"cut to 18 tokens: {path}:2" in (tmp_path / "run" / "log.txt").read_text()


def test_rows_without_labels_carry_no_loss(inputs, tmp_path):
    """Those of a process that has none in a batch."""
    from regard.loading import load_kit
    from regard.model.batch import Batch
    from regard.tune.instructions import Comparisons, instruction_store

    kit = load_kit(inputs[0], precision=None)
    tell = (lambda text: None,) * 2
    store = instruction_store(tmp_path / "s", [str(inputs[1])], kit.tokenizer, "dpo", 64, tell)
    examples = Comparisons(store, 2, None).batch(0, 0)
    loss = alignment.preference_loss(regard.PreferenceConfig())
    batch, extra = Batch(**examples.parts()), {"reference": torch.zeros(2, 2)}
    labels = torch.full_like(examples.labels, IGNORED)
    with torch.no_grad():
        empty = loss(kit.model, batch, labels, extra=extra)
    assert float(empty.sum) == 0 and int(empty.tokens) == 0
    assert all(float(figure) == 0 for figure in empty.figures.values())
