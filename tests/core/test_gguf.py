"""A GGUF header: read right when it is right, refused with a sentence when it is not."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferometer.artifact import ModelArtifact, inspect_model
from inferometer.artifact.cursor import MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_WALKED_ITEMS
from inferometer.artifact.ggml_types import TENSOR_TYPES, type_name
from inferometer.artifact.gguf import Header, read_header
from inferometer.errors import ModelError
from support import gguf_bytes as w

SLOWEST_S = 2.0


@pytest.fixture
def save(tmp_path: Path):
    def write(data: bytes, name: str = "model.gguf") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def refusal(path: Path) -> str:
    started = time.perf_counter()
    with pytest.raises(ModelError) as caught:
        inspect_model(path)
    assert time.perf_counter() - started < SLOWEST_S
    assert str(path) in str(caught.value)
    return str(caught.value)


# --- what is read --------------------------------------------------------------------------


def test_a_header_gives_metadata_tensors_and_sizes(save):
    data = w.gguf()
    header = read_header(save(data))
    assert isinstance(header, Header)
    assert header.version == 3
    assert header.file_bytes == len(data)
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.context_length"] == 2048
    (tensor,) = header.tensors
    assert (tensor.name, tensor.shape, tensor.type_name) == ("blk.0.w", (32, 4), "F32")
    assert (tensor.elements, tensor.stored_bytes) == (128, 512)


def test_the_header_ends_where_the_tensor_table_ends(save):
    data = w.gguf(tensors=[("a", (32,), 0, 128)])
    assert w.padded(data[: read_header(save(data)).header_bytes]) + b"\x11" * 128 == data


def test_version_2_reads_like_version_3(save):
    assert read_header(save(w.gguf(version=2))).version == 2


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (w.U8, 200),
        (w.I8, -100),
        (w.U16, 60_000),
        (w.I16, -30_000),
        (w.U32, 4_000_000_000),
        (w.I32, -2_000_000_000),
        (w.F32, 0.5),
        (w.BOOL, True),
        (w.STRING, "größer"),
        (w.U64, 2**63),
        (w.I64, -(2**62)),
        (w.F64, 1e-300),
    ],
)
def test_every_kind_of_value_is_read(save, kind, value):
    header = read_header(save(w.gguf({**w.METADATA, "x": (kind, value)})))
    assert header.metadata["x"] == value
    assert type(header.metadata["x"]) is type(value)


def test_arrays_are_stepped_over_and_what_follows_is_read(save):
    nested = (w.ARRAY, (w.ARRAY, [(w.U8, [1, 2]), (w.STRING, ["a", ""])]))
    metadata = {"nested": nested, "empty": (w.ARRAY, (w.STRING, [])), **w.METADATA}
    header = read_header(save(w.gguf(metadata)))
    assert header.metadata["llama.context_length"] == 2048
    assert not {"nested", "empty", "tokenizer.ggml.tokens"} & set(header.metadata)


def test_a_text_too_long_to_be_of_use_is_stepped_over(save):
    metadata = {"tokenizer.json": (w.STRING, "x" * (MAX_TEXT_BYTES + 1)), **w.METADATA}
    header = read_header(save(w.gguf(metadata)))
    assert "tokenizer.json" not in header.metadata
    assert header.metadata["llama.context_length"] == 2048


def test_a_large_vocabulary_is_neither_slow_nor_kept(save):
    tokens = (w.ARRAY, (w.STRING, ["token"] * 300_000))
    path = save(w.gguf({"tokenizer.ggml.tokens": tokens, **w.METADATA}))
    started = time.perf_counter()
    read_header(path)
    assert time.perf_counter() - started < SLOWEST_S
    tracemalloc.start()
    read_header(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_bytes_that_are_no_text_stay_visible(save):
    metadata = {**w.METADATA, "general.name": (w.STRING, b"caf\xe9")}
    assert read_header(save(w.gguf(metadata))).metadata["general.name"] == "caf\\xe9"


def test_a_scalar_has_no_shape_and_one_weight(save):
    (tensor,) = read_header(save(w.gguf(tensors=[("s", (), 0, 4)]))).tensors
    assert (tensor.elements, tensor.stored_bytes) == (1, 4)


def test_another_alignment_moves_the_data(save):
    metadata = {**w.METADATA, "general.alignment": (w.U32, 1024)}
    data = w.gguf(metadata, alignment=1024)
    assert read_header(save(data)).file_bytes == len(data)
    assert "is cut short" in refusal(save(data[:-513]))


def test_a_last_tensor_without_padding_is_whole(save):
    data = w.gguf(tensors=[("a", (3,), 0, 12)])
    assert read_header(save(data[: len(data) - 20])).tensors


def test_blocks_decide_how_many_bytes_a_tensor_takes(save):
    header = read_header(save(w.gguf(tensors=[("a", (64, 2), 3, 80), ("b", (256,), 14, 210)])))
    assert [tensor.stored_bytes for tensor in header.tensors] == [80, 210]


def test_an_unknown_tensor_type_is_named_and_its_size_is_not_guessed(save):
    (tensor,) = read_header(save(w.gguf(tensors=[("a", (32,), 153, 0)]))).tensors
    assert tensor.type_name == "unknown_153"
    assert tensor.stored_bytes is None


def test_the_tensor_data_of_an_unknown_type_still_starts_inside_the_file(save):
    row = w.tensor_row("a", (32,), 153, 2**40)
    assert "is cut short" in refusal(save(w.padded(w.header(1, 0) + row)))


@pytest.mark.parametrize("given_up", [4, 5, 31, 32, 33, 36, 37, 38, 43, 1000])
def test_numbers_that_were_given_up_are_unknown(given_up):
    assert type_name(given_up) == f"unknown_{given_up}"


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("F32", 32),
        ("Q4_0", 4.5),
        ("Q4_1", 5.0),
        ("Q6_K", 6.5625),
        ("IQ1_S", 1.5625),
        ("MXFP4", 4.25),
    ],
)
def test_the_type_table_has_the_known_bits_per_weight(name, bits):
    (found,) = [kind for kind in TENSOR_TYPES.values() if kind.name == name]
    assert found.bytes * 8 / found.block == bits


def test_no_two_tensor_types_share_a_name():
    names = [kind.name for kind in TENSOR_TYPES.values()]
    assert len(set(names)) == len(names)


# --- what is no GGUF -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"PK\x03\x04" + b"\0" * 60, "a zip archive"),
        (struct.pack("<Q", 30) + b'{"__metadata__":{}}' + b" " * 30, "a safetensors file"),
        (b"\xef\xbb\xbf \n<!DOCTYPE HTML><html>404</html>", "an HTML page"),
        (b"<html><body>Not found", "an HTML page"),
        (b"<?xml version='1.0'?><Error>AccessDenied</Error>", "an XML answer"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a git-lfs pointer"),
        (b"\x80\x02}q\x00.", "a Python pickle"),
        (b"\x80\x05\x95\x00", "a Python pickle"),
        (b"\x1f\x8b\x08\x00", "a gzip archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"tjgg\x03\0\0\0", "a model from before GGUF"),
        (b'{"model_type": "llama"}', "JSON text"),
        (b"G", "It starts with b'G'"),
        (b"\0" * 100, "It starts with"),
    ],
)
def test_a_file_that_is_no_gguf_is_told_by_what_it_looks_like(save, data, looks):
    message = refusal(save(data))
    assert "is not a GGUF file" in message
    assert looks in message


def test_a_length_past_the_end_is_no_safetensors_file(save):
    assert "safetensors" not in refusal(save(struct.pack("<Q", 10**9) + b"{}"))


def test_an_empty_file_is_called_empty(save):
    assert "is empty" in refusal(save(b""))


def test_a_big_endian_file_is_called_that(save):
    message = refusal(save(w.gguf(order=">")))
    assert "big-endian" in message
    assert "version 3" in message
    assert "50331648" not in message


def test_version_1_is_called_old(save):
    assert "version 1, which engines no longer load" in refusal(save(w.gguf(version=1)))


@pytest.mark.parametrize("version", [0, 4, 77, 0x03000001])
def test_any_other_version_is_named(save, version):
    assert f"GGUF version {version}" in refusal(save(w.gguf(version=version)))


# --- what is damaged -----------------------------------------------------------------------


def test_a_download_cut_short_names_both_sizes(save):
    data = w.gguf()
    message = refusal(save(data[:-1]))
    assert "is cut short" in message
    assert f"need {len(data)} bytes" in message
    assert f"has {len(data) - 1}" in message


def test_a_header_cut_anywhere_is_refused(save):
    data = w.gguf()
    end = read_header(save(data)).header_bytes
    for length in range(end):
        assert "download" in refusal(save(data[:length])) or length < len(b"GGUF")


def test_a_refusal_says_where(save):
    message = refusal(save(w.header(0, 1) + w.entry("a", w.STRING, "b")[:-1]))
    assert "at byte 45" in message
    assert "1 bytes, but 0 are left" in message


@pytest.mark.parametrize("count", [10, 2**32, 2**63, 2**64 - 1])
def test_counts_that_the_file_cannot_hold_are_refused_at_once(save, count):
    assert f"{count} tensors are announced" in refusal(save(w.header(count, 0)))
    assert f"{count} metadata entries" in refusal(save(w.header(0, count)))


@pytest.mark.parametrize("length", [MAX_NAME_BYTES + 1, 2**30, 2**64 - 1])
def test_names_of_a_gigabyte_are_refused(save, length):
    data = w.header(0, 1) + struct.pack("<Q", length) + b"\0" * 64
    assert f"a metadata key is {length} bytes long" in refusal(save(data))
    data = w.header(1, 0) + struct.pack("<Q", length) + b"\0" * 64
    assert f"a tensor's name is {length} bytes long" in refusal(save(data))


@pytest.mark.parametrize("length", [8, 2**20 + 1, 2**40, 2**64 - 1])
def test_a_text_past_the_end_is_refused(save, length):
    data = w.header(0, 1) + w.string("k") + struct.pack("<IQ", w.STRING, length) + b"1234567"
    assert f"k takes {length} bytes, but 7 are left" in refusal(save(data + b""))


@pytest.mark.parametrize("inner", [w.U8, w.F64, w.STRING, w.ARRAY])
@pytest.mark.parametrize("count", [2**20, 2**62, 2**64 - 1])
def test_an_array_past_the_end_is_refused(save, inner, count):
    array = struct.pack("<IIQ", w.ARRAY, inner, count)
    assert "damaged" in refusal(save(w.header(0, 1) + w.string("k") + array + b"\0" * 64))


def test_texts_of_an_array_that_run_past_the_end_are_refused(save):
    array = struct.pack("<IIQ", w.ARRAY, w.STRING, 2) + struct.pack("<Q", 2**63) + b"\0" * 16
    assert "go on past the end" in refusal(save(w.header(0, 1) + w.string("k") + array))


def test_many_empty_texts_are_not_walked_for_ever(save):
    count = MAX_WALKED_ITEMS + 1
    array = struct.pack("<IIQ", w.ARRAY, w.STRING, count) + b"\0" * (8 * count)
    assert f"announces {count} items" in refusal(save(w.header(0, 1) + w.string("k") + array))


def test_many_arrays_share_one_allowance(save):
    half = MAX_WALKED_ITEMS // 2 + 1
    array = struct.pack("<IIQ", w.ARRAY, w.STRING, half) + b"\0" * (8 * half)
    entries = b"".join(w.string(key) + array for key in "ab")
    assert f"'b' announces {half} items" in refusal(save(w.header(0, 2) + entries))


def test_arrays_nested_too_deep_are_refused(save):
    deep = (w.U8, [])
    for _ in range(50):
        deep = (w.ARRAY, [deep])
    data = w.header(0, 1) + w.entry("k", w.ARRAY, deep)
    assert "nests arrays more than 4 deep" in refusal(save(data))


@pytest.mark.parametrize("kind", [13, 255, 2**32 - 1])
def test_a_kind_of_value_that_does_not_exist_is_named(save, kind):
    plain = w.header(0, 1) + w.string("k") + struct.pack("<I", kind) + b"\0" * 64
    assert f"type {kind}, which does not exist" in refusal(save(plain))
    array = w.header(0, 1) + w.string("k") + struct.pack("<IIQ", w.ARRAY, kind, 1) + b"\0" * 64
    assert f"type {kind}, which does not exist" in refusal(save(array))


def test_a_metadata_key_given_twice_is_refused(save):
    entry = w.entry("k", w.U8, 1)
    assert "the metadata key 'k' is there twice" in refusal(save(w.header(0, 2) + entry * 2))


def test_a_key_of_a_skipped_array_counts_as_given(save):
    entry = w.entry("k", w.ARRAY, (w.U8, [1]))
    assert "is there twice" in refusal(save(w.header(0, 2) + entry * 2))


def test_a_tensor_given_twice_is_refused(save):
    twice = [("a", (8,), 0, 32), ("a", (8,), 0, 32)]
    assert "the tensor 'a' is there twice" in refusal(save(w.gguf(tensors=twice)))


def test_a_file_without_tensors_is_no_model(save):
    assert "holds no tensors" in refusal(save(w.gguf(tensors=[])))


def test_too_many_dimensions_are_refused(save):
    assert "has 9 dimensions" in refusal(save(w.gguf(tensors=[("a", (1,) * 9, 0, 4)])))


@pytest.mark.parametrize("shape", [(2**63, 2**63, 2**63), (2**54,)])
def test_more_weights_than_any_file_can_hold_are_refused(save, shape):
    assert "more weights than" in refusal(save(w.gguf(tensors=[("a", shape, 153, 0)])))


def test_rows_that_are_no_whole_blocks_are_refused(save):
    message = refusal(save(w.gguf(tensors=[("a", (33, 4), 2, 100)])))
    assert "the rows of 'a' have 33 weights" in message


@pytest.mark.parametrize("typed", [(w.U32, 0), (w.U32, 24), (w.STRING, "32"), (w.I32, -32)])
def test_an_alignment_that_cannot_be_is_refused(save, typed):
    metadata = {**w.METADATA, "general.alignment": typed}
    assert "general.alignment is" in refusal(save(w.gguf(metadata)))


def test_an_alignment_beyond_the_file_is_cut_short(save):
    metadata = {**w.METADATA, "general.alignment": (w.U64, 2**63)}
    assert "is cut short" in refusal(save(w.gguf(metadata)))


# --- anything at all -----------------------------------------------------------------------

VALID = w.gguf(tensors=[("blk.0.w", (32, 4), 2, 72), ("blk.1.w", (8,), 0, 32)])
LAST = len(VALID) - 1
ANY_FILE = settings(
    max_examples=300, deadline=2_000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def outcome(path: Path, data: bytes) -> ModelArtifact | ModelError:
    path.write_bytes(data)
    try:
        return inspect_model(path)
    except ModelError as error:
        return error


@ANY_FILE
@given(st.lists(st.tuples(st.integers(0, LAST), st.integers(0, 255)), max_size=8))
def test_changed_bytes_give_a_model_or_a_refusal(tmp_path, changes):
    data = bytearray(VALID)
    for at, byte in changes:
        data[at] = byte
    assert outcome(tmp_path / "x.gguf", bytes(data))


@ANY_FILE
@given(st.integers(0, len(VALID) - 1))
def test_a_cut_anywhere_is_a_refusal(tmp_path, length):
    assert isinstance(outcome(tmp_path / "x.gguf", VALID[:length]), ModelError)


@ANY_FILE
@given(st.integers(4, LAST), st.binary(max_size=64))
def test_bytes_put_in_between_give_a_model_or_a_refusal(tmp_path, at, extra):
    assert outcome(tmp_path / "x.gguf", VALID[:at] + extra + VALID[at:])


@ANY_FILE
@given(st.binary(max_size=256))
def test_bytes_after_the_magic_give_a_refusal(tmp_path, data):
    assert isinstance(outcome(tmp_path / "x.gguf", b"GGUF\3\0\0\0" + data), ModelError)


@ANY_FILE
@given(st.sampled_from([8, 16, 24, 56]), st.sampled_from([2**31, 2**32 - 1, 2**63, 2**64 - 1]))
def test_huge_numbers_where_counts_may_be_give_a_refusal(tmp_path, at, number):
    data = VALID[:at] + struct.pack("<Q", number) + VALID[at + 8 :]
    assert isinstance(outcome(tmp_path / "x.gguf", data), ModelError)
