"""What is told of a run, line by line."""

from __future__ import annotations

from regard.train.config import TrainConfig
from regard.train.monitor import Monitor


def test_the_share_of_vectors_that_bottlenecks_keep_is_told(tmp_path):
    """The mean over attentions; a run without bottlenecks says nothing of it."""
    monitor = Monitor(tmp_path, TrainConfig(steps=9), True, "tokens")
    line = {"step": 1, "loss": 2.0, "tokens_per_s": 10.0}
    monitor.report(line)
    shares = {"kept_share.encoder.blocks.0.attn": 0.5, "kept_share.decoder.blocks.0.cross": 0.25}
    monitor.report(line | {"step": 2, "kept.encoder.blocks.0.attn": 7.0} | shares)
    monitor.stop()
    first, second = (tmp_path / "log.txt").read_text().splitlines()
    assert "vectors" not in first and ", 38% of vectors kept" in second
