"""`regard.replay` and `regard.verify`: the same run again, from a receipt and through kills."""

from __future__ import annotations

import json

import pytest

import regard
from regard.errors import DataError
from regard.receipt import compare, read_receipt
from tests.train.small_runs import train, write_corpus


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    return train("seq2seq", folder, folder / "run")


def test_replay_matches(run):
    again = regard.replay(run.folder)
    assert again.match and again.compared.startswith("weights are the same bits")
    assert again.exit_code == 0 and "weights are the same bits" in str(again)
    assert read_receipt(run.folder)["results"] == again.results


def test_a_difference_is_found(run):
    receipt = read_receipt(run.folder)
    other = json.loads(json.dumps(receipt))
    other["results"]["weights"] = "0" * 64
    wanted = f"weights: {receipt['results']['weights']}, was {'0' * 64}"
    assert compare(other, receipt) == (False, wanted)
    other["device"] = "cuda"
    same, compared = compare(other, receipt)
    assert same and "within 1%" in compared and "device cpu, was cuda" in compared
    other["results"]["loss"] *= 1.5
    assert not compare(other, receipt)[0]


def test_what_cannot_be_replayed(run, tmp_path):
    receipt = read_receipt(run.folder)
    missing = receipt | {"data": {str(tmp_path / "gone"): "00"}}
    foreign = receipt | {"config": {"path": "x"}, "function": "regard.load"}
    unknown = receipt | {"config": receipt["config"] | {"kind": "verify"}}
    for wrong, said in (
        (missing, "gone: No such file"),
        (foreign, "a function of training"),
        (unknown, "kind = 'verify'"),
    ):
        (tmp_path / "r.json").write_text(json.dumps(wrong))
        with pytest.raises(DataError, match=said):
            regard.replay(tmp_path / "r.json")
    with pytest.raises(DataError):
        regard.replay(tmp_path / "none.json")


def test_a_run_killed_twice_ends_with_the_same_bits():
    check = regard.verify("resume", kills=2)
    assert check.same and [kill.number for kill in check.kills] == [1, 2]
    assert check.exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lm", "mlm", "seq2seq", "lstm"])
def test_twenty_kills(kind):
    check = regard.verify("resume", kind=kind, kills=20)
    assert check.same and len(check.kills) == 20
    assert any(kill.writing for kill in check.kills)
