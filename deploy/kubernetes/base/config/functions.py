# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reward functions of this installation; rewards.toml names them."""


def short(prompts, completions, **columns):
    """Gives 1 for completions of up to four characters."""
    return [float(len(completion) <= 4) for completion in completions]
