"""Energy from counters that are files, from CPU time, and what is said of its source."""

from __future__ import annotations

import pytest

import regard.energy as energy
from regard.energy import Meter


def write_packages(place, *joules, wrap=1000.0):
    for n, value in enumerate(joules):
        folder = place / f"intel-rapl:{n}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"package-{n}\n")
        (folder / "energy_uj").write_text(f"{int(value * 1e6)}\n")
        (folder / "max_energy_range_uj").write_text(f"{int(wrap * 1e6)}\n")
    return place


def test_packages_are_added_up_and_may_begin_again(tmp_path):
    part = tmp_path / "intel-rapl:0:0"
    part.mkdir()
    (part / "name").write_text("core\n")  # a part of the package, not counted twice
    meter = Meter(powercap=write_packages(tmp_path, 100.0, 990.0))
    write_packages(tmp_path, 130.5, 20.0)
    assert meter.measured and "2 CPU package" in meter.source and "neighbours" in meter.source
    assert meter.joules() == pytest.approx(30.5 + 30.0)
    meter.start()
    assert meter.joules() == 0


def test_without_counters_cpu_time_is_told_as_an_assumption(tmp_path, monkeypatch):
    clock = [5.0]
    monkeypatch.setattr(energy, "cpu_seconds", lambda: clock[0])
    meter = Meter(powercap=tmp_path)
    clock[0] = 8.0
    assert meter.joules() == pytest.approx(3 * energy.WATTS)
    assert not meter.measured and "10 W" in meter.source and "assumed" in meter.source


def test_a_power_that_is_given_comes_first(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(energy, "cpu_seconds", lambda: clock[0])
    meter = Meter(watts=3.0, powercap=write_packages(tmp_path, 1.0))
    clock[0] = 2.0
    assert meter.joules() == pytest.approx(6.0) and not meter.measured
    assert "3 W" in meter.source and "given" in meter.source


def test_a_counter_that_may_not_be_read_is_none(tmp_path):
    write_packages(tmp_path, 1.0)
    (tmp_path / "intel-rapl:0/energy_uj").write_text("no number")
    assert not Meter(powercap=tmp_path).measured


def test_a_gpu_without_counter_is_told(tmp_path):
    meter = Meter(gpu=True, powercap=write_packages(tmp_path, 1.0))
    assert not meter.measured and "GPU is not counted" in meter.source
