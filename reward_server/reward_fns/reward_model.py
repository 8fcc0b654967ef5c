# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A reward model: a sequence classifier of Hugging Face transformers from a local folder.

Needs the extra `reward-model`; the module can be imported without it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

EXAMPLE: dict[str, Any] = {
    "prompt": "What is the capital of France?",
    "completion": "The capital of France is Paris.",
    "columns": {},
}

_TEMPLATES = ("chat", "pair", "concat")
_DEVICES = ("auto", "cpu", "cuda")
_DTYPES = ("auto", "float32", "bfloat16", "float16")


def reward_model(
    prompts: list[str],
    completions: list[str],
    *,
    path: str = "",
    template: str = "chat",
    device: str = "auto",
    dtype: str = "auto",
    max_length: int = 2048,
    batch_size: int = 16,
    sigmoid: bool = False,
    **_: Any,
) -> list[float]:
    """Rewards completions with the value of a sequence classifier with one label.

    Contract: the reward is the model's logit, or its sigmoid. A text of more than `max_length`
    tokens loses its beginning, since the end holds the completion; special tokens that the
    tokenizer puts in front are kept, except for those of a chat template, which are text. A row's
    reward depends on the other rows of its batch by rounding only. A completion that spells a
    special token is encoded with that token, as in training of reward models.

    Every child process loads the model: its memory is needed `slots` + 1 times, on a GPU, too.
    Nothing is loaded from the network, and no code of the model's folder is run.

    Args:
        prompts: texts of the prompts.
        completions: texts of the completions.
        path: folder with the model and its tokenizer.
        template: "chat" renders prompt and completion with the tokenizer's chat template as one
            exchange, "pair" encodes them as the tokenizer's pair of texts, "concat" as one text
            without anything in between.
        device: "cpu", "cuda", or "auto" for CUDA where it is available.
        dtype: "float32", "bfloat16", "float16", or "auto" for that of the files.
        max_length: tokens of a row that the model sees.
        batch_size: rows in one forward pass.
        sigmoid: whether to map the logit to (0, 1).

    Raises:
        ValueError: a parameter is wrong or does not fit the model.

    Example:
        `reward_model(["2 + 2 ="], ["4"], path="/models/rm", sigmoid=True)` gives one number in
        (0, 1).
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"`batch_size` must be a whole number >= 1, got {batch_size!r}.")
    model = _load(path, template, device, dtype, max_length)
    if not all(isinstance(text, str) for text in (*prompts, *completions)):
        raise ValueError("`completions` must be texts, got chats. Leave out `messages`.")
    rows = [model.encode(*texts) for texts in zip(prompts, completions, strict=True)]
    # Rows of like length share a pass: less padding.
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]["input_ids"]))
    rewards = [0.0] * len(rows)
    size = batch_size if model.pad_id is not None else 1
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        values = model.logits([rows[row] for row in chosen])
        for row, value in zip(chosen, values, strict=True):
            rewards[row] = _sigmoid(value) if sigmoid else value
    return rewards


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    torch: Any
    inner: Any
    tokenizer: Any
    template: str
    max_length: int
    pad_id: int | None

    def encode(self, prompt: str, completion: str) -> dict[str, list[int]]:
        """Turns one row into the model's inputs."""
        texts, adds_special_tokens = [prompt + completion], True
        if self.template == "pair":
            texts = [prompt, completion]
        elif self.template == "chat":
            chat = [
                {"role": "user", "content": prompt},
                {"role": "assistant", "content": completion},
            ]
            # The template writes the special tokens itself.
            texts, adds_special_tokens = [self._render(chat)], False
        encoded = self.tokenizer(
            *texts,
            add_special_tokens=adds_special_tokens,
            truncation=True,
            max_length=self.max_length,
        )
        if not encoded["input_ids"]:
            raise ValueError("the row must hold a token, got an empty text")
        return dict(encoded)

    def _render(self, chat: list[dict[str, str]]) -> str:
        text: str = self.tokenizer.apply_chat_template(chat, tokenize=False)
        return text

    def logits(self, rows: list[dict[str, list[int]]]) -> list[float]:
        """Runs one forward pass."""
        longest = max(len(row["input_ids"]) for row in rows)
        # On the right: what stands before a position does not see it, and positions stay.
        inputs = {}
        for name in rows[0]:
            fill = (self.pad_id or 0) if name == "input_ids" else 0
            padded = [row[name] + [fill] * (longest - len(row[name])) for row in rows]
            inputs[name] = self.torch.tensor(padded, device=self.inner.device)
        with self.torch.inference_mode():
            logits: list[float] = self.inner(**inputs).logits[:, 0].float().tolist()
        return logits


@functools.lru_cache(maxsize=4)
def _load(path: str, template: str, device: str, dtype: str, max_length: int) -> _Model:
    for name, value, known in (
        ("template", template, _TEMPLATES),
        ("device", device, _DEVICES),
        ("dtype", dtype, _DTYPES),
    ):
        if value not in known:
            raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {value!r}.")
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise ValueError(f"`max_length` must be a whole number >= 1, got {max_length!r}.")
    # Any other name would be looked for on the network.
    if not path or not (Path(path) / "config.json").is_file():
        raise ValueError(f"`path` must be a folder with a model, got {path!r}.")
    try:
        import torch  # noqa: PLC0415 - needs the extra
        import transformers  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"`reward_model` needs the package {error.name}: it is not installed."
            " Run pip install 'shardward[reward-model]'."
        ) from None
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        path, local_files_only=True, truncation_side="left"
    )
    if template == "chat" and not tokenizer.chat_template:
        raise ValueError(
            '`template` must be "pair" or "concat": the tokenizer has no chat template.'
        )
    inner, loaded = transformers.AutoModelForSequenceClassification.from_pretrained(
        path, local_files_only=True, use_safetensors=True, dtype=dtype, output_loading_info=True
    )
    if inner.config.num_labels != 1:
        raise ValueError(f"`path` must hold a model with 1 label, got {inner.config.num_labels}.")
    if missing := sorted(loaded["missing_keys"]):
        # They would be random, and so would the rewards.
        raise ValueError(f"`path` must hold all weights of the model, {missing[0]!r} is missing.")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return _Model(
        torch=torch,
        inner=inner.to(device).eval(),
        tokenizer=tokenizer,
        template=template,
        max_length=max_length,
        pad_id=inner.config.get_text_config().pad_token_id,
    )


def _sigmoid(value: float) -> float:
    # Of the absolute value, so that exp does not overflow.
    share = 1 / (1 + math.exp(-abs(value)))
    return share if value >= 0 else 1 - share
