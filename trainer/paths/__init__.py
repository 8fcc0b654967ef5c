# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""How the rows of a step get their rewards: three ways behind the interface of `paths.path`."""

GRPC, CALLBACK, ALLGATHER = "grpc", "callback", "allgather"
# Those that need a reward server.
SERVER_PATHS = (GRPC, CALLBACK)
