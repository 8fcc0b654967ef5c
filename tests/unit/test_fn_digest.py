# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the hashes of reward functions, and of what has become of them in words."""

from __future__ import annotations

import dataclasses

import pytest
from shardward.changes import changes
from shardward.v1 import types_pb2

from reward_server import fn_digest, registry
from reward_server.batch import RewardFnInfo
from reward_server.config import Probe, RewardFnConfig

SOURCE = "def f(completions, *, limit=1):\n    return [1.0] * len(completions)\n"
ENTRY = RewardFnConfig(name="f", fn="f.py:f", params={"limit": 2, "text": "secret"})


def info(entry=ENTRY, *, route_column="", code="c0de", **values):
    """The function as a server offers it."""
    made = RewardFnInfo(
        name=entry.name,
        weight=entry.weight,
        timeout_s=entry.timeout_s,
        settings=fn_digest.settings(entry, route_column),
        code_digest=code,
    )
    return dataclasses.replace(made, **values)


def changed(**values):
    """The function with other settings."""
    return info(dataclasses.replace(ENTRY, **values))


OTHERS = {
    "name": info(name="g"),
    "weight": changed(weight=0.5),
    "params": changed(params={"limit": 3, "text": "secret"}),
    "text in params": changed(params={"limit": 2, "text": "another"}),
    "no params": changed(params={}),
    "per": changed(per="group"),
    "none": changed(none="skip"),
    "messages": changed(messages=True),
    "special tokens": changed(skip_special_tokens=False),
    "sources": changed(sources=("a",)),
    "column of sources": info(dataclasses.replace(ENTRY, sources=("a",)), route_column="c"),
    "code": info(code="other"),
}


def test_digests_never_change():
    """A value that is written down: no restart, path or Python may give another one."""
    assert fn_digest.of_functions([info()]) == "4c6489a0b1377b41"


@pytest.mark.parametrize("what", OTHERS)
def test_what_decides_a_reward_changes_the_digest(what):
    """Each setting, the weight, the name and the code count."""
    digests = [fn_digest.of_functions([fn]) for fn in (info(), *OTHERS.values())]
    assert len(set(digests)) == len(digests)
    assert fn_digest.of_functions([OTHERS[what]]) != fn_digest.of_functions([info()])


def test_order_counts_and_time_does_not():
    """The matrix follows the order; a limit decides whether there is a reward, not which."""
    one, two = info(), info(name="g")
    assert fn_digest.of_functions([one, two]) != fn_digest.of_functions([two, one])
    assert fn_digest.of_functions([changed(timeout_s=99.0)]) == fn_digest.of_functions([one])
    assert fn_digest.of_functions([changed(weight=1)]) == fn_digest.of_functions([one])


def test_every_setting_counts():
    """Also those that come later; what decides no reward is listed."""
    other = {"name": "x", "fn": "f.py:g", "timeout_s": 1.0, "probe": Probe()}
    for field in dataclasses.fields(RewardFnConfig):
        counts = field.name not in ("fn", "timeout_s", "probe")
        values = {"weight": 3.0, "per": "row", "none": "skip", "messages": True, **other}
        values |= {"skip_special_tokens": False, "params": {"limit": 3}, "sources": ("a",)}
        changes = {field.name: values[field.name]}
        same = fn_digest.of_functions([changed(**changes)]) == fn_digest.of_functions([info()])
        assert same != counts, field.name


def code_digest(folder, source=SOURCE):
    """The code digest of a file's function."""
    folder.mkdir()
    (folder / "f.py").write_text(source)
    return registry.load(RewardFnConfig(fn=f"{folder}/f.py:f")).code_digest


def test_the_source_of_a_function_counts_wherever_it_lies(tmp_path):
    """Copies of a file are the same function, an edited one is another."""
    first, copy = code_digest(tmp_path / "a"), code_digest(tmp_path / "b")
    edited = code_digest(tmp_path / "c", SOURCE.replace("1.0", "2.0"))
    assert first == copy
    assert edited != first


def test_a_function_of_another_file_counts_with_both(tmp_path, monkeypatch):
    """A rewards file may name a module that only imports the function."""
    digests = []
    for number, source in enumerate((SOURCE, SOURCE.replace("1.0", "2.0"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"inner{number}.py").write_text(source)
        (folder / "f.py").write_text("import importlib, glob\nfrom inner import f\n")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(__import__("sys").modules, "inner", raising=False)
        (folder / "inner.py").write_text(source)
        digests.append(registry.load(RewardFnConfig(fn=f"{folder}/f.py:f")).code_digest)
    assert digests[0] != digests[1]


def test_built_in_functions_have_one_digest():
    """They share code."""
    digests = {
        registry.load(RewardFnConfig(fn=name, params=params)).code_digest
        for name, params in {"gsm8k": {}, "regex_match": {"pattern": "a"}}.items()
    }
    assert len(digests) == 1
    assert digests != {""}


def message(fn):
    """The function as it travels."""
    return types_pb2.RewardFnInfo(
        name=fn.name, weight=fn.weight, settings=fn.settings, code_digest=fn.code_digest
    )


@pytest.mark.parametrize(
    ("what", "words"),
    {
        "name": "g: added; f: missing",
        "weight": "f: weight 0.5, was 1",
        "params": "f: params.limit 3, was 2",
        "text in params": "f: other params.text",
        "no params": "f: params.limit default, was 2, other params.text",
        "per": "f: per group, was default",
        "none": "f: none skip, was default",
        "messages": "f: messages true, was default",
        "special tokens": "f: skip_special_tokens false, was default",
        "sources": "f: other sources",
        "code": "f: other source code",
    }.items(),
)
def test_changes_are_said_in_words(what, words):
    """Both values where they are numbers; nothing that may be long or a secret."""
    assert changes([message(OTHERS[what])], [message(info())]) == words
    assert "secret" not in str(message(info()))


def test_another_order_is_said():
    """The names in both orders."""
    one, two = message(info()), message(info(name="g"))
    assert changes([two, one], [one, two], before_is="others") == "order g, f, others f, g"
    assert changes([one, two], [one, two]) == ""
