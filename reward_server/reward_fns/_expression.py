# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the tokens of an expression into a tree of tuples. Nothing is evaluated here.

The grammar is that of answers: LaTeX and plain ASCII mixed, products without signs, functions
without brackets, mixed numbers. Products bind as in `1/2x = (1/2)x`; a `^` takes a whole number.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from reward_server.reward_fns._normalize import TooBig, Unreadable
from reward_server.reward_fns._tokens import FUNCTIONS, GREEK, Token

Tree = tuple[Any, ...]

MAX_DIGITS = 4_000  # int() refuses more than 4,300
_MAX_EXPONENT = 1_000
_END = Token("end", "")
_FUNCTION_PREFIXES = sorted(("sqrt", *FUNCTIONS), key=len, reverse=True)
_PAIRS = {"(": ")", "{": "}", "[": "]", "|": "|", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}


def number(text: str) -> Fraction:
    """Returns the exact value of a decimal literal.

    Raises:
        TooBig: it has too many digits or too large an exponent.
    """
    _, _, exponent = text.lower().partition("e")
    if len(text) > MAX_DIGITS or (exponent and abs(int(exponent)) > _MAX_EXPONENT):
        raise TooBig("number")
    return Fraction(text)


def read(tokens: list[Token]) -> Tree:
    """Returns the tree of an expression.

    Raises:
        Unreadable: it is none, or of a kind that is not compared here.
    """
    try:
        return _Reader(tokens).whole()
    except RecursionError:
        raise Unreadable("depth") from None


def is_decimal(tree: Tree) -> bool:
    """Says whether a tree is nothing but a decimal with a point: possibly a rounded number."""
    if tree[0] == "neg":
        return is_decimal(tree[1])
    return bool(tree[0] == "num" and tree[2])


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = _letters(tokens)
        self._at = 0
        self._bars = False

    def whole(self) -> Tree:
        if not self._tokens:
            raise Unreadable("empty expression")
        tree = self._sum()
        if self._at < len(self._tokens):
            raise Unreadable(f"unexpected {self._tokens[self._at].text!r}")
        return tree

    def _peek(self, ahead: int = 0) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def _sign(self, *texts: str) -> bool:
        token = self._peek()
        return token.kind == "sign" and token.text in texts

    def _take(self, *texts: str) -> bool:
        if self._sign(*texts):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise Unreadable(f"{text} is missing")

    def _sum(self) -> Tree:
        tree = self._signed()
        while self._sign("+", "-"):
            minus = self._tokens[self._at].text == "-"
            self._at += 1
            term = self._signed()
            tree = ("add", tree, ("neg", term) if minus else term)
        return tree

    def _signed(self) -> Tree:
        negative = False
        while self._sign("+", "-"):
            negative ^= self._tokens[self._at].text == "-"
            self._at += 1
        tree = self._product()
        return ("neg", tree) if negative else tree

    def _product(self) -> Tree:
        tree = self._power()
        while True:
            if self._take("*"):
                tree = ("mul", tree, self._factor())
            elif self._take("/"):
                tree = ("div", tree, self._factor())
            elif self._starts_factor():
                if self._peek().kind == "number":
                    # `1 2` is no number, `x 2` no product; `\frac{1}{2}3` is one.
                    before = self._tokens[self._at - 1]
                    if before.kind != "sign" or before.text not in ("}", ")"):
                        raise Unreadable("number after a factor")
                tree = ("mul", tree, self._power())
            else:
                return tree

    def _factor(self) -> Tree:
        if self._sign("+", "-"):
            return self._signed_power()
        return self._power()

    def _signed_power(self) -> Tree:
        negative = self._tokens[self._at].text == "-"
        self._at += 1
        tree = self._factor()
        return ("neg", tree) if negative else tree

    def _starts_factor(self) -> bool:
        token = self._peek()
        if token.kind in ("number", "word"):
            return True
        return token.kind == "sign" and (
            token.text in ("(", "{", "[", r"\lfloor", r"\lceil") or token.text in _ATOMS
            or token.text[1:] in GREEK or (token.text == "|" and not self._bars)
        )  # fmt: skip

    def _power(self) -> Tree:
        tree = self._postfix(self._atom())
        if self._take("^"):
            return self._postfix(("pow", tree, self._exponent()))
        return tree

    def _postfix(self, tree: Tree) -> Tree:
        while True:
            if self._take("!"):
                tree = ("fact", tree)
            elif self._take("%"):
                tree = ("div", tree, ("num", Fraction(100), False))
            elif self._take(r"\degree"):
                tree = ("mul", tree, ("div", ("const", "pi"), ("num", Fraction(180), False)))
            else:
                return tree

    def _exponent(self) -> Tree:
        if self._sign("-", "+"):
            return self._signed_power()
        tree = self._postfix(self._atom())
        if self._take("^"):
            return ("pow", tree, self._exponent())
        return tree

    def _atom(self) -> Tree:  # noqa: PLR0911 - a return a kind
        token = self._peek()
        self._at += 1
        if token.kind == "number":
            return self._number(token)
        if token.kind == "word":
            return self._word(token.text)
        if token.kind != "sign":
            raise Unreadable("no expression")
        if token.text in _PAIRS:
            bars, self._bars = self._bars, token.text == "|"
            inner = self._sum()
            self._bars = bars
            self._expect(_PAIRS[token.text])
            kind = {"|": "abs", r"\lfloor": "floor", r"\lceil": "ceil"}.get(token.text)
            return ("func", kind, inner) if kind else inner
        if token.text[1:] in GREEK and token.text[0] == "\\":
            return self._symbol(token.text[1:])
        if token.text == r"\infty":
            return ("const", "inf")
        if token.text in (r"\frac", r"\binom"):
            top = self._argument()
            bottom = self._argument()
            return ("div" if token.text == r"\frac" else "binom", top, bottom)
        if token.text in (r"\sqrt", r"\surd"):
            return self._root(single=token.text == r"\sqrt")
        raise Unreadable(f"unexpected {token.text!r}")

    def _number(self, token: Token) -> Tree:
        value = number(token.text)
        after = self._peek()
        if "." in token.text and after.kind == "sign" and after.text in (r"\overline", r"\dot"):
            return self._recurring(token)
        tree: Tree = ("num", value, "." in token.text)
        if token.text.isdigit():
            return self._mixed(value) or tree
        return tree

    def _recurring(self, token: Token) -> Tree:
        self._at += 1
        digits = self._peek(1).text if self._sign("{") else self._peek().text
        braces = self._take("{")
        self._at += 1
        if braces:
            self._expect("}")
        if not digits.isdigit() or len(digits) > 100 or "e" in token.text.lower():
            raise Unreadable("recurring decimal")
        places = len(token.text.partition(".")[2])
        period = Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)
        return ("num", number(token.text) + period, False)

    def _mixed(self, whole: Fraction) -> Tree | None:
        r"""Reads the fraction of a mixed number: `1 1/4` and `1\\frac{1}{4}`."""
        ahead = [self._peek(i) for i in range(7)]
        texts = [token.text for token in ahead]
        if ahead[0].kind == "number" and texts[1] == "/" and ahead[2].kind == "number":
            top, bottom, size = texts[0], texts[2], 3
        elif texts[0] == r"\frac" and texts[1::3] == ["{", "{"] and texts[3::3] == ["}", "}"]:
            top, bottom, size = texts[2], texts[5], 7
        elif texts[0] == r"\frac" and ahead[1].kind == "number" and len(texts[1]) == 2:
            top, bottom, size = texts[1][0], texts[1][1], 2
        else:
            return None
        if not (top.isdigit() and bottom.isdigit() and 0 < number(top) < number(bottom)):
            return None
        self._at += size
        return ("num", whole + number(top) / number(bottom), False)

    def _argument(self) -> Tree:
        """Reads an argument of a LaTeX command: a group, or one digit or letter without it."""
        token = self._peek()
        if token.kind == "number" and token.text.isdigit() and len(token.text) > 1:
            self._tokens[self._at] = Token("number", token.text[1:])
            return ("num", Fraction(token.text[0]), False)
        can_stand_alone = token.text in ("{", r"\frac", r"\sqrt") or token.text[1:] in GREEK
        if token.kind == "sign" and not can_stand_alone:
            raise Unreadable("argument is missing")
        if self._take("{"):
            tree = self._sum()
            self._expect("}")
            return tree
        return self._atom()

    def _root(self, *, single: bool) -> Tree:
        degree: Tree = ("num", Fraction(2), False)
        if self._sign("[") and single:
            self._at += 1
            degree = self._sum()
            self._expect("]")
        inner = self._argument() if single and not self._sign("(") else self._atom()
        return ("root", inner, degree)

    def _word(self, word: str) -> Tree:
        if word == "pi":
            return ("const", "pi")
        if word == "sqrt":
            return self._root(single=False)
        if word in FUNCTIONS:
            return self._function(FUNCTIONS[word])
        if word in ("e", "i") and not self._sign("_"):
            return ("const", word)
        return self._symbol(word)

    def _symbol(self, name: str) -> Tree:
        if self._take("_"):
            name += "_" + self._subscript()
        if self._sign("(") and not self._peek().blank and name[0] in "fghFGP":
            raise Unreadable("unknown function")
        return ("sym", name)

    def _subscript(self) -> str:
        texts = []
        if self._take("{"):
            while not self._sign("}"):
                if self._peek() is _END:
                    raise Unreadable("brackets")
                texts.append(self._peek().text)
                self._at += 1
            self._at += 1
        else:
            texts.append(self._peek().text)
            self._at += 1
        return "".join(texts)

    def _function(self, name: str) -> Tree:
        base: Tree | None = None
        power: Tree | None = None
        if name == "log" and self._take("_"):
            base = self._argument()
        if self._take("^"):
            power = self._exponent()
        if power == ("neg", ("num", Fraction(1), False)):
            name, power = "arc" + name, None
        if self._sign("(", "[", "{", "|", r"\lfloor"):
            inner = self._atom()
        else:
            inner = self._bare_argument()
        tree: Tree = ("log", inner, base) if base else ("func", name, inner)
        return ("pow", tree, power) if power else tree

    def _bare_argument(self) -> Tree:
        # `\sin 2x \cos x`: the argument ends before the next function, as one reads it.
        if self._sign("-"):
            return self._signed_power()
        tree = self._power()
        while self._starts_factor():
            token = self._peek()
            if token.kind == "number" or token.text in FUNCTIONS or token.text in ("(", "["):
                break
            tree = ("mul", tree, self._power())
        return tree


_ATOMS = frozenset((r"\frac", r"\binom", r"\sqrt", r"\surd", r"\infty"))


def _letters(tokens: list[Token]) -> list[Token]:
    """Splits words that are no names into letters: `xyz` is a product."""
    out: list[Token] = []
    for token in tokens:
        word = token.text
        if token.kind != "word" or word in FUNCTIONS or word in ("pi", "sqrt"):
            out.append(token)
            continue
        while word:
            name = next((n for n in _FUNCTION_PREFIXES if word.startswith(n)), None)
            name = name or ("pi" if word == "pi" else word[0])
            out.append(Token("word", name, token.blank))
            word = word[len(name) :]
    return out
