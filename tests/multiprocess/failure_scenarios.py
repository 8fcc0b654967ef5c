# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""One process raises at a moment between two collectives; run as scenarios of `train_worker`."""

from __future__ import annotations

import resource
import time

import numpy as np
from tunix.sft import hooks

from tests.multiprocess.learners import make_learner
from tests.multiprocess.scenarios import ANSWERS, PROMPTS, make_cluster, make_mesh
from trainer import RewardClient

STEPS = 3
# The step in which it happens, so that a step has been trained on.
AT = 1


class _Hooks(hooks.TrainingHooks):
    """Training hooks of which one raises."""

    def __init__(self, name, bad):
        for hook in ("on_train_start", "on_train_end", "on_train_step_start"):
            setattr(self, hook, lambda *_: None)
        for hook in ("on_train_step_end", "on_eval_step_start", "on_eval_step_end"):
            setattr(self, hook, lambda *_: None)
        setattr(self, name, lambda *_: bad())

    on_train_start = on_train_end = on_train_step_start = None
    on_train_step_end = on_eval_step_start = on_eval_step_end = None


def fail_at(process, endpoint, scenario):
    """Trains until the process of the scenario raises at its moment; says what all raised."""
    moment = scenario["moment"]
    cluster = make_cluster(
        make_mesh([2, 2]),
        {"steps": STEPS, "checkpoint": scenario.get("checkpoint")},
    )

    def bad():
        if process == scenario["who"] and cluster.global_steps >= AT:
            raise ValueError(f"bad {moment}")

    def on_step(report):
        if moment == "on_step":
            bad()
        if moment == "full disk" and process == scenario["who"] and report.step >= AT:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard_limit))

    learner = make_learner(
        scenario,
        rl_cluster=cluster,
        reward_fns=RewardClient(endpoint, timeout_s=60),
        data="replicated",
        agreement_timeout_s=300,
        on_step=on_step,
    )
    if moment == "metrics logger":
        cluster.with_external_metrics_logger(lambda _: bad())
    if moment.startswith("on_train"):
        cluster.actor_trainer.with_training_hooks(_Hooks(moment, bad))
    if moment == "tokenizer":
        lengths = learner._rollout.prompt_lengths
        learner._rollout.prompt_lengths = lambda prompts: bad() or lengths(prompts)
    if moment == "sending":
        client = learner._path._client
        submit = client.submit
        client.submit = lambda rows: bad() or submit(rows)
    if moment == "merging":
        process_batches = learner._process_accumulated_batches
        learner._process_accumulated_batches = lambda **kw: bad() or process_batches(**kw)

    def batches():
        for step in range(STEPS):
            if moment == "dataset":
                bad()
            prompts = PROMPTS[2 * step : 2 * step + 2]
            if moment == "prompt" and step == AT and process == scenario["who"]:
                prompts = ["bad prompt \ud83d", prompts[1]]
            yield {"prompts": np.array(prompts), "answer": np.array(ANSWERS[:2])}

    start = time.monotonic()
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        learner.train(batches())
        raised, kind = "", ""
    except Exception as error:  # noqa: BLE001 - reported to the test
        raised, kind = str(error), type(error).__name__
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard_limit))
    manager = cluster.actor_trainer.checkpoint_manager
    return {
        "raised": raised,
        "kind": kind,
        "seconds": time.monotonic() - start,
        "updates": cluster.actor_trainer.train_steps,
        "saved": manager.latest_step(),
    }
