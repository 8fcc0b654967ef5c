# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the math reward function: what is right, what is wrong, what is no reference."""

from __future__ import annotations

import threading
import time

import pytest

from reward_server.reward_fns.errors import BadGold
from reward_server.reward_fns.mathematics import math

RIGHT = [
    (r"\frac{7}{4}", "1 3/4"),
    (r"1\tfrac34", "1.75"),
    (r"-2\frac{1}{3}", r"-\frac{7}{3}"),
    ("1,234,567", "1234567"),
    ("1{,}234", "1234"),
    (r"1\;234", "1234"),
    ("1 234", "1234"),
    ("10^{3}", "1000"),
    ("1,234.5", "1234.5"),
    ("$5", "5"),
    (r"\$5.00", "5"),
    (r"5\$", "5"),
    ("\u20ac5", "5"),
    ("5 dollars", r"\$5"),
    (r"\$5", "5 dollars"),
    (r"50\%", "0.5"),
    ("50%", r"\frac12"),
    ("0.5", r"50\%"),
    (r"500\%", "5"),
    (r"45^{\circ}", "45"),
    ("45\xb0", r"45^\circ"),
    ("45 degrees", "45"),
    (r"45\text{ degrees}", r"45^\circ"),
    (r"\sin 30^\circ", r"\frac12"),
    (r"12\text{ cm}^2", "12"),
    (r"12 \text{ cm}^{2}", r"12\text{ cm}^2"),
    ("12 square centimeters", r"12\text{ cm}^2"),
    (r"12\text{ square units}", "12"),
    ("12 units", "12"),
    ("3 hours", r"3\text{ hrs}"),
    ("3 apples", "3"),
    ("60 mph", "60 miles per hour"),
    ("5 million", "5000000"),
    ("2 dozen", "24"),
    (r"x=1 \text{ or } x=2", "1, 2"),
    (r"1 \text{ or } 2", r"x=1 \text{ or } x=2"),
    ("x=2, x=1", r"\{1,2\}"),
    ("1,2", r"\{1,2,2\}"),
    ("(1, 2]", "(1,2]"),
    (r"\{2,1\}", r"\{1, 2\}"),
    ("(x,y)=(1,2)", "(1,2)"),
    ("(1,2)", "(x,y)=(1,2)"),
    ("x=1,y=2", "y=2, x=1"),
    ("1,2", "x=1,y=2"),
    (r"2 \pm \sqrt{3}", r"2+\sqrt3, 2-\sqrt3"),
    ("x>3", r"(3,\infty)"),
    ("3<x", "x>3"),
    (r"-1 \le x < 2", "[-1,2)"),
    (r"x<1 \text{ or } x>3", r"(-\infty,1)\cup(3,\infty)"),
    (r"x \in (3,\infty)", "x>3"),
    (r"x\neq 5", r"\mathbb{R}\setminus\{5\}"),
    (r"(-\infty,5)\cup(5,\infty)", r"x \ne 5"),
    (r"x>1 \text{ and } x<3", "(1,3)"),
    ("1010_2", "1010_{2}"),
    ("(52)_8", "52_8"),
    ("42_{10}", "42"),
    ("y=2x+1", "y = 1+2x"),
    ("2x-y+1=0", "y=2x+1"),
    ("4x-2y+2=0", "y=2x+1"),
    ("x^2+y^2=25", "y^2+x^2-25=0"),
    (r"\sin^2 x", r"1-\cos^2 x"),
    (r"2\sin x\cos x", r"\sin 2x"),
    (r"\ln(x^2)", r"2\ln x"),
    (r"e^{2\ln x}", "x^2"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    (r"\sqrt{x^2}", "|x|"),
    ("n(n+1)/2", r"\frac{n^2+n}{2}"),
    (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
    ("(-1)^n", r"\cos(n\pi)"),
    ("(n+1)!", r"(n+1)\cdot n!"),
    (r"\frac{\sqrt3}{3}", r"\frac{1}{\sqrt3}"),
    ("3+4i", "4i+3"),
    (r"e^{i\pi}", "-1"),
    (r"\frac{1+i}{1-i}", "i"),
    (r"\sqrt{-4}", "2i"),
    (r"\begin{pmatrix}1/2&0\\0&1\end{pmatrix}", r"\begin{bmatrix}0.5 & 0 \\ 0 & 1\end{bmatrix}"),
    ("3.14159265", r"\pi"),
    ("2.50", "2.5"),
    ("+5", "5"),
    ("05", "5"),
    ("5.", "5"),
    ("-0", "0"),
    ("\u22123", "-3"),
    ("\uff15", "5"),
    ("\u0665", "5"),
    ("\xbd", "0.5"),
    ("x\xb2", "x^2"),
    ("2\xd73", "6"),
    ("10\xf74", "2.5"),
    (r"0.\dot{3}", r"\frac13"),
    (r"0.\overline{3}", "1/3"),
    (r"0.1\overline{6}", "1/6"),
    (r"\text{yes}", r"\text{Yes}"),
    ("Yes.", r"\text{yes}"),
    ("(B)", "B"),
    (r"\textbf{(B)}", "B"),
    ("B", r"\text{(B)}"),
    ("east", r"\text{East}"),
    (r"\text{Area}=5\text{ cm}^2", "5"),
    ("AB=5", "5"),
    ("f(x)=x^2", "x^2"),
    (r"x=\frac{10}{2}=5", "5"),
    (r"\frac{10}{2}=5", "5"),
    (r"\theta=\frac{\pi}{3}", r"\frac{\pi}{3}"),
    (r"\sqrt2\approx1.414", r"\sqrt{2}"),
    (r"\{\}", r"\emptyset"),
    (r"\infty", r"\infty"),
    (r"+\infty", r"\infty"),
    ("5 ** 1", "5"),
    (r"\sum_{k=1}^{3} k", "6"),
    (r"\int_0^1 x dx", r"\frac12"),
    (r"\lim_{x\to0} \frac{\sin x}{x}", "1"),
    (r"\sum_{k=1}^n k", r"\frac{n(n+1)}{2}"),
    (r"\log_{10} 100", "2"),
    (r"\lg 100", "2"),
    (r"\lfloor 3.7 \rfloor", "3"),
    ("|-3|", "3"),
    ("2|x|", "|2x|"),
    (r"\sqrt[3]{-8}", "-2"),
    (r"\sqrt[3]{27}", "3"),
    ("8^{1/3}", "2"),
    ("4^{-1}", "0.25"),
    ("2^{-3}", "1/8"),
    ("1:2", "1:2"),
    ("1:2", "2:4"),
    ("100,200", "100200"),
    ("(1{,}200)", "1200"),
    ("12:30", "12:30"),
    (r"\dfrac{\pi r^2}{2}", r"\frac12\pi r^2"),
    ("x_1+x_2", "x_2+x_1"),
    (r"\alpha+\beta", r"\beta+\alpha"),
    (r"\overline{AB}", r"\overline{AB}"),
    (r"\left\{1,2\right\}", r"\{1,2\}"),
    (r"\left[0,1\right]", "[0,1]"),
    (r"\mathbf{5}", "5"),
    (r"\text{5}", "5"),
    (r"\mathrm{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\displaystyle\frac12", "1/2"),
    (r"\bf 5", "5"),
    (r"\boldsymbol{5}", "5"),
    (r"\textcolor{red}{5}", "5"),
    (r"\color{blue} 5", "5"),
    (r"\,5\,", "5"),
    (r"\mathsf{7}", "7"),
    (r"\$1,000,000", "1000000"),
    (r"5\text{ m/s}", r"5\text{ m}/\text{s}"),
    (r"5\text{ m/s}^2", "5"),
    (r"5 \text{kg} \cdot \text{m}", "5"),
    (r"$\frac{1}{2}$", "0.5"),
    (r"\(5\)", "5"),
    ("5cm", "5"),
    (r"5\pi\text{ cm}", r"5\pi"),
    ("6!", "720"),
    (r"\frac{6!}{3!}", "120"),
    (r"3\cdot 10^8", "3e8"),
    ("3 x 10^8", "3e8"),
    (r"3 \times 10^{8} \text{ m/s}", "300000000"),
    (r"\neg p", r"\neg p"),
    (r"p \land q", r"p \land q"),
    (r"1, 2, \ldots, n", r"1,2,\dots,n"),
]
WRONG = [
    (r"3\frac{1}{2}", "1.5"),
    ("12,34", "1234"),
    ("5 euros", r"\$5"),
    ("0.05", "5"),
    ("5", "0.05"),
    (r"5\%", "0.5"),
    (r"12\text{ cm}^2", r"12\text{ cm}^3"),
    ("3 hours", "3 minutes"),
    ("60 km/h", r"60\text{ mph}"),
    (r"5\text{ million}", "5"),
    ("5 or 6", "5"),
    ("5, maybe 6", "5"),
    ("maybe 5", "5"),
    (r"5 \text{ or } 5.5", "5"),
    ("5/6", "5"),
    ("{5,6}", "5"),
    ("5?", "5"),
    ("5;6", "5"),
    ("5 and 6", "5"),
    (r"5\text{ or so}", "5"),
    (r"x=5 \text{ or } x=6", "5"),
    (r"5 \lor 6", "5"),
    (r"\text{either }5\text{ or }6", "5"),
    (r"5\text{ (or }6)", "5"),
    (r"\pm 5", "5"),
    ("5|6", "5"),
    (r"5\ 6", "5"),
    ("5:6", "5"),
    (r"5\quad 6", "5"),
    (r"5\\6", "5"),
    (r"5 \text{ not } 6", "5"),
    ("[5,6]", "5"),
    ("5=6", "5"),
    (r"5\approx 6", "5"),
    (r"\{5\}", "5"),
    (r"5 \to 6", "5"),
    (r"\max(5,6)", "5"),
    (r"5\text{ to }6", "5"),
    ("5-6", "5"),
    ("5 < 6", "5"),
    (r"5\text{ if }n>0", "5"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2]"),
    ("1,2,2", "1,2"),
    ("2,1", "x=1,y=2"),
    (r"2+\sqrt{3}", r"2\pm\sqrt3"),
    (r"x \ge 3", r"(3,\infty)"),
    (r"[2,\infty)", r"[2,\infty]"),
    ("1010", "1010_2"),
    ("10", "1010_2"),
    ("2A_{16}", "2a_{16}"),
    ("53_8", "52_8"),
    ("52_7", "52_8"),
    ("y=2x+2", "y=2x+1"),
    ("0=0", "y=2x+1"),
    ("x=y", "y=2x+1"),
    (r"\sin x^2", r"\sin^2 x"),
    ("x+1", "x-1"),
    ("(a+b)^2", "a^2+b^2"),
    ("2^{n}", "2^{n+1}"),
    ("3-4i", "3+4i"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
    ("3.14", r"\pi"),
    ("1.414", r"\sqrt2"),
    ("0.33", r"\frac13"),
    (r"\pi", "3.14"),
    ("22/7", r"\pi"),
    ("1e-9", "1e-10"),
    ("no", r"\text{Yes}"),
    ("C", "B"),
    ("A, B", "A"),
    (r"\text{Tuesday}", r"\text{Monday}"),
    ("f(x)=x^2", "f(x)=x^3"),
    ("x = 5", "y=5"),
    ("x=2+3=6", "6"),
    (r"\frac13 \approx 0.5", r"\frac13"),
    ("", "0"),
    (" ", "0"),
    (r"\text{}", "0"),
    (".", "0"),
    (r"\frac{}{}", "0"),
    (r"\frac{1}", "1"),
    (r"\sqrt{}", "0"),
    ("()", "0"),
    (r"\emptyset", "0"),
    (r"\frac{1}{0}", "0"),
    ("0^0", "1"),
    (r"\infty", r"-\infty"),
    ("import os", "0"),
    ("__import__('os')", "x"),
    ("print(5)", "5"),
    ("lambda: 5", "5"),
    ("int(5)", "5"),
    ("5 if True else 6", "5"),
    ("eval('5')", "5"),
    ("[5][0]", "5"),
    ("'5'", "5"),
    ("5#", "5"),
    ("9^{9^{9}}", "1"),
    ("(9!)!", "1"),
    ("((9!)!)!", "1"),
    ("2^{99999999}", "1"),
    ("10^{10^{10}}", "1"),
    ("e^{e^{e^{e^e}}}", "1"),
    (r"\sqrt[99999]{2}", "1"),
    (r"\binom{99999999}{5000000}", "1"),
    ("1e999999", "1"),
    ("x^{x^{x^{x}}}", "x"),
    (r"\frac{99999!}{99998!}", "99999"),
    (r"\int_0^1 x dx", r"\frac13"),
    ("1:2", "2:1"),
    ("1, 200", "1200"),
    ("5 cm", "5 m"),
    ("5x", "5"),
    ("5 x", "5"),
    ("5xy", "5"),
    (r"5\pi", "5"),
    ("5e", "5"),
    ("5i", "5"),
    ("5n", "5"),
    ("5k", "5"),
    ("5a", "5"),
    ("5!!", "15"),
    (r"1,2,3,\ldots", r"1,2,4,\ldots"),
]
COMPLETIONS = [
    (r"\boxed{5} or 6", "5", 0.0),
    (r"\boxed{5} or maybe \boxed{6}", "6", 0.0),
    (r"\boxed{5}, \boxed{6}", "6", 0.0),
    (r"\boxed{5} and \boxed{6}", "5, 6", 1.0),
    (r"\boxed{5} or \boxed{6}", "5, 6", 0.0),
    (r"$\boxed{5}$ or $\boxed{6}$", "6", 0.0),
    (r"Either \boxed{5} or \boxed{6}.", "6", 0.0),
    ("\\boxed{5}\n\\boxed{6}", "6", 0.0),
    (r"\boxed{5} \boxed{5}", "5", 1.0),
    (r"First \boxed{5}. Then by symmetry \boxed{7}", "7", 1.0),
    (r"\boxed{5}. It could also be \boxed{6}.", "6", 0.0),
    (r"\boxed{5}. Or maybe it is 6.", "5", 0.0),
    (r"\boxed{\frac12} or equivalently 0.5", "0.5", 1.0),
    (r"\boxed{5}. More or less done.", "5", 1.0),
    ("The answer is <answer>5</answer>", "5", 1.0),
    (r"<answer>\boxed{5}</answer>", "5", 1.0),
    ("<answer>The answer is 5</answer>", "5", 1.0),
    ("<answer>5 or 6</answer>", "5", 0.0),
    (r"\boxed{6} <answer>5</answer>", "5", 1.0),
    (r"<answer>5</answer> Wait, \boxed{6}", "5", 0.0),
    ("<answer>5", "5", 0.0),
    ("<answer>5</answer><answer>6</answer>", "6", 1.0),
    ("The final answer is 5.", "5", 1.0),
    ("The final answer is $5$.", "5", 1.0),
    ("Final answer: 5", "5", 1.0),
    (r"The final answer is $\frac12$. I hope it is correct.", "0.5", 1.0),
    ("The final answer is 5 or 6.", "5", 0.0),
    ("the final answer is 3.14", "3.14", 1.0),
    ("Final Answer:\n5", "5", 1.0),
    ("The final answer is 5, maybe 6", "5", 0.0),
    ("The final answer is $5$ or $6$", "5", 0.0),
    ("final answer is indeed 5", "5", 0.0),
    ("The final answer is not 5", "5", 0.0),
    ("**Final Answer:** 5", "5", 1.0),
    ("The final answer is: 1,234.", "1234", 1.0),
    ("It is 5", "5", 0.0),
    ("5", "5", 0.0),
    ("The answer is 5", "5", 0.0),
    (r"<think>\boxed{5}", "5", 0.0),
    (r"<think>a</think>\boxed{5}", "5", 1.0),
    (r"<think>\boxed{5}</think>", "5", 0.0),
    (r"\boxed{5}</think> x", "5", 0.0),
    (r"<think>a</think>\boxed{5}<think>hm", "5", 0.0),
    (r"<THINK>\boxed{5}", "5", 0.0),
    (r"<think>a</think>\boxed{6}<think>b</think>\boxed{5}", "5", 1.0),
    (r"x </think> \boxed{5}", "5", 1.0),
    (r"\boxed{5}<|im_end|>\boxed{6}", "5", 1.0),
    (r"\boxed{6}<|im_end|>\boxed{5}", "5", 0.0),
    (r"\boxed{5}</s>", "5", 1.0),
    (r"\boxed{5}<|eot_id|>user\boxed{6}", "5", 1.0),
    (r"<|endoftext|><|endoftext|>\boxed{5}", "5", 1.0),
    (r"\boxed{5", "5", 0.0),
    (r"\boxed{\frac{1}{2}", "0.5", 0.0),
    (r"\boxed{4} ... so \boxed{5", "4", 1.0),
    (r"\boxed{\boxed{5}}", "5", 1.0),
    (r"\boxed{x=\boxed{5}}", "5", 1.0),
    (r"\fbox{5}", "5", 1.0),
    (r"\boxed5", "5", 1.0),
    (r"\boxed 5", "5", 1.0),
    (r"\boxed{}", "5", 0.0),
    (r"\boxed{5}\boxed{}", "5", 0.0),
    (r"\boxed", "5", 0.0),
    (r"\boxed{\{5,6\}}", r"\{5,6\}", 1.0),
    (r"\boxed{\left\{5\right.}", "5", 0.0),
    ("$$\\boxed{\n5\n}$$", "5", 1.0),
    (r"\boxed{ 5 }", "5", 1.0),
    (r"\[\boxed{5}\]", "5", 1.0),
    (r"`\boxed{5}`", "5", 1.0),
    (r"**\boxed{5}**", "5", 1.0),
    (r"\boxed{**5**}", "5", 1.0),
    (None, "5", 0.0),
    ("", "5", 0.0),
    (" \n", "5", 0.0),
    ("\ud83d\\boxed{5}", "5", 1.0),
    ("\\boxed{5\ud83d}", "5", 0.0),
    ("\\boxed{\u202d5\u202c}", "5", 1.0),
    ("\\boxed{5}\0", "5", 1.0),
    (r"Answer: \boxed{42} dollars", "42", 1.0),
    (r"\boxed{42}, not \boxed{41}", "42", 0.0),
]
BAD_GOLDS = [
    "", " ", None, True, float("nan"), float("inf"), [], ["5", ""], {"a": 1}, "0/0", r"\frac{1}{0}",
    r"\infty - \infty", "$$", "?", "...", r"\frac{1}{", r"\frac{}{}", r"\sqrt", "{}", "()", "-",
    r"\text{}", r"\boxed{}", "5 or", "1,,2", "(", "##", "x =", "= 5", r"\left", "nan",
]  # fmt: skip


def grade(completion, gold):
    """The reward of one completion."""
    (reward,) = math([""], [completion], [gold])
    return reward


@pytest.mark.parametrize(("answer", "gold"), RIGHT)
def test_right(answer, gold):
    """Answers that are the reference in other words."""
    assert grade(rf"So \boxed{{{answer}}}.", gold) == 1.0


@pytest.mark.parametrize(("answer", "gold"), WRONG)
def test_wrong(answer, gold):
    """Answers that are another thing, several things or nothing; none takes long to refuse."""
    start = time.process_time()
    assert grade(rf"So \boxed{{{answer}}}.", gold) == 0.0
    assert time.process_time() - start < 2


@pytest.mark.parametrize("gold", [gold for _, gold in RIGHT + WRONG])
def test_reference_equals_itself(gold):
    """Every reference that is accepted is right when it is the answer."""
    assert grade(rf"\boxed{{{gold}}}", gold) == 1.0


@pytest.mark.parametrize(("completion", "gold", "expected"), COMPLETIONS)
def test_where_the_answer_is(completion, gold, expected):
    """The last box, tag or final answer of the part after the thinking and before the end."""
    assert grade(completion, gold) == expected


@pytest.mark.parametrize("gold", BAD_GOLDS, ids=repr)
def test_bad_gold(gold):
    """A reference that cannot be graded against is an error that shows it."""
    with pytest.raises(BadGold, match=r"^`answer` must be .+, got .*\.$"):
        grade(r"\boxed{5}", gold)


def test_bad_gold_with_a_bad_completion():
    """A bad reference is never a wrong answer."""
    with pytest.raises(BadGold):
        grade("", "0/0")


def test_several_references():
    """Any reference of a list is right."""
    assert grade(r"\boxed{2, 3}", ["3, 2", "6"]) == 1.0
    assert grade(r"\boxed{6}", ["3, 2", "6"]) == 1.0
    assert grade(r"\boxed{3}", ["3, 2", "6"]) == 0.0


def test_relative_tolerance():
    """The tolerance is for decimals against irrational numbers, and for nothing else."""
    near = [r"\boxed{3.14}", r"\boxed{3.14}", r"\boxed{0.33}"]
    golds = [r"\pi", "3.15", r"\frac13"]
    assert math([""] * 3, near, golds, relative_tolerance=0.01) == [1.0, 0.0, 0.0]
    assert math([""] * 3, near, golds) == [0.0, 0.0, 0.0]


def test_in_a_thread():
    """Signals do not work outside a main thread; grading does, also by math-verify."""
    rewards = []
    thread = threading.Thread(
        target=lambda: rewards.append(grade(r"\boxed{\sum_{k=1}^{3} k}", "6"))
    )
    thread.start()
    thread.join(60)
    assert rewards == [1.0]


@pytest.mark.parametrize(
    "text",
    [
        *("(" * 5000, "{" * 5000, r"\boxed{" * 3000, "$" * 20000, "<think>" * 3000, "9" * 20000),
        *("9^" * 400, "!" * 5000, r"\frac" * 1000, "-" * 5000, "1," * 3000, r"\text{" * 900),
    ],
)
def test_long_repetitions_are_cheap(text):
    """Repeated openings, signs and digits take linear time, boxed or not."""
    start = time.process_time()
    for completion in (text, rf"\boxed{{{text}}}", rf"<answer>{text}</answer>"):
        assert grade(completion, "5") == 0.0
    assert time.process_time() - start < 5
