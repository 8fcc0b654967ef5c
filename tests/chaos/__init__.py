# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Training under faults: `python -m tests.chaos.run`."""
