# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""`--help` of every command, as a person meets it."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

import pytest

from deploy.local import demo, launch
from reward_server import cli as server_cli
from reward_server.flags import build_parser
from trainer import cli as trainer_cli


def commands():
    """The parser of every command, by its name."""
    found = {
        "grpo-train": trainer_cli.make_parser(),
        "launch": launch.make_parser(),
        "demo": demo.make_parser(),
        "reward-server": build_parser(),
    }
    (of_server,) = (a for a in found["reward-server"]._actions if a.dest == "command")
    return found | {f"reward-server {name}": parser for name, parser in of_server.choices.items()}


ALL = commands()
OF_A_PERSON = [name for name in ALL if name.startswith(("grpo", "reward"))]


def options(parser):
    """Flags and arguments; the list of commands has a help of its own."""
    return [a for a in parser._actions if not isinstance(a, argparse._SubParsersAction)]


@pytest.mark.parametrize("name", ALL)
def test_every_flag_says_what_it_is_and_its_default(name):
    """Each flag has a help text, and one with a value of its own shows it."""
    for action in options(ALL[name]):
        assert action.help, action
        shown = ALL[name]._get_formatter()._expand_help(action)
        if action.default not in (None, False, [], argparse.SUPPRESS):
            text = f"{action.default:g}" if isinstance(action.default, float) else action.default
            assert f"default: {text}" in shown, action
        takes_value = action.nargs != 0 and action.option_strings
        if takes_value and action.metavar is None:
            assert action.choices, f"{action.option_strings} shows its name in place of a unit"


@pytest.mark.parametrize("name", ALL)
def test_flags_in_seconds_and_mib_say_so(name):
    """A number with a unit names it in its text."""
    units = {"S": r"\bseconds\b", "MIB": r"\bMiB\b"}
    for action in options(ALL[name]):
        if unit := units.get(action.metavar):
            assert re.search(unit, action.help), action


@pytest.mark.parametrize("name", OF_A_PERSON)
def test_help_ends_with_exit_codes(name):
    """Whoever writes a script finds the codes in the help."""
    text = ALL[name].format_help()
    assert re.search(r"Exit\s+codes:\s+0\s+ok", text)
    assert "%(" not in text


@pytest.mark.parametrize("name", ["grpo-train", "reward-server serve", "reward-server worker"])
def test_many_flags_come_in_groups(name):
    """No group has more flags than one sees at a glance, and only --help stands outside of one."""
    groups = [group for group in ALL[name]._action_groups if group._group_actions]
    assert all(len(group._group_actions) <= 8 for group in groups)
    (plain,) = (group for group in groups if group.title == "options")
    assert {action.dest for action in plain._group_actions} <= {"help", "version"}


def test_reward_server_alone_lists_its_commands(capsys):
    """Without a command it says which there are, and ends with code 2."""
    with pytest.raises(SystemExit) as end:
        server_cli.main([])
    assert end.value.code == server_cli.EXIT_USAGE
    lines = capsys.readouterr().err.splitlines()
    assert {"serve", "worker", "check", "score", "rewards"} <= {
        line.split()[0] for line in lines if line.startswith("    ") and line.split()
    }


@pytest.mark.parametrize("program", ["reward_server", "trainer.cli"])
def test_version(program):
    """`--version` names the distribution."""
    done = subprocess.run(
        [sys.executable, "-m", program, "--version"], capture_output=True, timeout=60, check=True
    )
    assert re.fullmatch(r"shardward \d+\.\d+\.\d+\S*\s", done.stdout.decode())


def test_rewards_test_has_a_help_of_its_own(capsys):
    """It shows the flags of the trial, not those of the list; flags may stand before FN."""
    with pytest.raises(SystemExit) as end:
        server_cli.main(["rewards", "test", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: reward-server rewards test ")
    assert "--completion TEXT" in text
    words = ["rewards test", "--timeout-s", "2", "boxed"]
    assert build_parser().parse_args(words).fn == "boxed"
