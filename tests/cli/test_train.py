"""`regard train`, `--resume`, `replay` and `verify resume`: run folders, exit codes, messages."""

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

from regard.loading import load
from regard.receipt import changed_files, compare
from regard.train.checkpoint import weight_hash
from tests.cli.train_runs import OFTEN, SMALL, words, write_corpus

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The files of all runs."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def done(corpus, tmp_path_factory):
    """A finished run of each kind."""
    from regard.cli.main import main

    folder = tmp_path_factory.mktemp("runs")
    for kind in ("lm", "mlm", "seq2seq"):
        assert main([str(w) for w in words(kind, corpus, folder / kind, "--quiet")]) == 0
    return folder


@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq"])
def test_the_run_folder_is_complete(kind, done):
    run = done / kind
    names = {p.name for p in run.iterdir()}
    wanted = {"config.toml", "metrics.jsonl", "log.txt", "receipt.json", "checkpoints", "samples"}
    assert names >= wanted | {"final", "data", "tokenizer"}
    assert tomllib.loads((run / "config.toml").read_text())["kind"] == kind
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in lines if "loss" in m] == [1, 2, 3, 4, 5, 6]
    assert [m["step"] for m in lines if "valid_nll" in m] == [3, 6]
    assert sorted(p.name for p in (run / "samples").iterdir()) == [
        "step-000003.txt",
        "step-000006.txt",
    ]
    assert "→" in (run / "samples" / "step-000006.txt").read_text()
    receipt = json.loads((run / "receipt.json").read_text())
    assert receipt["command"][:3] == ["regard", "train", kind] and receipt["seed"] == 0
    assert receipt["device"] == "cpu" and receipt["torch"] == torch.__version__
    assert not changed_files(receipt["data"])
    assert weight_hash(load(run / "final").model) == receipt["results"]["weights"]
    assert "step 6" in receipt["results"]["final"]
    assert not list(run.glob(".*")) and not list((run / "checkpoints").glob(".*"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("lm", "LlamaForCausalLM"), ("mlm", "BertForMaskedLM"), ("seq2seq", "MarianMTModel")],
)
def test_transformers_opens_the_result(kind, name, done):
    import transformers

    folder = done / kind / "final"
    model = getattr(transformers, name).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ours = load(folder)
    ids = tokenizer("the cat sees", return_tensors="pt")["input_ids"]
    assert ids.tolist()[0] == ours.tokenizer.encode("the cat sees")
    target = {"decoder_input_ids": ids} if kind == "seq2seq" else {}
    with torch.no_grad():
        theirs = model(ids, **target).logits
    mine = ours.logits(ids, *target.values())
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-4)
    if kind == "seq2seq":
        assert model.config.decoder_start_token_id == ours.tokenizer.specials["pad"]


def test_a_folder_that_is_in_use_needs_resume(here, done, corpus):
    code, _, err = here(*words("lm", corpus, done / "lm"))
    assert code == 2 and "is not empty" in err and "--resume" in err


def test_nothing_to_do_is_said(here, done, corpus):
    before = json.loads((done / "lm" / "receipt.json").read_text())
    code, out, err = here(*words("lm", corpus, done / "lm"), "--resume")
    assert code == 0 and "nothing to train: the run is at step 6" in err
    assert "resuming from" in err and "step-000006" in err
    after = json.loads((done / "lm" / "receipt.json").read_text())
    assert after["results"] == before["results"]


def test_resume_without_a_checkpoint_starts_at_0_and_says_so(here, corpus, tmp_path):
    code, out, err = here(*words("lm", corpus, tmp_path / "new"), "--resume", "--json")
    assert code == 0 and "starting at step 0" in err and json.loads(out)["steps"] == 6


def test_another_config_on_resume_names_the_keys(here, done, corpus):
    code, _, err = here(*words("lm", corpus, done / "lm"), "--resume", "--lr", "0.5", "--keep", "9")
    assert code == 2 and "lr = 0.5, was 0.001" in err and "keep" not in err


def test_a_run_can_be_made_longer(here, corpus, tmp_path):
    assert here(*words("mlm", corpus, tmp_path / "r"))[0] == 0
    code, out, err = here(
        *words("mlm", corpus, tmp_path / "r", "--steps", "8"), "--resume", "--json"
    )
    assert code == 0 and json.loads(out)["steps"] == 8
    assert "steps = 8, was 6: the cosine schedule now ends there" in err
    again = here("train", "--resume", "--out", tmp_path / "r")  # settings from the run's own file
    assert again[0] == 0 and "at step 8 of 8" in again[2]


def test_changed_data_on_resume_is_refused(here, corpus, tmp_path):
    file = tmp_path / "t.txt"
    file.write_text((corpus / "text.txt").read_text())
    given = ["train", "lm", file, "--out", tmp_path / "run", *SMALL, *OFTEN]
    assert here(*given)[0] == 0
    file.write_text(file.read_text().replace("cat", "rat"))
    code, _, err = here(*given, "--resume")
    assert code == 2 and "data = " in err


def test_the_config_of_a_run_runs_again(here, done, tmp_path):
    code, _, err = here("train", "--config", done / "lm" / "config.toml", "--out", tmp_path / "b")
    assert code == 0, err
    receipts = [json.loads((p / "receipt.json").read_text()) for p in (done / "lm", tmp_path / "b")]
    assert receipts[0]["results"] == receipts[1]["results"]
    assert compare(*receipts)[0]


def test_printed_config_has_origins_and_reads_back(here, corpus, tmp_path):
    code, out, _ = here(*words("lm", corpus, tmp_path / "x"), "--print-config")
    assert code == 0 and "steps = 6  # flag" in out and "lr = 0.001  # default" in out
    assert tomllib.loads(out)["batch_tokens"] == 64 and not (tmp_path / "x").exists()
    (tmp_path / "c.toml").write_text(out.replace("batch_tokens", "batch_token"))
    code, _, err = here("train", "--config", tmp_path / "c.toml")
    assert code == 2 and "'batch_token'" in err and "batch_tokens" in err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--average", "2"], "average of the checkpoints of steps 4, 6"),
        (["--ema", "0.5"], "running mean of the weights (0.5)"),
        (["--holdout", "0"], "step 6, the last"),
    ],
)
def test_what_final_is_made_of_is_said(more, said, here, corpus, tmp_path):
    code, out, err = here(*words("lm", corpus, tmp_path / "r", *more))
    assert code == 0 and said in out and said in err
    receipt = json.loads((tmp_path / "r" / "receipt.json").read_text())
    results = receipt["results"]
    assert said in results["final"]
    assert (results["weights"] == results["last_weights"]) == ("--holdout" in more)


def test_the_best_step_is_taken(here, corpus, tmp_path):
    # A rate this high makes every later validation worse.
    more = [
        "--lr",
        "3",
        "--warm-up",
        "0",
        "--clip",
        "0",
        "--eval-every",
        "1",
        "--schedule",
        "constant",
    ]
    code, _, err = here(*words("lm", corpus, tmp_path / "r", *more))
    results = json.loads((tmp_path / "r" / "receipt.json").read_text())["results"]
    assert code == 0 and results["best_step"] < 6, err
    assert f"step {results['best_step']}, the best on validation" in results["final"]
    kept = load(tmp_path / "r" / "checkpoints" / f"step-{results['best_step']:06d}").model
    assert weight_hash(kept) == results["weights"] != results["last_weights"]


def test_pairs_in_two_files_with_validation_and_pre_norm(here, corpus, tmp_path):
    given = ["train", "seq2seq", corpus / "a.src", corpus / "a.tgt", "--out", tmp_path / "r"]
    valid = ["--valid", corpus / "a.src", corpus / "a.tgt", "--pre-norm"]
    code, _, err = here(*given, *SMALL, *OFTEN, *valid)
    assert code == 0 and "regard's own" in err and "held out" not in err
    assert "80 pairs" in err and load(tmp_path / "r" / "final").binding is None


def test_bad_data_has_exit_code_3(here, corpus, tmp_path):
    (tmp_path / "short.txt").write_text("the cat")
    out = ["--out", tmp_path / "r", *SMALL, "--tokens", "chars"]
    code, _, err = here("train", "lm", tmp_path / "short.txt", *out)
    assert code == 3 and "6 tokens" in err and "at least 17" in err
    (tmp_path / "bad.txt").write_bytes(b"abc\n\xff\n" * 50)
    code, _, err = here("train", "lm", tmp_path / "bad.txt", "--out", tmp_path / "s", *SMALL)
    assert code == 3 and "bad.txt" in err and "byte" in err and "4" in err
    (tmp_path / "odd.tgt").write_text("one\n")
    pairs = [corpus / "a.src", tmp_path / "odd.tgt"]
    code, _, err = here("train", "seq2seq", *pairs, "--out", tmp_path / "t", *SMALL)
    assert code == 3 and "80 lines" in err and "1 in" in err and "line 2" in err
    code, _, err = here("train", "lm", tmp_path / "none.txt", "--out", tmp_path / "u")
    assert code == 3 and "no such file" in err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--precision", "fp16"], "fp16 on cpu"),
        (["--tokens", "char"], "'char'"),
        (["--heads", "3"], "does not divide"),
    ],
)
def test_usage_errors(more, said, here, corpus, tmp_path):
    code, _, err = here(*words("lm", corpus, tmp_path / "r"), *more)
    assert code == 2 and said in err


def test_tensorboard_missing_is_said(here, corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, err = here(*words("lm", corpus, tmp_path / "r"), "--tensorboard")
    assert code == 1 and "pip install tensorboard" in err


def test_tensorboard_gets_the_curves(here, corpus, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    code, _, err = here(*words("lm", corpus, tmp_path / "r"), "--tensorboard")
    assert code == 0, err
    board = events.EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    board.Reload()
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    for name in ("loss", "nll", "lr", "norm", "valid_nll"):
        wanted = [(m["step"], m[name]) for m in map(json.loads, lines) if name in m]
        seen = [(event.step, event.value) for event in board.Scalars(name)]
        assert wanted and [step for step, _ in seen] == [step for step, _ in wanted]
        assert [v for _, v in seen] == pytest.approx([v for _, v in wanted], rel=1e-6)


def test_the_running_mean_of_the_best_step_is_what_final_holds(here, corpus, tmp_path):
    code, _, _ = here(*words("lm", corpus, tmp_path / "r", "--ema", "0.5"))
    receipt = json.loads((tmp_path / "r" / "receipt.json").read_text())
    step = receipt["results"]["best_step"]
    held = load_file(
        tmp_path / "r" / "checkpoints" / f"step-{step:06d}" / "trainer" / "mean.safetensors"
    )
    made = load(tmp_path / "r" / "final").model
    assert code == 0 and len(held) == len(list(made.parameters()))
    for number, parameter in enumerate(made.parameters()):
        assert torch.equal(parameter, held[str(number)])


def test_no_room_on_disk_is_4_and_the_checkpoint_before_stays(here, corpus, tmp_path, monkeypatch):
    from regard.train import checkpoint

    real = checkpoint.save_file

    def full(tensors, path):
        if ".part-000004" in str(path):
            raise OSError(28, "No space left on device")
        real(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full)
    code, _, err = here(*words("lm", corpus, tmp_path / "r", "--eval-every", "0"))
    assert code == 4 and "No space left" in err and "--resume" in err
    monkeypatch.undo()
    code, _, err = here(*words("lm", corpus, tmp_path / "r", "--eval-every", "0"), "--resume")
    assert code == 0 and "step-000002, at step 2 of 6" in err


# Processes of their own ---------------------------------------------------------------------------


def start(arguments):
    command = [sys.executable, "-m", "regard", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


def wait_for_step(run, step, process):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        file = run / "metrics.jsonl"
        if file.exists() and len(file.read_bytes().splitlines()) >= step:
            return
        time.sleep(0.005)


def test_sigterm_saves_exits_130_and_a_killed_run_resumes_to_the_same_bits(here, corpus, tmp_path):
    def given(out, *more):
        many = ["--steps", "400", "--save-every", "20", "--eval-every", "0", "--dropout", "0.1"]
        return words("lm", corpus, tmp_path / out, *many, *more)

    process = start(given("cut"))
    wait_for_step(tmp_path / "cut", 30, process)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and "--resume" in said
    process = start(given("cut", "--resume", "--workers", "3"))
    wait_for_step(tmp_path / "cut", 150, process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert here(*given("cut", "--resume", "--workers", "0"))[0] == 0
    assert here(*given("whole"))[0] == 0
    runs = [json.loads((tmp_path / n / "receipt.json").read_text()) for n in ("cut", "whole")]
    assert runs[0]["results"] == runs[1]["results"]


def test_replay_matches_and_finds_a_difference(here, done, tmp_path):
    code, out, err = here("replay", done / "seq2seq", "-q")
    assert code == 0 and out.startswith("match: weights are the same bits"), err
    receipt = json.loads((done / "seq2seq" / "receipt.json").read_text())
    other = json.loads(json.dumps(receipt))
    other["results"]["weights"] = "0" * 64
    assert compare(other, receipt) == (
        False,
        f"weights: {receipt['results']['weights']}, was {'0' * 64}",
    )
    other["device"] = "cuda"
    same, told = compare(other, receipt)
    assert same and "within 1%" in told and "device cpu, was cuda" in told
    other["results"]["loss"] *= 1.5
    assert not compare(other, receipt)[0]
    receipt["data"] = {str(tmp_path / "gone"): "00"}
    (tmp_path / "r.json").write_text(json.dumps(receipt))
    code, _, err = here("replay", tmp_path / "r.json")
    assert code == 3 and "gone: No such file" in err
    assert here("replay", tmp_path / "none.json")[0] == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq"])
def test_twenty_kills(kind, here):
    code, out, err = here("verify", "resume", "--kind", kind, "--kills", "20", "--json")
    found = json.loads(out)
    assert code == 0 and found["same"] and len(found["kills"]) == 20, err
    assert any(kill["writing"] for kill in found["kills"])


def test_printed_config_as_json(here, corpus, tmp_path):
    code, out, _ = here(*words("lm", corpus, tmp_path / "r"), "--print-config", "--json")
    found = json.loads(out)
    assert code == 0 and found["values"]["dim"] == 16 and found["origins"]["dim"] == "flag"


def test_a_mistyped_file_leaves_no_folder_in_the_way(here, corpus, tmp_path):
    out = tmp_path / "run"
    command = words("lm", corpus, out)
    wrong = [*command[:2], tmp_path / "nope.txt", *command[3:]]
    assert here(*wrong)[0] == 3 and not out.exists()
    (tmp_path / "empty.txt").write_text("")
    assert here(*command[:2], tmp_path / "empty.txt", *command[3:])[0] == 3 and not out.exists()
    assert here(*command)[0] == 0


def test_validation_without_tokens_measures_nothing(here, corpus, tmp_path):
    (tmp_path / "one.txt").write_text("a")
    command = words("mlm", corpus, tmp_path / "run", "--valid", tmp_path / "one.txt", "--json")
    code, out, said = here(*command, "--patience", 1)
    assert code == 0 and "nothing is measured" in said
    assert json.loads(out)["best_valid"] is None and "step 6" in json.loads(out)["final"]


def test_a_folder_is_written_by_one_process(tmp_path, capsys):
    from regard.cli.main import main
    from regard.files import hold

    text = tmp_path / "t.txt"
    text.write_text("a b c d e f g h i j k l m\n" * 60)
    words = [
        "train",
        "lm",
        str(text),
        "--out",
        str(tmp_path / "run"),
        "--steps",
        "2",
        "--dim",
        "16",
    ]
    words += ["--heads", "2", "--depth", "1", "--tokens", "chars", "--length", "16"]
    words += ["--batch-tokens", "64", "--device", "cpu", "--quiet"]
    assert main(words) == 0
    before = (tmp_path / "run" / "config.toml").read_bytes()
    with hold(tmp_path / "run", "testing"):
        assert main([*words, "--resume", "--steps", "3"]) == 2
    assert "another process is writing" in capsys.readouterr().err
    assert (tmp_path / "run" / "config.toml").read_bytes() == before
    assert main([*words, "--resume"]) == 0


def test_a_refused_run_leaves_its_folder_free(tmp_path, capsys):
    from regard.cli.main import main

    text = tmp_path / "t.txt"
    text.write_text("a b c d e f g h i j k l m\n" * 60)
    words = ["train", "lm", str(text), "--out", str(tmp_path / "run"), "--steps", "2"]
    words += ["--tokens", "chars", "--device", "cpu", "--quiet"]
    assert main([*words, "--precision", "fp8"]) == 2
    assert not (tmp_path / "run").exists()


def test_warnings_are_messages_and_come_once(here, corpus, tmp_path):
    """Samples are longer than a context of one token; each of them would say so."""
    flags = words("lm", corpus, tmp_path / "loud", "--length", 1)
    code, _, err = here(*flags)
    assert code == 0 and err.count("long-input") == 1 and "RegardWarning" not in err
    assert any(line.startswith("warning: [long-input]") for line in err.splitlines())
    code, _, err = here(*words("lm", corpus, tmp_path / "quiet", "--length", 1, "--quiet"))
    assert (code, err) == (0, "")


def test_resume_without_out_goes_on_with_the_last_run(here, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["train", "lm", corpus / "text.txt", *SMALL, *OFTEN, "--quiet"]
    assert here(*flags)[0] == here(*flags)[0] == 0
    code, out, _ = here(*flags, "--resume", "--steps", 8)
    assert code == 0 and out.startswith("runs/lm-2/final: step 8")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["lm-1", "lm-2"]


def test_resume_of_no_run_says_what_is_missing(here, tmp_path):
    code, _, err = here("train", "--resume", "--out", tmp_path / "none")
    assert code == 2 and "none/config.toml" in err and "kind of training" not in err


def test_a_pipe_is_told_from_a_file_that_is_not_there(here, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    code, _, err = here("train", "lm", tmp_path / "pipe", "--out", tmp_path / "run", *SMALL)
    assert code == 3 and "a pipe" in err and "to a file first" in err
