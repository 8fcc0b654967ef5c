# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards as a JAX operation: the host is called for each data shard, inside a program.

Legend: B global rows, b rows of a data shard, T tokens, F reward functions.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from trainer.advantage import pack_columns, packed_columns
from trainer.arrays import RowArrays
from trainer.client import RewardClient
from trainer.codec import LocalRollouts, RowRewards
from trainer.op_rows import OpRows

logger = logging.getLogger(__name__)

# On CPU, JAX copies the arguments of a callback on the threads that wait for it, but for small
# ones: with as many devices as threads, a larger argument would wait for ever.
_CPU_PIECE = 16_384

Started = Int[Array, " B"]
Scored = tuple[Float[Array, "B F"], Float[Array, " B"], Bool[Array, " B"]]


class RewardOp:
    """A function for use inside `jax.jit`: row ids and completions in, rewards out.

    Prompts and columns are data of the host: each process puts those of its rows before the
    program runs. A row without a reward, for whatever reason, comes back as NaN and not valid; no
    exception leaves the operation. Every process of the mesh must run the same programs.

    `start` and `finish` are its halves. What lies between them, in a program or between two, runs
    while the rewards are computed; a device that is in `finish` waits.

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
        self._host = OpRows(client.submit, self.reward_fns, max_rows=max_rows)
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

    def wait(self, row_ids: Sequence[int], timeout_s: float | None = None) -> RowRewards | None:
        """Waits for rows of this process, which are kept: for `retry`, or to be taken.

        Args:
            row_ids: the rows.
            timeout_s: longest wait in seconds; None waits for the end of their calls.

        Returns:
            As `take`.

        Raises:
            RewardError: of a call that failed as a whole.
            TimeoutError: they are not there within `timeout_s`.
        """
        rewards, error = self._host.wait([int(row_id) for row_id in row_ids], timeout_s)
        if error is not None:
            raise error
        return rewards

    def retry(self, row_ids: Sequence[int], timeout_s: float) -> None:
        """Sends rows of calls that failed as a whole again; `finish` then has to run again, too.

        Args:
            row_ids: rows of this process.
            timeout_s: seconds from now for their rewards.
        """
        self._host.retry([int(row_id) for row_id in row_ids], timeout_s)

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
        return self.finish(row_ids, self.start(row_ids, completion_ids))

    def start(self, row_ids: Int[Array, " B"], completion_ids: Int[Array, "B T"]) -> Started:
        """Sends rows and goes on: the first half of the operation.

        Args:
            row_ids: as of the operation.
            completion_ids: as of the operation.

        Returns:
            What `finish` needs to come after it.
        """
        started: Started = self._map(self._start_shard)(row_ids, completion_ids)
        return started

    def finish(self, row_ids: Int[Array, " B"], started: Started) -> Scored:
        """Waits for the rewards: the second half, in the same program or a later one.

        Args:
            row_ids: as of the operation.
            started: what `start` gave for them.
        """
        scored: Scored = self._map(self._finish_shard)(row_ids, started)
        return scored

    def _map(self, function: Callable[..., Any]) -> Callable[..., Any]:
        spec = self._arrays.row_sharding.spec
        mapped: Callable[..., Any] = jax.shard_map(
            function,
            mesh=self._arrays.mesh,
            in_specs=spec,
            out_specs=spec,
            check_vma=False,  # the results of a callback have no known variance
        )
        return mapped

    def _start_shard(self, row_ids: jax.Array, completion_ids: jax.Array) -> Started:
        flat = completion_ids.astype(jnp.int32).reshape(-1)
        piece = self._piece or flat.size
        pieces = [flat[start : start + piece] for start in range(0, flat.size, piece)]
        result = jax.ShapeDtypeStruct(row_ids.shape, np.int32)
        send = functools.partial(self._send, completion_ids.shape)

        def first() -> Started:
            started: Started = io_callback(send, result, row_ids.astype(jnp.uint32), *pieces)
            return started

        def other() -> Started:
            return jnp.zeros(result.shape, result.dtype)

        if not self._replicated:
            return first()
        started = jax.lax.cond(self._is_first(), first, other)
        # No replica may wait for rows that have not been sent yet.
        summed: Started = jax.lax.psum(started, self._arrays.replica_axes)
        return summed

    def finish_packed(
        self, failed_value: float | None, row_ids: Int[Array, " B"], started: Started
    ) -> Float[Array, "B C"]:
        """Waits for the rewards as `finish` does; gives them as `trainer.advantage.pack` does.

        Args:
            failed_value: total of rows without one, or None.
            row_ids: as of the operation.
            started: what `start` gave for them.
        """
        finish = functools.partial(self._finish_packed_shard, failed_value)
        packed: jax.Array = self._map(finish)(row_ids, started)
        return packed

    def _finish_shard(self, row_ids: jax.Array, started: Started) -> Scored:
        b, f = len(row_ids), len(self.reward_fns)
        results = (
            jax.ShapeDtypeStruct((b, f), np.float32),
            jax.ShapeDtypeStruct((b,), np.float32),
            jax.ShapeDtypeStruct((b,), np.bool_),
        )

        def float32(rewards: Any, totals: Any, valid: Any) -> Any:
            return rewards.astype(np.float32), totals.astype(np.float32), valid

        rewards, totals, valid = self._waited(float32, results, row_ids, started)
        if not self._replicated:
            return rewards, totals, valid
        axes = self._arrays.replica_axes
        # Exact: the other replicas have zeros.
        return (
            jax.lax.psum(rewards, axes),
            jax.lax.psum(totals, axes),
            jax.lax.psum(valid.astype(jnp.int32), axes) > 0,
        )

    def _finish_packed_shard(
        self, failed_value: float | None, row_ids: jax.Array, started: Started
    ) -> jax.Array:
        columns = packed_columns(len(self.reward_fns))
        result = (jax.ShapeDtypeStruct((len(row_ids), columns), np.float32),)

        def pack(rewards: Any, totals: Any, valid: Any) -> Any:
            return (pack_columns(rewards, totals, valid, failed_value=failed_value),)

        packed: jax.Array
        (packed,) = self._waited(pack, result, row_ids, started)
        if not self._replicated:
            return packed
        summed: jax.Array = jax.lax.psum(packed, self._arrays.replica_axes)
        return summed

    def _waited(
        self, form: Callable[..., Any], results: Any, row_ids: jax.Array, started: Started
    ) -> Any:
        """Calls the host for the rows of this shard; all replicas wait, the first has values."""
        first = self._is_first() if self._replicated else jnp.bool_(True)
        wait = functools.partial(self._wait, form)
        return io_callback(wait, results, first, row_ids.astype(jnp.uint32), started)

    @property
    def _replicated(self) -> bool:
        return len(self._arrays.layout.grid[0]) > 1

    def _is_first(self) -> jax.Array:
        first: jax.Array = jax.lax.axis_index(self._arrays.replica_axes) == 0
        return first

    def _send(self, shape: tuple[int, ...], row_ids: Any, *pieces: Any) -> Any:
        try:
            flat = np.concatenate([np.asarray(piece) for piece in pieces])
            self._host.start(np.asarray(row_ids, np.int64), flat.reshape(shape))
        except Exception:
            # It would end the process inside the JAX runtime; the rows are MISSING.
            logger.exception("rows could not be sent rows=%d", len(row_ids))
        return np.zeros(len(row_ids), np.int32)

    def _wait(self, form: Callable[..., Any], first: Any, row_ids: Any, started: Any) -> Any:
        """Waits on all replicas: those that waited for the first one in a sum would time out."""
        del started
        scored = form(*self._host.finish(np.asarray(row_ids, np.int64)))
        return scored if first else tuple(np.zeros_like(values) for values in scored)
