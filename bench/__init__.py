# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark, see `bench.run`."""
