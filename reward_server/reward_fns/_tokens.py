# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Cuts a normalized answer into tokens, and knows the names that are no products of letters."""

from __future__ import annotations

import dataclasses
import re

from reward_server.reward_fns._normalize import Unreadable

MAX_TOKENS = 800
MAX_DEPTH = 90

FUNCTIONS = {
    name: name
    for name in (  # noqa: SIM905 - a list of words
        "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc"
        " exp ln log lg abs floor ceil"
    ).split()
} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "arcsinh": "arsinh", "arccosh": "arcosh",
    "arctanh": "artanh", "arsinh": "arsinh", "arcosh": "arcosh", "artanh": "artanh",
    "asinh": "arsinh", "acosh": "arcosh", "atanh": "artanh",
}  # fmt: skip
GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi"  # noqa: SIM905 - a list of words
    " rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi"
    " Omega ell hbar".split()
)
_TOKEN = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4}(?![0-9]))?)"
    r"|\\text\s*\{(?P<text>[^{}]*)\}"
    r"|\\(?P<command>[A-Za-z]+|[{}|\\])"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<sign>[-+*/^_!()\[\]{}<>=,;:&|%'\"])"
)
RELATIONS = ("=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx")
_BRACKET_OR_RELATION = re.compile(
    r"(?P<open>\\\{|\\begin(?![A-Za-z])|[(\[{])"
    r"|(?P<close>\\\}|\\end(?![A-Za-z])|[)\]}])"
    r"|\\(?:le|ge|ne|in|approx)(?![A-Za-z])|[=<>]"
)
_OPEN = {"(", "[", "{", r"\{", r"\lfloor", r"\lceil", r"\langle", r"\begin"}
_CLOSE = {")", "]", "}", r"\}", r"\rfloor", r"\rceil", r"\rangle", r"\end"}


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        kind: "number", "text" (of a text group), "word" (letters) or "sign" (all else).
        text: its text; a command has its backslash.
        blank: whether white space stands before it.
    """

    kind: str
    text: str
    blank: bool = False


def tokenize(text: str) -> list[Token]:
    """Cuts a normalized answer into tokens.

    Raises:
        Unreadable: it has a character that no answer has, too many tokens, or unmatched or too
            deep brackets.
    """
    tokens: list[Token] = []
    position, blank, depth = 0, False, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) >= MAX_TOKENS:
            raise Unreadable("characters or length")
        position = match.end()
        kind, value = match.lastgroup or "", match[match.lastgroup or 0]
        if kind == "blank":
            blank = True
            continue
        if kind == "command":
            value = "\\" + value
            name = value[1:]
            if name in FUNCTIONS or name == "pi":
                kind, value = "word", name
            else:
                kind = "sign"
        if kind == "text":
            value = " ".join(value.split())
        if kind == "sign":
            depth += (value in _OPEN) - (value in _CLOSE)
            if depth > MAX_DEPTH:
                raise Unreadable("depth")
        tokens.append(Token(kind, value, blank))
        blank = False
    return tokens


def spelling(text: str) -> object:
    """Returns what two normalized answers have in common that differ in blanks only."""
    try:
        return [(token.kind, token.text) for token in tokenize(text)]
    except Unreadable:
        return text


def split(tokens: list[Token], *separators: str) -> list[list[Token]]:
    """Cuts tokens at the signs that stand outside all brackets.

    Raises:
        Unreadable: the brackets do not match.
    """
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == "sign":
            if token.text in _CLOSE:
                depth -= 1
            if depth < 0:
                raise Unreadable("brackets")
            if depth == 0 and token.text in separators:
                parts.append([])
                continue
            if token.text in _OPEN:
                depth += 1
        parts[-1].append(token)
    if depth:
        raise Unreadable("brackets")
    return parts


def bracketed(tokens: list[Token]) -> bool:
    """Says whether the first bracket is closed by the last token."""
    if len(tokens) < 2 or tokens[0].kind != "sign" or tokens[0].text not in _OPEN:
        return False
    depth = 0
    for i, token in enumerate(tokens):
        if token.kind == "sign":
            depth += (token.text in _OPEN) - (token.text in _CLOSE)
            if depth == 0:
                return i == len(tokens) - 1
    return False


def outside(tokens: list[Token]) -> list[Token]:
    """Returns the signs that stand outside all brackets, without the closing ones."""
    depth, found = 0, []
    for token in tokens:
        if token.kind == "sign":
            if token.text in _CLOSE:
                depth -= 1
                continue
            if depth == 0:
                found.append(token)
            depth += token.text in _OPEN
    return found


def sides(text: str) -> list[str]:
    """Cuts a normalized answer at the relations that stand outside all brackets."""
    sides, depth, start = [], 0, 0
    for sign in _BRACKET_OR_RELATION.finditer(text):
        if sign["open"] or sign["close"]:
            depth += 1 if sign["open"] else -1
        elif depth == 0:
            sides.append(text[start : sign.start()].strip())
            start = sign.end()
    return [*sides, text[start:].strip()]
