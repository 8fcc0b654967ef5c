# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns stay what the dataset holds, whatever it is and however batches are cut."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math

import grain
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_server import messages
from tests.column_values import SCALARS, VALUES, typed
from trainer import codec
from trainer.columns import RESERVED, BatchReader
from trainer.micro_batches import cut


class Color(enum.StrEnum):
    """Text, and more than text."""

    RED = "red"


def short(value):
    """Names a case, alike in each process; str() of a very long int is an error."""
    text = hex(value)[:20] if isinstance(value, int) else ascii(value)[:40]
    return text.partition(" at 0x")[0]


def read(column, prompts=("a", "b")):
    """A column after it was read."""
    return BatchReader().read({"prompts": list(prompts), "x": column})["x"].tolist()


def refused(column, prompts=("a", "b")):
    """Why it was not."""
    with pytest.raises(ValueError, match="column") as error:
        read(column, prompts)
    return str(error.value)


def on_the_server(column):
    """What a reward server reads of a column that the trainer encodes."""
    encoded = codec.encode_column("x", column).message(slice(None))
    return messages._column(type(encoded).FromString(encoded.SerializeToString()), len(column))


@settings(derandomize=True, deadline=None)
@given(st.lists(st.one_of(VALUES, SCALARS), min_size=1, max_size=9), st.integers(1, 9))
def test_values_arrive_as_they_were(values, size):
    """Whatever the micro-batch: the same values, of the same types, in the same order."""
    batches = [values[:4], values[4:]] if len(values) > 4 else [values]
    reader = BatchReader()
    seen = [reader.read({"prompts": ["p"] * len(b), "x": b}) for b in batches]
    got = []
    for micro in cut(seen, size, per_update=1):
        repeated = np.repeat(micro["x"], 2, axis=0)  # as Tunix does for generations
        got += on_the_server(repeated[::2].tolist())
        assert len(micro["x"]) == size
    whole = len(values) // size * size
    assert typed(got) == typed(values[:whole])


@settings(derandomize=True, deadline=None)
@given(st.lists(SCALARS.filter(lambda x: x is not None), min_size=2, max_size=2))
def test_mixed_scalars_keep_their_types(values):
    """A bool beside an int stays one, an int beside a float, and a number beside a text."""
    assert typed(on_the_server(read(values))) == typed(values)


@pytest.mark.parametrize(
    ("values", "plain"),
    [
        (np.array([1, 2], np.int32), [1, 2]),
        (np.array([True, False]), [True, False]),
        (np.array(["a", "bc"]), ["a", "bc"]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([2**63, 1], np.uint64), [2**63, 1]),
        (np.array([0.5, 2], np.float16), [0.5, 2.0]),
        (np.array([0.5, 2], np.longdouble), [0.5, 2.0]),
        (np.array([[1], "x"], object), [[1], "x"]),
        (jnp.arange(2), [0, 1]),
        (jnp.ones((2, 1), jnp.bfloat16), [[1.0], [1.0]]),
        ([np.int64(3), np.float32(0.5)], [3, 0.5]),
        ([np.bool_(True), np.str_("a")], [True, "a"]),
        ([{"gt": np.array([1, 2, 3])}, {"gt": jnp.arange(1)}], [{"gt": [1, 2, 3]}, {"gt": [0]}]),
        ([[jnp.float32(0.5)], [np.array(7)]], [[0.5], [7]]),
        ([(1, "a"), ()], [[1, "a"], []]),
        ((1, None), [1, None]),
        ([Color.RED, "b"], ["red", "b"]),
        ([math.inf, -0.0], [math.inf, -0.0]),
        ([10**4000, 2**53 + 1], [10**4000, 2**53 + 1]),
        ([np.ma.masked_array([1, 2], [True, False]), 1], [[None, 2], 1]),
    ],
    ids=short,
)
def test_arrays_and_scalars_become_plain(values, plain):
    """NumPy's and JAX's, nested too; tuples become lists."""
    assert typed(read(values)) == typed(plain)
    assert typed(on_the_server(read(values))) == typed(plain)


@pytest.mark.parametrize(
    ("value", "got", "remedy"),
    [
        (b"ab", "bytes", "value.decode('utf-8')"),
        (bytearray(b"ab"), "bytearray", "decode('utf-8')"),
        (np.bytes_(b"ab"), "bytes_", "value.decode('utf-8')"),
        (np.array([b"ab"]), "ndarray of |S2", "value.decode('utf-8')"),
        (decimal.Decimal(1), "Decimal", "str(value) or float(value)"),
        (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "datetime", "value.isoformat()"),
        (dt.date(2026, 1, 1), "date", "value.isoformat()"),
        (np.datetime64("2026-01-01", "ns"), "datetime64", "str(value)"),
        ({1, 2}, "set", "sorted(value)"),
        (1j, "complex", "leave the column out"),
        (np.zeros(1, [("a", int)]), "ndarray of [('a', '<i8')]", "leave the column out"),
        (object(), "object", "leave the column out"),
        (object, "type", "leave the column out"),
        ({5: "x"}, "a dict with the key 5 of type int", "use str(key)"),
        ({None: 1}, "a dict with the key None", "use str(key)"),
        ("half \ud83d", "text with a lone surrogate ('\\ud83d', character 5)", "was cut off"),
        ({"\ud83d": 1}, "text with a lone surrogate", "was cut off"),
        (10**5000, "an int of 16610 bits", "hex(value)"),
    ],
    ids=short,
)
@pytest.mark.parametrize("nested", [False, True])
def test_what_cannot_travel_is_named(value, got, remedy, nested):
    """The error has column, row, place, type and remedy; it comes before anything is sampled."""
    message = refused([1, {"a": [0, value]} if nested else value])
    assert message.startswith("column 'x' must hold text, numbers, booleans, None, or lists")
    assert f"got {got}" in message
    assert "in row 1" in message
    assert remedy in message
    assert ("at ['a'][1]" in message) == nested


def test_endless_nesting_is_refused() -> None:
    """Deeper than servers take, or a list in itself."""
    deep: list[object] = []
    for _ in range(63):
        deep = [deep]
    assert read([deep, 1]) == [deep, 1]
    assert on_the_server([deep, 1]) == [deep, 1]
    endless: list[object] = []
    endless.append(endless)
    for value in ([deep], endless):
        assert "nested deeper than 64 levels" in refused([1, value])


def test_long_rows_are_refused() -> None:
    """A row that no message can hold is named with its largest column."""
    batch = {"prompts": ["a", "b"], "y": ["ä" * 2**20] * 2, "x": ["", "x" * 48 * 2**20]}
    with pytest.raises(ValueError, match=r"got 52428800 in row 1, 50331648 of them in column 'x'"):
        BatchReader().read(batch)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("ab", "got one str. Repeat it for each prompt"),
        (b"ab", "got one bytes"),
        (5, "got one int"),
        (None, "got one NoneType"),
        (np.float32(1), "got one ndarray"),
        (np.array(3), "got one ndarray"),
        ({1, 2}, "got one set"),
        (iter([1, 2]), "got one list_iterator"),
        ({"a": 1, "b": 2}, "got a dict. Give a list of dicts"),
        ({"a": [1, 2], "b": [1, 2]}, "got a dict"),
        ({"a": np.arange(2), "b": np.arange(3)}, "got a dict"),
        ([1, 2, 3], "one value per prompt (2), got 3"),
        ([], "one value per prompt (2), got 0"),
        (np.zeros((3, 2)), "one value per prompt (2), got 3"),
        ([np.arange(2)] * 3 + [None, 1], "one value per prompt (2), got 5"),
        ([np.arange(2), np.arange(2, 4)], "whether an array is a row"),
        ([{"k": np.arange(2)}, {"k": np.arange(2, 4)}], "whether an array is a row"),
        ([jnp.arange(2), jnp.arange(2, 4)], "whether an array is a row"),
    ],
    ids=short,
)
def test_what_is_no_column_is_refused(column, text):
    """Nothing is paired with rows because its length happens to fit."""
    assert text in refused(column)


def batched(rows):
    """A batch as Grain makes it."""
    return grain.MapDataset.source(rows).batch(len(rows))[0]


@dataclasses.dataclass
class Item:
    """What is in a row, by the kinds of columns."""

    text: str
    options: list[str]
    meta: dict[str, object]
    pair: tuple[int, str]
    vector: np.ndarray

    def row(self):
        """As a dataset has it."""
        return {"prompts": self.text, **{k: v for k, v in vars(self).items() if k != "text"}}


def items(count):
    """Rows that differ everywhere."""
    return [
        Item(
            f"p{i}",
            [f"{i}{c}" for c in "abcd"],
            {"id": i, "tests": [{"in": f"{i}", "out": i / 2, "no": None}]},
            (i, f"t{i}"),
            np.arange(3) + i,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_columns_as_grain_batches_them(count):
    """Lists, dicts and tuples lie by places there; each row gets its own values back."""
    given_rows = [item.row() for item in items(count)]
    got = BatchReader().read(batched(given_rows))
    for name in given_rows[0]:
        want = [json.loads(json.dumps(row[name], default=np.ndarray.tolist)) for row in given_rows]
        assert got[name].tolist() == want, name


def test_what_was_certain_decides_what_is_not() -> None:
    """A column that lay by places lies so in a last batch of as many rows as places."""
    rows = [item.row() for item in items(9)]
    reader = BatchReader()
    reader.read(batched(rows[:5]))
    assert reader.read(batched(rows[5:]))["options"].tolist() == [r["options"] for r in rows[5:]]
    with pytest.raises(ValueError, match="column 'options' is a list of 4 arrays"):
        BatchReader().read(batched(rows[5:]))
    by_rows = BatchReader()
    ragged = [np.arange(1), np.arange(2)]
    by_rows.read({"prompts": ["a", "b"], "x": ragged})
    square = [np.array([1, 2]), np.array([3, 4])]
    assert by_rows.read({"prompts": ["a", "b"], "x": square})["x"].tolist() == [[1, 2], [3, 4]]


def test_batches_of_lists_from_grain() -> None:
    """The remedy of the message works: rows of lists, ragged ones too."""
    rows = [{"prompts": f"p{i}", "x": [str(j) for j in range(i)]} for i in range(4)]
    ds = grain.MapDataset.source(rows).batch(
        4, batch_fn=lambda rows: {k: [row[k] for row in rows] for k in rows[0]}
    )
    assert BatchReader().read(ds[0])["x"].tolist() == [row["x"] for row in rows]


@pytest.mark.parametrize(
    ("prompts", "text"),
    [
        ("12+1=", "must be a list of texts, got one str"),
        (np.str_("12"), "got one str_"),
        ([b"12"], "must hold text, got bytes in row 0. Decode it"),
        (np.array([b"12"]), "got bytes_ in row 0. Decode it"),
        ([[{"role": "user", "content": "12"}]], "add_generation_prompt=True"),
        ([{"role": "user", "content": "12"}], "tokenizer.apply_chat_template"),
        (["a", None], "got NoneType in row 1"),
        ([5], "got int in row 0"),
        ([math.nan], "got float in row 0"),
        (np.array([1, 2]), "got int64 in row 0"),
        ([["a"]], "got list in row 0"),
        (np.array([["a"], ["b"]]), "got ndarray in row 0"),
        (["a", "\ud83d"], "must hold text, got text with a lone surrogate"),
        ([], "a batch must hold prompts"),
        (None, "got one NoneType"),
    ],
    ids=short,
)
def test_prompts_must_be_text(prompts, text):
    """Nothing else is trained on, as its repr least of all."""
    with pytest.raises(ValueError, match="prompts") as error:
        BatchReader().read({"prompts": prompts})
    assert text in str(error.value)


@pytest.mark.parametrize("prompts", [["ä", "b"], ("ä", "b"), np.array(["ä", "b"])])
def test_prompts_are_strings(prompts):
    """Of Python, whatever they were."""
    got = BatchReader().read({"prompts": prompts})["prompts"].tolist()
    assert typed(got) == typed(["ä", "b"])


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ([{"prompts": "a"}], "got a list of dict. Batch the dataset"),
        ("prompts", "got str"),
        (None, "got NoneType"),
        ({"prompt": ["a"]}, r"must have the column 'prompts', got \['prompt'\]"),
        ({"prompts": ["a"], 5: ["x"]}, "names that are text, got 5"),
        ({"prompts": ["a"], "": ["x"]}, "names that are text, got ''"),
        ({"prompts": ["a"], "\ud83d": ["x"]}, "names that are text"),
        *(
            ({"prompts": ["a"], name: ["x"]}, f"column '{name}' must have another")
            for name in RESERVED
        ),
    ],
    ids=short,
)
def test_what_is_no_batch_is_refused(batch, text):
    """Rows that were never batched, names that mean something else."""
    with pytest.raises(ValueError, match=text):
        BatchReader().read(batch)


def test_every_batch_has_the_same_columns() -> None:
    """One that a batch lacks would be given to the wrong rows in micro-batches."""
    reader = BatchReader()
    reader.read({"prompts": ["a"], "x": [1]})
    with pytest.raises(ValueError, match=r"the columns of the first, \['prompts', 'x'\]"):
        reader.read({"prompts": ["a"]})
