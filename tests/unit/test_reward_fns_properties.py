# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Properties of math: rewriting keeps a right answer right, hedging keeps a wrong one wrong."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from reward_server.reward_fns.boxed_number import boxed_number
from reward_server.reward_fns.gsm8k import gsm8k
from reward_server.reward_fns.mathematics import math

settings.register_profile(
    "shared",
    deadline=None,
    derandomize=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared")

INTEGERS = st.integers(-(10**12), 10**12)
FRACTIONS = st.fractions(-1000, 1000, max_denominator=500)
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\\<[{}$"), max_size=60)
UNITS = st.sampled_from(
    ["", r"\text{ cm}", " cm", r"\ \mathrm{km/h}", " apples", r"^\circ", " dollars", r"\text{ m}^2"]
)


def grade(completion, gold):
    """The reward of one completion."""
    (reward,) = math([""], [completion], [gold])
    return reward


def sign(negative, draw):
    """A minus in one of its spellings, or a plus or nothing."""
    return draw(st.sampled_from(["-", "\u2212", "- ", "\uff0d"] if negative else ["", "+", ""]))


@st.composite
def integer_spellings(draw):
    """An integer and a spelling of it."""
    value = draw(INTEGERS)
    digits = str(abs(value))
    groups = f"{abs(value):,}"
    body = draw(
        st.sampled_from(
            [
                digits,
                groups,
                groups.replace(",", "{,}"),
                groups.replace(",", r"\,"),
                groups.replace(",", r",\!"),
                digits + ".0",
                digits + ".",
                rf"\text{{{digits}}}",
                "".join(chr(0xFF10 + int(d)) for d in digits),
                "".join(chr(0x660 + int(d)) for d in digits),
            ]
        )
    )
    return value, sign(value < 0, draw) + body


@st.composite
def fraction_spellings(draw):
    """A fraction and a spelling of it."""
    value = draw(FRACTIONS)
    scale = draw(st.integers(1, 6))
    top, bottom = abs(value.numerator) * scale, value.denominator * scale
    whole, rest = divmod(top, bottom)
    spellings = [rf"\{kind}frac{{{top}}}{{{bottom}}}" for kind in ("", "d", "t")]
    spellings += [f"{top}/{bottom}", f"{top} / {bottom}", rf"\frac {{{top}}} {{ {bottom} }}"]
    spellings += [rf"{top} \div {bottom}", rf"\left(\frac{{{top}}}{{{bottom}}}\right)"]
    if whole and rest:
        spellings += [f"{whole} {rest}/{bottom}", rf"{whole}\tfrac{{{rest}}}{{{bottom}}}"]
    body = draw(st.sampled_from(spellings))
    return value, sign(value < 0, draw) + body


SPELLINGS = st.one_of(integer_spellings(), fraction_spellings())


@st.composite
def wrapped(draw, answer):
    """A completion with this answer in a box."""
    before, after = draw(TEXT), draw(st.sampled_from(["", ".", "$.", "\n\nThat is it.", " \u2713"]))
    space = draw(st.sampled_from(["", " ", "\n", r"\,", "$"]))
    box = draw(
        st.sampled_from([r"\boxed{%s}", r"\fbox{%s}", r"\boxed {%s}", "<answer>%s</answer>"])
    )
    think = draw(st.sampled_from(["", r"<think>maybe \boxed{1234567}</think>"]))
    return think + before + " " + box.replace("%s", space + answer + space) + after


@given(st.data(), SPELLINGS)
def test_right_stays_right(data, spelled):
    """Spelling, wrapping and units change nothing."""
    value, spelling = spelled
    unit = data.draw(UNITS)
    assume(not (spelling.endswith(".") and unit))
    completion = data.draw(wrapped(spelling + unit))
    assert grade(completion, str(value)) == 1.0


@given(SPELLINGS, SPELLINGS)
def test_values_decide(left, right):
    """Two numbers are equal exactly if their values are."""
    assert grade(rf"\boxed{{{left[1]}}}", right[1]) == float(left[0] == right[0])
    assert boxed_number([""], [rf"\boxed{{{left[1]}}}"], [right[1]]) == [left[0] == right[0]]


@given(integer_spellings(), st.integers(1, 10**6), st.data())
def test_wrong_stays_wrong_under_hedges(spelled, other, data):
    """No list, alternative or afterthought earns anything, with the right answer in it or not."""
    value, right = spelled
    wrong = str(value + other)
    pair = data.draw(st.permutations([right, wrong]))
    hedge = data.draw(
        st.sampled_from(
            [
                r"\boxed{%s or %s}",
                r"\boxed{%s, %s}",
                r"\boxed{%s; %s}",
                r"\boxed{%s \text{ or } %s}",
                r"\boxed{\{%s, %s\}}",
                r"\boxed{(%s, %s)}",
                r"\boxed{%s, maybe %s}",
                r"\boxed{%s = %s}",
                r"\boxed{%s \quad %s}",
                r"\boxed{%s \approx %s}",
                r"\boxed{%s}, \boxed{%s}",
                r"\boxed{%s} or \boxed{%s}",
                r"\boxed{%s} or maybe %s",
                "<answer>%s or %s</answer>",
                "The final answer is %s or %s.",
            ]
        )
    )
    first, second = (text.rstrip(".") for text in pair)
    # Numbers this near are one number and its rounding.
    assume(r"\approx" not in hedge or 50 * other > abs(value))
    assert grade(hedge.replace("%s", first, 1).replace("%s", second, 1), str(value)) == 0.0


@given(INTEGERS, TEXT)
def test_only_the_answer_counts(value, text):
    """The right number in the prompt, the thinking or in passing earns nothing."""
    gold = str(value)
    for completion in (
        rf"<think>{text} \boxed{{{gold}}}</think> {text}",
        rf"<think>{text} \boxed{{{gold}}}",
        f"{text} {gold} is too low, so \\boxed{{{value + 1}}}",
        f"{text} {gold}",
        rf"\boxed{{{value + 1}}}<|im_end|>\boxed{{{gold}}}",
    ):
        assert math([rf"Is it \boxed{{{gold}}}?"], [completion], [gold]) == [0.0]


@given(
    integer_spellings(),
    st.sampled_from(["", " apples", ".", "**", " dollars", "\nDone in 3 steps."]),
)
def test_gsm8k_reads_the_same_numbers(spelled, tail):
    """Numbers without LaTeX are the same for gsm8k."""
    value, spelling = spelled
    assume("\\" not in spelling and "{" not in spelling)
    assume(not (spelling.endswith(".") and tail))
    assert gsm8k([""], [f"so\n#### {spelling}{tail}"], [str(value)]) == [1.0]
    assert gsm8k([""], [f"so\n#### {spelling}{tail}"], [str(value + 1)]) == [0.0]


@given(st.text(max_size=300))
def test_any_text_has_a_verdict(text):
    """No answer raises or is right by chance."""
    for completion in (text, rf"\boxed{{{text}}}", f"<answer>{text}</answer>", f"#### {text}"):
        assert grade(completion, "987654321.123") == 0.0
        assert gsm8k([""], [completion], ["987654321.123"]) == [0.0]


@given(
    st.text(st.sampled_from("0123456789+-*/^_(){}[]|,.=<>! \\abcxyzeimp%"), max_size=60),
    st.sampled_from(["x+1", "(1,2)", r"\{1,2\}", "[0,1)", r"\pi", "x<3", "52_8"]),
)
def test_soup_of_mathematics_has_a_verdict(text, gold):
    """Broken mathematics is graded, whatever the shape of the reference."""
    assert grade(rf"\boxed{{{text}}}", gold) in (0.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [("x", "y"), ("n", "k"), (r"\alpha", "t")])
@given(p=st.integers(-9, 9), q=st.integers(-9, 9))
def test_polynomials(a, b, p, q):
    """A product equals its expansion, and no other."""
    assume(p and q)
    answer = rf"\boxed{{({p}{a}+{b})({q}{a}-{b})}}"
    expanded = f"({p * q}){a}^2 + ({q - p}){a} {b} - {b}^2"
    assert grade(answer, expanded) == 1.0
    assert grade(answer, expanded + " + 1") == 0.0


@given(FRACTIONS, st.integers(1, 10**6))
def test_near_misses_of_rationals(value, inverse):
    """Rationals have no tolerance."""
    near = value + Fraction(1, 10**12 * inverse)
    assert grade(rf"\boxed{{{near}}}", str(value)) == 0.0
