"""Files → Run: what a folder holds, resuming it, what final is made of, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.cli.main import main
from regard.errors import DataError, RegardError, ResourceError, UsageError
from regard.files import hold
from regard.loading import load_kit
from regard.receipt import changed_files, compare, read_receipt
from regard.train.checkpoint import weight_hash
from tests.train.small_runs import OFTEN, SMALL, train, train_on, write_corpus

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The files of all runs."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def done(corpus, tmp_path_factory):
    """A finished run of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    return {kind: train(kind, corpus, folder / kind) for kind in ("lm", "mlm", "seq2seq")}


@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq"])
def test_the_run_folder_is_complete(kind, done):
    run = done[kind]
    names = {p.name for p in run.folder.iterdir()}
    wanted = {"config.toml", "metrics.jsonl", "log.txt", "receipt.json", "checkpoints", "samples"}
    assert names >= wanted | {"final", "data", "tokenizer"}
    assert tomllib.loads((run.folder / "config.toml").read_text())["kind"] == kind
    assert [m["step"] for m in run.metrics if "loss" in m] == [1, 2, 3, 4, 5, 6]
    assert [m["step"] for m in run.metrics if "valid_nll" in m] == [3, 6]
    samples = sorted((run.folder / "samples").iterdir())
    assert [path.name for path in samples] == ["step-000003.txt", "step-000006.txt"]
    assert "→" in samples[1].read_text()
    receipt = read_receipt(run.folder)
    assert receipt["command"][:3] == ["regard", "train", kind] and receipt["seed"] == 0
    assert receipt["device"] == "cpu" and receipt["torch"] == torch.__version__
    assert not changed_files(receipt["data"])
    assert weight_hash(run.kit.model) == receipt["results"]["weights"] == run.weights
    assert run.steps == 6 and "step 6" in receipt["results"]["final"] == run.final
    assert not list(run.folder.glob(".*")) and not list((run.folder / "checkpoints").glob(".*"))


def test_a_run_shows_itself_and_its_curves(done):
    run = done["lm"]
    assert "step 6" in str(run) and run.to_dict()["out"] == str(run.folder)
    pytest.importorskip("matplotlib")
    (axes,) = run.plot().axes
    assert [line.get_label() for line in axes.lines] == ["training", "validation"]
    steps, losses = axes.lines[0].get_data()
    assert list(steps) == [1, 2, 3, 4, 5, 6]
    assert list(losses) == [line["nll"] for line in run.metrics if "nll" in line]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("lm", "LlamaForCausalLM"), ("mlm", "BertForMaskedLM"), ("seq2seq", "MarianMTModel")],
)
def test_transformers_opens_the_result(kind, name, done):
    import transformers

    folder = done[kind].folder / "final"
    model = getattr(transformers, name).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ours = load_kit(folder)
    ids = tokenizer("the cat sees", return_tensors="pt")["input_ids"]
    assert ids.tolist()[0] == ours.tokenizer.encode("the cat sees")
    target = {"decoder_input_ids": ids} if kind == "seq2seq" else {}
    with torch.no_grad():
        theirs = model(ids, **target).logits
    mine = ours.logits(ids, *target.values())
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-4)
    if kind == "seq2seq":
        assert model.config.decoder_start_token_id == ours.tokenizer.specials["pad"]


# Going on -----------------------------------------------------------------------------------------


def test_a_folder_that_is_in_use_needs_resume(done, corpus):
    with pytest.raises(UsageError, match="is not empty") as caught:
        train("lm", corpus, done["lm"].folder)
    assert "--resume" in caught.value.fix


def test_nothing_to_do_is_said(done, corpus, capsys):
    again = train("lm", corpus, done["lm"].folder, resume=True)
    said = capsys.readouterr().err
    assert "nothing to train: the run is at step 6" in said
    assert "resuming from" in said and "step-000006" in said
    assert again.to_dict() == done["lm"].to_dict()


def test_resume_without_a_checkpoint_starts_at_0_and_says_so(corpus, tmp_path, capsys):
    assert train("lm", corpus, tmp_path / "new", resume=True).steps == 6
    assert "starting at step 0" in capsys.readouterr().err


def test_another_config_on_resume_names_the_keys(done, corpus):
    with pytest.raises(UsageError, match=r"lr = 0\.5, was 0\.001") as caught:
        train("lm", corpus, done["lm"].folder, resume=True, lr=0.5, keep=9)
    assert "keep" not in caught.value.found
    with regard.settings(seed=3), pytest.raises(UsageError, match="seed = 3, was 0"):
        train("lm", corpus, done["lm"].folder, resume=True)


def test_a_run_can_be_made_longer(corpus, tmp_path, capsys):
    train("mlm", corpus, tmp_path / "r")
    assert train("mlm", corpus, tmp_path / "r", steps=8, resume=True).steps == 8
    assert "steps = 8, was 6: the cosine schedule now ends there" in capsys.readouterr().err
    train_on(None, "mlm", tmp_path / "r", resume=True)  # settings from the run's own file
    assert "at step 8 of 8" in capsys.readouterr().err


def test_changed_data_on_resume_is_refused(corpus, tmp_path):
    file = tmp_path / "t.txt"
    file.write_text((corpus / "text.txt").read_text())
    train_on(file, out=tmp_path / "run", **SMALL, **OFTEN)
    file.write_text(file.read_text().replace("cat", "rat"))
    with pytest.raises(UsageError, match="data = "):
        train_on(file, out=tmp_path / "run", resume=True, **SMALL, **OFTEN)


def test_the_config_of_a_run_runs_again(done, tmp_path):
    with regard.settings(quiet=True):
        toml = done["lm"].folder / "config.toml"
        again = regard.train.lm(toml=toml, out=tmp_path / "b")
    assert again.weights == done["lm"].weights
    assert compare(read_receipt(done["lm"].folder), read_receipt(again.folder))[0]


def test_the_folder_of_a_run_is_enough_to_go_on_with_it(corpus, tmp_path, capsys):
    given = dict(lr=0.01, schedule="constant", heads=None)
    run = train("lstm", corpus, tmp_path / "r", steps=4, **given)
    assert main(["train", "lm", "--resume", run.out, "--steps", "6", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    whole = train("lstm", corpus, tmp_path / "w", **given)
    assert out == whole.to_dict() | {"out": run.out}
    with pytest.raises(UsageError, match="out = elsewhere too"):
        regard.train.lm(resume=run.out, out="elsewhere")


def test_runs_without_a_name_are_numbered(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        assert train("lm", corpus, None).out == f"runs/lm-{number}"


def test_resume_of_no_run_says_what_is_missing(tmp_path):
    with pytest.raises(UsageError, match=r"none/config\.toml"):
        train_on(None, out=tmp_path / "none", resume=True)


def test_a_notebook_gets_what_there_is_and_goes_on(corpus, tmp_path, monkeypatch):
    """Ctrl-C in an interactive session returns the run so far; resumed, its bits are the same."""
    from regard.train.trainer import Trainer

    step = Trainer.step

    def interrupted(trainer, micro):
        if trainer.state.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return step(trainer, micro)

    monkeypatch.setattr(Trainer, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):  # not in a script
        train("lm", corpus, tmp_path / "script")
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    run = train("lm", corpus, tmp_path / "run")
    assert run.steps == 3 and "stopped" in run.final and not (run.folder / "final").exists()
    assert weight_hash(run.kit.model) == run.weights == run.last_weights
    monkeypatch.undo()
    whole, resumed = train("lm", corpus, tmp_path / "w"), train("lm", corpus, run.out, resume=True)
    assert resumed.steps == 6 and resumed.weights == whole.weights


# What final is made of ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"average": 2}, "average of the checkpoints of steps 4, 6"),
        ({"ema": 0.5}, "running mean of the weights (0.5)"),
        ({"holdout": 0.0}, "step 6, the last"),
    ],
)
def test_what_final_is_made_of_is_said(more, said, corpus, tmp_path):
    run = train("lm", corpus, tmp_path / "r", **more)
    assert said in run.final and said in (run.folder / "log.txt").read_text()
    assert (run.weights == run.last_weights) == ("holdout" in more)


def test_the_best_step_is_taken(corpus, tmp_path):
    # A rate this high makes every later validation worse.
    wild = dict(lr=3.0, warm_up=0, clip=0.0, eval_every=1, schedule="constant")
    run = train("lm", corpus, tmp_path / "r", **wild)
    assert run.best_step < 6 and f"step {run.best_step}, the best on validation" in run.final
    kept = load_kit(run.folder / "checkpoints" / f"step-{run.best_step:06d}").model
    assert weight_hash(kept) == run.weights != run.last_weights


def test_the_running_mean_of_the_best_step_is_what_final_holds(corpus, tmp_path):
    run = train("lm", corpus, tmp_path / "r", ema=0.5)
    checkpoint = run.folder / "checkpoints" / f"step-{run.best_step:06d}"
    held = load_file(checkpoint / "trainer" / "mean.safetensors")
    made = run.kit.model
    assert len(held) == len(list(made.parameters()))
    for number, parameter in enumerate(made.parameters()):
        assert torch.equal(parameter, held[str(number)])


def test_validation_without_tokens_measures_nothing(corpus, tmp_path, capsys):
    (tmp_path / "one.txt").write_text("a")
    valid = (str(tmp_path / "one.txt"),)
    run = train("mlm", corpus, tmp_path / "run", valid=valid, patience=1)
    assert "nothing is measured" in capsys.readouterr().err
    assert run.best_valid is None and "step 6" in run.final


def test_pairs_in_two_files_with_validation_and_pre_norm(corpus, tmp_path, capsys):
    sides = [corpus / "a.src", corpus / "a.tgt"]
    valid = tuple(map(str, sides))
    more = SMALL | OFTEN | {"valid": valid, "pre_norm": True}
    run = train_on(sides, "seq2seq", tmp_path / "r", **more)
    said = capsys.readouterr().err
    assert "regard's own" in said and "held out" not in said
    assert "80 pairs" in said and run.kit.binding is None


# Budgets, metrics and runs that fail --------------------------------------------------------------


def test_a_run_that_diverges_does_not_end_well(corpus, tmp_path, capsys):
    wild = dict(lr=10.0, warm_up=0, clip=0.0, schedule="constant", eval_every=0, steps=30)
    with pytest.raises(RegardError, match="the run has diverged") as caught:
        train("lm", corpus, tmp_path / "far", **wild)
    assert "--lr" in caught.value.fix and caught.value.exit_code == 1
    run = train("lm", corpus, tmp_path / "near", **wild | {"lr": 1.0, "steps": 6})
    assert run.exit_code == 1 and "loss is higher than at the start" in capsys.readouterr().err
    assert train("lm", corpus, tmp_path / "well").exit_code == 0


def test_a_budget_of_time_ends_a_run_with_its_schedule(corpus, tmp_path):
    run = train("lm", corpus, tmp_path / "r", steps=None, minutes=0.05)
    rates = [line["lr"] for line in run.metrics if "lr" in line]
    assert 10 < run.steps < 10**9 and "valid_nll" in run.metrics[-1]
    assert max(rates) == pytest.approx(1e-3, rel=0.1) and rates[-1] < 2e-4  # a tenth at the end
    longer = train("lm", corpus, tmp_path / "r", steps=None, minutes=0.1, resume=True)
    assert longer.steps > run.steps


def test_the_best_step_by_bleu(corpus, tmp_path, capsys):
    pytest.importorskip("sacrebleu")
    more = dict(metric="bleu", eval_every=2, patience=2, steps=40, lr=1e-60)
    run = train("seq2seq", corpus, tmp_path / "r", **more)
    lines = [line for line in run.metrics if "valid_bleu" in line]
    assert [line["step"] for line in lines] == [2, 4, 6] == [2, 4, run.steps]  # nothing is learnt
    assert run.best_valid == lines[0]["valid_bleu"] and run.best_step == 2
    assert "BLEU 0.00" in capsys.readouterr().err
    with pytest.raises(UsageError, match="metric = bleu"):
        train("lm", corpus, tmp_path / "lm", metric="bleu")


@pytest.mark.parametrize("split", ["file", "line", "row"])
def test_evaluation_reads_a_text_as_the_run_did(split, corpus, tmp_path):
    """With an end token after each line where the run had one; lines by themselves where it did."""
    held = [f"the old {word} sees a red {word}" for word in ("cat", "dog", "house", "tree")]
    (tmp_path / "valid.txt").write_text("\n\n".join(held) + "\n")
    how = dict(
        tokens="words", split=split, valid=(str(tmp_path / "valid.txt"),), length=32, lr=0.01
    )
    run = train("lm", corpus, tmp_path / "r", **how, steps=60, eval_every=60)
    score = regard.evaluate.lm(run.folder / "final", tmp_path / "valid.txt")
    assert score.loss == pytest.approx(run.best_valid, rel=1e-5)
    assert score.tokens == run.metrics[-1]["valid_tokens"]


# Refusals -----------------------------------------------------------------------------------------


def test_bad_data_is_named(corpus, tmp_path):
    def refused(*files, kind="lm", **more):
        with pytest.raises(DataError) as caught:
            train_on([*files], kind, tmp_path / "r", **SMALL, **more)
        assert not (tmp_path / "r").exists()  # so that the call can be put right
        return str(caught.value)

    (tmp_path / "short.txt").write_text("the cat")
    said = refused(tmp_path / "short.txt", tokens="chars")
    assert "6 tokens" in said and "at least 17" in said
    (tmp_path / "bad.txt").write_bytes(b"abc\n\xff\n" * 50)
    said = refused(tmp_path / "bad.txt")
    assert "bad.txt" in said and "byte" in said and "4" in said
    (tmp_path / "odd.tgt").write_text("one\n")
    said = refused(corpus / "a.src", tmp_path / "odd.tgt", kind="seq2seq")
    assert "80 lines" in said and "1 in" in said and "line 2" in said
    assert "no such file" in refused(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("")
    refused(tmp_path / "empty.txt")
    os.mkfifo(tmp_path / "pipe")
    said = refused(tmp_path / "pipe")
    assert "a pipe" in said and "to a file first" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"precision": "fp16"}, "fp16 on cpu"),
        ({"precision": "fp8"}, "fp8"),
        ({"tokens": "char"}, "'char'"),
        ({"heads": 3}, "does not divide"),
        ({"dim": 18, "heads": 4}, "does not divide"),  # though their widths would be even
    ],
)
def test_what_cannot_be_leaves_no_folder(more, said, corpus, tmp_path):
    with pytest.raises(UsageError, match=said):
        train("lm", corpus, tmp_path / "r", **more)
    assert not (tmp_path / "r").exists()


def test_no_room_on_disk_and_the_checkpoint_before_stays(corpus, tmp_path, monkeypatch, capsys):
    from regard.train import checkpoint

    real = checkpoint.save_file

    def full(tensors, path):
        if ".part-000004" in str(path):
            raise OSError(28, "No space left on device")
        real(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(ResourceError, match="No space left") as caught:
        train("lm", corpus, tmp_path / "r", eval_every=0)
    assert "--resume" in caught.value.fix
    monkeypatch.undo()
    train("lm", corpus, tmp_path / "r", eval_every=0, resume=True)
    assert "step-000002, at step 2 of 6" in capsys.readouterr().err


def test_a_folder_is_written_by_one_process(corpus, tmp_path):
    run = train("lm", corpus, tmp_path / "run")
    before = (run.folder / "config.toml").read_bytes()
    with hold(run.folder, "testing"), pytest.raises(UsageError, match="another process is writing"):
        train("lm", corpus, run.folder, resume=True, steps=9)
    assert (run.folder / "config.toml").read_bytes() == before
    assert train("lm", corpus, run.folder, resume=True).steps == 6


# The command line, and processes of their own -----------------------------------------------------


def words(kind, corpus, out, **changes):
    """The command line of a small run."""
    file = corpus / ("pairs.tsv" if kind == "seq2seq" else "text.txt")
    asked = SMALL | OFTEN | {"device": "cpu"} | changes
    flags = [str(word) for name, value in asked.items() for word in (f"--{name}", value)]
    flags = [flag.replace("_", "-") if flag.startswith("--") else flag for flag in flags]
    return ["train", kind, str(file), "--out", str(out), *flags]


def test_the_command_gives_what_the_function_gives(done, corpus, tmp_path, capsys):
    assert main([*words("lm", corpus, tmp_path / "r"), "--json", "-q"]) == 0
    out, said = capsys.readouterr()
    assert json.loads(out) == done["lm"].to_dict() | {"out": str(tmp_path / "r")} and said == ""


def test_warnings_are_messages_and_come_once(corpus, tmp_path, capsys):
    """Samples are longer than a context of one token; each of them would say so."""
    assert main(words("lm", corpus, tmp_path / "loud", length=1)) == 0
    said = capsys.readouterr().err
    assert said.count("long-input") == 1 and "RegardWarning" not in said
    assert any(line.startswith("warning: [long-input]") for line in said.splitlines())
    assert main([*words("lm", corpus, tmp_path / "quiet", length=1), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def start(arguments):
    command = [sys.executable, "-m", "regard", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = dict(stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)


def wait_for_step(run, step, process):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        file = run / "metrics.jsonl"
        if file.exists() and len(file.read_bytes().splitlines()) >= step:
            return
        time.sleep(0.005)


def test_sigterm_saves_exits_130_and_a_killed_run_resumes_to_the_same_bits(corpus, tmp_path):
    many = dict(steps=400, save_every=20, eval_every=0, dropout=0.1)
    process = start(words("lm", corpus, tmp_path / "cut", **many))
    wait_for_step(tmp_path / "cut", 30, process)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and "--resume" in said
    process = start(["train", "lm", "--resume", str(tmp_path / "cut"), "--workers", "3"])
    wait_for_step(tmp_path / "cut", 150, process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    cut = train("lm", corpus, tmp_path / "cut", **many, workers=0, resume=True)
    whole = train("lm", corpus, tmp_path / "whole", **many)
    assert cut.to_dict() == whole.to_dict() | {"out": cut.out}


def test_without_cyclopts_and_rich(corpus, tmp_path):
    """As on a machine that has neither: the Python door needs them not."""
    code = f"""
import sys
sys.modules["cyclopts"] = sys.modules["rich"] = None
import regard
from tests.train.small_runs import train
from pathlib import Path
print(train("lm", Path({str(corpus)!r}), {str(tmp_path / "r")!r}).steps)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "6\n", done.stderr
