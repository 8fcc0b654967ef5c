# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifier of JSON by schema."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import jsonschema
import referencing
from jsonschema.protocols import Validator
from referencing.jsonschema import DRAFT202012

from reward_server.reward_fns._extract import final_text, last_tag
from reward_server.reward_fns.errors import BadGold

EXAMPLE: dict[str, Any] = {
    "prompt": "Give the point (1, 2) as JSON.",
    "completion": '```json\n{"x": 1, "y": 2}\n```',
    "columns": {"schema": {"type": "object", "required": ["x", "y"]}},
}

_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:json)?[ \t]*$", re.MULTILINE | re.IGNORECASE)
_MAX_CHARACTERS = 1_000_000


def json_schema(
    prompts: list[str],  # noqa: ARG001 - part of the calling convention
    completions: list[str],
    schema: list[Any],
    **_: Any,
) -> list[float | None]:
    """Rewards completions whose JSON is valid under the row's schema.

    Contract: the JSON is the text of the last closed `<answer>`, or of the one fenced block (with
    several, the last), or the whole completion, up to its first end token and after its last
    closing think tag (an unclosed think block earns 0.0). It is one JSON value and nothing else: no
    NaN, no comment, no name twice in an object. `schema` is a JSON Schema as a dict, or as JSON
    text; the draft is that of its `$schema`, else the latest. `format` is not checked, and
    references to other documents are not fetched.

    Raises:
        BadGold: `schema` is no valid schema, has a pattern that Python does not read, or refers to
            another document.

    Example:
        `json_schema(["?"], ["[1]"], [{"type": "array"}])` gives `[1.0]`.
    """
    rewards: list[float | None] = []
    for completion, item in zip(completions, schema, strict=True):
        validator = _validator(item if isinstance(item, str) else _dumped(item))
        text = final_text(completion)
        try:
            value = _value("" if text is None else text)
        except (ValueError, RecursionError):
            rewards.append(0.0)
            continue
        rewards.append(float(validator.is_valid(value)))
    return rewards


def _dumped(schema: object) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError):
        raise BadGold("schema", "a JSON Schema", schema) from None


@functools.lru_cache(maxsize=256)
def _validator(text: str) -> Validator:
    try:
        schema = json.loads(text)
        if not isinstance(schema, dict):
            raise BadGold("schema", "a JSON Schema that is an object", schema)
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
    except (json.JSONDecodeError, jsonschema.SchemaError) as error:
        reason = str(error).partition("\n")[0]
        raise BadGold("schema", f"a valid JSON Schema ({reason})", text) from None
    # The default registry would fetch what a schema refers to.
    registry: referencing.Registry[Any] = referencing.Registry()
    resource = _resource(schema)
    _check(resource, registry.resolver_with_root(resource), text, set())
    validator: Validator = kind(schema, registry=registry)
    return validator


def _check(resource: referencing.Resource[Any], resolver: Any, text: str, seen: set[int]) -> None:
    """Looks at what the check of a schema leaves out until some value comes to it."""
    contents = resource.contents
    if id(contents) in seen:
        return
    seen.add(id(contents))
    parts = [(part, resolver.in_subresource(part)) for part in resource.subresources()]
    if isinstance(contents, dict):
        try:
            for name in ("$ref", "$dynamicRef"):
                if isinstance(reference := contents.get(name), str):
                    found = resolver.lookup(reference)
                    parts.append((_resource(found.contents), found.resolver))
            for pattern in (contents.get("pattern"), *contents.get("patternProperties", ())):
                if isinstance(pattern, str):
                    re.compile(pattern)
        except referencing.exceptions.Unresolvable as error:
            raise BadGold(
                "schema", f"a schema without outside references ({error})", text
            ) from None
        except re.error as error:
            raise BadGold("schema", f"a schema with patterns of Python ({error})", text) from None
    for part, inside in parts:
        _check(part, inside, text, seen)


def _resource(contents: Any) -> referencing.Resource[Any]:
    return referencing.Resource.from_contents(contents, default_specification=DRAFT202012)


def _value(text: str) -> Any:
    tag = last_tag(text)
    text = tag.text if tag else text
    fences = list(_FENCE.finditer(text))
    if len(fences) >= 2:
        text = text[fences[-2].end() : fences[-1].start()]
    if len(text) > _MAX_CHARACTERS:
        raise ValueError("too long")
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("name twice")
    return names
