# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The picture of a run shows all of its rewards."""

from __future__ import annotations

import json

import pytest

from deploy.local import plot

SUMMARY = {"recipe": "tiny", "processes": 1, "mesh": {"fsdp": 1}}


@pytest.mark.parametrize("low", [-1.5, 0.2])
def test_rewards_lie_inside_the_axes(tmp_path, monkeypatch, low):
    """Also those below 0; a step without a reward is a gap and spoils no mean."""
    rewards = [low + i / 100 for i in range(30)]
    rewards[3] = None
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps({"reward_mean": x}) + "\n" for x in rewards))
    with monkeypatch.context() as patch:
        patch.setattr(plot.plt, "close", lambda _figure: None)
        accuracy = {"accuracy_before": None, "accuracy_after": None}
        plot.draw(metrics, SUMMARY | accuracy, tmp_path / "reward.png")
    (axes,) = plot.plt.gcf().axes
    bottom, top = axes.get_ylim()
    assert bottom <= min(x for x in rewards if x is not None)
    assert top >= rewards[-1]
    assert bottom == 0 or low < 0
    _, mean = axes.lines
    assert len([y for y in mean.get_ydata() if low <= y <= rewards[-1]]) == 30 - plot.WINDOW + 1
    plot.plt.close("all")
