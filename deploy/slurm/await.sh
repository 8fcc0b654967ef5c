# shellcheck shell=bash
# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0

# Waits for a child through signals, whose traps end bash's `wait`; returns the child's exit code.
await() {
  while wait "$1" || true; kill -0 "$1" 2>/dev/null; do :; done
  wait "$1"
}
