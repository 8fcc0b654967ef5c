# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewrites one answer into a single spelling: characters, LaTeX commands, spaces, digit groups."""

from __future__ import annotations

import re
import unicodedata

MAX_CHARACTERS = 8_000


class Unreadable(ValueError):  # noqa: N818 - an answer that is refused is no error
    """A text is not one answer of a form that is compared here."""


class TooBig(Unreadable):
    """A number is too large to be worth its computation."""


_GREEK = (  # noqa: SIM905 - a list of words
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho"
    " sigma sigma tau upsilon phi chi psi omega"
).split()
_CHARACTERS = {
    **dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d\u207b", "-"),
    **dict.fromkeys("\u00d7\u22c5\u00b7\u2217\u2219\u2022", "*"),
    **dict.fromkeys("\u00f7\u2044\u2215", "/"),
    **dict.fromkeys("\u02da\u00ba\u00b0", r"\degree "),
    **dict.fromkeys("\u2018\u2019\u2032", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
    **dict.fromkeys("\u2009\u202f\u2006\u00a0", r"\,"),
    "\u221a": r"\surd ",
    "\u221b": r"\sqrt[3]",
    "\u221e": r"\infty ",
    "\u230a": r"\lfloor ",
    "\u230b": r"\rfloor ",
    "\u2308": r"\lceil ",
    "\u2309": r"\rceil ",
    "\u2264": r"\le ",
    "\u2a7d": r"\le ",
    "\u2265": r"\ge ",
    "\u2a7e": r"\ge ",
    "\u2260": r"\ne ",
    "\u2248": r"\approx ",
    "\u2208": r"\in ",
    "\u222a": r"\cup ",
    "\u2229": r"\cap ",
    "\u2216": r"\setminus ",
    "\u2205": r"\emptyset ",
    "\u00b1": r"\pm ",
    "\u2213": r"\mp ",
    "\u2026": r"\ldots ",
    "\u211d": r"\mathbb{R}",
    "\u00a2": r"\text{ cent}",
    "\u20ac": r"\text{euro}",
    "\u00a3": r"\text{pound}",
    "\u00a5": r"\text{yen}",
    "\u20b9": r"\text{rupee}",
    "\u3002": ".",
    **{chr(0x3B1 + i): rf"\{name} " for i, name in enumerate(_GREEK)},
    **{
        chr(code): rf"\{name} "
        for code, name in (
            *((0x393, "Gamma"), (0x394, "Delta"), (0x398, "Theta"), (0x39B, "Lambda")),
            *((0x3A3, "Sigma"), (0x3A6, "Phi"), (0x3A8, "Psi"), (0x3A9, "Omega")),
        )
    },
}
_SUPERSCRIPT = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207a\u207b\u207f]+")
_SUBSCRIPT = re.compile("[\u2080-\u2089]+")
_ROMAN = "(?:arc|a)?(?:sin|cos|tan|cot|sec|csc)h?|exp|ln|log|lg"
_TEXT = (
    "text(?:bf|it|rm|sf|tt|normal|up|md)?|mathrm|mathbf|mathit|mathsf|mathtt|mathcal|mbox|hbox"
    r"|operatorname\*?|rm|bf|boldsymbol|bm|emph|ensuremath"
)
_SPELLINGS = [
    (re.compile(pattern), new)
    for pattern, new in (
        (r"\\\\\s*(?:\[[^\[\]]{0,20}\])?|\\cr(?![A-Za-z])", r"\\newline "),
        (r"\\underline\s*(?=\{)", ""),
        (r"\\over(?:line|rightarrow)\s*\{\s*([A-Z]{2,3})\s*\}", r" \1 "),
        (r"\\(?:[hv]?phantom|[hv]space\*?)\s*\{[^{}]*\}|\\hfill?(?![A-Za-z])", " "),
        (r"\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![A-Za-z])", ""),
        (r"\\[dtcs]frac(?![A-Za-z])|\\nicefrac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits|mathstrut|strut)(?![A-Za-z])", ""),
        (r"\\!\s*", ""),
        (r"(?<=[0-9])(?:\s*\{,\}\s*|\\[,;: ]\s*|~)(?=[0-9]{3}(?![0-9]))", ""),
        (r"\{,\}", ","),
        (r"\\(?:[,;:> ]|q?quad(?![A-Za-z])|(?:thin|med|thick)space(?![A-Za-z]))|~", " "),
        (r"\\[()\[\]]", " "),
        (r"\\(?:mathop|mathrm|textrm|text|rm|operatorname\*?)\s*\{([ei])\}", r" \1 "),
        (rf"\\(?:mathrm|operatorname\*?|mathop)\s*\{{\s*({_ROMAN})\s*\}}", r"\\\1 "),
        (rf"\\(?:{_TEXT})(?=\s*\{{)", r"\\text"),
        (r"\\text\s*\{\s*\}", ""),
        (r"\\text\s*\{(?=[^{}]*[\\{])", "{"),
        (r"\\text\s*\{\s*([-+]?[0-9][0-9.,]*)\s+([A-Za-z %/]+)\}", r" \1 \\text{\2}"),
        (r"\\(?:rm|bf|it|sf|tt)(?![A-Za-z{])|\\(?:text)?color\s*\{[A-Za-z]*\}", ""),
        (r"(?<=[0-9])\s*[xX]\s*(?=10\s*\^)", "*"),
        (r"\\text\s*\{([-+.,0-9\s/$]+)\}", r" \1 "),
        (r"\\(?:times|cdot|ast|star)(?![A-Za-z])", "*"),
        (r"\\div(?![A-Za-z])", "/"),
        (r"\\(?:leqslant|leq|leqq)(?![A-Za-z])|<=", r"\\le "),
        (r"\\(?:geqslant|geq|geqq)(?![A-Za-z])|>=", r"\\ge "),
        (r"\\neq(?![A-Za-z])|!=|\\not\s*=", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\(?:varnothing|empty)(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\[lr]?vert(?![A-Za-z])|\\mid(?![A-Za-z])", "|"),
        (r"\\(?:dots[cbmi]?|cdots|ldots)(?![A-Za-z])|\.\.\.", r"\\ldots "),
        (r"\\(?:approx|simeq|approxeq)(?![A-Za-z])", r"\\approx "),
        (r"\^\s*\{?\s*\\circ(?![A-Za-z])\s*\}?|\\degrees?(?![A-Za-z])", r"\\degree "),
        (r"\\degree \s*(?:\\text\s*\{\s*([CF])\s*\}|([CF])(?![A-Za-z]))", r"\\text{degree\1\2}"),
        (r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"\\%", "%"),
        (r"(?<![0-9])\.(?=\\overline)", "0."),
        (r"(?<![0-9.])([0-9]*\.[0-9]*)\(([0-9]+)\)(?![0-9(])", r"\1\\overline{\2}"),
        (r"\\(?:land|wedge)(?![A-Za-z])", r"\\text{and}"),
        (r"\\(?:lor|vee)(?![A-Za-z])", r"\\text{or}"),
        (r"\\backslash(?![A-Za-z])", r"\\setminus "),
        (r"(?<![\\A-Za-z])[Ii]nf(?:inity|ty)?(?![A-Za-z])", r"\\infty "),
        (r"\*\*", "^"),
        (r"\\tag\s*\{[^{}]*\}", ""),
    )
]
_LEAD = re.compile(
    r"\\text\s*\{\s*(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*:?\s*\}", re.IGNORECASE
)
_TEXT_DOLLAR = re.compile(r"\\text(?:bf|rm)?\s*\{\s*\\?\$\s*\}")
_BASE = re.compile(r"_\s*\{?\s*\\text\s*\{\s*([a-z]+)\s*\}\s*\}?")
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7"}
_BASES |= {"eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12"}
# `2 100/102` is a mixed number.
_BLANK_GROUPS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?: [0-9]{3})+(?![0-9.,]| ?/)")
_COMMA_GROUPS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9]|,[0-9])")
_BRACKET = re.compile(r"\\[{}]|[()\[\]]")


def normalize(text: str) -> str:
    """Returns the one spelling of an answer.

    Raises:
        Unreadable: it is empty or too long, or holds characters that nobody can read.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unreadable("too long")
    text = plain_characters(text)
    text = text.strip().strip("`").strip()
    while len(text) > 4 and text.startswith("**") and text.endswith("**"):
        text = text[2:-2].strip()
    text = _TEXT_DOLLAR.sub("$", text)
    # One dollar sign is money, two are delimiters.
    if text.replace(r"\$", "").count("$") == 1 or r"\$" in text:
        text = text.replace(r"\$", "$").replace("$", r"\text{dollar}", 1)
    text = text.replace("$", " ")
    for pattern, new in _SPELLINGS:
        text = pattern.sub(new, text)
    text = _BASE.sub(lambda m: f"_{{{_BASES.get(m[1], m[1])}}}", _LEAD.sub("", text))
    text = _join_groups(" ".join(text.split()))
    text = text.removeprefix(r"\approx ").removesuffix(r"\newline").rstrip(" .,;:")
    if not text:
        raise Unreadable("empty")
    return text


def plain_characters(text: str) -> str:
    """Returns the text with ASCII digits and signs, and without invisible characters.

    Raises:
        Unreadable: it holds a replacement character or half of a surrogate pair.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SUPERSCRIPT.sub(lambda m: "^{" + _ascii(m[0]) + "}", text)
    text = _SUBSCRIPT.sub(lambda m: "_{" + _ascii(m[0]) + "}", text)
    out: list[str] = []
    for character in text:
        if character == "\ufffd" or "\ud800" <= character <= "\udfff":
            raise Unreadable("undecodable characters")
        if character in _CHARACTERS:
            out.append(_CHARACTERS[character])
        elif character.isspace():
            out.append(" ")
        elif unicodedata.category(character) in ("Cf", "Cc"):
            continue
        elif unicodedata.decomposition(character).startswith("<fraction>"):
            top, _, bottom = unicodedata.normalize("NFKC", character).partition("\u2044")
            out.append(rf"\frac{{{top}}}{{{bottom}}}" if bottom else character)
        else:
            out.append(_ascii(character))
    return "".join(out)


def _ascii(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    digits = (str(unicodedata.decimal(c, c)) for c in text)
    return "".join(_CHARACTERS.get(c, c) for c in digits)


def _join_groups(text: str) -> str:
    # Inside brackets a comma separates: (1,200) is a point.
    out, depth, start = [], 0, 0
    for bracket in _BRACKET.finditer(text):
        piece = text[start : bracket.start()]
        out.append(piece if depth else _without_groups(piece))
        out.append(bracket[0])
        depth += 1 if bracket[0][-1] in "([{" else -1
        start = bracket.end()
    piece = text[start:]
    out.append(piece if depth > 0 else _without_groups(piece))
    return "".join(out)


def _without_groups(text: str) -> str:
    text = _COMMA_GROUPS.sub(lambda m: m[0].replace(",", ""), text)
    return _BLANK_GROUPS.sub(lambda m: m[0].replace(" ", ""), text)
