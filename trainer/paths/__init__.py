# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""How the rows of a step get their rewards: three ways behind the interface of `paths.path`."""
