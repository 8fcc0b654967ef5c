# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Built-in reward functions, one file each: their names in a rewards file.

Each module has an `EXAMPLE`: a row that a child scores when it starts.
"""

BUILT_IN: dict[str, str] = {
    "arithmetic": "reward_server.reward_fns.arithmetic:arithmetic",
    "format": "reward_server.reward_fns.format:think_answer_format",
    "gsm8k": "reward_server.reward_fns.gsm8k:gsm8k",
    "integer_format": "reward_server.reward_fns.integer_format:integer_format",
    "llm_judge": "reward_server.reward_fns.llm_judge:llm_judge",
    "reasoning_gym": "reward_server.reward_fns.reasoning_gym:reasoning_gym",
    "reward_model": "reward_server.reward_fns.reward_model:reward_model",
}
