# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Built-in reward functions, one file each: their names in a rewards file.

Each module has an `EXAMPLE`: a row that a child scores when it starts.
"""

_HERE = "reward_server.reward_fns"

# Their verdict is another's: an endpoint that fails, or a model that can't be run, is no verdict.
JUDGES = frozenset({"llm_judge", "reward_model"})

BUILT_IN: dict[str, str] = {
    "arithmetic": f"{_HERE}.arithmetic:arithmetic",
    "boxed_number": f"{_HERE}.boxed_number:boxed_number",
    "code_python": f"{_HERE}.code_python:code_python",
    "cosine_length": f"{_HERE}.cosine_length:cosine_length",
    "exact_match": f"{_HERE}.exact_match:exact_match",
    "format": f"{_HERE}.format_strict:format_strict",  # another name of format_strict
    "format_lenient": f"{_HERE}.format_lenient:format_lenient",
    "format_strict": f"{_HERE}.format_strict:format_strict",
    "gsm8k": f"{_HERE}.gsm8k:gsm8k",
    "integer_format": f"{_HERE}.integer_format:integer_format",
    "json_schema": f"{_HERE}.json_schema:json_schema",
    "length_penalty": f"{_HERE}.length_penalty:length_penalty",
    "llm_judge": f"{_HERE}.llm_judge:llm_judge",
    "math": f"{_HERE}.mathematics:math",
    "multiple_choice": f"{_HERE}.multiple_choice:multiple_choice",
    "numeric_tolerance": f"{_HERE}.numeric_tolerance:numeric_tolerance",
    "overlong": f"{_HERE}.overlong:overlong",
    "reasoning_gym": f"{_HERE}.reasoning_gym:reasoning_gym",
    "regex_match": f"{_HERE}.regex_match:regex_match",
    "repetition_penalty": f"{_HERE}.repetition_penalty:repetition_penalty",
    "reward_model": f"{_HERE}.reward_model:reward_model",
    "tag_count": f"{_HERE}.tag_count:tag_count",
}
