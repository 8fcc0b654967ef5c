# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Flags and exit codes of `grpo-train`, and of the demo."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys

import pytest

from deploy.local import demo
from deploy.local.launch import fill
from reward_server.config import RewardsConfig
from reward_server.decode import Tokenizer
from reward_server.flags import build_parser
from trainer import cli, codec, flags, recipes
from trainer.errors import InvalidRequest, ProcessesDisagree, Unavailable
from trainer.run_config import ConfigError, RunConfig, in_cluster, parse_mesh

REQUIRED = ["--reward-endpoint", "unix:/tmp/s", "--recipe", "tiny"]
PEERS = ["--coordinator", "a:1", "--num-processes", "2", "--process-id", "1"]
FLAGS = [
    "--version",
    "--recipe",
    "--algorithm",
    "--task",
    "--lora-rank",
    "--steps",
    "--mesh",
    "--seed",
    "--reward-endpoint",
    "--print-server-flags",
    "--reward-start-timeout",
    "--reward-timeout",
    "--reward-path",
    "--on-failed-row",
    "--max-failed-fraction",
    "--on-reward-outage",
    "--outage-timeout",
    "--reward-tls-ca",
    "--reward-tls-cert",
    "--reward-tls-key",
    "--reward-token-file",
    "--out",
    "--dump-rollouts",
    "--checkpoint-dir",
    "--checkpoint-every",
    "--log-level",
    "--coordinator",
    "--num-processes",
    "--process-id",
    "--agreement-timeout",
]
# These end the command, and are no setting of a run.
PRINTING = {"--version", "--print-server-flags"}


def flags_of(parser):
    """Flags in the order of the help."""
    actions = [action for action in parser._actions if action.dest != "help"]
    return [action.option_strings[0] for action in actions]


def test_flags_are_frozen():
    """Manifests and scripts rely on these flags."""
    assert flags_of(cli.make_parser()) == FLAGS


@pytest.mark.parametrize(
    ("parser", "config"),
    [(cli.make_parser(), RunConfig), (demo.make_parser(), demo.DemoConfig)],
)
def test_one_flag_for_each_field(parser, config):
    """Flags have the names of the config's fields."""
    fields = {"--" + field.name.replace("_", "-") for field in dataclasses.fields(config)}
    assert set(flags_of(parser)) - PRINTING == fields


def test_defaults():
    """Two flags are enough."""
    config = cli.parse(REQUIRED)
    assert config.mesh is None
    assert config.coordinator is None
    assert config.agreement_timeout == 600


def test_server_flags_start_the_server_of_a_recipe(capsys):
    """What is printed are flags of `reward-server serve`, with files that are there."""
    with pytest.raises(SystemExit) as end:
        cli.main(["--recipe", "tiny", "--print-server-flags"])
    assert end.value.code == cli.OK
    printed = shlex.split(capsys.readouterr().out)
    given = build_parser().parse_args(["serve", *printed])
    assert RewardsConfig.load(given.rewards).functions
    ours = codec.tokenizer_fingerprint(recipes.load("tiny").tokenizer())
    assert Tokenizer.load(given.tokenizer).fingerprint == ours


def test_all_flags():
    """Every flag arrives."""
    config = cli.parse([*REQUIRED, *PEERS, "--mesh", "tp=2", "--steps", "3", "--seed", "5"])
    assert (config.num_processes, config.process_id, config.coordinator) == (2, 1, "a:1")
    assert config.mesh == {"fsdp": 1, "tp": 2}
    assert (config.steps, config.seed) == (3, 5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "required"),
        ([*REQUIRED, "--steps", "0"], "--steps must be >= 1"),
        ([*REQUIRED, "--lora-rank", "-1"], "--lora-rank must be >= 0"),
        ([*REQUIRED, "--task", "gcd"], "--task must be left out: recipe tiny has no such option"),
        ([*REQUIRED, "--mesh", "dp=2"], "--mesh must be like"),
        ([*REQUIRED, "--mesh", "fsdp=0"], "--mesh must be like"),
        ([*REQUIRED, "--seed", "-1"], "--seed must be in"),
        ([*REQUIRED, "--agreement-timeout", "0"], "--agreement-timeout must be > 0"),
        ([*REQUIRED, "--reward-start-timeout", "inf"], "--reward-start-timeout must be > 0"),
        ([*REQUIRED, "--outage-timeout", "0"], "--outage-timeout must be > 0"),
        ([*REQUIRED, "--on-reward-outage", "skip"], "--on-reward-outage must be stop or wait"),
        ([*REQUIRED, "--log-level", "loud"], "invalid choice: 'LOUD'"),
        (["--recipe", "tiny", "--print-server-flags", "--task", "gcd"], "--task must be left out"),
        ([*REQUIRED, "--coordinator", "a:1"], "must be given together"),
        ([*REQUIRED, *PEERS, "--process-id", "2"], "--process-id must be in [0, 2)"),
        ([*REQUIRED, *PEERS, "--coordinator", "a"], "--coordinator must be HOST:PORT"),
        ([*REQUIRED, "--reward-endpoint", "nowhere"], "--reward-endpoint must be"),
        ([*REQUIRED, "--reward-path", "http"], "--reward-path must be grpc or callback"),
        ([*REQUIRED, "--reward-path", "allgather"], "pass them to ShardedGRPOLearner"),
        ([*REQUIRED, "--step", "1"], "unrecognized"),
        ([*REQUIRED, "--algorithm", "ppo"], "--algorithm ppo needs a critic"),
        ([*REQUIRED, "--algorithm", "dpo"], "--algorithm must be one of grpo, gspo-token, dapo"),
        (["--reward-endpoint", "a:1", "--recipe", "huge"], "invalid choice"),
    ],
)
def test_wrong_usage_is_exit_code_2(wrong, message, capsys):
    """A wrong flag ends with usage, its name and code 2."""
    with pytest.raises(SystemExit) as error:
        cli.parse(wrong)
    assert error.value.code == flags.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unavailable("gone"), cli.UNREACHABLE),
        (ProcessesDisagree("process 1 failed at 'x': Unavailable: gone"), cli.UNREACHABLE),
        (InvalidRequest("tokenizer"), cli.CONFIG),
        (ConfigError("mesh"), cli.CONFIG),
        (ProcessesDisagree("late"), cli.FAILED),
        (RuntimeError("boom"), cli.FAILED),
    ],
)
def test_exit_codes(error, code):
    """Each kind of failure has its code, also when it happened on another process."""
    assert cli.exit_code(error) == code


def test_help_needs_no_jax():
    """`--help` is fast: nothing of JAX is imported for it."""
    script = (
        "import sys\nfrom trainer import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'jax', 'tunix', 'flax', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_parse_mesh():
    """Axes that are left out have size 1."""
    assert parse_mesh("fsdp=2,tp=2") == {"fsdp": 2, "tp": 2}
    assert parse_mesh("tp=3") == {"fsdp": 1, "tp": 3}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, True),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, True),
        ({"TPU_WORKER_HOSTNAMES": "a"}, False),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, True),
    ],
)
def test_scheduler_is_recognised(environment, expected):
    """Only a job of several processes is joined; a pod or a login node is not."""
    assert in_cluster(environment) is expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, (None, None)), ({"task": "gcd", "lora_rank": 0}, ("gcd", 0))],
)
def test_demo_hands_on_the_options_of_the_recipe(options, expected):
    """The demo's trainer command has the task and the rank that the demo was given."""
    config = demo.DemoConfig(recipe="smollm2", **options)
    command = demo.trainer_command(config, {"fsdp": 2, "tp": 1}, steps=3)
    places = {"endpoint": "unix:/tmp/s", "coordinator": "a:1", "nodes": "2", "node": "0"}
    parsed = cli.parse(fill(command, places)[3:])
    assert (parsed.task, parsed.lora_rank) == expected


@pytest.mark.parametrize(
    ("name", "devices", "mesh"),
    [
        ("tiny", 4, {"fsdp": 2, "tp": 2}),
        ("tiny", 1, {"fsdp": 1, "tp": 1}),
        ("tiny", 8, {"fsdp": 4, "tp": 2}),
        ("smollm2", 4, {"fsdp": 4, "tp": 1}),
    ],
)
def test_demo_fits_the_mesh(name, devices, mesh):
    """The demo keeps the recipe's tp where the devices allow it."""
    assert demo.mesh_for(recipes.load(name), devices) == mesh
