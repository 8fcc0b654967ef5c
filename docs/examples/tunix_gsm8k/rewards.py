# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""The four reward functions of Tunix's GSM8K example: format, keywords, answer, number.

They take and return what Tunix's reward functions do; nothing here knows where they run.
"""

import re

REASONING, END_REASONING = "<reasoning>", "</reasoning>"
ANSWER, END_ANSWER = "<answer>", "</answer>"
_FORMAT = re.compile(
    rf"{REASONING}.+?{END_REASONING}.*?{ANSWER}(.+?)(?:{END_ANSWER}|$)", re.DOTALL | re.MULTILINE
)
_NUMBER = re.compile(rf"{ANSWER}.*?([\d.]+)", re.DOTALL)


def match_format_exactly(prompts, completions, **_):
    """3 for reasoning and then an answer, each between its keywords."""
    return [3.0 if _FORMAT.search(completion) else 0.0 for completion in completions]


def match_format_approximately(prompts, completions, **_):
    """Half a point for each keyword that is there once, half a point off for each other."""
    keywords = (REASONING, END_REASONING, ANSWER, END_ANSWER)
    return [sum(0.5 if c.count(k) == 1 else -0.5 for k in keywords) for c in completions]


def check_answer(prompts, completions, answer, **_):
    """3 for the right answer, some for one that is near, less than 0 for a wrong one."""
    return [
        _compare(found[1], right) if (found := _FORMAT.search(completion)) else 0.0
        for completion, right in zip(completions, answer, strict=True)
    ]


def check_numbers(prompts, completions, answer, **_):
    """1.5 if the first number after <answer> is the right one."""
    return [
        1.5 if (found := _NUMBER.search(completion)) and _equal(found[1], right) else 0.0
        for completion, right in zip(completions, answer, strict=True)
    ]


def _clean(text):
    return str(text).strip().replace(",", "")


def _equal(guess, right):
    try:
        return float(_clean(guess)) == float(_clean(right))
    except ValueError:
        return False


def _compare(guess, right):
    guess, right = _clean(guess), _clean(right)
    if guess == right or _equal(guess, right):
        return 3.0
    try:
        ratio = float(guess) / float(right)
    except (ValueError, ZeroDivisionError):
        return -0.5
    if 0.9 <= ratio <= 1.1:
        return 0.5
    return 0.25 if 0.8 <= ratio <= 1.2 else -1.0
