#!/usr/bin/env bash
# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command beside the reward server of its node: train.sh COMMAND [ARGUMENT...]. The command finds
# the address in REWARD_ENDPOINT, or where an argument has {endpoint}.
set -euo pipefail

export REWARD_ENDPOINT=unix:${SOCKETS:-/tmp}/shardward-$SLURM_JOB_ID-$SLURMD_NODENAME/reward.sock
# `exec`: Slurm signals only the first process of a task.
exec "${@//\{endpoint\}/"$REWARD_ENDPOINT"}"
