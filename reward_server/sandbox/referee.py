# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Role of a run: the code of a test, in a process that never holds the code under test.

Names that the test does not define stand for those of the solution. A call of one is done in the
solution's process on copies of the arguments; plain data comes back as plain data, and all else
as a `_Remote`, which can be used but not compared: what the solution overrides decides nothing.
"""

from __future__ import annotations

import builtins
import importlib
import marshal
import sys
from types import FunctionType, ModuleType
from typing import Any

from reward_server.sandbox import asserts, values
from reward_server.sandbox.messages import Channel

_MAX_TEXT = 500


class _UnsupportedError(Exception):
    """The test does something that cannot be done from outside."""


class _SolutionError(Exception):
    """The code under test raised something that is no built-in exception."""


def run(channel: Channel) -> None:
    """Runs tests until the other side is gone, each with names of its own."""
    while True:
        try:
            request = channel.receive()
        except EOFError:
            return
        channel.send(_Referee(channel).judge(request["code"]))


class _Referee:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._checks = 0
        self._problem: str | None = None
        self._answers = 0
        self._exceptions: dict[str, type[Exception]] = {}
        self._raised: list[Exception] = []

    def judge(self, text: str) -> dict[str, Any]:
        """Runs a test; it passes if it checks something and nothing is raised."""
        try:
            code = asserts.prepare(text)
            names = self._names(code)
            exec(compile(code.tree, "test", "exec", dont_inherit=True), names)  # noqa: S102
            for name in code.tests:
                names[name]()
        except BaseException as error:  # noqa: BLE001 - a test may raise anything
            if isinstance(error, ImportError) and error not in self._raised:
                # The solution's module has no such name, or there is no such module for the test.
                self._problem = None if error.name == "solution" else str(error)
            if self._problem is not None:
                return {"verdict": "bad", "message": self._problem[:_MAX_TEXT]}
            return {"verdict": "failed", "message": f"{type(error).__name__}: {error}"[:_MAX_TEXT]}
        return {"verdict": "passed" if self._checks else "failed", "message": ""}

    def _names(self, code: asserts.AssertCode) -> dict[str, Any]:
        names: dict[str, Any] = {
            "__name__": "test",
            asserts.EFFECTS: self._with_effects,
            asserts.CHECKED: self._checked,
        }
        module = _SolutionModule("solution")
        module.find = lambda name: self._find([name]).get(name)
        sys.modules["solution"] = module
        for name in code.modules:
            names[name] = importlib.import_module(name)
        for name, home in code.imported.items():
            names[name] = getattr(importlib.import_module(home), name)
        names.update(self._find(code.unknown))
        return names

    def _find(self, names: list[str]) -> dict[str, Any]:
        found = self._ask({"operation": "find", "names": names}) if names else {}
        return {name: self._decode(value) for name, value in found.items()}

    def _with_effects(self, function: Any, /, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(function, _Remote):
            return self.call(function.reference, arguments, keywords, effects=True)
        return function(*arguments, **keywords)

    def _checked(self) -> None:
        self._checks += 1

    # Talking to the solution.

    def call(
        self,
        target: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        *,
        effects: bool = False,
    ) -> Any:
        """Calls something in the solution's process; with effects, it may change arguments."""
        request = {
            "operation": "call",
            "target": target,
            "arguments": [self._encode(item) for item in arguments],
            "keywords": {name: self._encode(item) for name, item in keywords.items()},
            "references": True,
            "effects": effects,
        }
        return self._decode(self._ask(request, arguments))

    def apply(self, name: str, *arguments: Any) -> Any:
        """Applies a built-in function to things in the solution's process."""
        encoded = [self._encode(item) for item in arguments]
        return self._decode(self._ask({"operation": "apply", "name": name, "arguments": encoded}))

    def _ask(self, request: dict[str, Any], arguments: tuple[Any, ...] = ()) -> Any:
        self._channel.send({"ask": request})
        reply = self._channel.receive()
        self._answers += request["operation"] != "find"
        if "error" in reply:
            error = self._exception(reply["error"])(str(reply.get("message", "")))
            self._raised.append(error)
            raise error
        for argument, encoded in zip(arguments, reply.get("arguments", ()), strict=False):
            _replace(argument, self._decode(encoded))
        return reply["value"]

    def _exception(self, names: list[str]) -> type[Exception]:
        for name in names:
            kind = self._exceptions.get(name) or getattr(builtins, str(name), None)
            if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
                return kind
        return _SolutionError

    def _encode(self, value: Any) -> Any:
        return values.encode(value, self._refer)

    def _refer(self, value: Any) -> dict[str, Any]:
        if isinstance(value, _Remote):
            return value.reference
        name = getattr(value, "__name__", "")
        if getattr(builtins, name, None) is value:
            return {"type": "builtin", "value": name}
        if isinstance(value, FunctionType) and not value.__closure__ and not value.__kwdefaults__:
            return {
                "type": "function",
                "value": marshal.dumps(value.__code__).hex(),
                "defaults": [self._encode(item) for item in value.__defaults__ or ()],
            }
        problem = f"an argument of type {type(value).__name__} is no plain data"
        # The test's fault only while the solution, which could have sent it, has said nothing.
        if not self._answers and all(value is not kind for kind in self._exceptions.values()):
            self._problem = problem
        raise _UnsupportedError(problem)

    def _decode(self, value: Any) -> Any:
        return values.decode(value, self._resolve)

    def _resolve(self, value: dict[str, Any]) -> Any:
        if value["type"] != "reference":
            raise ValueError("no plain data")
        if "exception" in value:
            name = str(value["exception"][0])
            base = self._exception(value["exception"][1:])
            return self._exceptions.setdefault(name, type(name, (base,), {}))
        return _Remote(self, {"type": "reference", "value": int(value["value"])})


def _replace(argument: Any, new: Any) -> None:
    """Gives a changeable argument the content that the call left it with."""
    if type(argument) is not type(new):
        return
    if isinstance(argument, list | bytearray):
        argument[:] = new
    elif isinstance(argument, dict | set):
        argument.clear()
        argument.update(new)


class _SolutionModule(ModuleType):
    """What a test that imports the solution gets."""

    find: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or (value := self.find(name)) is None:
            raise AttributeError(name)
        return value


class _Remote:
    """Something in the solution's process that is no plain data."""

    def __init__(self, referee: _Referee, reference: dict[str, Any]) -> None:
        self._referee = referee
        self.reference = reference

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._referee.call(self.reference, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        return self._referee.apply("getattr", self, name)

    def __getitem__(self, key: Any) -> Any:
        return self._referee.apply("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._referee.apply("setitem", self, key, value)

    def __iter__(self) -> Any:
        return self._referee.apply("iter", self)

    def __next__(self) -> Any:
        return self._referee.apply("next", self)

    def __len__(self) -> int:
        return int(self._referee.apply("len", self))

    def __str__(self) -> str:
        return str(self._referee.apply("str", self))

    def __repr__(self) -> str:
        return str(self._referee.apply("repr", self))

    def _refuse(self, *_: Any) -> Any:
        raise values.NotPlainError("an object of the solution is compared")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = object.__hash__
