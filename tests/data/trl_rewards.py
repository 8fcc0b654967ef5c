# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards that TRL makes by a call."""

from trl.rewards import get_soft_overlong_punishment

overlong = get_soft_overlong_punishment(max_completion_len=30, soft_punish_cache=10)
