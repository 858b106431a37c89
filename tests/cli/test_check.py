"""`regard check`: parity measured and recorded, properties tested, failures told."""

from __future__ import annotations

import dataclasses
import json

import pytest

from regard.interop import families, parity
from regard.interop.table import Row


def test_parity_is_measured_and_written(regard, decoder):
    code, out, err = regard("check", str(decoder), "--json", "--quiet")
    found = json.loads(out)["parity"]
    assert (code, err) == (0, ""), err
    assert found["passed"] and 0 <= found["relative"] < 2e-5 and found["largest"] > 0.1
    assert json.loads((decoder / "parity.json").read_text()) == found
    assert set(found["versions"]) == {"regard", "torch", "transformers"}


@pytest.mark.parametrize("kind", ["decoder", "encoder", "pair", "picture"])
def test_every_kind_keeps_its_promises(kind, folders, here, tmp_path):
    import shutil

    folder = shutil.copytree(folders / kind, tmp_path / kind)
    code, out, err = here("check", folder, "--properties", "--json", "--no-progress")
    found = json.loads(out)
    assert (code, err) == (0, "")
    results = {p["name"]: (p["passed"], p["detail"]) for p in found["properties"]}
    assert len(results) == 12
    assert not [name for name, (passed, _) in results.items() if passed is False]
    skipped = {name for name, (passed, _) in results.items() if passed is None}
    tested = {"decoder": 11, "encoder": 9, "pair": 9, "picture": 5}[kind]
    assert len(results) - len(skipped) == tested, sorted(skipped)
    assert here("info", folder)[1].count("pass: largest logit difference") == 1


def test_a_wrong_table_fails(here, decoder, monkeypatch):
    """The control: attention and MLP norms swapped."""
    table = families.ARCHITECTURES["GPT2LMHeadModel"]
    swap = {"h.{i}.ln_1": "h.{i}.ln_2", "h.{i}.ln_2": "h.{i}.ln_1"}
    rows = tuple(
        Row(row.ours, swap.get(row.theirs, row.theirs), *row.ops, when=row.when)
        for row in table.rows
    )
    wrong = dataclasses.replace(table, rows=rows)
    monkeypatch.setitem(families.ARCHITECTURES, "GPT2LMHeadModel", wrong)
    code, out, _ = here("check", decoder)
    assert code == 1 and "FAIL" in out
    assert json.loads((decoder / "parity.json").read_text())["passed"] is False
    assert "FAIL: largest" in here("info", decoder)[1]


def test_without_transformers_it_is_not_measured(here, decoder, monkeypatch):
    monkeypatch.setattr(parity, "find_spec", lambda name: None)
    code, out, _ = here("check", decoder)
    assert code == 0 and "not measured (transformers is not installed)" in out
    assert not (decoder / "parity.json").exists()
    code, out, _ = here("check", decoder, "--json")
    assert json.loads(out)["parity"]["measured"] is False


def test_a_broken_promise_is_told(here, decoder, monkeypatch):
    """A model whose cache forgets is caught by the properties."""
    from regard.core.cache import Cache

    append = Cache.append

    def forget(self, layer, k, v):
        keys, values = append(self, layer, k, v)
        return keys, values * 0.99

    monkeypatch.setattr(parity, "find_spec", lambda name: None)
    monkeypatch.setattr(Cache, "append", forget)
    code, out, _ = here("check", decoder, "--properties")
    failed = [line for line in out.splitlines() if "FAIL" in line]
    assert code == 1 and any("cache changes nothing" in line for line in failed)
