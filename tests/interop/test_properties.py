"""`regard.check`: parity measured and recorded, properties tested, failures told."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

import regard
from regard.interop import families, parity
from regard.interop.table import TensorRow


def test_parity_is_measured_and_written(decoder):
    report = regard.check(decoder)
    assert report.exit_code == 0 and report.parity.passed and report.properties is None
    assert 0 <= report.parity.relative < 2e-5 and report.parity.largest > 0.1
    assert json.loads((decoder / "parity.json").read_text()) == report.to_dict()["parity"]
    assert set(report.parity.versions) == {"regard", "torch", "transformers"}
    again = regard.check(regard.load(decoder)).parity
    assert again.relative == report.parity.relative
    assert regard.check(regard.build("llama-15m")).reason == "a model made here"


@pytest.mark.parametrize("kind", ["decoder", "encoder", "pair", "picture"])
def test_every_kind_keeps_its_promises(kind, folders, tmp_path):
    folder = shutil.copytree(folders / kind, tmp_path / kind)
    report = regard.check(folder, properties=True)
    assert report.exit_code == 0 and len(report.properties) == 12
    assert not [one.name for one in report.properties if one.passed is False]
    skipped = {one.name for one in report.properties if one.passed is None}
    tested = {"decoder": 11, "encoder": 9, "pair": 9, "picture": 5}[kind]
    assert len(report.properties) - len(skipped) == tested, sorted(skipped)
    assert regard.info(folder).parity["passed"] is True


def test_a_wrong_table_fails(run_regard, decoder, monkeypatch):
    """The control: attention and MLP norms swapped."""
    table = families.ARCHITECTURES["GPT2LMHeadModel"]
    rows = tuple(
        TensorRow(row.ours, row.theirs.replace("{ln_1,ln_2}", "{ln_2,ln_1}"), *row.ops)
        for row in table.rows
    )
    assert any("{ln_2,ln_1}" in row.theirs for row in rows)
    wrong = dataclasses.replace(table, rows=rows)
    monkeypatch.setitem(families.ARCHITECTURES, "GPT2LMHeadModel", wrong)
    code, out, _ = run_regard("check", decoder)
    assert code == 1 and "FAIL" in out
    assert json.loads((decoder / "parity.json").read_text())["passed"] is False
    assert regard.info(decoder).parity["passed"] is False


def test_without_transformers_it_is_not_measured(decoder, monkeypatch):
    monkeypatch.setattr(parity, "find_spec", lambda name: None)
    report = regard.check(decoder)
    assert report.exit_code == 0 and report.to_dict()["parity"]["measured"] is False
    assert "transformers is not installed" in str(report)
    assert not (decoder / "parity.json").exists()


def test_a_broken_promise_is_told(decoder, monkeypatch):
    """A model whose cache forgets is caught by the properties."""
    from regard.core.cache import Cache

    append = Cache.append

    def forget(self, layer, k, v):
        keys, values = append(self, layer, k, v)
        return keys, values * 0.99

    monkeypatch.setattr(parity, "find_spec", lambda name: None)
    monkeypatch.setattr(Cache, "append", forget)
    report = regard.check(decoder, properties=True)
    failed = [one.name for one in report.properties if one.passed is False]
    assert report.exit_code == 1 and any("cache changes nothing" in name for name in failed)
