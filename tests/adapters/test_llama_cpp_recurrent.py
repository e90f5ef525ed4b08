"""A memory that cannot go back: a state-space model, made here, small and without a tokenizer."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from inferometer import CacheMode, Context, Request, TokenPrompt
from inferometer_llama_cpp.in_process import LlamaCppOptions, adapter

pytestmark = pytest.mark.llama_cpp
pytest.importorskip(
    "llama_cpp", reason="llama-cpp-python is not installed: run `make test-engines`"
)

VOCABULARY, WIDTH, INNER, STATE, RANK, TAPS, BLOCKS = 300, 64, 128, 16, 4, 4, 2
UINT32, FLOAT32, STRING = 4, 6, 8
PROMPT = tuple(range(5, 45))

METADATA = {
    "general.architecture": (STRING, "mamba"),
    "mamba.context_length": (UINT32, 4096),
    "mamba.embedding_length": (UINT32, WIDTH),
    "mamba.feed_forward_length": (UINT32, 0),
    "mamba.attention.head_count": (UINT32, 0),
    "mamba.block_count": (UINT32, BLOCKS),
    "mamba.vocab_size": (UINT32, VOCABULARY),
    "mamba.ssm.conv_kernel": (UINT32, TAPS),
    "mamba.ssm.inner_size": (UINT32, INNER),
    "mamba.ssm.state_size": (UINT32, STATE),
    "mamba.ssm.time_step_rank": (UINT32, RANK),
    "mamba.attention.layer_norm_rms_epsilon": (FLOAT32, 1e-5),
    "tokenizer.ggml.model": (STRING, "none"),
}
BLOCK = {
    "attn_norm.weight": (WIDTH,),
    "ssm_in.weight": (WIDTH, 2 * INNER),
    "ssm_conv1d.weight": (TAPS, INNER),
    "ssm_conv1d.bias": (INNER,),
    "ssm_x.weight": (INNER, RANK + 2 * STATE),
    "ssm_dt.weight": (RANK, INNER),
    "ssm_dt.bias": (INNER,),
    "ssm_a": (STATE, INNER),
    "ssm_d": (INNER,),
    "ssm_out.weight": (INNER, WIDTH),
}
TENSORS = {"token_embd.weight": (WIDTH, VOCABULARY), "output_norm.weight": (WIDTH,)} | {
    f"blk.{block}.{name}": shape for block in range(BLOCKS) for name, shape in BLOCK.items()
}


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key, kind, value):
    packed = text(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f", value)
    return text(key) + struct.pack("<I", kind) + packed


def weights(name, shape, dice):
    count = 1
    for side in shape:
        count *= side
    if "norm" in name:
        return [1.0] * count
    # A state that decays: its rates are negative.
    sign = -1 if name.endswith("ssm_a") else 1
    values = [dice.gauss(0, 0.3) for _ in range(count)]
    return [sign * abs(value) for value in values] if sign < 0 else values


def gguf():
    dice, rows, data = random.Random(0), b"", b""
    for name, shape in TENSORS.items():
        sides = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        rows += text(name) + sides + struct.pack("<IQ", 0, len(data))
        values = weights(name, shape, dice)
        packed = struct.pack(f"<{len(values)}f", *values)
        data += packed + bytes(-len(packed) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(TENSORS), len(METADATA))
    head += b"".join(entry(key, *typed) for key, typed in METADATA.items()) + rows
    return head + bytes(-len(head) % 32) + data


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("recurrent") / "mamba.gguf"
    path.write_bytes(gguf())
    context = Context(context_tokens=128, log_path=Path("unused.log"), cache_dir=Path("unused"))
    loaded = adapter().create(LlamaCppOptions(threads=1), context)
    loaded.prepare(path)
    loaded.load()
    yield loaded
    loaded.unload()


def run(engine, prompt, mode):
    request = Request(
        request_id="test", prompt=TokenPrompt(prompt), max_output_tokens=6, cache_mode=mode
    )
    *chunks, end = engine.generate(request)
    return tuple(chunk.token_ids[0] for chunk in chunks), end


def test_its_output_depends_on_its_prompt(engine):
    first, _ = run(engine, PROMPT, CacheMode.COLD)
    other, _ = run(engine, PROMPT[::-1], CacheMode.COLD)
    assert first != other


def test_a_repeated_prompt_is_evaluated_anew_because_the_state_cannot_go_back(engine):
    cold, _ = run(engine, PROMPT, CacheMode.COLD)
    again, end = run(engine, PROMPT, CacheMode.REUSE)
    assert end.cached_prompt_tokens == 0
    assert end.timings.prefill_tokens == len(PROMPT)
    assert again == cold


def test_a_half_shared_prompt_is_evaluated_anew_too(engine):
    other = (*PROMPT[:20], *range(100, 120))
    cold, _ = run(engine, other, CacheMode.COLD)
    run(engine, PROMPT, CacheMode.COLD)
    again, end = run(engine, other, CacheMode.REUSE)
    assert end.cached_prompt_tokens == 0
    assert again == cold


def test_a_prompt_that_only_goes_on_is_reused_in_full(engine):
    said, _ = run(engine, PROMPT, CacheMode.COLD)
    longer = (*PROMPT, *said[:-1], 7, 8, 9)
    reused, end = run(engine, longer, CacheMode.REUSE)
    assert end.cached_prompt_tokens == len(PROMPT) + len(said) - 1
    assert end.timings.prefill_tokens == 3
    cold, _ = run(engine, longer, CacheMode.COLD)
    assert reused == cold


def test_what_a_model_does_not_have_is_null_with_a_sentence(engine):
    told = engine.identify()
    assert told.architecture == "mamba"
    assert told.tokenizer.vocab_size == VOCABULARY
    assert told.tokenizer.bos_id is told.tokenizer.bos_text is told.tokenizer.eos_text is None
    assert told.chat_template is None
    assert told.unavailable["chat_template"]
