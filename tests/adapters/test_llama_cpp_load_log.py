"""Facts in llama.cpp's log, of this and of older builds."""

from __future__ import annotations

import pytest

from inferometer_llama_cpp.load_log import ERROR, LoadLog

DEBUG, INFO, WARN = 1, 2, 3


def log(*lines):
    kept = LoadLog()
    for level, text in lines:
        kept.add(level, text)
    return kept


def test_the_reason_of_a_failed_load_is_told_without_the_functions_it_came_from():
    failed = log(
        (INFO, "llama_model_loader: loaded meta data with 33 key-value pairs\n"),
        (ERROR, "llama_model_load: error loading model: tensor 'a' is not within the file\n"),
        (ERROR, "llama_model_load_from_file_impl: failed to load model\n"),
    )
    assert failed.reason == "tensor 'a' is not within the file"


def test_the_last_resort_is_what_little_the_log_says():
    assert log((ERROR, "f: failed to load model\n")).reason == "failed to load model"
    assert log((INFO, "f: all is well\n")).reason == "it gave no reason"


def test_a_load_that_found_no_memory_is_told_apart():
    no_memory = (ERROR, "alloc_tensor_range: failed to allocate CPU buffer of size 2304000\n")
    no_magic = (ERROR, "gguf_init: invalid magic characters\n")
    assert log(no_memory).failure == "out_of_memory"
    assert log(no_magic).failure == "load_failed"


def test_each_layer_has_the_device_it_went_to():
    kept = log(
        (DEBUG, "load_tensors: layer   0 assigned to device CPU, is_swa = 0\n"),
        (DEBUG, "load_tensors: layer   1 assigned to device CUDA0, is_swa = 0\n"),
        (DEBUG, "load_tensors: layer  10 assigned to device CUDA0, is_swa = 1\n"),
    )
    assert kept.layer_devices == ("CPU", "CUDA0", "CUDA0")


def test_a_warning_about_a_device_is_no_assignment():
    warning = "resolve: layer 3 is assigned to device CUDA0 but Flash Attention is assigned to CPU"
    assert log((WARN, warning)).layer_devices == ()


@pytest.mark.parametrize(
    ("lines", "became"),
    [
        (["llama_context: flash_attn            = enabled"], "enabled"),
        (["llama_context: flash_attn = disabled"], "disabled"),
        (["llama_context: flash_attn = auto", "f: Flash Attention enabled"], "enabled"),
        (
            [
                "llama_context: flash_attn = auto",
                "f: Flash Attention not supported, set to disabled",
            ],
            "disabled",
        ),
        (
            ["llama_context: flash_attn = auto", "f: Flash Attention was auto, set to enabled"],
            "enabled",
        ),
        (["llama_context: flash_attn = auto"], None),
        ([], None),
    ],
)
def test_flash_attention_is_what_became_of_it_and_not_what_was_asked(lines, became):
    assert log(*((INFO, line) for line in lines)).flash_attention == became
