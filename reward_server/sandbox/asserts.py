# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the code of tests: what they check, and which names they expect of a solution."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import sys
from typing import Any

EFFECTS, CHECKED = "__with_effects", "__checked"
# Names of the standard library that a test may use without an import, since the code under test
# had one. They must not be the solution's: it would decide what is close enough.
_IMPORTED = {
    **dict.fromkeys(("isclose", "inf", "nan", "pi"), "math"),
    **dict.fromkeys(("Counter", "OrderedDict", "defaultdict", "deque"), "collections"),
    "Decimal": "decimal",
    "Fraction": "fractions",
    "deepcopy": "copy",
    "reduce": "functools",
}
_BUILTINS = frozenset(dir(builtins))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AssertCode:
    """A test, ready to be compiled.

    Attributes:
        tree: its code, with calls of `CHECKED` after each check, and with calls that may change
            their arguments made by `EFFECTS`.
        unknown: names to look for in the solution.
        modules: modules of the standard library that it uses without an import.
        imported: names of the standard library that it uses without an import, and their homes.
        tests: functions that only pytest would call.
    """

    tree: ast.Module
    unknown: list[str]
    modules: list[str]
    imported: dict[str, str]
    tests: list[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """`assert target(*arguments, **keywords) == expected`, the values being literals."""

    target: str
    arguments: list[Any]
    keywords: dict[str, Any]
    expected: Any


def problem(text: str) -> str | None:
    """Says what makes a test invalid whatever the solution is, or None."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"its code does not parse: {error}"
    checks = [n for n in ast.walk(tree) if isinstance(n, ast.Assert | ast.Raise)]
    if not checks:
        return "its code asserts nothing"
    code = _analyse(tree)
    loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | set(code.tests)
    idle = {
        id(n)
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and function.name not in loaded
        for n in ast.walk(function)
    }
    if all(id(check) in idle for check in checks):
        return "its code never calls the function that asserts"
    return None


def equation(text: str) -> Equation | None:
    """Takes a test apart that is a single equation; None for any other."""
    match ast.parse(text).body:
        case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
            return _equation(left, right) or _equation(right, left)
    return None


def _equation(call: ast.expr, value: ast.expr) -> Equation | None:
    match call:
        case ast.Call(func=ast.Name(id=target), args=arguments, keywords=keywords):
            pass
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(func=ast.Name(id=home), args=[], keywords=[]), attr=name
            ),
            args=arguments,
            keywords=keywords,
        ):
            target = f"{home}.{name}"
        case _:
            return None
    try:
        return Equation(
            target=target,
            arguments=[ast.literal_eval(item) for item in arguments],
            keywords={_named(item): ast.literal_eval(item.value) for item in keywords},
            expected=ast.literal_eval(value),
        )
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _named(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise ValueError("a mapping of arguments")
    return keyword.arg


def prepare(text: str) -> AssertCode:
    """Reads a test that has no `problem`."""
    tree = ast.parse(text)
    code = _analyse(tree)
    _Marker(tree).visit(tree)
    ast.fix_missing_locations(tree)
    return code


def _bindings(tree: ast.Module) -> tuple[dict[str, None], set[str]]:
    """Finds the names that a test reads, in order, and those that it defines."""
    loaded: dict[str, None] = {}
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                loaded[name] = None
            case ast.Name(id=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add(other or name.partition(".")[0])
            case ast.ExceptHandler(name=str() as name):
                bound.add(name)
    return loaded, bound


def _analyse(tree: ast.Module) -> AssertCode:
    loaded, bound = _bindings(tree)
    modules = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in sys.stdlib_module_names
        and node.value.id not in bound
    }
    free = [name for name in loaded if name not in bound and name not in modules]
    imported = {name: _IMPORTED[name] for name in free if name in _IMPORTED}
    unknown = [name for name in free if name not in imported and name not in _BUILTINS]
    # What is under test may be named like something known, if there is no other name for it.
    imports_solution = any(
        isinstance(n, ast.ImportFrom) and n.module == "solution" for n in ast.walk(tree)
    )
    if not unknown and not imports_solution:
        unknown = free
    tests = [
        statement.name
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef)
        and statement.name.startswith("test")
        and statement.name not in loaded
        and not statement.args.args
    ]
    return AssertCode(
        tree=tree, unknown=unknown, modules=sorted(modules), imported=imported, tests=tests
    )


class _Marker(ast.NodeTransformer):
    def __init__(self, tree: ast.Module) -> None:
        self._sides = [
            (_names(node.left), set().union(*map(_names, node.comparators)))
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare)
        ]

    def visit_Assert(self, node: ast.Assert) -> Any:
        return [node, _checked()]

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
        return [node, _checked()] if raises else node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        self.generic_visit(node)
        node.body.insert(0, _checked())
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call):
            node.value = _effects(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        result = set().union(*map(_names, node.targets))
        given = set().union(*map(_names, call.args)) if call.args else set()
        # Compared with an argument, a result must not have been able to change it.
        compared = any(
            (result & left and given & right) or (result & right and given & left)
            for left, right in self._sides
        )
        if not compared:
            node.value = _effects(call)
        return node


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _checked() -> ast.Expr:
    name = ast.Name(id=CHECKED, ctx=ast.Load())
    return ast.Expr(value=ast.Call(func=name, args=[], keywords=[]))


def _effects(call: ast.Call) -> ast.expr:
    effects = ast.Name(id=EFFECTS, ctx=ast.Load())
    return ast.Call(func=effects, args=[call.func, *call.args], keywords=call.keywords)
