# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What a learner needs of a rollout engine: the rows of all processes, as global arrays.

Legend: B global rows, b local rows, P prompt length, T completion length.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int
from numpy.typing import NDArray
from tunix.generate import utils as tunix_utils
from tunix.rl.rollout import base_rollout

from trainer.codec import completion_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.arrays import RowArrays


# Keys of rows, whatever `jax_default_prng_impl` says: with "rbg", usual on TPU, the noise of a row
# would depend on the batch that the row is in.
KEY_IMPL = "threefry2x32"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RolloutArrays:
    """Rollouts of all processes, on the device.

    Attributes:
        prompt_ids: int32 [B, P], padded on the left.
        prompt_mask: bool [B, P], true where there is no padding.
        completion_ids: int32 [B, T], pad after the end token.
        completion_mask: bool [B, T], true up to and with the first end token.
    """

    prompt_ids: Int[Array, "B P"]
    prompt_mask: Bool[Array, "B P"]
    completion_ids: Int[Array, "B T"]
    completion_mask: Bool[Array, "B T"]


class GlobalRollout(base_rollout.BaseRollout):
    """Base of the engines for `ClusterConfig.rollout_engine` that a sharded learner takes.

    Attributes:
        arrays: where rows lie.
        mesh: None: the cluster keeps the mesh it was given.
        shares_weights: whether samples come from the actor's own arrays, so that they are never
            older than the actor.
        loss_temperature: temperature at which the loss takes log-probabilities; the learner's.
    """

    shares_weights: ClassVar[bool]
    loss_temperature = 1.0
    arrays: RowArrays
    mesh = None
    _tokenizer: Any

    def check_config(self, rollout_config: base_rollout.RolloutConfig) -> None:
        """Refuses sampling settings that can't work, before anything starts."""
        del rollout_config

    @abc.abstractmethod
    def generate_arrays(
        self,
        local_prompts: Sequence[str],
        local_row_ids: NDArray[np.int64],
        rollout_config: base_rollout.RolloutConfig,
        *,
        prompt_length: int | None = None,
        stream: int = 0,
    ) -> RolloutArrays:
        """Samples a completion for every row of all processes.

        All processes call this at the same time, each with the rows it holds.

        Args:
            local_prompts: b prompts.
            local_row_ids: int64 [b], unique ids; with the seed they decide the samples.
            rollout_config: sampling settings, equal on all processes.
            prompt_length: P, equal on all processes; at least the longest prompt.
                Default: max_prompt_length.
            stream: another number gives other samples for the same rows and seed.

        Raises:
            ValueError: a prompt is longer than P, or b does not fit the mesh.
        """

    def pad_id(self) -> int:
        """Id of the padding."""
        return int(self._tokenizer.pad_id())

    def eos_id(self) -> int:
        """Id that ends a completion unless the config names others."""
        return int(self._tokenizer.eos_id())

    def end_token_ids(self, rollout_config: base_rollout.RolloutConfig) -> list[int]:
        """Ids that end a completion."""
        return list(rollout_config.eos_tokens or [self.eos_id()])

    def tokenize(self, prompt: str) -> list[int]:
        """Ids of a prompt, as Tunix's samplers make them: with one begin token, if there is one."""
        begin = self._tokenizer.bos_id()
        ids = ([begin] if begin else []) + self._tokenizer.encode(prompt)
        return list(self._tokenizer.dedup_bos_ids(ids))

    def prompt_lengths(self, prompts: Sequence[str]) -> list[int]:
        """Tokens of each prompt."""
        lengths = {prompt: len(self.tokenize(prompt)) for prompt in set(prompts)}
        return [lengths[prompt] for prompt in prompts]

    def longest_prompt(self, rollout_config: base_rollout.RolloutConfig) -> int | None:
        """Tokens of the longest prompt that can be sampled from, or None if nothing bounds it."""
        del rollout_config
        return None

    def generate(
        self, prompts: list[str], rollout_config: base_rollout.RolloutConfig, **_: Any
    ) -> base_rollout.RolloutOutput:
        """Samples for the rows of all processes and returns those of this one.

        The interface of Tunix's rollouts, for use outside of training. Rows are numbered by
        their place in the global batch.

        Raises:
            ValueError: log-probabilities or a beam search were asked for.
        """
        if rollout_config.return_logprobs:
            raise ValueError(
                f"`return_logprobs` must be False with {type(self).__name__}.generate."
            )
        layout = self.arrays.layout
        row_ids = layout.local_rows(layout.global_rows(len(prompts)))
        rollouts = self.generate_arrays(prompts, row_ids, rollout_config)
        ids = self.arrays.local_rows(rollouts.completion_ids)
        ends = self.end_token_ids(rollout_config)
        tokens = []
        for row, size in zip(ids, completion_lengths(ids, ends), strict=True):
            cut = size - 1 if size and row[size - 1] in ends else size
            tokens.append(row[:cut])
        return base_rollout.RolloutOutput(
            text=[self._tokenizer.decode(row.tolist()) for row in tokens],
            logits=[],
            tokens=tokens,
            left_padded_prompt_tokens=self.arrays.local_rows(rollouts.prompt_ids),
            logprobs=None,
        )

    def pad_prompts(self, prompts: Sequence[str], length: int) -> NDArray[np.int32]:
        """Ids of prompts, padded on the left: int32 [b, P].

        Raises:
            ValueError: a prompt is longer than P.
        """
        tokens = {prompt: self.tokenize(prompt) for prompt in set(prompts)}
        longest = max(len(ids) for ids in tokens.values())
        if longest > length:
            raise ValueError(
                f"the prompts must have at most {length} tokens, got {longest}."
                " Raise max_prompt_length."
            )
        padded = {
            prompt: tunix_utils.pad_to_length(
                np.asarray(ids, np.int32), target_length=length, pad_value=self.pad_id(), left=True
            )
            for prompt, ids in tokens.items()
        }
        return np.array([padded[prompt] for prompt in prompts], np.int32)


def row_keys(seed: Any, stream: int, row_ids: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Makes one random key per row from the seed and the row's id.

    Args:
        seed: an integer, a key of JAX, or None for 0.
        stream: another number gives other keys for the same rows.
        row_ids: int64 [b].

    Returns:
        uint32 [b, 2], data of keys of `KEY_IMPL`.
    """
    # Not on an accelerator, where it would wait for the rollout that runs.
    with jax.default_device(_host_device()):
        base = jax.random.fold_in(_base_key(seed), stream)
        ids = jnp.asarray(np.asarray(row_ids, np.int64) % 2**32, jnp.uint32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(base, ids)
        return np.asarray(jax.random.key_data(keys))


def _base_key(seed: Any) -> jax.Array:
    if seed is None or (np.ndim(seed) == 0 and not _is_key(seed)):
        return jax.random.key(0 if seed is None else seed, impl=KEY_IMPL)
    data = jax.random.key_data(seed) if _is_key(seed) else jnp.asarray(seed, jnp.uint32)
    # Keys of other generators are longer.
    key: jax.Array = jax.random.wrap_key_data(data[:2], impl=KEY_IMPL)
    return key


def _is_key(seed: Any) -> bool:
    return isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key)


def _host_device() -> jax.Device:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves the CPU out
        return jax.local_devices()[0]


@functools.cache
def finish_fn(sharding: Any, start: int, ends: tuple[int, ...], pad_id: int) -> Any:
    """Makes the function from token buffers [B, start + T] to completions and their mask."""

    def finish(tokens: Int[Array, "B L"]) -> tuple[Array, Array]:
        completion = tokens[:, start:]
        is_end = jnp.isin(completion, jnp.array(ends))
        before = jnp.cumsum(is_end, axis=1) - is_end
        mask = before == 0
        return jnp.where(mask, completion, pad_id), mask

    return jax.jit(finish, out_shardings=(sharding, sharding))
