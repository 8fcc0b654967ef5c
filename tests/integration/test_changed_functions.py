# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A server or worker that comes back with other reward functions: no row is scored by them."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from reward_server import membership
from reward_server.batch import WorkersUnavailable
from reward_server.router import WorkerRouter
from reward_server.status import RewardFnsChanged
from tests.integration import clients, service
from trainer import InvalidRequest, RewardClient

REWARDS = """
[[reward]]
name = "short"
fn = "mine.py:short"
params = { bonus = 1 }

[[reward]]
fn = "mine.py:other"
weight = 0.5
"""
SOURCE = """
def short(completions, *, bonus):
    return [float(bonus)] * len(completions)

def other(completions):
    return [0.0] * len(completions)
"""
CHANGES = {
    "weight": (REWARDS.replace("0.5", "0.25"), SOURCE, "other: weight 0.25, was 0.5"),
    "params": (
        REWARDS.replace("bonus = 1", "bonus = 100"),
        SOURCE,
        "short: params.bonus 100, was 1",
    ),
    "file": (
        REWARDS,
        SOURCE.replace("0.0", "5.0"),
        "short: other source code; other: other source code",
    ),
    "function": (REWARDS.replace('"short"', '"long"'), SOURCE, "long: added; short: missing"),
}


def write(folder, rewards=REWARDS, source=SOURCE):
    """Files of a server or worker."""
    service.write_files(folder, rewards=rewards)
    (folder / "mine.py").write_text(source)
    return folder


def serving(address, folder, kind="serve", *flags):
    """A server or worker with one child."""
    files = service.files(folder)
    return service.command(kind, "--listen", address, *files, "--slots", 1, *flags)


@pytest.mark.parametrize("what", CHANGES)
def test_a_server_that_comes_back_with_other_functions_ends_the_run(tmp_path, what):
    """The error says which function differs in what; the same functions elsewhere go on."""
    rewards, source, words = CHANGES[what]
    address = f"unix:{tmp_path}/s"
    with contextlib.closing(RewardClient(address, timeout_s=60)) as client:
        with serving(address, write(tmp_path / "a")) as first:
            first.ready()
            client.connect()
            assert client.score(clients.rollouts(3)).totals.tolist() == [1.0] * 3
            first.end()
        with serving(address, write(tmp_path / "b")) as second:
            second.ready()
            assert client.score(clients.rollouts(3, first=10)).totals.tolist() == [1.0] * 3
            client.connect()
            second.end()
        with serving(address, write(tmp_path / "c", rewards, source)) as third:
            third.ready()
            with pytest.raises(InvalidRequest, match="other reward functions") as error:
                client.score(clients.rollouts(3, first=20))
            assert words in str(error.value)
            assert error.value.reason == "REWARD_FNS_CHANGED"
            assert error.value.request_id
            with pytest.raises(InvalidRequest, match="other reward functions"):
                client.connect()
            assert service.info(address).rows_scored == 0


def test_a_reward_function_of_texts_keeps_its_functions(tmp_path):
    """The same for learners that hand over texts."""
    address, folder = f"unix:{tmp_path}/s", write(tmp_path / "a")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<end>"
    )
    with contextlib.closing(RewardClient(address, timeout_s=60)) as client:
        with serving(address, folder) as first:
            first.ready()
            reward_fn = client.as_reward_fn(tokenizer)
            assert reward_fn(["p"], ["ab"]) == [1.0]
            first.end()
        with serving(address, write(tmp_path / "b", *CHANGES["weight"][:2])) as second:
            second.ready()
            with pytest.raises(InvalidRequest, match=r"weight 0\.25, was 0\.5"):
                reward_fn(["p"], ["ab"])


@contextlib.asynccontextmanager
async def routing(address, tokenizer):
    """A router that has its first worker."""
    router = WorkerRouter(address, fingerprint=tokenizer.fingerprint)
    try:
        await router.start()
        yield router
    finally:
        await router.close()


async def test_an_idle_worker_that_comes_back_otherwise_gets_no_rows(tmp_path, tokenizer, caplog):
    """Nobody asks it between two calls: its answer to the next piece is a refusal, in words."""
    address = f"unix:{tmp_path}/w"
    batch = service.batch(["ab"], tokenizer)
    with serving(address, write(tmp_path / "a"), "worker") as first:
        first.ready()
        async with routing(address, tokenizer) as router:
            assert (await router.score(batch, timeout_s=30)).rewards.tolist() == [[1.0, 0.0]]
            info = router._workers[address].info
            first.end()
            with serving(address, write(tmp_path / "b", *CHANGES["params"][:2]), "worker") as other:
                other.ready()
                router._workers[address].info = info  # as if it had not been asked since
                with pytest.raises(WorkersUnavailable, match="1 of 1 rows have no reward"):
                    await router.score(batch, timeout_s=3)
                assert service.worker_rows(address) == 0
            assert "short: params.bonus 100, others 1" in caplog.text
            with serving(address, tmp_path / "a", "worker") as again:
                again.ready()
                assert (await router.score(batch, timeout_s=30)).rewards.tolist() == [[1.0, 0.0]]


async def test_new_functions_are_taken_over_when_no_old_worker_is_left(
    tmp_path, tokenizer, caplog, monkeypatch
):
    """While an old one is there the new one waits; calls that began with the old ones end."""
    monkeypatch.setattr(membership, "TAKE_OVER_S", 3.0)
    old, new = f"unix:{tmp_path}/old", f"unix:{tmp_path}/new"
    batch = service.batch(["ab"], tokenizer)
    with serving(old, write(tmp_path / "a"), "worker") as first:
        first.ready()
        async with routing(f"{old},{new}", tokenizer) as router:
            before = router.reward_fns_digest
            with serving(new, write(tmp_path / "b", *CHANGES["params"][:2]), "worker") as second:
                second.ready()
                await service.happened(lambda: "worker refused" in caplog.text)
                assert router.workers == 1
                assert (await router.score(batch, timeout_s=30)).rewards.tolist() == [[1.0, 0.0]]
                first.end()
                start = time.monotonic()
                with pytest.raises(RewardFnsChanged, match=r"short: params\.bonus 100, was 1"):
                    await router.score(batch, timeout_s=60)
                assert time.monotonic() - start > 1
                assert router.reward_fns_digest != before
                assert (await router.score(batch, timeout_s=30)).rewards.tolist() == [[100.0, 0.0]]
    assert "reward functions taken over from new workers: short: params.bonus 100, was 1" in (
        caplog.text
    )


@pytest.mark.slow
def test_the_recipe_for_a_rolling_change(tmp_path):
    """Old workers end, new ones start: runs that began before end by name, new ones go on."""
    listed = tmp_path / "workers"
    old, new = f"unix:{tmp_path}/old", f"unix:{tmp_path}/new"
    listed.write_text(old)
    address = f"unix:{tmp_path}/s"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(serving(old, write(tmp_path / "a"), "worker")).ready()
        flags = "--tokenizer", tmp_path / "a", "--workers", f"file:{listed}"
        stack.enter_context(service.command("serve", "--listen", address, *flags)).ready()
        running = stack.enter_context(contextlib.closing(RewardClient(address, timeout_s=120)))
        running.connect()
        assert running.score(clients.rollouts(3)).totals.tolist() == [1.0] * 3
        folder = write(tmp_path / "b", *CHANGES["params"][:2])
        stack.enter_context(serving(new, folder, "worker")).ready()
        listed.write_text(f"{old}\n{new}")
        assert running.score(clients.rollouts(3)).totals.tolist() == [1.0] * 3
        listed.write_text(new)
        first.end()
        with pytest.raises(InvalidRequest, match=r"short: params\.bonus 100, was 1"):
            running.score(clients.rollouts(3))
        later = stack.enter_context(contextlib.closing(RewardClient(address, timeout_s=60)))
        later.connect()
        assert np.array_equal(later.score(clients.rollouts(3)).totals, [100.0] * 3)


async def test_a_child_that_starts_later_has_the_same_source(tmp_path, tokenizer, caplog):
    """A file that is edited while a server runs changes no reward."""
    from reward_server.config import PoolConfig, RewardsConfig
    from reward_server.pool import Pool

    folder = write(tmp_path / "a")
    pool = Pool(RewardsConfig.load(folder / "rewards.toml"), folder, PoolConfig(slots=1))
    await pool.start()
    try:
        (folder / "mine.py").write_text(SOURCE.replace("0.0", "5.0"))
        for child in pool._children:
            child.kill()
        await service.happened(lambda: "has changed since the start" in caplog.text)
        (folder / "mine.py").write_text(SOURCE)
        batch = service.batch(["ab"], tokenizer)
        assert (await pool.score(batch, timeout_s=60)).rewards.tolist() == [[1.0, 0.0]]
    finally:
        await pool.close()
