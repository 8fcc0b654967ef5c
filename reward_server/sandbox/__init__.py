# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs Python that nobody has read: a warm process forks jailed ones.

A `Sandbox` starts one zygote, a fresh interpreter with an empty environment. For each run the
zygote forks a process, which jails itself (`jail`) before it sees any code, then takes a role:
`program` (a whole program with stdin and stdout), `solution` (functions called from outside) or
`referee` (a test that calls them). What is right is decided in other processes than the one that
runs the code under test, on plain data (`values`).

Only the standard library is used: the zygote runs without site packages.
"""
