"""`regard.doctor`: what this machine has. Nothing here reads a clock."""

from __future__ import annotations

import torch

import regard
from regard.native import machine


def test_doctor(monkeypatch):
    monkeypatch.setattr(machine, "measure_speed", lambda device: 12.34)
    report = regard.doctor()
    assert report.ok and report.exit_code == 0
    assert torch.__version__.startswith(report.packages["torch"])  # a build adds +cu130
    assert report.speed.float32_gflops == 12.3
    assert set(report.optional) == set(machine.OPTIONAL)
    assert "12.3 GFLOP/s" in str(report) and "free disk" in str(report)


def test_doctor_names_what_is_missing(monkeypatch, capsys):
    there = machine.find_version
    gone = ("torch", "rich")
    monkeypatch.setattr(machine, "find_version", lambda n: None if n in gone else there(n))
    report = regard.doctor()
    assert report.exit_code == 1 and "speed" not in report.to_dict()
    assert "tables and progress on a terminal" in str(report)  # what rich is for
    assert "to fix: pip install torch" in capsys.readouterr().err
