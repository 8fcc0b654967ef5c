# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Scenarios of the reward operation, as a user's own program calls it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.multiprocess.scenarios import make_mesh, whole
from trainer import RewardClient, RewardError, RewardOp
from trainer.arrays import RowArrays
from trainer.codec import LocalRollouts

N, MISSING_ROW = 16, 3


def op_in_jit(process, endpoint, scenario):
    """Rewards inside a program of one's own; what a host gets for the same rows beside them."""
    mesh = make_mesh(scenario.get("mesh", [2, 2]), scenario.get("order"))
    arrays = RowArrays(mesh, ("fsdp",))
    client = RewardClient(scenario.get("endpoint", endpoint), timeout_s=scenario["timeout_s"])
    op = RewardOp(client, mesh, reward_fns=["letters", "length"])
    tokens = np.full((N, scenario["width"]), 1, np.int32)
    tokens[:, :4] = np.random.default_rng(0).integers(2, 20, (N, 4))
    row_ids = np.arange(N) + 2**33  # beyond what the device can carry
    owned = arrays.layout.owned_rows(N)

    def rows(which):
        return {
            "row_ids": row_ids[which],
            "group_ids": row_ids[which] // 4,
            "prompts": [f"{i}+1=" for i in which],
            "columns": {"answer": [f"!{i}" for i in which]},
            "end_token_ids": [1],
            "pad_token_id": 0,
        }

    op.put(**rows(np.setdiff1d(owned, [MISSING_ROW])))

    @jax.jit
    def program(ids, completions, scale):
        rewards, totals, valid = op(ids, completions)
        return rewards, totals, valid, (jnp.where(valid, totals, 0.0) * scale).sum()

    held = arrays.layout.local_rows(N)
    ids = arrays.from_local_rows((row_ids[held] % 2**32).astype(np.uint32), N)
    completions = arrays.from_local_rows(tokens[held], N)
    rewards, totals, valid, loss = program(ids, completions, 2.0)
    out = {
        "rewards": np.nan_to_num(whole(rewards, mesh), nan=-1).tolist(),
        "totals": np.nan_to_num(whole(totals, mesh), nan=-1).tolist(),
        "valid": whole(valid, mesh).tolist(),
        "loss": float(loss),
        "specs": [str(x.sharding.spec) for x in (rewards, totals, valid)],
        "owned": owned.tolist(),
    }
    taken = op.take(row_ids[owned])
    out["failures"] = [[f.row_id - 2**33, f.status] for f in taken.failures] if taken else []
    out["again"] = [f.status for f in op.take(row_ids[owned]).failures] if taken else []
    if scenario.get("endpoint"):
        op.put(**rows(owned))
        jax.block_until_ready(program(ids, completions, 2.0))
        try:
            op.take(row_ids[owned], strict=True)
        except RewardError as error:
            out["strict"] = f"{type(error).__name__}: {error}"
    elif len(owned):
        host = client.score(LocalRollouts(completion_ids=tokens[owned], **rows(owned)))
        out["host"] = np.nan_to_num(host.totals, nan=-1).tolist()
    return out
