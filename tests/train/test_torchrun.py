"""Training on two processes: one folder, one voice, one stop, and torchrun itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.train.small_runs import train, write_corpus
from tests.train.test_runs import words

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start(arguments, size=2):
    """Processes of the command, as torchrun would start them."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(size)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "regard", *arguments],
            cwd=ROOT,
            env=os.environ | place | {"OMP_NUM_THREADS": "1", "RANK": str(n), "LOCAL_RANK": str(n)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(size)
    ]


def end(processes):
    """(exit codes, what each printed, what each said)."""
    try:
        told = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [p.returncode for p in processes], [out for out, _ in told], [err for _, err in told]


def losses(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(m["step"], m.get("loss", m.get("valid_nll"))) for m in lines]


def test_a_stopped_run_goes_on_under_torchrun_and_equals_one_process(corpus, tmp_path):
    many = dict(steps=300, save_every=100, eval_every=100, accumulate=2)
    given = words("lm", corpus, tmp_path / "two", **many)
    processes = start(given)
    metrics = tmp_path / "two" / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and processes[0].poll() is None:
        if metrics.exists() and len(metrics.read_bytes().splitlines()) > 20:
            break
        time.sleep(0.01)
    processes[1].send_signal(signal.SIGTERM)  # to one of them
    codes, printed, said = end(processes)
    assert codes == [130, 130] and printed == ["", ""], said
    assert "--resume" in said[0] and "2 processes, the model on each" in said[0]
    assert said[1].strip() == "error: interrupted"
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    run += ["--master-port", free_port(), "-m", "regard"]
    command = [*run, "train", "lm", "--resume", tmp_path / "two", "--shard", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 300 and "resuming from" in done.stderr
    receipt = json.loads((tmp_path / "two" / "receipt.json").read_text())
    assert receipt["processes"] == 2 and not list((tmp_path / "two").glob(".*"))
    assert len(list((tmp_path / "two" / "samples").iterdir())) == 3
    train("lm", corpus, tmp_path / "one", **many)
    steps, wanted = zip(*losses(tmp_path / "one"), strict=True)
    again, found = zip(*losses(tmp_path / "two"), strict=True)
    # Rounding grows over three hundred steps; the first hundred are within 1e-5.
    assert steps == again and found[:100] == pytest.approx(wanted[:100], abs=1e-5)
    assert found == pytest.approx(wanted, abs=1e-3)


def test_an_error_of_the_first_process_ends_all_and_is_said_once(corpus, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("x")
    codes, printed, said = end(start(words("lm", corpus, tmp_path / "used")))
    assert codes == [2, 2] and printed == ["", ""]
    assert "is not empty" in said[0] and "error" not in said[1]
    assert os.listdir(tmp_path / "used") == ["file"]
