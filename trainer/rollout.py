# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rollouts that stay sharded: Tunix's sampler on global arrays, any number of processes.

Legend: B global rows, b local rows, P prompt length, T completion length, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray
from tunix.generate import sampler as tunix_sampler
from tunix.rl import common
from tunix.rl.rollout import base_rollout, vanilla_rollout

from trainer.arrays import RowArrays
from trainer.global_rollout import KEY_IMPL, GlobalRollout, RolloutArrays, finish_fn, row_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.sharding import Mesh

__all__ = ["RolloutArrays", "ShardedRollout"]


class _RowKeyedSampler(tunix_sampler.Sampler):
    """Tunix's sampler with a random key for each row.

    The stock sampler draws one block of noise for the whole batch, so a row's sample depends on
    where the row lies in it. With keys made of row ids a row's sample is the same however the
    batch is cut, merged or sharded.
    """

    def _sample(
        self,
        logits: Float[Array, "B 1 V"],
        eos: Int[Array, " E"],
        cache: Any,
        sampler_state: Any,
    ) -> Any:
        """Draws by the Gumbel-max rule with per-row noise; the parent writes the token."""
        if sampler_state.sampling_mode != "top_p":
            return super()._sample(logits, eos, cache, sampler_state)
        last = logits[:, -1].astype(jnp.float32)
        if sampler_state.forbidden_token_ids:
            last = last.at[:, sampler_state.forbidden_token_ids].set(-jnp.inf)
        kept = _keep_top(
            last / sampler_state.temperature,
            sampler_state.sampling_parameters["top_p"],
            sampler_state.sampling_parameters["top_k"],
        )
        token = sampler_state.decoding_step + 1 - sampler_state.num_input_tokens
        rows = jax.random.wrap_key_data(sampler_state.seed, impl=KEY_IMPL)
        keys = jax.vmap(jax.random.fold_in, (0, None))(rows, token)
        noise = jax.vmap(lambda key: jax.random.gumbel(key, kept.shape[1:]))(keys)
        greedy = dataclasses.replace(sampler_state, sampling_mode="greedy", logprobs_buffer=None)
        state = super()._sample((kept + noise)[:, None, :], eos, cache, greedy)
        logprobs = sampler_state.logprobs_buffer
        if logprobs is not None:
            index = sampler_state.decoding_step + 1
            chosen = state.token_buffer[:, index]
            logp = jax.nn.log_softmax(last / sampler_state.temperature, axis=-1)
            picked = jnp.take_along_axis(logp, chosen[:, None], axis=-1)[:, 0]
            logprobs = logprobs.at[:, index].set(picked)
        return dataclasses.replace(
            state, sampling_mode=sampler_state.sampling_mode, logprobs_buffer=logprobs
        )


def _keep_top(logits: Float[Array, "B V"], top_p: float, top_k: int | None) -> Float[Array, "B V"]:
    """Sets logits outside top-k and the top-p nucleus to -inf, as Tunix's sampler does.

    Of equal logits at the cut those of the lower ids stay, so that never more than k do.
    """
    k = top_k if top_k is not None and top_k > 0 else logits.shape[-1]
    if top_p >= 1.0 and k >= logits.shape[-1]:
        return logits
    ranked, ids = jax.lax.top_k(logits, k=k)
    probabilities = jax.nn.softmax(ranked, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    kept = jnp.where(before > top_p, -jnp.inf, ranked)
    nothing = jnp.full(logits.shape[-1:], -jnp.inf, logits.dtype)
    return jax.vmap(lambda at, values: nothing.at[at].set(values, unique_indices=True))(ids, kept)


class ShardedRollout(GlobalRollout, vanilla_rollout.VanillaRollout):
    """Rollout engine for `ClusterConfig.rollout_engine`: samples stay sharded by rows."""

    shares_weights = True

    def __init__(
        self,
        *,
        rollout_actor: Any,
        tokenizer: Any,
        mesh: Mesh,
        rollout_config: base_rollout.RolloutConfig,
        data_sharding_axis: Sequence[str] = ("fsdp",),
    ) -> None:
        """Takes what `RLCluster` passes to a rollout engine.

        Raises:
            ValueError: the model has no `config`, or the mesh no such data axis.
        """
        config = getattr(rollout_actor, "config", None)
        if config is None:
            raise ValueError("the actor must have a `config` with the sizes of its KV cache.")
        # In place of the parent's __init__, which would make a stock sampler.
        self._sampler: Any = _RowKeyedSampler(
            rollout_actor,
            tokenizer,
            tunix_sampler.CacheConfig(
                cache_size=rollout_config.kv_cache_size,
                num_layers=config.num_layers,
                num_kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
            ),
        )
        self.arrays = RowArrays(mesh, tuple(data_sharding_axis))
        self._tokenizer = self._sampler.tokenizer
        # Made for each engine: JAX keeps the programs of a method of the class, and with them the
        # engine and its weights, until the process ends.
        self._prefill = jax.jit(
            self._prefill_fn, static_argnames=("total", "temperature", "top_p", "top_k", "ends")
        )
        self._decode = jax.jit(self._decode_fn, donate_argnums=1, static_argnames="ends")

    def check_config(self, rollout_config: base_rollout.RolloutConfig) -> None:
        """Refuses a config whose rows don't fit into the cache.

        Raises:
            ValueError: names the setting.
        """
        self._check_cache(rollout_config.max_prompt_length, rollout_config)

    def longest_prompt(self, rollout_config: base_rollout.RolloutConfig) -> int:
        """What the KV cache leaves beside the completion."""
        size: int = self._sampler.cache_config.cache_size
        return size - int(rollout_config.max_tokens_to_generate)

    def _check_cache(self, length: int, config: base_rollout.RolloutConfig) -> None:
        size = self._sampler.cache_config.cache_size
        if length + config.max_tokens_to_generate > size:
            raise ValueError(
                f"`kv_cache_size` of the config for training must be >= prompt length {length} +"
                f" max_tokens_to_generate {config.max_tokens_to_generate}, got {size}."
            )

    def generate_arrays(
        self,
        local_prompts: Sequence[str],
        local_row_ids: NDArray[np.int64],
        rollout_config: base_rollout.RolloutConfig,
        *,
        prompt_length: int | None = None,
        stream: int = 0,
    ) -> RolloutArrays:
        """Samples a completion for every row of all processes, see `GlobalRollout`.

        Raises:
            ValueError: the KV cache is too small, a prompt is longer than P, or b does not fit
                the mesh.
        """
        arrays, config = self.arrays, rollout_config
        length = prompt_length or config.max_prompt_length
        total = length + config.max_tokens_to_generate
        self._check_cache(length, config)
        n = arrays.layout.global_rows(len(local_prompts))
        prompt_ids = arrays.from_local_rows(self.pad_prompts(local_prompts, length), n)
        keys = arrays.from_local_rows(row_keys(config.seed, stream, local_row_ids), n)
        ends = tuple(self.end_token_ids(config))
        weights = self._sampler.model_def_and_state()[1]
        state = self._prefill(
            weights,
            prompt_ids,
            keys,
            total=total,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            ends=ends,
        )
        state = self._decode(weights, state, ends=ends)
        completion_ids, mask = finish_fn(arrays.row_sharding, length, ends, self.pad_id())(
            state.token_buffer
        )
        return RolloutArrays(
            prompt_ids=prompt_ids,
            prompt_mask=prompt_ids != self.pad_id(),
            completion_ids=completion_ids,
            completion_mask=mask,
        )

    def get_per_token_logps(
        self, prompt_tokens: Int[Array, "B P"], completion_tokens: Int[Array, "B T"]
    ) -> Float[Array, "B T"]:
        """Log-probabilities under the actor, at the temperature of the loss.

        Tunix 0.1.7 leaves the temperature out here, so that the ratio of a first update of
        several is not 1 with GRPO.
        """
        logps: jax.Array = common.compute_per_token_logps(
            *self._sampler.model_def_and_state(),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            pad_id=self.pad_id(),
            eos_id=self.eos_id(),
            temperature=self.loss_temperature,
        )
        return logps

    def _prefill_fn(
        self,
        weights: Any,
        prompt_ids: Int[Array, "B P"],
        keys: jax.Array,
        *,
        total: int,
        temperature: float,
        top_p: float | None,
        top_k: int | None,
        ends: tuple[int, ...],
    ) -> Any:
        """Makes the sampler's state and reads the prompts into it, as one program.

        A cache that were an argument would have to be there whole before the compiler has chosen
        its layout; here it is made with the layout that attention wants, heads over tensor
        parallelism too.
        """
        n, length = prompt_ids.shape
        state = self._sampler.init_sample_state(
            prompt_ids,
            total_sampling_steps=total,
            include_logits=False,
            forbidden_token_ids=None,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=keys,
            beam_size=None,
        )
        state = dataclasses.replace(state, num_input_tokens=length)

        def shard_rows(x: Any) -> Any:
            if not isinstance(x, jax.Array) or not x.ndim or x.shape[0] != n:
                return x
            return jax.lax.with_sharding_constraint(x, self.arrays.row_sharding_of(x.ndim))

        state = jax.tree.map(shard_rows, state)
        self._sampler.eos_ids = np.array(ends, np.int32)
        return self._sampler._prefill_fn(weights, state, None, echo=False)  # noqa: SLF001

    def _decode_fn(self, weights: Any, state: Any, *, ends: tuple[int, ...]) -> Any:
        self._sampler.eos_ids = np.array(ends, np.int32)
        return self._sampler._decode_fn(weights, state)  # noqa: SLF001
