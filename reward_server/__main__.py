# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m reward_server` is `reward-server`."""

from reward_server.cli import main

if __name__ == "__main__":
    main()
