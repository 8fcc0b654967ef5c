# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the reward client's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.config import RewardClientConfig
from trainer.run_config import RunConfig


@pytest.mark.parametrize(
    "endpoint",
    [
        "unix:reward.sock",
        "unix:/tmp/reward.sock",
        "unix:///tmp/reward.sock",
        "localhost:5000",
        "rewards.example.org:65535",
        "10.0.0.1:1",
        "[::1]:5000",
    ],
)
def test_endpoints_that_can_be_reached(endpoint):
    """Every form that gRPC connects to is taken."""
    assert RewardClientConfig(endpoint=endpoint).endpoint == endpoint


@pytest.mark.parametrize(
    ("endpoint", "rule"),
    [
        ("", "unix:PATH or HOST:PORT"),
        ("localhost", "unix:PATH or HOST:PORT"),
        (":5000", "unix:PATH or HOST:PORT"),
        ("/tmp/reward.sock", "unix:PATH or HOST:PORT"),
        ("http://localhost:5000", "unix:PATH or HOST:PORT, without http://"),
        ("grpc://localhost:5000/", "unix:PATH or HOST:PORT, without grpc://"),
        ("localhost:5000/", "unix:PATH or HOST:PORT, without / at its end"),
        ("localhost:5000/score", "unix:PATH or HOST:PORT"),
        ("unix:/tmp/reward.sock/", "unix:PATH or HOST:PORT, without / at its end"),
        ("local host:5000", "unix:PATH or HOST:PORT"),
        ("[localhost]:5000", "unix:PATH or HOST:PORT"),
        ("a:b:5000", "unix:PATH or HOST:PORT"),
        ("localhost:", "HOST:PORT with a port in [1, 65535]"),
        ("localhost:grpc", "HOST:PORT with a port in [1, 65535]"),
        ("localhost:0", "HOST:PORT with a port in [1, 65535]"),
        ("localhost:65536", "HOST:PORT with a port in [1, 65535]"),
        ("::1:5000", "[ADDRESS]:PORT for an IPv6 address"),
        ("unix:", "unix:PATH or HOST:PORT"),
        ("unix:///", "unix:PATH or HOST:PORT"),
        ("unix://tmp/reward.sock", "unix:PATH or unix:///ABSOLUTE/PATH"),
        ("unix:/" + "x" * 107, "unix:PATH with at most 107 bytes of path"),
    ],
)
def test_endpoints_that_cannot_be_reached(endpoint, rule):
    """An endpoint that no connection could use is refused with the rule it breaks."""
    with pytest.raises(ValueError) as error:
        RewardClientConfig(endpoint=endpoint)
    assert str(error.value) == f"`endpoint` must be {rule}, got {endpoint!r}."
    with pytest.raises(ValueError) as error:
        RunConfig(reward_endpoint=endpoint, recipe="tiny", out=Path())
    assert str(error.value) == f"--reward-endpoint must be {rule}, got {endpoint!r}."


@pytest.mark.parametrize("name", ["timeout_s", "connect_timeout_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_every_wait_has_an_end(name, value):
    """A time that would mean no wait at all, or an endless one, is refused."""
    with pytest.raises(ValueError, match=f"`{name}` must be > 0 seconds and finite, got {value}"):
        RewardClientConfig(endpoint="unix:s", **{name: value})
