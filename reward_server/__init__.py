# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reward server and reward workers: decode rollouts, run reward functions, answer over gRPC."""
