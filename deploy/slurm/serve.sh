#!/usr/bin/env bash
# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
#
# Keeps the reward server of one node until SIGUSR1: serve.sh FLAG... of `reward-server serve`.
set -euo pipefail
. "$(dirname "$0")/await.sh"

folder=${SOCKETS:-/tmp}/shardward-$SLURM_JOB_ID-$SLURMD_NODENAME
[[ -d $folder ]] || mkdir -m 700 "$folder"
if [[ ! -O $folder ]]; then
  echo "serve.sh: $folder belongs to another user. Set SOCKETS to another folder." >&2
  exit 3
fi
server='' stopping=''
# Slurm sends SIGTERM to all steps at once, and the trainer needs rewards for its last step.
trap ':' TERM
trap 'stopping=yes; [[ -z $server ]] || kill -TERM "$server" || true' USR1
code=0
until [[ $stopping ]]; do
  code=0
  reward-server serve --listen "unix:$folder/reward.sock" "$@" &
  server=$!
  # The signal may have come before the server's number was known.
  [[ -z $stopping ]] || kill -TERM "$server"
  await "$server" || code=$?
  # 2 and 3: it can't start as it is configured.
  if [[ $stopping ]] || ((code == 0 || code == 2 || code == 3)); then break; fi
  echo "serve.sh: the server ended with exit code $code and is started again" >&2
  sleep 1
done
rm -rf "$folder"
exit "$code"
