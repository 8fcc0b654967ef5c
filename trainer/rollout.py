# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rollouts that stay sharded: Tunix's sampler on global arrays, any number of processes.

Legend: B global rows, b local rows, P prompt length, T completion length, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import NDArray
from tunix.generate import sampler as tunix_sampler
from tunix.generate import utils as tunix_utils
from tunix.rl.rollout import base_rollout, vanilla_rollout

from trainer.arrays import RowArrays
from trainer.codec import completion_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.sharding import Mesh


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
        keys = jax.vmap(jax.random.fold_in, (0, None))(sampler_state.seed, token)
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
    """Sets logits outside top-k and the top-p nucleus to -inf, as Tunix's sampler does."""
    k = top_k if top_k is not None and top_k > 0 else logits.shape[-1]
    if top_p >= 1.0 and k >= logits.shape[-1]:
        return logits
    ranked, _ = jax.lax.top_k(logits, k=k)
    probabilities = jax.nn.softmax(ranked, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    lowest = jnp.where(before > top_p, jnp.inf, ranked).min(axis=-1, keepdims=True)
    return jnp.where(logits < lowest, -jnp.inf, logits)


class ShardedRollout(vanilla_rollout.VanillaRollout):
    """Rollout engine for `ClusterConfig.rollout_engine`: samples stay sharded over the data axes.

    Attributes:
        mesh: None: the cluster keeps the mesh it was given.
    """

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
        self.mesh = None

    def end_token_ids(self, rollout_config: base_rollout.RolloutConfig) -> list[int]:
        """Ids that end a completion."""
        return list(rollout_config.eos_tokens or [self.eos_id()])

    def prompt_length(self, prompts: Sequence[str]) -> int:
        """Tokens of the longest prompt, as the sampler counts them."""
        return max((len(self._sampler.tokenize(p)) for p in set(prompts)), default=0)

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
            ValueError: the KV cache is too small, a prompt is longer than P, or b does not fit
                the mesh.
        """
        arrays, config = self.arrays, rollout_config
        length = prompt_length or config.max_prompt_length
        total = length + config.max_tokens_to_generate
        if total > self._sampler.cache_config.cache_size:
            raise ValueError(
                f"`kv_cache_size` must be >= prompt length {length} + max_tokens_to_generate"
                f" {config.max_tokens_to_generate}, got {self._sampler.cache_config.cache_size}."
            )
        n = arrays.layout.global_rows(len(local_prompts))
        prompt_ids = arrays.from_local_rows(self._pad_prompts(local_prompts, length), n)
        keys = arrays.from_local_rows(_row_keys(config.seed, stream, local_row_ids), n)
        ends = self.end_token_ids(config)
        self._sampler.eos_ids = jnp.array(ends)
        state = self._init_state(
            prompt_ids,
            keys,
            total=total,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
        )
        weights = self._sampler._flattened_transformer_state  # noqa: SLF001
        state = self._sampler._compiled_prefill_fn(weights, state, None, echo=False)  # noqa: SLF001
        state = self._sampler._compiled_decode_fn(weights, state)  # noqa: SLF001
        completion_ids, mask = _finish_fn(arrays.row_sharding, length, tuple(ends), self.pad_id())(
            state.token_buffer
        )
        return RolloutArrays(
            prompt_ids=prompt_ids,
            prompt_mask=prompt_ids != self.pad_id(),
            completion_ids=completion_ids,
            completion_mask=mask,
        )

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
            raise ValueError("`return_logprobs` must be False with ShardedRollout.generate.")
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
            text=[self._sampler.tokenizer.decode(row.tolist()) for row in tokens],
            logits=[],
            tokens=tokens,
            left_padded_prompt_tokens=self.arrays.local_rows(rollouts.prompt_ids),
            logprobs=None,
        )

    def _pad_prompts(self, prompts: Sequence[str], length: int) -> NDArray[np.int32]:
        tokens = {prompt: self._sampler.tokenize(prompt) for prompt in set(prompts)}
        longest = max(len(ids) for ids in tokens.values())
        if longest > length:
            raise ValueError(
                f"the prompts must have at most {length} tokens, got {longest}."
                " Raise max_prompt_length."
            )
        padded = {
            prompt: tunix_utils.pad_to_length(
                ids, target_length=length, pad_value=self.pad_id(), left=True
            )
            for prompt, ids in tokens.items()
        }
        return np.array([padded[prompt] for prompt in prompts], np.int32)

    @functools.partial(
        jax.jit, static_argnums=0, static_argnames=("total", "temperature", "top_p", "top_k")
    )
    def _init_state(
        self,
        prompt_ids: Int[Array, "B P"],
        keys: jax.Array,
        *,
        total: int,
        temperature: float,
        top_p: float | None,
        top_k: int | None,
    ) -> Any:
        """Makes the sampler's state with buffers and cache sharded by rows from the start."""
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
        sharding = self.arrays.row_sharding
        return jax.tree.map(
            lambda x: (
                jax.lax.with_sharding_constraint(x, sharding)
                if isinstance(x, jax.Array) and x.ndim and x.shape[0] == n
                else x
            ),
            state,
        )


def _row_keys(seed: Any, stream: int, row_ids: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Makes one random key per row from the seed and the row's id: uint32 [b, 2]."""
    with jax.default_device(jax.local_devices()[0]):
        base = jax.random.PRNGKey(0 if seed is None else seed) if _is_plain(seed) else seed
        base = jax.random.fold_in(base, stream)
        ids = jnp.asarray(np.asarray(row_ids, np.int64) % 2**32, jnp.uint32)
        return np.asarray(jax.vmap(jax.random.fold_in, (None, 0))(base, ids))


def _is_plain(seed: Any) -> bool:
    return seed is None or np.ndim(seed) == 0


@functools.cache
def _finish_fn(sharding: Any, start: int, ends: tuple[int, ...], pad_id: int) -> Any:
    """Makes the function from token buffers [B, P + T] to completions and their mask."""

    def finish(tokens: Int[Array, "B L"]) -> tuple[Array, Array]:
        completion = tokens[:, start:]
        is_end = jnp.isin(completion, jnp.array(ends))
        before = jnp.cumsum(is_end, axis=1) - is_end
        mask = before == 0
        return jnp.where(mask, completion, pad_id), mask

    return jax.jit(finish, out_shardings=(sharding, sharding))
