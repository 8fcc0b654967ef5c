# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""What both scripts train on: flags, the start of the processes, problems, a model."""

import argparse
from pathlib import Path

import jax
import numpy as np
import reasoning_gym
from jax.sharding import Mesh
from rewards import ANSWER, END_ANSWER, END_REASONING, REASONING
from transformers import PreTrainedTokenizerFast

from trainer import recipes
from trainer.recipes import lora, tiny_model

PROMPT = (
    f"Think about the problem between {REASONING} and {END_REASONING}, then give one number"
    f" between {ANSWER} and {END_ANSWER}.\n{{question}}\n"
)
PROMPT_LENGTH = {"tiny": 512, "smollm2": 256}
LORA_RANK = 8
_SMOLLM2 = recipes.load("smollm2")


def make_parser():
    """Flags of both scripts; the last three are for any JAX job of several processes."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", choices=list(PROMPT_LENGTH), default="tiny")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--coordinator")
    parser.add_argument("--num-processes", type=int)
    parser.add_argument("--process-id", type=int)
    return parser


def start(flags):
    """Joins the other processes, if there are any, and makes a mesh over all devices."""
    if flags.coordinator:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(flags.coordinator, flags.num_processes, flags.process_id)
    return Mesh(np.array(jax.devices()).reshape(-1, 1), ("fsdp", "tp"))


def make_tokenizer(name):
    """Loads the tokenizer: of characters and the four keywords, or SmolLM2's."""
    if name == "smollm2":
        _SMOLLM2.prepare()
        return _SMOLLM2.tokenizer()
    return PreTrainedTokenizerFast.from_pretrained(Path(__file__).with_name("tokenizer"))


def make_models(name, mesh, tokenizer):
    """Makes the policy, which is the reference model with LoRA matrices, and the reference."""
    if name == "smollm2":
        base = _SMOLLM2.model(mesh, seed=0)
    else:
        base = tiny_model.make_model(mesh, seed=0, vocab_size=len(tokenizer))
    return lora.add(base, mesh, rank=LORA_RANK, seed=0), base


def make_dataset(flags, tokenizer):
    """Yields batches of word problems like GSM8K's: "prompts" and "answer"."""
    rows = []
    for item in reasoning_gym.create_dataset("gsm_symbolic", size=1_000_000, seed=0):
        prompt = PROMPT.format(question=item["question"])
        if len(tokenizer(prompt)["input_ids"]) < PROMPT_LENGTH[flags.model]:
            rows.append({"prompts": prompt, "answer": item["answer"]})
        if len(rows) == flags.prompts:
            yield {name: np.array([row[name] for row in rows]) for name in rows[0]}
            rows = []


def print_reward(metrics):
    """Prints the mean reward of a step; for RLCluster.with_external_metrics_logger."""
    values, join = metrics.metrics.get("rewards/score/mean", (None, None))
    if join and jax.process_index() == 0:
        print(f"step {metrics.global_steps} reward {float(join(np.array(values))):.4f}", flush=True)
