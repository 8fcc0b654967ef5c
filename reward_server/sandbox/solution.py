# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Role of a run: functions under test, called from outside.

Everything here shares an interpreter with hostile code, which may answer in its stead. That earns
nothing: an answer is data that is compared elsewhere, with values that never come here.
"""

from __future__ import annotations

import builtins
import marshal
import operator
from types import FunctionType, ModuleType
from typing import Any

from reward_server.sandbox import source, values
from reward_server.sandbox.messages import Channel

_MAX_TEXT = 500
_APPLY: dict[str, Any] = {
    "getattr": getattr,
    "getitem": operator.getitem,
    "iter": iter,
    "len": len,
    "next": next,
    "repr": repr,
    "setitem": operator.setitem,
    "str": str,
}


def run(channel: Channel) -> None:
    """Answers requests until the other side is gone."""
    solution = _Solution()
    # Bound now: the module's names may mean something else once code under test has run.
    answer, receive, send = solution.answer, channel.receive, channel.send
    while True:
        try:
            request = receive()
        except EOFError:
            return
        reply = answer(request)
        reply["id"] = request["id"]
        send(reply)


class _Solution:
    def __init__(self) -> None:
        self._names: dict[str, Any] = {}
        self._objects: list[Any] = []
        self._operations = {
            "load": self._load,
            "find": self._find,
            "call": self._call,
            "apply": self._apply,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Does what a request says; errors of code under test are answers, too."""
        try:
            return self._operations[request["operation"]](request)
        except BaseException as error:  # noqa: BLE001 - code under test may raise anything
            return _error_answer(error)

    def _load(self, request: dict[str, Any]) -> dict[str, Any]:
        self._names = source.load("solution", request["sources"])
        return {"value": None}

    def _find(self, request: dict[str, Any]) -> dict[str, Any]:
        found = {name: self._names[name] for name in request["names"] if name in self._names}
        return {"value": {name: values.encode(v, self._refer) for name, v in found.items()}}

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        refer = self._refer if request["references"] else None
        target = request["target"]
        call = self._path(target) if isinstance(target, str) else self._decode(target)
        arguments = [self._decode(item) for item in request["arguments"]]
        keywords = {name: self._decode(item) for name, item in request["keywords"].items()}
        result = call(*arguments, **keywords)
        # An instance of the solution's own class stays one, even if its base is plain data.
        whole = refer and isinstance(call, type) and call.__module__ == "solution"
        reply = {"value": self._refer(result) if whole else values.encode(result, refer)}
        if request["effects"]:
            reply["arguments"] = [values.encode(item, self._refer) for item in arguments]
        return reply

    def _apply(self, request: dict[str, Any]) -> dict[str, Any]:
        arguments = [self._decode(item) for item in request["arguments"]]
        return {"value": values.encode(_APPLY[request["name"]](*arguments), self._refer)}

    def _path(self, path: str) -> Any:
        first, *rest = path.split(".")
        value = self._names[first] if first in self._names else getattr(builtins, first)
        for name in rest:
            value = getattr(value() if isinstance(value, type) else value, name)
        return value

    def _decode(self, value: Any) -> Any:
        return values.decode(value, self._resolve)

    def _refer(self, value: Any) -> dict[str, Any]:
        self._objects.append(value)
        reference: dict[str, Any] = {"type": "reference", "value": len(self._objects) - 1}
        if isinstance(value, ModuleType):
            reference["module"] = value.__name__
        elif isinstance(value, type) and issubclass(value, Exception):
            reference["exception"] = _names(value)
        return reference

    def _resolve(self, value: dict[str, Any]) -> Any:
        kind = value["type"]
        if kind == "reference":
            return self._objects[value["value"]]
        if kind == "builtin":
            return getattr(builtins, value["value"])
        # Made by the referee, which holds no code of ours.
        code = marshal.loads(bytes.fromhex(value["value"]))  # noqa: S302
        defaults = tuple(self._decode(item) for item in value["defaults"])
        return FunctionType(code, self._names, code.co_name, defaults)


def _names(kind: type) -> list[str]:
    return [base.__name__ for base in kind.__mro__]


def _error_answer(error: BaseException) -> dict[str, Any]:
    try:
        text = str(error)[:_MAX_TEXT]
    except BaseException:  # noqa: BLE001 - __str__ of code under test
        text = ""
    return {"error": _names(type(error)), "message": text}
