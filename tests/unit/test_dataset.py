# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Datasets on their way to the learner: numbered, cut to what the shards divide, filtered."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

from trainer.agreement import Attempt
from trainer.batches import AgreedBatches
from trainer.columns import LONGEST_PROMPT, PROMPT_NUMBER
from trainer.dataset import PreparedBatches
from trainer.errors import ProcessesDisagree
from trainer.micro_batches import cut
from trainer.prompt_share import PromptShare
from trainer.resume import unfinished_batches
from trainer.shards import RowLayout

FOUR_SHARDS = ((0,), (0,), (1,), (1,))
APART = ((0,), (1,), (0,), (1,))


def share(*, g=4, grid=FOUR_SHARDS, process=0, replicated=False):
    """A process's share of four data shards, on two processes."""
    layout = RowLayout(grid=grid, process_index=process)
    return PromptShare(layout=layout, num_generations=g, replicated=replicated)


def prepared(sizes, *, longest=None, lengths=None, first="p", **of_share):
    """Batches of numbered prompts, prepared."""
    ends = np.cumsum(sizes).tolist()
    batches = [
        {"prompts": [f"{first}{i}" for i in range(end - size, end)], "i": range(end - size, end)}
        for size, end in zip(sizes, ends, strict=True)
    ]
    return PreparedBatches(
        batches,
        "train",
        share=share(**of_share),
        prompt_lengths=lambda prompts: [(lengths or {}).get(p, 1) for p in prompts],
        longest=longest,
    )


def numbers(batches):
    """Prompt numbers of each batch."""
    return [batch[PROMPT_NUMBER].tolist() for batch in batches]


def values(batches):
    """The column `i` of each batch, which must go with its prompts."""
    for batch in batches:
        assert [f"p{i}" for i in batch["i"]] == batch["prompts"].tolist()
    return [batch["i"].tolist() for batch in batches]


def test_prompts_are_numbered_through_the_run() -> None:
    """Also behind a smaller batch; the processes' numbers are those of one process."""
    whole = numbers(prepared([4, 4, 2, 4], replicated=True))
    assert whole == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10, 11, 12, 13]]
    halves = [numbers(prepared([2, 2, 1, 2], process=process)) for process in (0, 1)]
    assert [a + b for a, b in zip(*halves, strict=True)] == whole
    apart = [numbers(prepared([2, 2, 2], grid=APART, process=p)) for p in (0, 1)]
    assert apart == [[[0, 2], [4, 6], [8, 10]], [[1, 3], [5, 7], [9, 11]]]


def test_a_resumed_run_goes_on_with_its_numbers() -> None:
    """Batches that a checkpoint has seen are counted, smaller ones too."""
    rest = unfinished_batches(
        prepared([4, 2, 4], replicated=True), updates_done=2, mini_batch_size=None, num_iterations=1
    )
    assert numbers(rest) == [[6, 7, 8, 9]]


def test_micro_batches_keep_numbers() -> None:
    """A prompt's number does not depend on the size of micro-batches."""
    for size in (1, 2, 4, 8):
        micro = list(cut(prepared([8, 8], replicated=True), size, per_update=1))
        assert list(itertools.chain(*numbers(micro))) == list(range(16))
        assert [len(batch["i"]) for batch in micro] == [size] * (16 // size)


@pytest.mark.parametrize(
    ("sizes", "g", "kept", "left_out"),
    [
        ([4, 4, 3], 2, [4, 4, 2], [1]),
        ([4, 1, 4], 2, [4, 4], [1]),
        ([4, 3], 4, [4, 3], []),
        ([4, 3], 1, [4], [3]),
        ([8, 7, 5], 3, [8, 4, 4], [3, 1]),
        ([8, 6], 6, [8, 6], []),
    ],
)
def test_what_the_shards_do_not_divide_is_left_out(caplog, sizes, g, kept, left_out):
    """With a warning that says how many; values stay with their prompts."""
    batches = list(prepared(sizes, g=g, replicated=True))
    starts = np.cumsum([0, *sizes])
    assert [len(batch["i"]) for batch in batches] == kept
    assert all(v[0] in starts for v in values(batches))
    assert list(itertools.chain(*numbers(batches))) == list(range(sum(kept)))
    assert [r.args[2] for r in caplog.records if "don't divide" in r.message] == left_out


def test_a_first_batch_that_the_shards_do_not_divide_is_refused() -> None:
    """All batches have its size: at the start it is an error."""
    with pytest.raises(ValueError, match="must be a multiple of the 4 data shards, got 3"):
        list(prepared([3, 4], g=1, replicated=True))
    with pytest.raises(ValueError, match="must hold whole groups"):
        list(prepared([1, 1], g=2, grid=APART))


def test_long_prompts_are_replaced_by_those_that_follow(caplog) -> None:
    """Batches keep their size, so that those of other processes still fit; the count is logged."""
    lengths = {"p1": 9, "p2": 9, "p6": 9}
    dataset = prepared([4, 4, 4], longest=8, lengths=lengths, replicated=True, g=4)
    assert values(dataset) == [[0, 3, 4, 5], [7, 8, 9, 10], [11]]
    assert numbers(dataset) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert "train data: long prompts were left out prompts=3 tokens_above=8" in caplog.messages


def test_prompts_that_make_no_whole_update_are_counted(caplog) -> None:
    """What Tunix leaves out of the last update is said."""
    micro = list(cut(prepared([4, 4, 2], replicated=True), 2, per_update=2))
    assert [len(batch["i"]) for batch in micro] == [2] * 5
    assert "left out prompts=2 on this process" in caplog.text
    caplog.clear()
    list(cut(prepared([4, 4], replicated=True), 2, per_update=2))
    assert not caplog.records


def agreed(*prompts_by_process, **options):
    """Batches of process 0 while all processes agree; one list of batches for each process."""
    count = len(prompts_by_process)
    datasets = [
        [{"prompts": np.array(batch, object)} for batch in batches]
        for batches in prompts_by_process
    ]
    said = [[v for batch in datasets[p] for v in [_value(batch, p, options)]] for p in range(count)]
    taken = []

    class Service:
        process_count = count

        def exchange(self, place, value, decide, *, error):
            del place
            if error is not None:
                raise error
            here = len(taken)
            others = [s[here] if here < len(s) else {**value, "rows": 0} for s in said]
            taken.append(None)
            return decide(others)

    batches = AgreedBatches(
        datasets[0],
        "train",
        agreement=Service(),
        local_shards=[0] if options.get("local", True) else None,
        prompt_lengths=lambda prompts: [len(p) for p in prompts],
        longest=options.get("longest"),
        stop_reason=str,
        on_stop=lambda _: None,
        check=lambda: None,
    )
    return list(batches)


def _value(batch, process, options):
    """What a process says of its batch."""
    one = AgreedBatches(
        [],
        "train",
        agreement=None,
        local_shards=[process] if options.get("local", True) else None,
        prompt_lengths=lambda prompts: [len(p) for p in prompts],
        longest=None,
        stop_reason=str,
        on_stop=lambda _: None,
        check=lambda: None,
    )
    return {**one._next(Attempt(lambda: iter([batch])))[1], "stop": ""}


def test_equal_prompts_by_chance_are_a_warning(caplog) -> None:
    """Two of many processes that draw the same prompt in one step train on."""
    first = [[f"a{i}"] for i in range(20)]
    second = [[f"b{i}"] for i in range(20)]
    second[0] = first[0]
    for i in (7, 8, 9, 10):
        second[i] = first[i]
    assert len(agreed(first, second)) == 20
    said = [r for r in caplog.records if "may be chance" in r.message]
    assert len(said) == 1
    assert "train batch 0: processes 0 and 1 have the same prompts" in caplog.text


@pytest.mark.parametrize(("size", "steps"), [(1, 8), (3, 3), (8, 1), (64, 1)])
def test_processes_that_iterate_the_same_data_are_refused(size, steps):
    """From the first batch on and for eight prompts: with one prompt a process, too."""
    data = [[f"p{step * size + i}" for i in range(size)] for step in range(10)]
    others = [[f"other{step}-{i}" for i in range(size)] for step in range(10)]
    with pytest.raises(ProcessesDisagree, match="processes 0 and 2 have the same prompts") as error:
        agreed(data, others, data)
    assert f"train batch {steps - 1}:" in str(error.value)


def test_repeated_prompts_do_not_count() -> None:
    """Two processes whose data holds one prompt many times have little in common yet."""
    same = [["p"] * 8] * 3
    assert len(agreed(same, same)) == 3


def test_last_batches_of_different_size_end_the_data(caplog) -> None:
    """A dataset that the processes do not divide is no error after hours."""
    first = [["a", "b"], ["c", "d"], ["e", "f"]]
    second = [["g", "h"], ["i", "j"], ["k"]]
    assert len(agreed(first, second)) == 2
    assert "prompts_by_process=[2, 1]" in caplog.text
    with pytest.raises(ProcessesDisagree, match="process 0 has 2 rows, process 1 has 1"):
        agreed(first, [["g"], ["i", "j"]])


def test_a_long_prompt_widens_its_batch_alone() -> None:
    """Each batch knows its own longest prompt, over all processes."""
    batches = agreed([["a"], ["b"], ["c"]], [["x"], ["y" * 9], ["z"]])
    assert [batch[LONGEST_PROMPT].tolist() for batch in batches] == [[1], [9], [1]]


def test_a_prompt_that_the_cache_has_no_room_for_is_named() -> None:
    """With row, tokens and remedy."""
    with pytest.raises(ValueError, match=r"at most 8 tokens.*got 9 in row 1.*drop_long_prompts"):
        agreed([["a", "b" * 9]], [["c", "d"]], longest=8)


@pytest.fixture(autouse=True)
def _all_levels(caplog):
    caplog.set_level(logging.WARNING)
