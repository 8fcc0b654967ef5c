# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Log lines of the programs, as a person and as a collector of logs read them."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
from pathlib import Path

import pytest

from reward_server import log

ROOT = Path(__file__).parents[2]


@pytest.fixture
def configured(capsys):
    """Configures logging as a program does; gives what it has written since."""
    before = logging.root.handlers[:], logging.root.level

    def written():
        return capsys.readouterr().err.splitlines()

    def configure(*, level="INFO", as_json=False):
        log.configure(level=level, as_json=as_json)
        return written

    yield configure
    logging.root.handlers, logging.root.level = before
    for name in ("grpc", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("message", "args", "event", "fields"),
    [
        (
            "ready listen=%s slots=%d reward_fns=%s",
            ("unix:/s", 2, "f,g"),
            "ready",
            {"listen": "unix:/s", "slots": 2, "reward_fns": "f,g"},
        ),
        ("child lost child_pid=%d: %s", (7, "gone"), "child lost: gone", {"child_pid": 7}),
        ("metrics listen=%s:%d", ("::", 80), "metrics", {"listen": ":::80"}),
        ("call waiting wait_s=%.0f", (12.6,), "call waiting", {"wait_s": 13.0}),
        ("listening listen=%s: 100%% of it", ("a:1",), "listening: 100% of it", {"listen": "a:1"}),
        ("workers stay as they are, %d: %s", (3, "a b"), "workers stay as they are, 3: a b", {}),
        ("watch failed", (), "watch failed", {}),
    ],
)
def test_fields_are_fields(message, args, event, fields):
    """Each name=value of a message is a key with its value; the rest is the event."""
    assert log.split_event(message, args) == (event, fields)
    assert {name: type(x) for name, x in log.split_event(message, args)[1].items()} == {
        name: type(x) for name, x in fields.items()
    }


def test_every_message_of_the_package_can_be_split():
    """No field of a message has the name of what each line has by itself."""
    own = {"ts", "level", "logger", "pid", "msg", "exception"}
    calls = re.compile(r"logger\.(?:debug|info|warning|error)\(\s*((?:\"[^\"]*\"\s*)+)")
    seen = 0
    for file in (ROOT / "reward_server").rglob("*.py"):
        for found in calls.findall(file.read_text(encoding="utf-8")):
            template = "".join(re.findall(r'"([^"]*)"', found))
            names = set(re.findall(r"(\w+)=%", template))
            assert not names & own, f"{file}: {template}"
            seen += 1
    assert seen > 15


def test_json_lines(configured):
    """Time with milliseconds and zone, process, fields; an exception in one line."""
    lines = configured(as_json=True)
    logger = logging.getLogger("reward_server.test")
    logger.info("worker left address=%s reason=%s", "a:1", 'say "no"\nand go')
    token = log.request_id.set("run/3/0/1.0")
    try:
        int("x")
    except ValueError:
        logger.exception("call failed")
    log.request_id.reset(token)
    first, second = map(json.loads, lines())
    when = dt.datetime.fromisoformat(first["ts"])
    assert when.utcoffset() == dt.timedelta(0)
    assert re.search(r"\.\d{3}\+00:00$", first["ts"])
    assert (first["msg"], first["address"], first["level"]) == ("worker left", "a:1", "INFO")
    assert first["reason"] == 'say "no"\nand go'
    assert isinstance(first["pid"], int)
    assert "request_id" not in first
    assert second["request_id"] == "run/3/0/1.0"
    assert second["exception"].endswith("ValueError: invalid literal for int() with base 10: 'x'")


def test_text_lines(configured):
    """An event is one line, with milliseconds and zone, whatever a worker says in it."""
    lines = configured()
    token = log.request_id.set("r1\nINFO forged")
    logging.getLogger("x").warning("worker left reason=%s", "a\nb")
    log.request_id.reset(token)
    (line,) = lines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d WARNING x"
        r" worker left reason=a\\nb request_id=r1\\nINFO forged",
        line,
    )


def test_a_message_that_does_not_fit_its_values_is_logged(configured):
    """A library's way to log is its own: a mapping, or values that are no tuple."""
    lines = configured(as_json=True)
    logging.getLogger("x").warning("%(a)s is b=%(b)d", {"a": "one", "b": 2})
    logging.getLogger("x").warning(ValueError("as a message"))
    assert [json.loads(line)["msg"] for line in lines()] == ["one is b=2", "as a message"]


def test_debug_is_not_about_libraries(configured):
    """What gRPC and asyncio say of their insides is left out; their warnings are not."""
    lines = configured(level="DEBUG")
    logging.getLogger("grpc._cython.cygrpc").debug("Loaded running loop")
    logging.getLogger("asyncio").debug("Using selector")
    logging.getLogger("asyncio").warning("a task took long")
    logging.getLogger("reward_server").debug("scored rows=%d", 1)
    assert [line.partition(" asyncio ")[2] or line[-13:] for line in lines()] == [
        "a task took long",
        "scored rows=1",
    ]
