# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The mistakes that reward functions are written with, and what each message says to do."""

from __future__ import annotations

import pytest

from reward_server import registry
from reward_server.config import ConfigError, RewardFnConfig, RewardsConfig
from reward_server.user_errors import explain_probe

LIST = "It must return a list with one number for each completion."
CHATS = "set `messages = true`"
# The body of a function, what else its entry says, and a part of the message.
MISTAKES = {
    "two values": ("return [1.0, 2.0]", {}, LIST),
    "one float": ("return 1.0", {}, LIST),
    "a text": ("return 'a'", {}, LIST),
    "texts": ("return ['a']", {}, LIST),
    "None": ("return None", {}, LIST),
    "a generator": ("return (1.0 for _ in completions)", {}, LIST),
    "a dict": ("return {0: 1.0}", {}, LIST),
    "one of a group": ("return [1.0]", {"per": "group"}, "returned 1 values for 4 rows"),
    "TRL's chats": ("return [len(completions[0][0]['content'])]", {}, CHATS),
    "chats of a text": ("return [c[0]['content'] for c in ['x']]", {}, CHATS),
    "texts as chats": (
        "return [float(completions[0].strip() == '')]",
        {"messages": True},
        "leave that out if it takes texts",
    ),
    "a list as a text": ("return [float(completions.strip() == '')]", {}, 'per = "row"'),
    "TRL's state": ("return [kw['trainer_state'].global_step]", {}, "take `step`"),
    "a missing column": ("return [float(kw['gold'][0])]", {}, 'columns = {gold = "..."}'),
    "a column to parse": (
        "return [float(answer[0])]",
        {},
        'EXAMPLE = {"completion": "...", "columns": {"answer": "..."}}',
    ),
}


def load(tmp_path, source, function="f", **entry):
    """A function of a file with this text."""
    file = tmp_path / f"fns_{abs(hash(source))}.py"
    file.write_text(source, encoding="utf-8")
    return registry.load(RewardFnConfig(fn=f"{file}:{function}", **entry))


def probe(function):
    """What is said of a function that fails its probe row."""
    try:
        arguments, rows = function.probe_arguments()
        function.check_probe(function.call(**arguments), rows)
    except Exception as error:  # noqa: BLE001 - as a child catches it
        return explain_probe(error, function)
    return None


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_its_hint(tmp_path, mistake):
    """Each message says what to do, and does not offer a probe where none would help."""
    body, entry, hint = MISTAKES[mistake]
    takes = "completions, answer" if "answer" in body else "completions"
    message = probe(load(tmp_path, f"def f({takes}, **kw):\n    {body}\n", **entry))
    assert "failed its probe row: " in message
    assert hint in message
    if hint == LIST:
        assert "probe" not in message.partition("probe row: ")[2]


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ('{"completion": "c", "answer": "7"}', r'EXAMPLE must have the keys .* "columns"'),
        ('{"completion": 7}', "EXAMPLE can't be used: `completion` must be text, got 7"),
        ('{"completions": "c"}', "EXAMPLE can't be used: `completions` must be a list of texts"),
    ],
)
def test_a_wrong_example_is_named(tmp_path, example, message):
    """Its name is the user's, not that of a class of ours."""
    with pytest.raises(ValueError, match=message):
        load(tmp_path, f"EXAMPLE = {example}\ndef f(completions, **_):\n    return [1.0]\n")


def test_a_list_as_a_column_of_an_example(tmp_path):
    """A column of an example is the value of one row."""
    source = 'EXAMPLE = {"completion": "7", "columns": {"a": ["7"]}}\n'
    message = probe(load(tmp_path, source + "def f(completions, a):\n    return [float(a[0])]\n"))
    assert "Columns of a probe or EXAMPLE are the value of one row: is `a` a list?" in message


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        ("FILE", r"must name a function: fns.py:FUNCTION; it has one, two"),
        ("FILE:three", r"has no function 'three'; it has one, two"),
        ("fns.one", r"of a module, fns:one, or of a file, fns.py:one"),
        ("gsm", r"no built-in function; the nearest is `gsm8k`"),
        ("mine", r"no built-in function; there are .*math.*file.py:mine"),
    ],
)
def test_a_name_without_a_function(tmp_path, fn, message):
    """What is there to choose from, or how it is written."""
    file = tmp_path / "fns.py"
    file.write_text("from math import sin\ndef one(): ...\ndef two(): ...\ndef _no(): ...\n")
    with pytest.raises(LookupError, match=message):
        registry.load(RewardFnConfig(fn=fn.replace("FILE", str(file))))


@pytest.mark.parametrize(
    ("annotation", "value", "fits"),
    [
        ("float", "high", False),
        ("float", 1, True),
        ("int", 1.5, False),
        ("int", True, False),
        ("str | None", 1, False),
        ("str | None", "x", True),
        ("Sequence[str]", 1, True),
        ("NoSuchName", 1, True),
    ],
)
def test_types_of_params(tmp_path, annotation, value, fits):
    """A value that can't be meant is refused, where the annotation is a plain type."""
    source = (
        "from __future__ import annotations\nfrom collections.abc import Sequence\n"
        f"def f(completions, *, p: {annotation} = None, **_):\n    return [1.0]\n"
    )
    if fits:
        assert load(tmp_path, source, params={"p": value}).config.params == {"p": value}
    else:
        with pytest.raises(TypeError, match=r"its parameter `p` must be .*, got"):
            load(tmp_path, source, params={"p": value})


def test_a_trainer_state_is_refused(tmp_path):
    """No dataset has such a column."""
    source = "def f(completions, trainer_state):\n    return [1.0]\n"
    with pytest.raises(TypeError, match="take `step`"):
        load(tmp_path, source)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("weigth", r"`weigth` is no key of \[\[reward\]\]; the nearest is `weight`"),
        ("relative_tolerance", r"go into its `params`: .* \[reward.params\] .*relative_tolerance"),
        ("zzz", r"go into its `params`"),
    ],
)
def test_a_key_that_is_an_argument(tmp_path, key, message):
    """The nearest key where one is near; else the place of arguments."""
    file = tmp_path / "r.toml"
    file.write_text(f'[[reward]]\nfn = "math"\n{key} = 0.1\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        RewardsConfig.load(file)


def test_groups_are_probed_with_several_rows(tmp_path):
    """What compares rows can start; its own completions come first."""
    source = (
        "import statistics\ndef f(completions, gold):\n"
        "    spread = statistics.stdev(map(len, completions))\n"
        "    return [len(c) / spread for c in completions]\n"
    )
    assert probe(load(tmp_path, source, per="group")) is None
    own = 'EXAMPLE = {"completions": ["a", "bb"], "columns": {"gold": 7}}\n' + source
    arguments, rows = load(tmp_path, own, per="group").probe_arguments()
    assert rows == 2
    assert arguments == {"completions": ["a", "bb"], "gold": [7, 7]}
