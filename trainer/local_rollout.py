# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rollouts of an engine on each process that knows nothing of the others, vLLM for example.

Legend: b local rows, k rows that this process owns, T completion length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray
from tunix.generate.tokenizer_adapter import TokenizerAdapter

from trainer.agreement import Agreement, Attempt
from trainer.arrays import RowArrays
from trainer.global_rollout import GlobalRollout, RolloutArrays, finish_fn, row_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tunix.rl.rollout import base_rollout


class Engine(Protocol):
    """What samples on one process. Both methods may raise; all processes then stop together."""

    def generate(
        self, prompts: list[list[int]], seeds: list[int], config: base_rollout.RolloutConfig
    ) -> Sequence[Sequence[int]]:
        """Samples one completion for each prompt.

        Args:
            prompts: ids of k prompts, without padding.
            seeds: k random seeds in [0, 2**63), the same for a row on whichever process.
            config: sampling settings.

        Returns:
            Ids of k completions, in the order of the prompts. Each ends with an end token or has
            max_tokens_to_generate ids.
        """

    def update_params(self, weights: Iterator[tuple[str, NDArray[Any]]]) -> None:
        """Takes over weights of the actor.

        Called before the first rollout with all of them, then after each step with those that
        are trained: all, or with LoRA its matrices.

        Args:
            weights: names, "layers.0.attn.q_proj.w" for example, and whole values; each is copied
                to the host when it is asked for.
        """


class LocalRollout(GlobalRollout):
    """Rollout engine for `ClusterConfig.rollout_engine` around an engine of the user's.

    Every row of the run is sampled once, on the process that owns it; processes that hold a copy
    of the row get its tokens.

    Example:
        >>> engine = functools.partial(LocalRollout, engine=MyVllm())  # doctest: +SKIP
        >>> config = ClusterConfig(rollout_engine=engine, ...)  # doctest: +SKIP
    """

    shares_weights = False

    def __init__(
        self,
        *,
        rollout_actor: Any,
        tokenizer: Any,
        mesh: Mesh,
        rollout_config: base_rollout.RolloutConfig,
        engine: Engine,
        data_sharding_axis: Sequence[str] = ("fsdp",),
        vocab_size: int | None = None,
        timeout_s: float = 3600.0,
    ) -> None:
        """Takes what `RLCluster` passes to a rollout engine, and what `functools.partial` adds.

        Args:
            rollout_actor: the actor.
            tokenizer: of the actor.
            mesh: of the actor.
            rollout_config: sampling settings.
            engine: samples on this process.
            data_sharding_axis: axes of the mesh that rows are sharded over.
            vocab_size: ids of completions are below it. Default: that of the actor's config.
            timeout_s: longest wait for the engines of other processes.

        Raises:
            ValueError: the mesh has no such data axis, or the size of the vocabulary is unknown.
        """
        del rollout_config
        config = getattr(rollout_actor, "config", None)
        size = vocab_size or getattr(config, "vocab_size", None) or getattr(config, "num_embed", 0)
        if not size:
            raise ValueError(
                "`vocab_size` must be given to LocalRollout: the actor's config has none."
            )
        self.arrays = RowArrays(mesh, tuple(data_sharding_axis))
        self._engine = engine
        adapted = isinstance(tokenizer, TokenizerAdapter)
        self._tokenizer = tokenizer if adapted else TokenizerAdapter(tokenizer)
        self._vocab_size = size
        self._agreement = Agreement(timeout_s=timeout_s)
        self._calls = 0
        self._whole = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))

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
            ProcessesDisagree: the engine of a process failed, or what it returned can't be used.
            ValueError: a prompt is longer than P, or b does not fit the mesh.
        """
        layout, config = self.arrays.layout, rollout_config
        n = layout.global_rows(len(local_prompts))
        padded = self.pad_prompts(local_prompts, prompt_length or config.max_prompt_length)
        mine = np.flatnonzero(np.isin(layout.local_rows(n), layout.owned_rows(n)))
        texts = [local_prompts[i] for i in mine.tolist()]
        tokens = {text: self.tokenize(text) for text in set(texts)}
        prompts = [list(tokens[text]) for text in texts]
        keys = row_keys(config.seed, stream, local_row_ids[mine]).astype(np.int64)
        seeds = (((keys[:, 0] & 0x7FFFFFFF) << 32) | keys[:, 1]).tolist()
        attempt = Attempt(lambda: self._sample(prompts, seeds, config))
        self._calls += 1
        self._agreement.all_ok(f"engine's rollout {self._calls}", attempt.error)
        contributions = self.arrays.from_owned_rows(attempt.get(), n)
        sharding, ends = self.arrays.row_sharding, tuple(self.end_token_ids(config))
        sampled = jnp.sum(contributions, axis=0)
        completion_ids, mask = finish_fn(sharding, 0, ends, self.pad_id())(sampled)
        prompt_ids = self.arrays.from_local_rows(padded, n)
        return RolloutArrays(
            prompt_ids=prompt_ids,
            prompt_mask=prompt_ids != self.pad_id(),
            completion_ids=completion_ids,
            completion_mask=mask,
        )

    def _sample(
        self, prompts: list[list[int]], seeds: list[int], config: base_rollout.RolloutConfig
    ) -> NDArray[np.int32]:
        """Calls the engine and pads what it returns: int32 [k, T]."""
        length = config.max_tokens_to_generate
        padded = np.full((len(prompts), length), self.pad_id(), np.int32)
        if not prompts:
            return padded
        rows = self._engine.generate(prompts, seeds, config)
        if len(rows) != len(prompts):
            raise ValueError(f"the engine must return {len(prompts)} completions, got {len(rows)}.")
        ends = self.end_token_ids(config)
        for number, row in enumerate(rows):
            ids = np.asarray(row, np.int64)
            self._check(number, ids, length, ends)
            padded[number, : len(ids)] = ids
        return padded

    def _check(self, number: int, ids: NDArray[np.int64], length: int, ends: list[int]) -> None:
        if len(ids) > length:
            raise ValueError(
                f"completion {number} of the engine must have at most {length} ids, got {len(ids)}."
            )
        if len(ids) < length and (not len(ids) or ids[-1] not in ends):
            raise ValueError(
                f"completion {number} of the engine must end with an end token {ends} or have"
                f" {length} ids, got {len(ids)} without one. Return the end token, too."
            )
        wrong = ids[(ids < 0) | (ids >= self._vocab_size)]
        if len(wrong):
            raise ValueError(
                f"completion {number} of the engine must have ids in [0, {self._vocab_size}), got"
                f" {wrong[0]}."
            )

    def update_params(self, params: Any, filter_types: Any = None) -> None:
        """Gives the engine weights of the actor; a collective call.

        Raises:
            ProcessesDisagree: the engine of a process failed.
        """
        del filter_types
        weights = self._weights(params)
        # Tunix forbids transfers around this call on CPUs.
        with jax.transfer_guard("allow"):
            attempt = Attempt(lambda: self._engine.update_params(weights))
            # An engine that stopped early must not leave the others alone in a collective.
            for _ in weights:
                pass
        self._agreement.all_ok("weights of the engine", attempt.error)

    def _weights(self, params: Any) -> Iterator[tuple[str, NDArray[Any]]]:
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            name = ".".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)
            yield name.removesuffix(".value"), np.asarray(self._whole(leaf))

    def get_per_token_logps(self, prompt_tokens: Any, completion_tokens: Any) -> Any:
        """Is never called: log-probabilities are the actor's, see `trainer.sampling`.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError

    def model(self) -> Any:
        """None, by which Tunix knows that the weights must be sent after each step."""
        return None
