"""Words in llama.cpp's log that tell why it died, whichever way it is run.

Only words of messages that are fatal: a failed allocation of pinned memory, for example, is a
warning, after which llama.cpp takes ordinary memory and goes on.
"""

from __future__ import annotations

from inferometer import LogEvidence

_NO_MEMORY = "llama.cpp found no memory: use a smaller model, window or KV type"
_NO_GPU_MEMORY = "the GPU ran out of memory: keep fewer layers there, or use a smaller window"

# Searched in this order within a line: what is more special comes first.
EVIDENCE = tuple(
    LogEvidence(pattern=pattern, kind=kind, hint=hint)
    for pattern, kind, hint in (
        ("cudaMalloc failed", "gpu_out_of_memory", _NO_GPU_MEMORY),
        ("CUDA error: out of memory", "gpu_out_of_memory", _NO_GPU_MEMORY),
        ("hipErrorOutOfMemory", "gpu_out_of_memory", _NO_GPU_MEMORY),
        ("ErrorOutOfDeviceMemory", "gpu_out_of_memory", _NO_GPU_MEMORY),
        ("kIOGPUCommandBufferCallbackErrorOutOfMemory", "gpu_out_of_memory", _NO_GPU_MEMORY),
        ("insufficient memory", "out_of_memory", _NO_MEMORY),
        ("unable to allocate", "out_of_memory", _NO_MEMORY),
        ("failed to allocate buffer", "out_of_memory", _NO_MEMORY),
        ("failed to allocate compute", "out_of_memory", _NO_MEMORY),
        (
            "error loading model",
            "model_unreadable",
            "llama.cpp cannot load this file: it is damaged, or of a kind it does not know yet",
        ),
        (
            "requires flash_attn",
            "bad_settings",
            "a quantized V cache needs flash attention: set `flash_attention` to on or auto",
        ),
        (
            "n_tokens_all <= ",
            "engine_aborted",
            "the prompt is longer than the batch: raise the option `batch`",
        ),
        (
            "GGML_ASSERT",
            "engine_assertion",
            "llama.cpp stopped itself; its log names the condition that did not hold",
        ),
    )
)
"""Evidence for both adapters."""
