# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a normalized answer as a thing of one shape."""

from __future__ import annotations

import re
from fractions import Fraction

from reward_server.reward_fns import _expression
from reward_server.reward_fns._equality import same_value
from reward_server.reward_fns._evaluate import symbols
from reward_server.reward_fns._expression import Tree
from reward_server.reward_fns._normalize import Unreadable
from reward_server.reward_fns._shapes import (
    Expression,
    Group,
    Matrix,
    Named,
    Numeral,
    Relation,
    Shape,
    Text,
    Time,
)
from reward_server.reward_fns._tokens import (
    FUNCTIONS,
    GREEK,
    RELATIONS,
    Token,
    bracketed,
    outside,
    split,
    tokenize,
)
from reward_server.reward_fns._units import split_unit

_NUMERAL = re.compile(r"\(?\s*([0-9A-F]+)\s*\)?\s*_\s*(?:\{\s*([0-9]{1,2})\s*\}|([0-9]{1,2}))")
# Two digits behind the colon; also a ratio could look so, and is then compared as it is written.
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2}) *(?:([AaPp])\.? ?[Mm]\.?)?")
_MINUS_INFINITY = Expression(("neg", ("const", "inf")))
_INFINITY = Expression(("const", "inf"))
_COMMA = Token("sign", ",")
_MAX_ITEMS = 100


def read_shape(text: str) -> Shape:
    """Reads a normalized answer.

    Raises:
        Unreadable: it has none of the shapes.
    """
    try:
        return _several(tokenize(text))
    except RecursionError:
        raise Unreadable("depth") from None


def _several(tokens: list[Token]) -> Shape:
    marked, alternatives = _conjunctions(tokens)
    parts = split(marked, ",", ";")
    if len(parts) == 1:
        return _single(parts[0])
    if len(parts) > _MAX_ITEMS or not all(parts):
        raise Unreadable("list")
    # In `n = 1, 2, 3` the name belongs to the whole list.
    first = split(parts[0], "=", r"\in")
    if len(first) == 2 and _name(first[0]) and not any(_has_relation(p) for p in parts[1:]):
        rest = [first[1], *parts[1:]]
        return Named(_name(first[0]), Group("list", tuple(_item(part) for part in rest)))
    items = tuple(_item(part) for part in parts)
    rays = [item.value for item in items if isinstance(item, Named) and _is_interval(item.value)]
    names = {item.name for item in items if isinstance(item, Named)}
    if len(rays) == len(items) == 2 and len(names) == 1:
        return Named(names.pop(), _combined(rays[0], rays[1], union=alternatives))
    if names and len(names) == 1 and all(isinstance(item, Named) for item in items):
        values = tuple(item.value for item in items if isinstance(item, Named))
        return Named(names.pop(), Group("list", values))
    return Group("list", tuple(part for item in items for part in _flat(item)))


def _flat(shape: Shape) -> tuple[Shape, ...]:
    return shape.items if isinstance(shape, Group) and shape.kind == "list" else (shape,)


def _conjunctions(tokens: list[Token]) -> tuple[list[Token], bool]:
    """Replaces "and" and "or" by commas; says whether there was an "or"."""
    out: list[Token] = []
    alternatives = False
    for token in tokens:
        word = token.text.strip(" ,").lower()
        if token.kind in ("text", "word") and word in ("and", "or"):
            alternatives |= word == "or"
            if out and out[-1] == _COMMA:
                continue
            out.append(_COMMA)
        else:
            out.append(_COMMA if token.text == "," else token)
    return out, alternatives


def _has_relation(tokens: list[Token]) -> bool:
    return len(split(tokens, *RELATIONS)) > 1


def _item(tokens: list[Token]) -> Shape:
    if [token.text for token in tokens] == [r"\ldots"]:
        return Text("...")
    return _single(tokens)


def _single(tokens: list[Token]) -> Shape:
    if not tokens:
        raise Unreadable("empty")
    if tokens[0].text == r"\begin":
        return _matrix(tokens)
    signs = [t.text for t in outside(tokens) if t.text in RELATIONS]
    if signs:
        return _relation(split(tokens, *RELATIONS), signs)
    for reader in (_set, _numeral, _plus_minus, _brackets, _words):
        shape = reader(tokens)
        if shape is not None:
            return shape
    value, scale, unit = split_unit(tokens)
    tree = _expression.read(value)
    if scale != 1:
        tree = ("mul", tree, ("num", Fraction(scale), False))
    return Expression(tree, unit)


def _name(tokens: list[Token]) -> str:
    r"""Returns the name that the tokens are (`x`, `AB`, `f(x)`, `(x, y)`, `\text{Area}`), or ""."""
    if not tokens or len(tokens) > 12:
        return ""
    text = "".join(token.text for token in tokens)
    if bracketed(tokens) and tokens[0].text == "(":
        parts = split(tokens[1:-1], ",")
        return text if len(parts) > 1 and all(map(_name, parts)) else ""
    if tokens[0].text in (r"\angle", r"\triangle", "|"):
        tokens = tokens[1:]
    if not tokens or not _starts_name(tokens[0]):
        return ""
    rest = tokens[1:]
    if [token.text for token in rest[:6]] == ["^", "{", "-", "1", "}", "("]:
        rest = rest[5:]
    if any(token.text in "+-*/^" for token in outside(rest)):
        return ""
    if rest and tokens[0].kind != "text" and rest[0].text not in ("_", "(", "'", "|"):
        return ""
    for sign in "{}|":
        text = text.replace(sign, "")
    return text.lower() if len(text) > 1 else text


def _starts_name(token: Token) -> bool:
    if token.kind != "word":
        return token.kind == "text" or token.text[1:] in GREEK
    # `xy = 6` is an equation, `AB = 6` names a length.
    is_product = len(token.text) in (2, 3) and not token.text.isupper()
    return not is_product and token.text not in (*FUNCTIONS, "e", "i", "pi", "sqrt")


def _relation(parts: list[list[Token]], signs: list[str]) -> Shape:
    if r"\approx" in signs:
        at = signs.index(r"\approx")
        if at == 0 and _name(parts[0]) and len(parts) == 2:
            return Named(_name(parts[0]), _single(parts[1]))
        _check_rounding(parts[at], parts[at + 1])
        return _relation(parts[: at + 1], signs[:at]) if at else _single(parts[0])
    if r"\in" in signs:
        if len(parts) != 2 or not _name(parts[0]):
            raise Unreadable("membership")
        return Named(_name(parts[0]), _single(parts[1]))
    if set(signs) == {"="}:
        return _equation(parts)
    if signs == [r"\ne"]:
        return _not_equal(parts)
    if "=" in signs or r"\ne" in signs:
        raise Unreadable("relations")
    return _inequality(parts, signs)


def _check_rounding(exact: list[Token], rounded: list[Token]) -> None:
    left, right = split_unit(exact)[0], split_unit(rounded)[0]
    if not same_value(_expression.read(left), _expression.read([*right]), 0.01):
        raise Unreadable("two values")


def _equation(parts: list[list[Token]]) -> Shape:
    if len(parts) == 2 and _name(parts[1]) and not _name(parts[0]):
        parts.reverse()
    name = _name(parts[0])
    if name:
        shapes = [_single(part) for part in parts[1:]]
        value = shapes[-1]
        if any(not _same_expression(shape, value) for shape in shapes[:-1]):
            raise Unreadable("chain")
        if isinstance(value, Expression) and name in symbols(value.tree):
            return Relation("=", ("sym", name), value.tree)
        if name[0] == "(" and isinstance(value, Group) and value.kind == "()":
            names = name.strip("()").split(",")
            if len(names) == len(value.items):
                return Group("list", tuple(map(Named, names, value.items)))
        return Named(name, value)
    trees = [_constant(part) for part in parts]
    if not any(symbols(tree) for tree in trees):
        # `10/2 = 5` is 5; `12 = 5` is nothing.
        if all(same_value(tree, trees[-1]) for tree in trees[:-1]):
            return _single(parts[-1])
        raise Unreadable("chain")
    if len(trees) != 2:
        raise Unreadable("chain")
    return Relation("=", trees[0], trees[1])


def _constant(tokens: list[Token]) -> Tree:
    value, _, unit = split_unit(tokens)
    return _expression.read(tokens if unit == "percent" else value)


def _same_expression(left: Shape, right: Shape) -> bool:
    if isinstance(left, Expression) and isinstance(right, Expression):
        return same_value(left.tree, right.tree)
    return left == right


def _not_equal(parts: list[list[Token]]) -> Shape:
    name, value = _name(parts[0]), _expression.read(parts[1])
    if not name or symbols(value):
        return Relation(r"\ne", _expression.read(parts[0]), value)
    return Named(name, _without(value))


def _without(value: Tree) -> Group:
    point = Expression(value)
    return Group("union", (Group("()", (_MINUS_INFINITY, point)), Group("()", (point, _INFINITY))))


def _inequality(parts: list[list[Token]], signs: list[str]) -> Shape:
    if signs[0] in (">", r"\ge"):
        parts.reverse()
        signs = [{">": "<", r"\ge": r"\le"}.get(sign, "?") for sign in signs[::-1]]
    if not all(sign in ("<", r"\le") for sign in signs) or len(parts) > 3:
        raise Unreadable("inequalities")
    names = [_name(part) for part in parts]
    if len(parts) == 3:
        if not names[1]:
            raise Unreadable("inequalities")
        ends = (_single(parts[0]), _single(parts[2]))
        return Named(names[1], _interval(signs[0] == "<", *ends, right_open=signs[1] == "<"))
    is_open = signs[0] == "<"
    if names[0] and not names[1]:
        end = _single(parts[1])
        if isinstance(end, Expression) and not symbols(end.tree):
            return Named(names[0], _interval(True, _MINUS_INFINITY, end, right_open=is_open))
    elif names[1] and not names[0]:
        end = _single(parts[0])
        if isinstance(end, Expression) and not symbols(end.tree):
            return Named(names[1], _interval(is_open, end, _INFINITY, right_open=True))
    return Relation(signs[0], *(_expression.read(part) for part in parts))


def _interval(left_open: bool, left: Shape, right: Shape, *, right_open: bool) -> Group:
    return Group(("(" if left_open else "[") + (")" if right_open else "]"), (left, right))


def _is_interval(shape: Shape) -> bool:
    return isinstance(shape, Group) and len(shape.kind) == 2 and len(shape.items) == 2


def _combined(left: Shape, right: Shape, *, union: bool) -> Group:
    """Joins or intersects two rays."""
    if not isinstance(left, Group) or not isinstance(right, Group):
        raise Unreadable("inequalities")
    if union:
        return Group("union", (left, right))
    if left.items[0] == _MINUS_INFINITY:
        left, right = right, left
    if left.items[1] != _INFINITY or right.items[0] != _MINUS_INFINITY:
        raise Unreadable("inequalities")
    return Group(left.kind[0] + right.kind[1], (left.items[0], right.items[1]))


def _set(tokens: list[Token]) -> Shape | None:  # noqa: PLR0911 - a return a kind
    parts = split(tokens, r"\cup")
    if len(parts) > 1:
        return Group("union", tuple(_single(part) for part in parts))
    if time := _time(tokens):
        return time
    ratio = split(tokens, ":")
    if len(ratio) > 1:
        return Group("ratio", tuple(_single(part) for part in ratio))
    texts = "".join(token.text for token in tokens)
    if texts == r"\emptyset":
        return Group("set", ())
    if texts == r"\mathbb{R}":
        return Group("()", (_MINUS_INFINITY, _INFINITY))
    if texts in (r"\mathbb{Z}", r"\mathbb{N}", r"\mathbb{Q}", r"\mathbb{C}"):
        return Text(texts)
    difference = split(tokens, r"\setminus")
    if len(difference) == 2 and "".join(t.text for t in difference[0]) == r"\mathbb{R}":
        removed = _single(difference[1])
        items = removed.items if isinstance(removed, Group) and removed.kind == "set" else ()
        if len(items) == 1 and isinstance(items[0], Expression):
            return _without(items[0].tree)
    return None


def _time(tokens: list[Token]) -> Time | None:
    match = _TIME.fullmatch("".join(token.text for token in tokens))
    if match is None or int(match[1]) > 24 or int(match[2]) > 59:
        return None
    return Time(int(match[1]), int(match[2]), (match[3] or "").lower())


def _numeral(tokens: list[Token]) -> Shape | None:
    match = _NUMERAL.fullmatch("".join(token.text for token in tokens))
    if match is None or not match[1][0].isdigit():
        return None
    base = int(match[2] or match[3])
    try:
        int(match[1][:100], base)
    except ValueError:
        raise Unreadable("digits of a base") from None
    if base == 10:
        return Expression(("num", _expression.number(match[1]), False))
    return Numeral(match[1].lstrip("0"), base)


def _plus_minus(tokens: list[Token]) -> Shape | None:
    if not any(token.text in (r"\pm", r"\mp") for token in tokens):
        return None
    signs = ({r"\pm": "+", r"\mp": "-"}, {r"\pm": "-", r"\mp": "+"})
    both = []
    for table in signs:
        chosen = [Token("sign", table[t.text], t.blank) if t.text in table else t for t in tokens]
        both.append(_single(chosen))
    return Group("list", tuple(both))


def _brackets(tokens: list[Token]) -> Shape | None:  # noqa: PLR0911 - a return a kind
    if not bracketed(tokens) or tokens[0].text == "|":
        return None
    opening, inner = tokens[0].text, tokens[1:-1]
    if not inner:
        raise Unreadable("empty brackets")
    if inner[0].text == r"\begin" and inner[-4].text == r"\end":
        return _matrix(inner)
    parts = split(_conjunctions(inner)[0], ",", ";") if opening != "{" else split(inner, ",")
    if opening in (r"\{", "{") and (len(parts) > 1 or opening == r"\{"):
        if len(parts) > _MAX_ITEMS:
            raise Unreadable("set")
        condition = split(inner, ":", "|")
        if len(condition) == 2 and _name(split(condition[0], r"\in")[0]):
            return _several(condition[1])
        return Group("set", tuple(_item(part) for part in parts))
    if opening in ("(", "{") and len(parts) == 1:
        return _single(inner)
    if opening in ("(", "[", r"\langle") and len(parts) <= _MAX_ITEMS:
        kind = "()" if opening == r"\langle" else opening + tokens[-1].text
        items = tuple(_item(part) for part in parts)
        rows = [item.items for item in items if isinstance(item, Group) and item.kind == "[]"]
        if kind == "[]" and len(rows) == len(items) and len(set(map(len, rows))) == 1:
            return Matrix(tuple(rows))
        return Group(kind, items)
    return None


def _words(tokens: list[Token]) -> Shape | None:
    if any(token.kind not in ("text", "word") and token.text not in "()',-" for token in tokens):
        return None
    if tokens[0].text == "-":
        return None
    words = [token.text for token in tokens if token.kind == "word" and token.text not in FUNCTIONS]
    is_text = any(token.kind == "text" for token in tokens)
    sentence = len(words) > 1 and len(words) == len(tokens) and any(len(w) > 1 for w in words)
    letters = re.sub(r"[^A-Za-z]", "", "".join(token.text for token in tokens))
    if len(letters) == 1 and not any(token.text == "'" for token in tokens):
        return Expression(_expression.read([Token("word", letters)]))
    if is_text or sentence or any(len(word) >= 4 for word in words):
        return Text(plain(" ".join(token.text for token in tokens)))
    return None


def plain(text: str) -> str:
    """Returns the words of a text in lower case, without LaTeX and punctuation."""
    text = re.sub(r"\\text\s*|[^\w\s]", " ", text.replace("'", ""))
    return " ".join(text.split()).casefold()


_ENVIRONMENTS = frozenset(("matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array"))


def _matrix(tokens: list[Token]) -> Shape:
    if len(tokens) < 9 or tokens[-4].text != r"\end" or tokens[2].text != tokens[-2].text:
        raise Unreadable("matrix")
    environment, inner = tokens[2].text, tokens[4:-4]
    if environment not in _ENVIRONMENTS:
        raise Unreadable("environment")
    if environment == "array" and inner[0].text == "{":
        inner = inner[[token.text for token in inner].index("}") + 1 :]
    rows = [row for row in split(inner, r"\newline") if row]
    cells = tuple(tuple(_single(cell) for cell in split(row, "&")) for row in rows)
    if not cells or len({len(row) for row in cells}) != 1 or sum(map(len, cells)) > _MAX_ITEMS:
        raise Unreadable("matrix")
    return Matrix(cells)
