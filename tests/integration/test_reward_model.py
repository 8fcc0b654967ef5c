# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the reward model, on small models made here; `make test-reward-model` runs them."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers

torch = pytest.importorskip("torch", reason="PyTorch is missing: make test-reward-model")

import transformers

from reward_server.batch import RowStatus, StartError
from reward_server.config import PoolConfig, RewardFnConfig, RewardsConfig
from reward_server.pool import Pool
from reward_server.reward_fns.reward_model import reward_model
from tests.integration import pools

CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "<|end|>{% endfor %}"
)
PROMPTS = ["2 + 2 =", "Hi", "Tell me a story about a fox and a dog", "", "x"]
COMPLETIONS = ["4", "Hello there, how are you?", "Once upon a time. " * 3, "words", ""]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As in a child process."""
    torch.set_num_threads(1)


def make_tokenizer(folder, *, chat=True):
    """A byte-level tokenizer with a start token, and a chat template if wanted."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    special = ["<s>", "<pad>", "<|user|>", "<|assistant|>", "<|end|>"]
    vocabulary = {token: i for i, token in enumerate([*special, *alphabet])}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(special)
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", pad_token="<pad>"
    )
    if chat:
        tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_model(folder, *, kind="llama", labels=1, pad_id=1):
    """A model of two layers with random weights."""
    torch.manual_seed(0)
    common = {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "num_labels": labels,
        "pad_token_id": pad_id,
    }
    if kind == "llama":
        config = transformers.LlamaConfig(**common, num_key_value_heads=2)
        model = transformers.LlamaForSequenceClassification(config)
    else:
        config = transformers.BertConfig(**common)
        model = transformers.BertForSequenceClassification(config)
    # Larger than the usual start, so that different texts have clearly different rewards.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.3)
    model.eval().save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A decoder with a chat template: folder, model, tokenizer."""
    folder = tmp_path_factory.mktemp("llama")
    return folder, make_model(folder), make_tokenizer(folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """An encoder: folder, model, tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    return folder, make_model(folder, kind="bert"), make_tokenizer(folder, chat=False)


def direct(model, ids):
    """Logit of one row without padding."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).logits[0, 0].item()


def ids_of(tokenizer, template, prompt, completion):
    """Ids of a row, made by hand."""
    if template == "chat":
        text = f"<|user|>{prompt}<|end|><|assistant|>{completion}<|end|>"
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    if template == "pair":
        return tokenizer(prompt, completion)["input_ids"]
    return tokenizer(prompt + completion)["input_ids"]


@pytest.mark.parametrize("template", ["chat", "pair", "concat"])
@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_rewards_are_logits(llama, template, batch_size):
    """Rewards equal direct forward passes of single rows, whatever shares their batch."""
    folder, model, tokenizer = llama
    rewards = reward_model(
        PROMPTS, COMPLETIONS, path=str(folder), template=template, batch_size=batch_size
    )
    rows = zip(PROMPTS, COMPLETIONS, strict=True)
    expected = [direct(model, ids_of(tokenizer, template, *row)) for row in rows]
    np.testing.assert_allclose(rewards, expected, rtol=1e-4, atol=1e-5)
    assert np.ptp(expected) > 0.1


@pytest.mark.parametrize("template", ["pair", "concat"])
def test_an_encoder(bert, template):
    """Padding changes no reward of a model that sees the whole row, either."""
    folder, model, tokenizer = bert
    rewards = reward_model(PROMPTS, COMPLETIONS, path=str(folder), template=template)
    rows = zip(PROMPTS, COMPLETIONS, strict=True)
    expected = [direct(model, ids_of(tokenizer, template, *row)) for row in rows]
    np.testing.assert_allclose(rewards, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("template", ["chat", "concat"])
def test_long_texts_lose_their_beginning(llama, template):
    """The end is kept, and so is the start token that the tokenizer sets."""
    folder, model, tokenizer = llama
    prompt, completion = "a long question " * 20, "and its answer"
    (reward,) = reward_model(
        [prompt], [completion], path=str(folder), template=template, max_length=24
    )
    ids = ids_of(tokenizer, template, prompt, completion)
    kept = ids[-24:] if template == "chat" else [ids[0], *ids[-23:]]
    assert reward == pytest.approx(direct(model, kept), rel=1e-4, abs=1e-5)


def test_a_pair_loses_the_beginning_of_its_longer_text(llama):
    """A short completion is whole, however long its prompt is."""
    folder, model, tokenizer = llama
    (reward,) = reward_model(
        ["question " * 30], ["answer"], path=str(folder), template="pair", max_length=24
    )
    ids = ids_of(tokenizer, "pair", "question " * 30, "answer")
    start = tokenizer.bos_token_id
    prompt, completion = ids[1 : ids.index(start, 1)], ids[ids.index(start, 1) + 1 :]
    kept = [start, *prompt[-(24 - 2 - len(completion)) :], start, *completion]
    assert reward == pytest.approx(direct(model, kept), rel=1e-4, abs=1e-5)


def test_sigmoid(llama):
    """The sigmoid of the logit, on request."""
    folder, *_ = llama
    logits = np.asarray(reward_model(PROMPTS, COMPLETIONS, path=str(folder)))
    shares = reward_model(PROMPTS, COMPLETIONS, path=str(folder), sigmoid=True)
    np.testing.assert_allclose(shares, 1 / (1 + np.exp(-logits)), rtol=1e-6)


def test_a_model_without_a_pad_token(tmp_path):
    """Such a model scores rows one by one."""
    model = make_model(tmp_path, pad_id=None)
    tokenizer = make_tokenizer(tmp_path)
    rewards = reward_model(PROMPTS, COMPLETIONS, path=str(tmp_path))
    rows = zip(PROMPTS, COMPLETIONS, strict=True)
    expected = [direct(model, ids_of(tokenizer, "chat", *row)) for row in rows]
    np.testing.assert_allclose(rewards, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"path": ""}, "`path` must be a folder with a model, got ''"),
        ({"path": "org/name"}, "`path` must be a folder with a model"),
        ({"template": "chatml"}, "`template` must be one of chat, pair, concat"),
        ({"device": "tpu"}, "`device` must be one of"),
        ({"dtype": "int8"}, "`dtype` must be one of"),
        ({"max_length": 0}, "`max_length` must be a whole number >= 1, got 0"),
        ({"batch_size": 0}, "`batch_size` must be a whole number >= 1, got 0"),
    ],
)
def test_wrong_parameters(llama, params, message):
    """A wrong parameter is named."""
    with pytest.raises(ValueError, match=message):
        reward_model(["p"], ["c"], **{"path": str(llama[0]), **params})


def test_models_that_do_not_fit(tmp_path, bert):
    """Two labels, or no chat template when it is asked for, are errors."""
    with pytest.raises(ValueError, match='must be "pair" or "concat"'):
        reward_model(["p"], ["c"], path=str(bert[0]))
    make_model(tmp_path / "two", labels=2)
    make_tokenizer(tmp_path / "two")
    with pytest.raises(ValueError, match="1 label, got 2"):
        reward_model(["p"], ["c"], path=str(tmp_path / "two"))


def test_a_base_model_is_refused(tmp_path):
    """A model that was saved without a score layer would get a random one."""
    config = make_model(tmp_path).config
    transformers.LlamaModel(config).save_pretrained(tmp_path)
    make_tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"'score\.weight' is missing"):
        reward_model(["p"], ["c"], path=str(tmp_path))


async def test_in_children(llama, tmp_path):
    """The pool's children load the model and give the same rewards."""
    folder, *_ = llama
    params = {"path": str(folder), "device": "cpu"}
    function = RewardFnConfig(fn="reward_model", params=params, timeout_s=60)
    tokenizer = pools.write_tokenizer(tmp_path)
    expected = reward_model(PROMPTS, COMPLETIONS, **params)
    async with pools.running(tokenizer, function, slots=2) as pool:
        rows = pools.batch(COMPLETIONS, prompts=PROMPTS)
        scores = await pool.score(rows, timeout_s=120)
    assert scores.statuses.tolist() == [RowStatus.OK] * len(PROMPTS)
    np.testing.assert_allclose(scores.rewards[:, 0], expected, rtol=1e-4, atol=1e-5)


async def test_a_missing_model_stops_the_start(tmp_path):
    """The error names the folder."""
    function = RewardFnConfig(fn="reward_model", params={"path": str(tmp_path / "none")})
    tokenizer = pools.write_tokenizer(tmp_path)
    pool = Pool(RewardsConfig(functions=(function,)), tokenizer, PoolConfig(slots=1))
    with pytest.raises(StartError, match=r"`path` must be a folder with a model, got .*none"):
        await pool.start()
