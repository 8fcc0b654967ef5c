# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards as a JAX operation: the host is called once for each data shard, inside a program.

Legend: B global rows, b rows of a data shard, T tokens, F reward functions.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from trainer.arrays import RowArrays
from trainer.client import RewardClient
from trainer.codec import LocalRollouts, RowRewards
from trainer.op_rows import OpRows

# On CPU, JAX copies the arguments of a callback on the threads that wait for it, but for small
# ones: with as many devices as threads, a larger argument would wait for ever.
_CPU_PIECE = 16_384
_MARGIN_S = 30.0

Scored = tuple[Float[Array, "B F"], Float[Array, " B"], Bool[Array, " B"]]


class RewardOp:
    """A function for use inside `jax.jit`: row ids and completions in, rewards out.

    Prompts and columns are data of the host: each process puts those of its rows before the
    program runs. A row without a reward, for whatever reason, comes back as NaN and not valid; no
    exception leaves the operation. Every process of the mesh must run the same programs.

    Attributes:
        reward_fns: names of the F functions.

    Example:
        >>> op = RewardOp(client, mesh)  # doctest: +SKIP
        >>> op.put(  # doctest: +SKIP
        ...     row_ids=ids, group_ids=ids // 8, prompts=prompts, columns={"answer": answers},
        ...     end_token_ids=[1], pad_token_id=0, num_generations=8,
        ... )
        >>> rewards, totals, valid = jax.jit(op)(row_ids, completion_ids)  # doctest: +SKIP
        >>> jax.block_until_ready(valid)  # doctest: +SKIP
        >>> op.take(ids).failures  # doctest: +SKIP
    """

    def __init__(
        self,
        client: RewardClient,
        mesh: Mesh,
        *,
        data_axes: Sequence[str] = ("fsdp",),
        reward_fns: Sequence[str] | None = None,
        max_rows: int = 65_536,
    ) -> None:
        """Takes the client and the mesh.

        Args:
            client: of this process's reward server.
            mesh: on which the rows lie.
            data_axes: axes that the rows are sharded over.
            reward_fns: names of the server's functions; by default it is asked.
            max_rows: rows that are kept on the host until they are taken; beyond, the oldest are
                forgotten. More than the rows of a step.

        Raises:
            ValueError: an axis does not exist.
            RewardError: the server was to be asked and does not answer.
        """
        self._arrays = RowArrays(mesh, tuple(data_axes))
        client.process_index = self._arrays.layout.process_index
        if reward_fns is None:
            reward_fns = [fn.name for fn in client.connect().reward_fns]
        self.reward_fns = tuple(reward_fns)
        self._host = OpRows(
            client.submit,
            self.reward_fns,
            timeout_s=client.config.timeout_s + _MARGIN_S,
            max_rows=max_rows,
        )
        platforms = {device.platform for device in mesh.devices.flat}
        self._piece = _CPU_PIECE if platforms == {"cpu"} else 0

    def put(self, **fields: Any) -> None:
        """Registers rows of this process, before the program that scores them is called.

        Args:
            **fields: those of `trainer.codec.LocalRollouts` except `completion_ids`. Row ids that
                are equal in their lower 32 bits are the same row.

        Raises:
            ValueError: a field has another number of rows.
        """
        ids = np.asarray(fields.pop("row_ids"), np.int64)
        empty = np.empty((len(ids), 0), np.int32)
        self._host.put(LocalRollouts(row_ids=ids, completion_ids=empty, **fields))

    def take(self, row_ids: Sequence[int], *, strict: bool = False) -> RowRewards | None:
        """Removes rows of this process and returns what became of them.

        Call it when the operation's results are ready, on the process that owns the rows: the one
        that holds the first replica of their data shard.

        Args:
            row_ids: the rows.
            strict: whether to raise the error of a call that failed as a whole, as
                `RewardClient` does, in place of giving its rows a status.

        Returns:
            Rewards and failures in the order of the ids, or None without any.

        Raises:
            RewardError: with `strict`.
        """
        rewards, error = self._host.take([int(row_id) for row_id in row_ids])
        if strict and error is not None:
            raise error
        return rewards

    def __call__(self, row_ids: Int[Array, " B"], completion_ids: Int[Array, "B T"]) -> Scored:
        """Scores rows: rewards [B, F], totals [B] and whether a row has one, sharded by rows.

        Args:
            row_ids: integers, sharded like the rows.
            completion_ids: sharded by rows; what follows the first end token is ignored.
        """
        spec = self._arrays.row_sharding.spec
        scored: Scored = jax.shard_map(
            self._shard,
            mesh=self._arrays.mesh,
            in_specs=spec,
            out_specs=spec,
            check_vma=False,  # the results of a callback have no known variance
        )(row_ids, completion_ids)
        return scored

    def _shard(self, row_ids: jax.Array, completion_ids: jax.Array) -> Scored:
        b, f = len(row_ids), len(self.reward_fns)
        results = (
            jax.ShapeDtypeStruct((b, f), np.float32),
            jax.ShapeDtypeStruct((b,), np.float32),
            jax.ShapeDtypeStruct((b,), np.bool_),
        )
        flat = completion_ids.astype(jnp.int32).reshape(-1)
        piece = self._piece or flat.size
        pieces = [flat[start : start + piece] for start in range(0, flat.size, piece)]
        ids, replicas = row_ids.astype(jnp.uint32), self._arrays.replica_axes
        score = functools.partial(
            io_callback, functools.partial(self._score, completion_ids.shape), results, ids, *pieces
        )
        if len(self._arrays.layout.grid[0]) == 1:
            scored: Scored = score()
            return scored
        wait = functools.partial(
            io_callback,
            functools.partial(self._wait, b, f),
            results,
            jax.lax.axis_index(self._arrays.data_axes),
            ids,
        )
        rewards, totals, valid = jax.lax.cond(jax.lax.axis_index(replicas) == 0, score, wait)
        # Exact: the other replicas have zeros.
        return (
            jax.lax.psum(rewards, replicas),
            jax.lax.psum(totals, replicas),
            jax.lax.psum(valid.astype(jnp.int32), replicas) > 0,
        )

    def _score(self, shape: tuple[int, ...], row_ids: Any, *pieces: Any) -> Any:
        flat = np.concatenate([np.asarray(piece) for piece in pieces])
        return self._host.score(np.asarray(row_ids, np.int64), flat.reshape(shape))

    def _wait(self, b: int, f: int, shard: Any, row_ids: Any) -> Any:
        """Gives zeros, when the owner of the shard has its rewards if that is in this process.

        Devices of a process that wait for each other in a sum for more than 40 s end it, on CPU.
        """
        if int(shard) in self._arrays.layout.owned_shards:
            self._host.wait(np.asarray(row_ids, np.int64))
        return np.zeros((b, f), np.float32), np.zeros(b, np.float32), np.zeros(b, np.bool_)
