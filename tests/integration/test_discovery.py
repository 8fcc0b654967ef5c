# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Workers that come and go while a server runs, listed in a file: nobody restarts anything."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from reward_server import membership
from reward_server.batch import RowStatus, StartError
from reward_server.router import WorkerRouter
from tests.integration import service


@pytest.fixture
def start(tmp_path, files):
    """Starts workers of one slot at sockets with these names; ends them after the test."""
    with contextlib.ExitStack() as stack:

        def start(*names):
            flags = (*service.files(files), "--slots", 1)
            commands = [
                stack.enter_context(
                    service.command("worker", "--listen", f"unix:{tmp_path}/{name}", *flags)
                )
                for name in names
            ]
            return [command.ready().address for command in commands]

        yield start


@pytest.fixture
def listing(tmp_path):
    """Writes the file of addresses, in one step as a deployment should."""

    def write(*lines):
        new = tmp_path / "new"
        new.write_text("\n".join(lines) + "\n")
        return new.replace(tmp_path / "workers")

    return write


@contextlib.asynccontextmanager
async def routing(path, tokenizer, *, joined):
    """A router over a file, once so many workers have joined."""
    running = WorkerRouter(f"file:{path}", fingerprint=tokenizer.fingerprint)
    try:
        await running.start()
        await service.happened(lambda: running.workers == joined)
        yield running
    finally:
        await running.close()


def used(running):
    """Addresses that may get rows."""
    return {worker.address for worker in running._workers if worker.usable}


async def test_a_file_that_grows_and_shrinks(start, listing, tokenizer):
    """A call that is under way goes to workers that are added, and leaves those taken out."""
    first, second = start("a", "b")
    path = listing("# two", first, "", f"{second}  # beside it")
    async with routing(path, tokenizer, joined=2) as running:
        rows = service.batch(["x" * (1 + row % 7) for row in range(400)], tokenizer, seconds=0.1)
        call = asyncio.create_task(running.score(rows, timeout_s=200))
        (third,) = await asyncio.to_thread(start, "c")
        listing(first, second, third)
        async with asyncio.timeout(10):
            await service.happened(lambda: service.worker_rows(third) > 0)
        listing(third)
        async with asyncio.timeout(10):
            await service.happened(lambda: used(running) == {third})
        await service.happened(lambda: len(list(running._workers)) == 1)
        left = [service.worker_rows(address) for address in (first, second)]
        assert not call.done()
        scores = await call
    assert (scores.statuses == RowStatus.OK).all()
    assert scores.rewards[:, 1].tolist() == [1 + row % 7 for row in range(400)]
    # Pieces under way were finished where they were, and no other was sent there.
    assert [service.worker_rows(address) for address in (first, second)] == left
    assert sum(left) + service.worker_rows(third) == 400


async def test_a_worker_that_leaves_ends_its_row(start, listing, tokenizer, caplog):
    """The row is scored once, by the worker that has it."""
    caplog.set_level(logging.INFO)
    first, second = start("a", "b")
    path = listing(first)
    async with routing(path, tokenizer, joined=1) as running:
        rows = service.batch(["ab"], tokenizer, seconds=4.0)
        call = asyncio.create_task(running.score(rows, timeout_s=100))
        await service.happened(lambda: running._workers[first].pieces)
        listing(second)
        await service.happened(lambda: used(running) == {second})
        assert not call.done()
        assert (await call).rewards[0, 1] == 2
        await service.happened(lambda: "reason=no longer listed" in caplog.text)
    assert service.worker_rows(second) == 0


async def test_a_worker_that_is_listed_again_is_used_again(start, listing, tokenizer):
    """Also while it ends what it had to do."""
    first, second = start("a", "b")
    path = listing(first)
    async with routing(path, tokenizer, joined=1) as running:
        rows = service.batch(["ab"], tokenizer, seconds=6.0)
        call = asyncio.create_task(running.score(rows, timeout_s=100))
        await service.happened(lambda: running._workers[first].pieces)
        listing(second)
        await service.happened(lambda: used(running) == {second})
        listing(first, second)
        await service.happened(lambda: used(running) == {first, second})
        assert not call.done()
        await call


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "can't be read"),
        (b"", "must list an address, got none"),
        (b"# nobody\n\n", "must list an address, got none"),
        (b"unix:/a\n\nhost-without-port\n", "line 3 must be HOST:PORT or unix:PATH"),
        (b"\xff\xfe\n", "can't be read"),
    ],
    ids=["missing", "empty", "comments", "malformed", "binary"],
)
async def test_a_broken_file_changes_nothing(start, listing, tokenizer, caplog, text, problem):
    """The last good list stays, it is said once, and the next good list is taken."""
    first, second = start("a", "b")
    path = listing(first)
    async with routing(path, tokenizer, joined=1) as running:
        if text is None:
            path.unlink()
        else:
            path.write_bytes(text)
        await service.happened(lambda: "workers stay as they are, 1:" in caplog.text)
        looks = 0
        look = running._workers._discovery.look

        async def counted():
            nonlocal looks
            looks += 1
            return await look()

        running._workers._discovery.look = counted
        await service.happened(lambda: looks >= 2)
        assert caplog.text.count("workers stay as they are") == 1
        assert problem in caplog.text
        assert used(running) == {first}
        assert (await running.score(service.batch(["ab"], tokenizer), timeout_s=60)).rewards[0, 1]
        listing(first, second)
        await service.happened(lambda: used(running) == {first, second})


async def test_a_file_that_comes_late(tmp_path, start, listing, tokenizer):
    """A server may be started before the list is there."""
    (first,) = start("a")
    running = WorkerRouter(f"file:{tmp_path}/workers", fingerprint=tokenizer.fingerprint)
    starting = asyncio.create_task(running.start())
    await service.happened(lambda: running._workers._unlisted)
    listing(first)
    await starting
    assert used(running) == {first}
    await running.close()


async def test_without_a_file_the_start_fails(tmp_path, tokenizer, monkeypatch):
    """The error names the file and the line."""
    monkeypatch.setattr(membership, "START_TIMEOUT_S", 1.0)
    (tmp_path / "workers").write_text("nowhere\n")
    running = WorkerRouter(f"file:{tmp_path}/workers", fingerprint=tokenizer.fingerprint)
    with pytest.raises(StartError, match="workers line 1 must be HOST:PORT"):
        await running.start()
    await running.close()


def test_a_server_follows_the_file(tmp_path, start, listing, files):
    """The flag of the command line."""
    first, second = start("a", "b")
    path = listing(first)
    flags = ("--listen", f"unix:{tmp_path}/s", "--tokenizer", files, "--workers", f"file:{path}")
    with service.command("serve", *flags) as server:
        address = server.ready().address
        listing(first, second)
        service.until(lambda: service.info(address).workers == 2)
        listing(second)
        service.until(lambda: service.info(address).workers == 1)
