# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Logging of the programs: one line an event on standard error, as text or JSON.

A message is an event and its fields, "worker left address=%s reason=%s". As text it stays one; in
JSON `msg` is the event, and each field is a key with its value.
"""

from __future__ import annotations

import contextvars
import datetime as dt
import json
import logging
import re
import sys
from typing import Any

# Id of the call that is being answered, for lines about it that don't name it themselves.
request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")

# Their DEBUG says how they work inside, for each call.
_LIBRARIES = ("asyncio", "grpc")
_CONVERSION = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?([a-zA-Z])")
_FIELD = re.compile(r"(\w+)=(.+?)([:;,]?)")


def split_event(template: str, args: tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
    """Splits a message into its event and its fields.

    Args:
        template: message with %-conversions; a field is a word "name=%s".
        args: their values, in order.

    Example:
        >>> split_event("worker left address=%s rows=%d: %s", ("a:1", 3, "gone"))
        ('worker left: gone', {'address': 'a:1', 'rows': 3})
    """
    words, fields, rest = [""], {}, list(args)
    for word in template.split(" "):
        kinds = _CONVERSION.findall(word.replace("%%", ""))
        values, rest = tuple(rest[: len(kinds)]), rest[len(kinds) :]
        field = _FIELD.fullmatch(word) if kinds else None
        if field is None:
            words.append(word % values)
            continue
        name, body, end = field.groups()
        text = body % values
        alone = _CONVERSION.fullmatch(body)
        fields[name] = _typed(text, values[0], alone[1]) if alone else text
        words[-1] += end
    return " ".join(words).strip(), fields


def _typed(text: str, value: Any, kind: str) -> Any:
    if kind in "fg":
        return float(text)
    return value if isinstance(value, bool | int | float | None) else text


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if (call := request_id.get()) and "request_id=" not in message:
            message = f"{message} request_id={call}"
        # Some of it is what callers, workers and functions say: a line stays one line.
        message = message.replace("\r", "\\r").replace("\n", "\\n")
        time = _time(record).isoformat(sep=" ", timespec="milliseconds")
        line = f"{time} {record.levelname} {record.name} {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        try:
            args = record.args if isinstance(record.args, tuple) else ()
            event, fields = split_event(str(record.msg), args)
        except (TypeError, ValueError, IndexError):
            event, fields = record.getMessage(), {}
        if call := request_id.get():
            fields.setdefault("request_id", call)
        line = {
            "ts": _time(record).astimezone(dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "msg": event,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | {name: x for name, x in fields.items() if name not in line})


def _time(record: logging.LogRecord) -> dt.datetime:
    return dt.datetime.fromtimestamp(record.created).astimezone()


def configure(*, level: str, as_json: bool) -> None:
    """Sets up the root logger; called once by a program, never by a library."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLevelNamesMapping()[level]))
