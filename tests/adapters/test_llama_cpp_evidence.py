"""What llama.cpp's last words mean, the same for both adapters."""

from __future__ import annotations

import pytest

from inferometer_llama_cpp import in_process, server
from inferometer_llama_cpp.evidence import EVIDENCE


def kind_of(line: str) -> str | None:
    return next((known.kind for known in EVIDENCE if known.pattern in line), None)


def test_both_adapters_know_the_same_words():
    assert in_process.adapter().log_evidence == server.adapter().log_evidence == EVIDENCE


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "llama-context.cpp:9: GGML_ASSERT(n_tokens_all <= cparams.n_batch) failed",
            "engine_aborted",
        ),
        ("ggml.c:9: GGML_ASSERT(a != b) failed", "engine_assertion"),
        ("allocating 9.00 MiB on device 0: cudaMalloc failed: out of memory", "gpu_out_of_memory"),
        ("ROCm error: hipErrorOutOfMemory", "gpu_out_of_memory"),
        ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", "gpu_out_of_memory"),
        ("llama_model_load: error loading model: unable to allocate CPU buffer", "out_of_memory"),
        ("cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 9", "out_of_memory"),
        ("graph_reserve: failed to allocate compute buffers", "out_of_memory"),
        ("ggml_cuda_host_malloc: failed to allocate 9.00 MiB of pinned memory: no", None),
    ],
)
def test_fatal_words_have_a_kind_and_harmless_ones_have_none(line, kind):
    assert kind_of(line) == kind


def test_a_prompt_longer_than_the_batch_is_answered_with_the_option_to_raise():
    hint = next(known.hint for known in EVIDENCE if known.kind == "engine_aborted")
    assert "longer than the batch" in hint
    assert "`batch`" in hint
