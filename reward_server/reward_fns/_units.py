# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
r"""Takes the unit off an answer: `35 cm`, `42 \text{km/h}`, `$5`, `5 million`, `90^\circ`."""

from __future__ import annotations

import re

from reward_server.reward_fns._tokens import FUNCTIONS, Token

_SPELLINGS = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre",
    "km": "kilometer kilometre kms", "in": "inch inche", "ft": "foot feet", "yd": "yard",
    "mi": "mile", "g": "gram gm", "mg": "milligram", "kg": "kilogram kgs", "lb": "pound lbs",
    "oz": "ounce", "t": "ton tonne", "s": "second sec secs", "min": "minute mins",
    "h": "hour hr hrs",
    "day": "", "week": "", "month": "", "year": "yr yrs", "ml": "milliliter millilitre",
    "l": "liter litre", "dollar": "usd buck", "cent": "", "euro": "eur", "yen": "jpy",
    "rupee": "rs inr", "degree": "deg", "percent": "percentage pct", "mph": "", "rad": "radian",
    "n": "newton", "j": "joule", "w": "watt", "v": "volt", "hz": "hertz", "pa": "pascal",
    "kmh": "kph kmph", "sq": "square", "cu": "cubic", "per": "", "unit": "",
    "person": "people", "man": "men", "woman": "women", "child": "children", "egg": "",
    "way": "", "hp": "", "kw": "", "kwh": "", "mpg": "", "acre": "",
    "ha": "hectare", "gal": "gallon", "dm": "", "nm": "", "am": "", "pm": "",
}  # fmt: skip
_UNITS = {name: unit for unit, names in _SPELLINGS.items() for name in (unit, *names.split())}
_CURRENCIES = ("dollar", "euro", "lb", "yen", "rupee", "cent")
_SINGLE = frozenset("gmshltNJWVLC")
SCALES = {
    "dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12, "lakh": 10**5, "crore": 10**7,
}  # fmt: skip
# Words after a number that make it another answer, or none.
_NOT_UNITS = frozenset(
    "or and maybe perhaps possibly probably either not but no none is are was be if when where for"  # noqa: SIM905 - a list of words
    " from to than then to between through until except minus plus times over half half third"
    " quarter more less least most about approximately roughly almost nearly other else wrong"
    " incorrect false true undefined unknown infinity infinite mod modulo squared cubed all any"
    " each every some abc xyz zero one two three four five six seven eight nine ten eleven twelve"
    " twenty thirty forty fifty sixty seventy eighty ninety k".split()
)
# Fractions and the like: `5 tenths` is another number than 5.
NUMBER_WORDS = frozenset(
    "half halve third quarter fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"  # noqa: SIM905 - as above
    " thirteenth fifteenth sixteenth twentieth fiftieth hundredth thousandth millionth billionth"
    " factorial pi tau root power fold score gross couple googol".split()
)


def split_unit(tokens: list[Token]) -> tuple[list[Token], int, str]:
    """Takes scale and unit off the end (or a currency off the start) of an answer.

    Returns:
        The tokens of the number, the scale that multiplies it, and the unit in one spelling: empty
        without one. Tokens without a unit come back as they are.
    """
    prefix = ""
    if len(tokens) > 1 and _is_currency(tokens[0]):
        prefix, tokens = tokens[0].text, tokens[1:]
    elif len(tokens) > 2 and tokens[0].text in ("-", "+") and _is_currency(tokens[1]):
        prefix, tokens = tokens[1].text, [tokens[0], *tokens[2:]]
    start = _unit_start(tokens)
    if start == 0:
        return tokens, 1, _canonical(prefix)
    words = [word for token in tokens[start:] for word in _words(token)]
    scale = 1
    while words and (word := _singular(words[0])) in SCALES:
        scale *= SCALES[word]
        words.pop(0)
    unit = _canonical(" ".join(words))
    if prefix and unit and unit != _canonical(prefix):
        return tokens, 1, _canonical(prefix)
    return tokens[:start], scale, unit or _canonical(prefix)


def _unit_start(tokens: list[Token]) -> int:
    i = end = len(tokens)
    while i > 0:
        token, before = tokens[i - 1], tokens[i - 2] if i > 1 else None
        if token.kind in ("text", "word") and _is_unit(token):
            i -= 1
        elif token.text in ("%", r"\degree") and i == end:
            # In `\sin 30^\circ` it belongs to the argument.
            return end if any(t.text in FUNCTIONS for t in tokens) else i - 1
        elif i < end and token.text in ("/", "*") and before and _is_unit(before):
            i -= 1
        elif (power := _power(tokens[:i])) and i > power and _is_unit(tokens[i - power - 1]):
            i -= power
        else:
            break
    first = tokens[i] if i < end else None
    # A bare letter is a unit only where a blank sets it apart: `5 m`, not `5m`.
    if first and first.kind == "word" and first.text in _SINGLE and not first.blank:
        return end
    if first and first.text in ("/", "*", "^"):
        return end
    if (
        first
        and first.kind == "word"
        and (i == 0 or tokens[i - 1].text in ("+", "-", "*", "/", "^"))
    ):
        return end
    return i


def _power(tokens: list[Token]) -> int:
    """Length of a power like `^2` or `^{-1}` at the end."""
    match = re.search(r"\^ (?:[23]|\{ (?:- )?[123] \})$", " ".join(t.text for t in tokens[-5:]))
    return len(match[0].split()) if match else 0


def _words(token: Token) -> list[str]:
    if token.text == "%":
        return ["percent"]
    if token.text == r"\degree":
        return ["degree"]
    if token.kind in ("sign", "number"):
        return [] if token.text in ("{", "}") else [token.text]
    text = token.text
    for sign in "/^*.":
        text = text.replace(sign, f" {sign} ")
    return [word for word in text.split() if word != "."]


def _is_currency(token: Token) -> bool:
    return token.kind == "text" and _UNITS.get(_singular(token.text.strip())) in _CURRENCIES


def _is_unit(token: Token) -> bool:
    words = [word for word in _words(token) if word not in "/^*23-"]
    if any(_singular(word) in NUMBER_WORDS for word in words):
        return False
    if token.kind == "text":
        return 0 < len(words) <= 4 and all(
            word.isalpha() and word.lower() not in _NOT_UNITS for word in words
        )
    word = token.text
    if token.kind != "word" or word in FUNCTIONS or word in ("pi", "sqrt"):
        return False
    if len(word) == 1 or word.lower() in _NOT_UNITS:
        return word in _SINGLE
    if _singular(word) in SCALES or _singular(word) in _UNITS:
        return token.blank or word.lower() in _UNITS
    return token.blank and len(word) >= 3 and any(vowel in word.lower() for vowel in "aeiouy")


def _singular(word: str) -> str:
    word = word.lower()
    if word in _UNITS:
        return word
    return word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith("ss") else word


def _canonical(text: str) -> str:
    words = [_UNITS.get(_singular(word), _singular(word)) for word in text.split()]
    out: list[str] = []
    power = ""
    for word in words:
        if word in ("sq", "cu"):
            power = "^2" if word == "sq" else "^3"
        elif word == "per":
            out.append("/")
        elif word in ("^", "*", "/", "2", "3"):
            out.append(word)
        elif word != "unit":
            out.append(word + power)
            power = ""
    joined = "".join(out)
    return {"km/h": "kmh", "mi/h": "mph"}.get(joined, joined if joined.strip("^23") else "")
