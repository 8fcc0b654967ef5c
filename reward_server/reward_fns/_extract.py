# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the one answer in a completion. Every scan is linear in the length of the text."""

from __future__ import annotations

import dataclasses
import re

# Texts of tokens that end or pad a completion, should a tokenizer leave them in.
_END = re.compile(
    r"<\|(?:im_end|end|endoftext|end_of_text|end_of_turn|eot|eot_id|eom_id|eos|return)\|>"
    r"|<(?:eos|end_of_turn|end_of_utterance)>|</s>|<\uff5cend\u2581of\u2581sentence\uff5c>",
    re.IGNORECASE,
)
_PADDING = r"<(?:pad|unk|bos)>|<\|pad(?:ding)?\|>|\[PAD\]"
_PAD = re.compile(_PADDING, re.IGNORECASE)
_LEADING_PAD = re.compile(rf"(?:\s|{_PADDING}|<\|endoftext\|>)+", re.IGNORECASE)
_LAST_TOKEN = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>\s*")
_THINK = "think|thinking|thought|reasoning|scratchpad"
_THINK_TAG = re.compile(rf"<(/?)(?:{_THINK})>|\[(/?)THINK\]", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_MAX_NESTED = 5
_BRACELESS = re.compile(r"[A-Za-z0-9]|\\[A-Za-z]+")
_ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_PHRASE = re.compile(
    r"\bfinal\s+answer\b[*_]*(?:\s+is\b|\s*[:=])\s*(?:therefore\b)?[*_:\s]*", re.IGNORECASE
)
_LEAD = re.compile(
    r"\s*(?:so\s+|thus\s+|hence\s+)?(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|result|total)"
    r"\s*(?:is\b|[:=])\s*:?",
    re.IGNORECASE,
)
_DELIMITED = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_SENTENCE_END = re.compile(r"\.\s|\n")

_MARKS = r"[\s$,;.:&*?()/|-]|\(?\b[a-h0-9]{1,2}[.)]|\\[(),;\[\] !]|\\q?quad|\\text\{|\}"
_DOUBT = (
    r"or|maybe|perhaps|possibly|alternatively|alternately|else|either|otherwise|might|could|"
    r"probably|unless|another"
)
_BETWEEN = 80
# Possessive: what one part could take, two could take otherwise, and so on without end.
_JOIN = re.compile(rf"(?:{_MARKS}|\band\b)*+", re.IGNORECASE)
_HEDGE = re.compile(
    rf"(?:{_MARKS}|\b(?:{_DOUBT}|and|also|be|it|is|even|then|answer|the|option)\b)*+", re.IGNORECASE
)
_VALUE = r"(?:[0-9]|\\(?:boxed|frac|sqrt|pi))"
_ALTERNATIVE = re.compile(
    rf"[\s$,;*.)\]\\]*\b(?:{_DOUBT})\b(?!\s+(?:equivalently|simply|just|in|as|about|approx))"
    rf"[^\n.]{{0,40}}?{_VALUE}",
    re.IGNORECASE,
)
# In a sentence of its own: `Alternatively, 13`, but not `Alternatively, one can check that 3*4=12`.
_OFFERS = (
    rf"{_DOUBT}|it|that|this|is|be|was|would|may|should|also|then|just|even|simply|the|a|an|"
    r"answer|result|value|number|option|possibility|solution|candidate|guess|equals?|we|i|you|get|got|gets|"
    r"gives|have|find|way|correct|final|[a-z]"
)
_NEW_SENTENCE = re.compile(r"[\s$*)\]\\]*(?:\.\s|\n)[\s$*(\[\\]*")
_OFFER = re.compile(
    rf"(?:{_DOUBT})\b[\s,:]*(?:(?:{_OFFERS})\b[\s,:=$\\(*]*)*[-$\\(*\s]*{_VALUE}", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    text: str
    start: int
    end: int


def without_special_text(completion: object) -> str:
    """Returns a completion up to its first end token, without padding; empty if it is no text."""
    if not isinstance(completion, str):
        return ""
    if leading := _LEADING_PAD.match(completion):
        completion = completion[leading.end() :]
    if end := _END.search(completion):
        completion = completion[: end.start()]
    last = len(completion)
    while (token := completion.rfind("<|", 0, last)) >= 0:
        if not _LAST_TOKEN.fullmatch(completion, token, last):
            break
        last = token
    return _PAD.sub("", completion[:last])


def final_text(completion: object) -> str | None:
    """Returns the part of a completion that is graded, or None.

    The text up to its first end token and after its last closing think tag. None if a think block
    is open at its end.
    """
    text = without_special_text(completion)
    start, is_open = 0, False
    for tag in _THINK_TAG.finditer(text):
        is_open = not (tag[1] or tag[2])
        if not is_open:
            start = tag.end()
    return None if is_open else text[start:]


def find_answer(text: str) -> str | None:
    """Returns the text of the one answer, or None if there is none or it is hedged.

    The last box or closed `<answer>`, whichever comes later; only without either, what follows
    the last "final answer is". Boxes in a row, with nothing but punctuation or "and" between them,
    are one list. None if an alternative stands right beside the box ("or", "maybe").
    """
    boxes, tag = _boxes(text), last_tag(text)
    if tag is not None and (not boxes or boxes[-1].end <= tag.end):
        inner = _boxes(tag.text)
        return find_answer(tag.text) if inner else without_lead(tag.text)
    found = _from_boxes(text, boxes) if boxes else _from_phrase(text)
    return None if found is None else without_lead(found)


def last_tag(text: str) -> _Found | None:
    """Returns the content of the last `<answer>` that is closed."""
    start, found = None, None
    for tag in _ANSWER_TAG.finditer(text):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            found = _Found(text[start : tag.start()], start, tag.end())
            start = None
    return found


def last_box(text: str) -> str | None:
    """Returns the content of the last balanced box."""
    boxes = _boxes(text)
    return boxes[-1].text if boxes else None


def _boxes(text: str) -> list[_Found]:
    found: list[_Found] = []
    closing = _closing_braces(text) if _BOX.search(text) else {}
    end = -1
    for box in _BOX.finditer(text):
        if box.start() < end:
            continue  # inside another box
        start = box.end()
        if (close := closing.get(start)) is not None:
            end = close + 1
            found.append(_Found(_unnest(text[start + 1 : close]), box.start(), end))
        elif bare := _BRACELESS.match(text, start):
            end = bare.end()
            found.append(_Found(bare[0], box.start(), end))
    return found


def _closing_braces(text: str) -> dict[int, int]:
    """Returns where each brace that is opened is closed."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif brace[0] == "}" and opened:
            closing[opened.pop()] = brace.start()
    return closing


def _unnest(text: str) -> str:
    # A box in a box marks the same answer twice, or its value: \boxed{x = \boxed{5}}.
    for _ in range(_MAX_NESTED):
        box = _BOX.search(text)
        close = _closing_braces(text).get(box.end()) if box else None
        if box is None or close is None:
            break
        text = text[: box.start()] + text[box.end() + 1 : close] + text[close + 1 :]
    return text


def _from_boxes(text: str, boxes: list[_Found]) -> str | None:
    last = boxes[-1]
    if _is_hedged(text, last):
        return None
    if not last.text.strip():
        return None
    parts = [last.text]
    for before, after in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
        between = text[before.end : after.start]
        if before.text.strip() in ("", last.text.strip()) or len(between) > _BETWEEN:
            break
        if not _JOIN.fullmatch(between):
            if _HEDGE.fullmatch(between):
                return None
            break
        parts.append(before.text)
    return ", ".join(reversed(parts))


def _is_hedged(text: str, box: _Found) -> bool:
    """Says whether what follows a box offers another answer."""
    if not _ALTERNATIVE.match(text, box.end, box.end + _BETWEEN * 2):
        return False
    end = _NEW_SENTENCE.match(text, box.end, box.end + _BETWEEN * 2)
    if end is None:
        return True
    sentence = _SENTENCE_END.split(text[end.end() : end.end() + 4 * _BETWEEN], maxsplit=1)[0]
    if not _OFFER.match(sentence):
        return False
    # It may come to the same answer.
    same = rf"(?<![0-9A-Za-z.\\-]){re.escape(box.text.strip())}[\s.$*)\]\\!]*"
    return re.search(rf"{same}\Z", sentence) is None


def _from_phrase(text: str) -> str | None:
    start = None
    for phrase in _PHRASE.finditer(text):
        start = phrase.end()
    if start is None:
        return None
    rest = text[start:]
    if delimited := _DELIMITED.match(rest):
        after = rest[delimited.end() :]
        if _ALTERNATIVE.match(after) or after.lstrip("*_ ").startswith(","):
            return None
        return delimited[1] or delimited[2] or delimited[3]
    end = _SENTENCE_END.search(rest)
    return (rest[: end.start()] if end else rest).rstrip("*_ .").strip("`")


def without_lead(text: str) -> str:
    """Returns a text without "the answer is" before it."""
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead else text
