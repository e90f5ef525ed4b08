"""What the start-up log tells, in old words and new ones."""

from __future__ import annotations

import pytest

from inferometer_llama_cpp.server_log import StartupLog

CPU = """\
0.00.004 I cmn  common_param: common_params_print_info: build 8 (abc1234) with GNU 13 for Linux arm64
0.00.005 I cmn  common_param:   - CPU     : Neoverse-N1 (7936 MiB, 7000 MiB free)
0.00.006 I cmn  common_param: system_info: n_threads = 3 (n_threads_batch = 5) / 8 | CPU : NEON = 1 | DOTPROD = 1 |
0.01.001 I print_info: arch                  = qwen3
0.01.002 I print_info: n_layer               = 12
0.01.003 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
0.01.004 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB
0.01.004 I load_tensors:   CPU_REPACK model buffer size =    40.00 MiB
0.01.005 I llama_context: n_batch               = 300
0.01.006 I llama_context: n_ubatch              = 128
0.01.007 I llama_context: flash_attn            = auto
0.01.008 I llama_kv_cache: size = 11.25 MiB, K (f16):    5.62 MiB, V (q8_0):    5.62 MiB
0.01.009 I resolve_fused_ops: Flash Attention enabled
0.01.010 I sched_reserve:        CPU compute buffer size =     8.87 MiB
"""

FOUND = (
    "llama_prepare_model_devices: using device CUDA0 (NVIDIA L4) (0000:c1:00.0) - 22000 MiB free\n"
)
CPU_PLACE = "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB\n"
GPU_PLACE = "load_tensors:        CUDA0 model buffer size =  4155.99 MiB\n"
GPU_SCRATCH = (
    "sched_reserve:      CUDA0 compute buffer size =   565.81 MiB\n"
    "sched_reserve:  CUDA_Host compute buffer size =    16.01 MiB\n"
)


def offloaded(count: int) -> str:
    return f"load_tensors: offloaded {count}/33 layers to GPU\n"


def test_a_processor_log_tells_the_effective_settings():
    log = StartupLog(CPU)
    assert (log.threads, log.threads_batch) == (3, 5)
    assert (log.context("n_batch"), log.context("n_ubatch")) == (300, 128)
    assert log.kv_types == ("f16", "q8_0")
    assert log.architecture == "qwen3"
    assert log.flash_attention == "on"
    assert log.mmap is True


def test_a_processor_log_tells_build_and_device():
    log = StartupLog(CPU)
    assert log.compiler == "GNU 13 for Linux arm64"
    assert log.instruction_sets == "CPU : NEON = 1 | DOTPROD = 1"
    assert log.device == "Neoverse-N1"


def test_without_a_gpu_no_layer_is_offloaded_whatever_was_asked():
    log = StartupLog(CPU)
    assert (log.layers_offloaded, log.layers, log.backend) == (0, 13, "cpu")


def test_with_every_layer_offloaded_the_gpu_computes():
    log = StartupLog(FOUND + offloaded(33) + CPU_PLACE + GPU_PLACE + GPU_SCRATCH)
    assert (log.layers_offloaded, log.backend, log.device) == (33, "cuda", "NVIDIA L4")


def test_with_some_layers_offloaded_both_compute():
    log = StartupLog(FOUND + offloaded(20) + CPU_PLACE + GPU_PLACE + GPU_SCRATCH)
    assert (log.layers_offloaded, log.backend) == (20, "cuda+cpu")


def test_weights_in_pinned_memory_are_the_processors():
    pinned = "load_tensors:    CUDA_Host model buffer size =  1000.00 MiB\n"
    log = StartupLog(FOUND + offloaded(20) + pinned + GPU_PLACE + GPU_SCRATCH)
    assert log.backend == "cuda+cpu"


def test_a_gpu_without_layers_still_takes_large_batches():
    log = StartupLog(FOUND + offloaded(0) + CPU_PLACE + GPU_SCRATCH)
    assert (log.layers_offloaded, log.backend) == (0, "cuda+cpu")


def test_a_gpu_that_is_only_found_does_not_compute():
    scratch = "sched_reserve: CPU compute buffer size = 8.87 MiB\n"
    assert StartupLog(FOUND + offloaded(0) + CPU_PLACE + scratch).backend == "cpu"


@pytest.mark.parametrize(
    ("buffer", "backend"),
    [("MTL0_Mapped", "metal"), ("Metal", "metal"), ("Vulkan0", "vulkan"), ("ROCm0", "rocm")],
)
def test_backends_have_one_name_each(buffer, backend):
    place = f"load_tensors: {buffer} model buffer size = 10.00 MiB\n"
    assert StartupLog(offloaded(33) + place).backend == backend


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ("llama_context: flash_attn = enabled", "on"),
        ("llama_context: flash_attn = disabled", "off"),
        ("llama_context: flash_attn    = 0", "off"),
        ("llama_context: flash_attn = auto\nx: Flash Attention was auto, set to enabled", "on"),
        (
            "llama_context: flash_attn = auto\nx: Flash Attention not supported, set to disabled",
            "off",
        ),
        ("llama_context: flash_attn = auto", None),
        ("", None),
    ],
)
def test_flash_attention_is_what_became_of_it(lines, state):
    assert StartupLog(lines).flash_attention == state


@pytest.mark.parametrize(
    ("line", "mapped"),
    [("(load_mode = none)", False), ("(mmap = true, direct_io = false)", True), ("", None)],
)
def test_mapping_is_told_in_two_ways(line, mapped):
    assert StartupLog(line).mmap is mapped


def test_one_thread_count_is_for_both():
    log = StartupLog("system_info: n_threads = 4 / 8 | CPU : AVX2 = 1 |\n")
    assert (log.threads, log.threads_batch) == (4, 4)


def test_a_silent_log_leaves_everything_unknown():
    log = StartupLog("")
    told = (log.architecture, log.compiler, log.instruction_sets, log.threads, log.threads_batch)
    assert (*told, log.layers, log.layers_offloaded, log.backend, log.device, log.kv_types) == (
        (None,) * 10
    )
