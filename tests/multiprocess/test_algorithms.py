# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Every algorithm of Tunix trains in several processes like in one, and logs what Tunix logs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.multiprocess.conftest import REWARDS, Run, launch
from tests.multiprocess.metric_scenarios import LENGTH_WEIGHT

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(1800)]

# Whole numbers, which Tunix's PPO does not truncate.
WHOLE_REWARDS = (
    REWARDS.replace("letters", "letter")
    + """
[[reward]]
name = "reward_shaping"
fn = "overlong"
skip_special_tokens = false
params = { unit = "characters", clip = false, max_tokens = 4, cache_tokens = 2, penalty = 1.0 }
"""
)
MICRO = {"mini": 8, "train_micro": 4, "rollout_micro": 8, "logps_micro": 8}
TWICE = {"iterations": 2, "steps": 4}  # steps are updates: two for each of two batches
SHORTER = {"overlong_buffer_length": 3}
TRAIN = {"run": "train", "steps": 2, "max_failed_fraction": 0.9}
METRICS = {"run": "metric_scenarios:metrics", "steps": 2, "beta": 0.1}
# All rows of the first prompt of a batch of eight fail, and those of the second.
FAIL_QUARTER = {"never": [0, 1], "max_failed_fraction": 0.25}
ALGORITHMS = {
    "gspo-token": {**TWICE, "beta": 0.1},
    "rloo": {**MICRO, "fail": True},
    "drgrpo": {"beta": 0.1, "eval_every": 1},
    "gdpo": {"fail": True},
    "dapo": {**TWICE, "fail": True},
    "ppo": {**TWICE, "beta": 0.1, "fail": True},
}
# Those that share least with GRPO; the others take longer to compile than to differ.
CORE = ("dapo", "ppo")
ALL = [pytest.param(name, marks=[] if name in CORE else pytest.mark.slow) for name in ALGORITHMS]
BY_ALGORITHM = {
    name: {**TRAIN, "name": name, "algorithm": name, **more} for name, more in ALGORITHMS.items()
}
REST = [
    *(scenario for name, scenario in BY_ALGORITHM.items() if name not in CORE),
    {**TRAIN, **MICRO, "name": "ppo micro", "algorithm": "ppo", "eval_every": 1},
    {**TRAIN, "name": "ppo whole", "algorithm": "ppo", "eval_every": 1},
]
SCENARIOS = [
    *(BY_ALGORITHM[name] for name in CORE),
    {**TRAIN, "name": "no critic", "algorithm": "ppo", "no_critic": True},
    {**TRAIN, "name": "other buffer", "algorithm": "dapo", "overlong": SHORTER},
    *({**METRICS, "name": f"{name} metrics", "algorithm": name} for name in ("grpo", "ppo")),
]
# A step of two updates, each of two sampling calls.
CALLS = {"mini": 4, "train_micro": 2, "rollout_micro": 2, "logps_micro": 2, "steps": 4}
SAME_POLICY = {"temperature": 0.7, "reference_seed": 0, "steps": 1}
ONE_PROCESS_SCENARIOS = [
    *SCENARIOS,
    {**TRAIN, "name": "ppo value", "algorithm": "ppo", "fail": True, "on_failed_row": "value=-9"},
    {**TRAIN, "name": "manager", "reward_manager": "agentic-sequence-level"},
    *(
        {**METRICS, "name": f"tunix {name}", "algorithm": name, "tunix": True}
        for name in ("grpo", "ppo")
    ),
]
CALLS_SCENARIOS = [
    *(
        {
            **METRICS,
            **CALLS,
            "name": f"{whose}{name} calls",
            "algorithm": name,
            "tunix": bool(whose),
        }
        for name in ("grpo", "ppo")
        for whose in ("", "tunix ")
    ),
    *(
        {**METRICS, **SAME_POLICY, "name": f"{name} same policy", "algorithm": name}
        for name in ("grpo", "ppo")
    ),
    {**TRAIN, **FAIL_QUARTER, "name": "failing calls", **CALLS, "steps": 2},
    {**TRAIN, **FAIL_QUARTER, "name": "failing whole", "steps": 1},
]
SAME = ("tokens", "advantages", "losses", "rewards", "modes", "failed", "params", "critic")
TRAINED = [*ALL, pytest.param("ppo micro", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process with four devices."""
    return launch(tmp_path_factory.mktemp("one"), 1, ONE_PROCESS_SCENARIOS, 1000, WHOLE_REWARDS)


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The other algorithms, in one process and in two."""
    folder = tmp_path_factory.mktemp("rest")
    return [launch(folder / str(n), n, REST, 1000, WHOLE_REWARDS) for n in (1, 2)]


@pytest.fixture
def both(request: pytest.FixtureRequest, scenario: str) -> list[Run]:
    """The runs of a scenario in one process and in two."""
    if scenario not in CORE:
        runs: list[Run] = request.getfixturevalue("rest")
        return runs
    return [request.getfixturevalue("one"), request.getfixturevalue("two")]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process, whose steps have several sampling calls."""
    folder = tmp_path_factory.mktemp("calls")
    return launch(folder, 1, CALLS_SCENARIOS, 1000, WHOLE_REWARDS)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two processes with two devices each; then PPO with a stop, and from its checkpoint."""
    folder = tmp_path_factory.mktemp("two")
    ppo = {**TRAIN, **ALGORITHMS["ppo"], "algorithm": "ppo", "checkpoint": str(folder / "ppo")}
    broken = [
        {**ppo, "name": "ppo stopped", "stop_at": 0, "stop": [0]},
        {**ppo, "name": "ppo resumed"},
    ]
    return launch(folder, 2, [*SCENARIOS, *broken], 1000, WHOLE_REWARDS)


@pytest.mark.parametrize("scenario", TRAINED)
def test_two_processes_equal_one(both: list[Run], scenario: str) -> None:
    """Tokens, rewards, advantages, losses, norms and parameters are the same to the last bit."""
    one, two = both
    want = one.of(scenario)
    for process in (0, 1):
        for name in SAME:
            assert two.of(scenario, process)[name] == want[name], name
    assert np.isfinite([loss["loss"] for loss in want["losses"]]).all()
    assert any(norm for loss in want["losses"] for norm in loss["norms"])


@pytest.mark.parametrize("scenario", ALL)
def test_rows_without_a_reward_do_not_teach(both: list[Run], scenario: str) -> None:
    """Where rows fail, some but not all, they have advantage 0 and the others have not."""
    got = both[0].of(scenario)
    advantages = [np.abs(np.array(a).reshape(len(a), -1)).max(axis=1) for a in got["advantages"]]
    assert all(rows.any() for rows in advantages)
    if ALGORITHMS[scenario].get("fail"):
        assert sum(got["failed"]) > 0
        silent = sum(int((rows == 0).sum()) for rows in advantages)
        assert silent >= sum(got["failed"]), (silent, got["failed"])


def test_ppo_goes_on_from_its_checkpoint(two: Run) -> None:
    """Stopped after its first batch and started again, actor and critic go on."""
    for process in (0, 1):
        assert two.of("ppo stopped", process)["steps"] == [0]
        whole, resumed = two.of("ppo", process), two.of("ppo resumed", process)
        for name in ("steps", "tokens", "rewards", "row_ids", "advantages"):
            assert resumed[name] == whole[name][1:], name
        for name in ("params", "critic"):
            assert resumed[name] == whole[name], name


def test_a_value_for_failed_rows_counts_in_ppo(one: Run) -> None:
    """With value=-9 the rows that failed teach like the others, and pull the mean down."""
    valued = one.of("ppo value")
    assert sum(valued["failed"]) > 0
    for advantages in valued["advantages"]:
        assert np.abs(np.array(advantages)).max(axis=1).all()
    rewards = dict(zip(valued["failed"], valued["rewards"], strict=True))
    assert rewards[max(rewards)] < rewards[min(rewards)]


@pytest.mark.slow
def test_ppo_whitens_what_was_scored_together(rest: list[Run]) -> None:
    """Cut in micro-batches the rows of a rollout have the advantages of the whole batch."""
    micro, whole = rest[0].of("ppo micro"), rest[0].of("ppo whole")
    assert micro["modes"][:2] == whole["modes"][:2] == ["train", "eval"]
    rows = [row for part in micro["advantages"][:2] for row in part]
    np.testing.assert_allclose(rows, whole["advantages"][0], atol=2e-5)


def test_ppo_without_a_critic_is_refused(two: Run) -> None:
    """The learner says so before anything starts, on every process."""
    for process in (0, 1):
        error = two.raw("no critic", process)["error"]
        assert error == "ValueError: PPO needs a critic. Pass `critic` to the RLCluster."


def test_another_reward_manager_is_refused(one: Run) -> None:
    """A setting of Tunix that would be ignored is an error."""
    want = "ValueError: `reward_manager` must be 'sequence-level', got 'agentic-sequence-level'."
    assert one.raw("manager")["error"].startswith(want)


def test_an_overlong_buffer_without_its_function_is_refused(two: Run) -> None:
    """The learner says on every process which lines the rewards file lacks."""
    for process in (0, 1):
        error = two.raw("other buffer", process)["error"]
        assert "reward_shaping of the reward server has other settings" in error
        assert "cache_tokens = 3" in error


def test_ignored_dynamic_sampling_is_said(two: Run) -> None:
    """DAPO's dynamic sampling does nothing in Tunix 0.1.7; the log says so."""
    assert "dynamic_sampling has no effect" in two.logs[0]


def logged(job: Run, scenario: str, process: int = 0) -> dict[tuple[str, int], float]:
    """What the metrics logger got, by name and step; each once."""
    values = [((name, step), value) for name, value, step in job.of(scenario, process)["logged"]]
    assert len(dict(values)) == len(values)
    return dict(values)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_metrics_of_several_sampling_calls_are_those_of_tunix(calls: Run, algorithm: str) -> None:
    """Means, extremes and sums of a step that samples four times are joined as Tunix joins them."""
    tunix, ours = logged(calls, f"tunix {algorithm} calls"), logged(calls, f"{algorithm} calls")
    assert len(tunix) > 30
    for (name, step), value in tunix.items():
        factor = LENGTH_WEIGHT if name == "rewards/train/length" else 1
        assert ours[name, step] * factor == pytest.approx(value, rel=1e-4, abs=1e-6), name


@pytest.mark.slow
def test_an_identical_policy_has_no_kl_at_any_temperature(calls: Run) -> None:
    """Reference, old and current log-probabilities are at one temperature."""
    penalty = logged(calls, "ppo same policy")["rewards/train/reward_kl_penalty", 0]
    assert penalty == pytest.approx(0, abs=1e-6)
    (kl,) = (
        v for (name, _), v in logged(calls, "grpo same policy").items() if name.endswith("/kl")
    )
    assert kl == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_failed_rows_count_by_the_step(calls: Run) -> None:
    """A prompt of a step without any reward does not end the run of micro-batches."""
    cut, whole = calls.of("failing calls"), calls.of("failing whole")
    assert sum(cut["failed"]) == sum(whole["failed"]) > 0
    assert max(cut["failed"]) > 0.25 * 8
    assert len(cut["failed"]) == 4
    assert len(cut["losses"]) == 2


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_metrics_are_those_of_tunix(one: Run, two: Run, algorithm: str) -> None:
    """Names and values are those of Tunix's learner with functions in process, and some more."""
    tunix = logged(one, f"tunix {algorithm}")
    assert len(tunix) > 30
    for job in (one, two):
        ours = logged(job, f"{algorithm} metrics")
        for (name, step), value in tunix.items():
            # Tunix has no weights: there the function itself is smaller.
            factor = LENGTH_WEIGHT if name == "rewards/train/length" else 1
            assert ours[name, step] * factor == pytest.approx(value, rel=1e-4, abs=1e-6), name
        more = {name for name, _ in ours} - {name for name, _ in tunix}
        functions = [
            f"rewards/train/{fn}/{what}"
            for fn in ("letter", "length", "reward_shaping")
            for what in ("mean", "std", "n_valid")
        ]
        others = ["global/train/reward_wait_s", "rewards/train/rows_failed"]
        if algorithm != "ppo":
            others.append("rewards/train/groups_without_signal")
        assert more == {*functions, *others}


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_metrics_are_logged_once_for_all(one: Run, two: Run, algorithm: str) -> None:
    """Process 0 logs the values of all processes, the others nothing."""
    want, got = logged(one, f"{algorithm} metrics"), logged(two, f"{algorithm} metrics")
    for values in (want, got):
        for step in (0, 1):
            del values["global/train/reward_wait_s", step]
    assert got == want
    assert logged(two, f"{algorithm} metrics", 1) == {}
