# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers of `math` and its relatives that look like another, in both directions."""

from __future__ import annotations

import time

import pytest

from reward_server.reward_fns import _symbolic
from reward_server.reward_fns.boxed_number import boxed_number
from reward_server.reward_fns.gsm8k import gsm8k
from reward_server.reward_fns.mathematics import math
from reward_server.reward_fns.multiple_choice import multiple_choice

WRONG = [
    # Two equations without a solution are equal for a solver.
    (r"\lim_{t\to 1}g(t)=4", r"\lim_{t\to 1}g(t)=9"),
    (r"\prod_{k=1}^{4}k=25", r"\prod_{k=1}^{4}k=24"),
    (r"\max(2,9)=2", r"\max(2,9)=9"),
    (r"\int_0^2f(x)\,dx=4", r"\int_0^2f(x)\,dx=6"),
    (r"7 = \sum_{k=1}^{3} k", "6"),
    # A limit from one side alone.
    (r"\lim_{x\to 3}\frac{1}{x-3}", r"\infty"),
    # They agree where variables are positive, or small.
    ("x+70", "|x+70|"),
    ("40-y", "|y-40|"),
    ("l", "|l|"),
    (r"\gamma", r"\sqrt{\gamma^2}"),
    ("a+b", r"|a|+|b|"),
    # Times of day are no ratios, and nothing is in the ratio 0 : 0.
    ("2:20", "1:10"),
    ("6:30", "3:15"),
    (r"7:15\text{ AM}", r"7:15\text{ PM}"),
    ("19:15", r"7:15\text{ AM}"),
    ("0:0", "3:4"),
    # Letters are a product before they are a word.
    ("-uvw", "uvw"),
    ("uvw", "-uvw"),
    ("uvw-xyz", "uvw xyz"),
    # Words that are numbers are no units.
    (r"4\text{ factorial}", "4"),
    (r"7\text{ hundredths}", "7"),
    (r"2\text{ thirds}", "2"),
    (r"6\text{ lakh}", "6"),
    (r"9\text{ millions}", "9"),
    (r"2\text{ pi}", "2"),
    # An equation in one unknown is not its right side.
    ("x^{-1}=4", "4"),
    ("2x=6", "6"),
    ("x^2=9", "9"),
    (r"\ln x=3", "3"),
    ("m+n=5=7", "7"),
    ("p+q=12=13", "13"),
    ("5 because 2+3=5", "5"),
    ("12 or a+b=13", "13"),
    ("a+b=13, c+d=12", "13"),
    ("0.(6)", "0"),
    # Brackets that are text, or none.
    (r"\text{)} = 5", "6"),
    (r"\lfloor = 5", "5"),
    (r"\gcd(\text{(}) = 5", r"\gcd(a,b)=5"),
    (r"] = [ = 5", "5"),
]
RIGHT = [
    (r"\max(2,9)=9", r"\max(2,9)=9.0"),
    (r"\lim_{x\to 3^{+}}\frac{1}{x-3}", r"\infty"),
    (r"\lim_{x\to 2}x^2", "4"),
    ("|70+x|", "|x+70|"),
    (r"\binom{n}{3}", r"\frac{n(n-1)(n-2)}{6}"),
    ("2:20", "2:20"),
    (r"7:15\text{ p.m.}", r"7:15\text{ PM}"),
    ("7:15", r"7:15\text{ PM}"),
    ("19:15", r"7:15\text{ PM}"),
    ("4:6", "2:3"),
    ("twenty-one", "twenty one"),
    (r"9\text{ millions}", "9000000"),
    (r"3\text{ dozens}", "36"),
    (r"6\text{ lakh}", "600000"),
    ("p+q=31", "31"),
    ("m+n = 120+7 = 127", "127"),
    ("ab=14", "14"),
    ("x^2+y^2=50", "50"),
    (r"\cos\theta=\frac35", r"\frac35"),
    (r"\gcd(8,12)=4", "4"),
    (r"\frac{dy}{dx}=3x^2", "3x^2"),
    (r"\int_0^1 2x\,dx=1", "1"),
    ("0.(6)", r"\frac23"),
    (r".\overline{6}", r"\frac23"),
    ("0.75", r"{3\over 4}"),
    ("\u230ay\u230b", r"\lfloor y\rfloor"),
]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """math-verify has its time also on a busy machine."""
    monkeypatch.setattr(_symbolic, "_SECONDS", 30)


def grade(text: str, gold: str) -> float | None:
    """The reward of `math`."""
    return math([""], [text], [gold])[0]


@pytest.mark.parametrize(("answer", "gold"), WRONG)
def test_what_looks_right_is_not_paid(answer: str, gold: str) -> None:
    """Between paying a wrong answer and refusing a right one, it is refused."""
    assert grade(rf"So \boxed{{{answer}}}.", gold) == 0.0


@pytest.mark.parametrize(("answer", "gold"), RIGHT)
def test_what_looks_wrong_is_paid(answer: str, gold: str) -> None:
    """The same answer in another form."""
    assert grade(rf"So \boxed{{{answer}}}.", gold) == 1.0


@pytest.mark.parametrize(
    ("after", "reward"),
    [
        (". Alternatively, one can see that $2\\cdot 9=18$.", 1.0),
        (".\n\nEither way we get 18.", 1.0),
        (". Another check: 9 + 9 = 18.", 1.0),
        (". Otherwise the sum of the 3 parts would not fit.", 1.0),
        (". We could also have used 2 equations.", 1.0),
        (" or 19", 0.0),
        (", maybe 19", 0.0),
        (". Or 19.", 0.0),
        (". Alternatively, 19.", 0.0),
        (". Otherwise it is $19$.", 0.0),
        (".\nAnother possibility is 19.", 0.0),
        (". Alternatively, we get 118.", 0.0),
        (". Perhaps the answer is \\frac{37}{2}.", 0.0),
    ],
)
def test_a_sentence_after_the_box_is_no_hedge(after: str, reward: float) -> None:
    """Unless it offers another answer."""
    assert grade(rf"It is $\boxed{{18}}${after}", "18") == reward


@pytest.mark.parametrize(
    ("text", "gold", "reward"),
    [
        ("<answer>C) Bread and butter</answer>", "C", 1.0),
        ("The answer is (D) A dog.", "D", 1.0),
        ("<answer>(B) It is not known</answer>", "B", 1.0),
        ("Answer: E) 3 or more", "E", 1.0),
        ("<answer>D) Is it blue?</answer>", "D", 1.0),
        ('The answer is "C".', "C", 1.0),
        ("The answer is `C`.", "C", 1.0),
        ("answer is C!", "C", 1.0),
        ("<answer>A) or B)</answer>", "A", 0.0),
        ("<answer>(A) or B</answer>", "A", 0.0),
        ("<answer>A. B</answer>", "A", 0.0),
        ("<answer>A) maybe C</answer>", "A", 0.0),
        ("<answer>(A) (B)</answer>", "A", 0.0),
        ("<answer>A, B</answer>", "A", 0.0),
        ("<answer>A) Paris B) Rome</answer>", "A", 0.0),
        ("<answer>A) Paris, and C) Rome</answer>", "A", 0.0),
    ],
)
def test_the_text_of_a_choice_holds_any_words(text: str, gold: str, reward: float) -> None:
    """But no other choice."""
    assert multiple_choice([""], [text], [gold]) == [reward]


@pytest.mark.parametrize("words", ["factorial", "tenths", "lakh", "crore", "thousands", "halves"])
def test_words_that_are_numbers_are_no_units(words: str) -> None:
    """Also where one number is read."""
    assert gsm8k([""], [f"#### 12 {words}"], ["#### 12"]) == [0.0]
    assert boxed_number([""], [rf"\boxed{{12\text{{ {words}}}}}"], [12]) == [0.0]


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{answer" + " " * 4000 + "!}",
        "The answer is " + "choice " * 600 + "!",
        "The answer is (" + "the " * 1000 + "A",
        r"\boxed{A) " + "or " * 1300 + "}",
    ],
)
def test_a_choice_takes_linear_time(text: str) -> None:
    """Blanks and words that repeat had taken cubic and exponential time."""
    start = time.process_time()
    multiple_choice([""], [text], ["B"])
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("between", ["(be)" * 17 + "x", "(1)" * 25 + "x", "(a)" * 26 + "x"])
def test_what_stands_between_boxes_takes_linear_time(between: str) -> None:
    """Marks in brackets can be read in two ways each, which had taken exponential time."""
    start = time.process_time()
    assert grade(rf"\boxed{{1}}{between}\boxed{{2}}", "2") == 1.0
    assert time.process_time() - start < 1.0
