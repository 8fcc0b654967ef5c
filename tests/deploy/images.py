# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the stages of a Containerfile without a container engine, and runs what comes out.

A stage is a layer of an overlay over this machine, whose Python lies at /usr/local as it does in
the images of Python. So base images are not what they will be; all lines of the file are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.deploy import manifests

CONTEXT = manifests.ROOT
CONTAINERFILE = CONTEXT / "deploy" / "containers" / "Containerfile"
TIMEOUT_S = 1200
_BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_KNOWN = ("ARG", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "WORKDIR")


@dataclasses.dataclass(frozen=True)
class Stage:
    """Lines of a stage: what it is made from, and instructions with their text."""

    base: str
    lines: tuple[tuple[str, str], ...]


def stages():
    """Stages of the Containerfile by name."""
    text = re.sub(r"\\\n", " ", CONTAINERFILE.read_text(encoding="utf-8"))
    found, lines, name, base = {}, [], "", ""
    for line in [line for line in text.splitlines() if line and not line.startswith("#")]:
        instruction, _, rest = line.partition(" ")
        assert instruction in _KNOWN, line
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            lines = []
        else:
            lines.append((instruction, rest.strip()))
        found[name] = Stage(base, tuple(lines))
    return found


def ignored(path):
    """Whether .dockerignore keeps a path of the repository out of the build."""
    patterns = (CONTEXT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    out = False
    for pattern in [p for p in patterns if p and not p.startswith("#")]:
        bare = pattern.removeprefix("!").removeprefix("**/")
        parts = [path, *map(str, Path(path).parents)] if "**" not in pattern else Path(path).parts
        if any(fnmatch.fnmatch(part, bare) for part in parts if part != "."):
            out = not pattern.startswith("!")
    return out


class Image:
    """What a stage has made: layers, and the settings a container starts with."""

    def __init__(self, folder, layers=()):
        """Takes a folder for itself and the layers below, topmost first."""
        self.folder = folder
        self.layers = list(layers)
        self.environment = {"PATH": _BASE_PATH, "LANG": "C.UTF-8"}
        self.directory, self.user = "/", "0:0"
        self.entrypoint = ()
        for name in ("layer", "work", "root"):
            (folder / name).mkdir(parents=True)
        self.layers.insert(0, folder / "layer")
        # The machine's Python looks for its library where it was built, maybe at root's.
        for parent in [*Path(sys.base_prefix).parents][-2::-1]:
            (folder / "layer" / parent.relative_to("/")).mkdir(mode=0o755)

    def script(self, binds=(), *, writable=False):
        """Shell lines that mount the root and volumes."""
        root = self.folder / "root"
        for _, target in binds:
            self._mount_point(target)
        lower = ":".join(map(str, [*self.layers[1:], "/"]))
        top = f"{self.layers[0]}:"
        if writable:
            lower += f",upperdir={self.layers[0]},workdir={self.folder / 'work'}"
            top = ""
        lines = [f"mount -t overlay -o lowerdir={top}{lower} image {root}"]
        if sys.base_prefix != "/usr/local":
            lines.append(f"mount --bind -o ro {sys.base_prefix} {root}/usr/local")
        lines.append(f"mount --rbind /dev {root}/dev")
        lines += [f"mount --bind {source} {root}{target}" for source, target in binds]
        return "\n".join(lines)

    def _mount_point(self, target):
        """Container engines make what volumes are mounted on."""
        point = self.layers[0] / target.lstrip("/")
        if not (Path(target).exists() or point.exists()):
            point.mkdir(parents=True)

    def start(self, *, user=None, **environment):
        """Shell words before a program: it becomes process 1 in the mounted root, as a user."""
        root = self.folder / "root"
        uid, _, gid = (user or self.user).partition(":")
        variables = [f"{k}={v}" for k, v in {**self.environment, **environment}.items()]
        # A container without privileges, as drop: [ALL] and allowPrivilegeEscalation: false.
        drop = () if uid == "0" else ("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")
        first = f'mount -t proc proc {root}/proc; exec "$@"'
        return shlex.join([
            *("unshare", "--pid", "--fork", "--kill-child", "sh", "-ec", first, "sh"),
            *("env", "-i", *variables, "chroot", str(root)),
            # Another user would outlive the process that --kill-child watches.
            *("setpriv", f"--reuid={uid}", f"--regid={gid}", f"--groups={gid}", *drop),
            *("--pdeathsig=keep", "--"),
        ])  # fmt: skip

    def run(self, command):
        """Runs a RUN line."""
        line = f"cd {self.directory} && {command}"
        pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        script = (
            f"{self.script(writable=True)}\n"
            f"exec {self.start(user='0:0', HOME='/root', **pip)} sh -ec {shlex.quote(line)}"
        )
        _call("unshare", "--mount", "sh", "-ec", script)

    def copy(self, sources, target, origin=None):
        """Copies files of the repository or of another stage, as COPY does."""
        into = self.layers[0] / Path(self.directory, target).relative_to("/")
        folder = target.endswith("/")
        for name in sources:
            if origin is not None:
                source = next(p for x in origin.layers if (p := x / name.lstrip("/")).exists())
                shutil.copytree(source, into, symlinks=True, copy_function=_link)
                continue
            source = CONTEXT / name
            assert not ignored(name), f".dockerignore leaves out {name}"
            if source.is_dir():
                shutil.copytree(source, into, ignore=_ignore)
            else:
                into.parent.mkdir(parents=True, exist_ok=True)
                (into if folder else into.parent).mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, into / name if folder else into)


def _link(source, target):
    os.link(source, target, follow_symlinks=False)


def _ignore(folder, names):
    inside = Path(folder).relative_to(CONTEXT)
    return [name for name in names if ignored(str(inside / name))]


def build(target, folder):
    """Builds a stage, and those it needs.

    Returns:
        Its image.
    """
    return _build(target, stages(), folder, {})


def _build(name, known, folder, made):
    if name in made:
        return made[name]
    stage = known[name]
    below = _build(stage.base, known, folder, made) if stage.base in known else None
    image = Image(folder / name, below.layers if below else ())
    if below:
        image.environment, image.directory = dict(below.environment), below.directory
    for instruction, rest in stage.lines:
        if instruction == "RUN":
            image.run(rest)
        elif instruction == "COPY":
            *sources, target = rest.split()
            origin = None
            if sources[0].startswith("--from="):
                origin = _build(sources.pop(0).removeprefix("--from="), known, folder, made)
            image.copy(sources, target, origin)
        elif instruction in ("ENV", "ARG"):
            for part in shlex.split(rest):
                key, _, value = part.partition("=")
                value = value.replace("$PATH", image.environment["PATH"])
                image.environment[key] = value
        elif instruction == "WORKDIR":
            image.directory = rest
            (image.layers[0] / rest.lstrip("/")).mkdir(parents=True)
        elif instruction == "USER":
            image.user = rest
        else:
            image.entrypoint = tuple(json.loads(rest))
    made[name] = image
    return image


@contextlib.contextmanager
def memory(folder):
    """A file system for layers, which can't be on the one they lie over."""
    _call("mount", "-t", "tmpfs", "tmpfs", folder)
    try:
        yield folder
    finally:
        _call("umount", "--lazy", folder)


def _call(*command):
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-4000:]}"
