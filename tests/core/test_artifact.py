"""What a model on disk is said to be: one file, shards, or a folder."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from pathlib import Path

import attrs
import pytest

from inferometer.artifact import ModelArtifact, ModelFormat, inspect_model, resident_ratio
from inferometer.artifact import residency as residency_module
from inferometer.artifact.files import model_files
from inferometer.artifact.gguf import read_header
from inferometer.codec import from_json, structure, to_json
from inferometer.errors import ModelError
from inferometer.fields import about_of
from support import gguf_bytes as w


def model_file(folder: Path, name: str = "model.gguf", **parts) -> Path:
    path = folder / name
    path.write_bytes(w.gguf(**parts))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        inspect_model(path)
    return str(caught.value)


def without(key: str) -> dict:
    return {name: typed for name, typed in w.METADATA.items() if name != key}


# --- one file ------------------------------------------------------------------------------


def test_a_gguf_file_is_described_from_its_header(tmp_path):
    tensors = [("a", (64, 2), 3, 80), ("b", (32,), 3, 20), ("norm", (64,), 0, 256)]
    path = model_file(tmp_path, tensors=tensors)
    found = inspect_model(path)
    assert found == ModelArtifact(
        format=ModelFormat.GGUF,
        name="model.gguf",
        files=1,
        size_bytes=path.stat().st_size,
        architecture="llama",
        context_tokens=2048,
        parameters=64 * 2 + 32 + 64,
        tensor_types={"F32": 64, "Q4_1": 160},
        header_sha256=found.header_sha256,
        chat_template_sha256=hashlib.sha256(b"{{ messages[0].content }}").hexdigest(),
    )


def test_the_header_digest_is_over_metadata_and_tensor_table(tmp_path):
    path = model_file(tmp_path)
    head = path.read_bytes()[: read_header(path).header_bytes]
    assert inspect_model(path).header_sha256 == hashlib.sha256(head).hexdigest()


def test_the_header_digest_sees_metadata_and_not_the_weights(tmp_path):
    path = model_file(tmp_path)
    first = inspect_model(path).header_sha256
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert inspect_model(path).header_sha256 == first
    other = {**w.METADATA, "general.name": (w.STRING, "other")}
    assert inspect_model(model_file(tmp_path, metadata=other)).header_sha256 != first


def test_unknown_tensor_types_are_counted_under_their_number(tmp_path):
    path = model_file(tmp_path, tensors=[("a", (32,), 153, 64), ("b", (8,), 0, 32)])
    found = inspect_model(path)
    assert found.tensor_types == {"F32": 8, "unknown_153": 32}
    assert found.parameters == 40


@pytest.mark.parametrize(
    ("key", "field", "reason"),
    [
        ("general.architecture", "architecture", "no general.architecture"),
        ("llama.context_length", "context_tokens", "no llama.context_length"),
        ("tokenizer.chat_template", "chat_template_sha256", "no tokenizer.chat_template"),
    ],
)
def test_what_a_file_does_not_say_is_null_with_a_reason(tmp_path, key, field, reason):
    found = inspect_model(model_file(tmp_path, metadata=without(key)))
    assert getattr(found, field) is None
    assert reason in found.unavailable[field]


def test_without_an_architecture_the_context_is_unknown_too(tmp_path):
    found = inspect_model(model_file(tmp_path, metadata=without("general.architecture")))
    assert "<architecture>.context_length" in found.unavailable["context_tokens"]


@pytest.mark.parametrize(
    "typed", [(w.STRING, "2048"), (w.F32, 2048.0), (w.U32, 0), (w.I32, -1), (w.BOOL, True)]
)
def test_a_context_that_is_no_positive_integer_is_unknown(tmp_path, typed):
    metadata = {**w.METADATA, "llama.context_length": typed}
    found = inspect_model(model_file(tmp_path, metadata=metadata))
    assert found.context_tokens is None
    assert "context_tokens" in found.unavailable


@pytest.mark.parametrize("typed", [(w.U32, 1), (w.STRING, "")])
def test_an_architecture_that_is_no_text_is_unknown(tmp_path, typed):
    metadata = {**w.METADATA, "general.architecture": typed}
    assert inspect_model(model_file(tmp_path, metadata=metadata)).architecture is None


def test_nulls_and_reasons_go_together(tmp_path):
    found = inspect_model(model_file(tmp_path, metadata={}))
    nulls = {name for name, value in attrs.asdict(found).items() if value is None}
    assert nulls == set(found.unavailable)


def test_every_field_says_what_it_means():
    for attribute in attrs.fields(ModelArtifact):
        assert about_of(attribute).doc.endswith("."), attribute.name


def test_an_artifact_survives_being_stored(tmp_path):
    found = inspect_model(model_file(tmp_path))
    assert structure(from_json(to_json(found)), ModelArtifact) == found


def test_a_name_that_is_no_text_can_still_be_stored(tmp_path):
    try:
        path = model_file(tmp_path, os.fsdecode(b"caf\xe9.gguf"))
    except OSError:
        pytest.skip("this file system takes only text as names")
    found = inspect_model(path)
    assert found.name == "caf\\udce9.gguf"
    assert to_json(found)


def test_no_path_is_stored(tmp_path):
    assert str(tmp_path) not in to_json(inspect_model(model_file(tmp_path))).decode()


@pytest.mark.model
def test_the_demo_model_is_what_it_is(demo_model):
    found = inspect_model(demo_model)
    assert found.architecture == "llama"
    assert found.context_tokens == 8192
    assert found.parameters == 134_515_008
    assert found.tensor_types == {"F32": 35_136, "Q4_1": 106_168_320, "Q8_0": 28_311_552}
    assert not found.unavailable


# --- what is not there ---------------------------------------------------------------------


def test_a_path_with_nothing_there_is_named(tmp_path):
    message = refusal(tmp_path / "gone.gguf")
    assert f"{tmp_path / 'gone.gguf'}: no such file" in message


def test_a_path_through_a_file_leads_nowhere(tmp_path):
    assert "no such file" in refusal(model_file(tmp_path) / "inside.gguf")


def test_a_path_that_cannot_be_one_is_refused():
    assert "cannot be a path" in refusal(Path("a\0b"))


def test_a_path_that_is_too_long_is_refused(tmp_path):
    assert "cannot be read" in refusal(tmp_path / ("x" * 5000))


def test_a_device_is_neither_file_nor_folder():
    assert "neither a file nor a folder" in refusal(Path("/dev/null"))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "neither a file nor a folder" in refusal(tmp_path / "pipe.gguf")


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    assert "cannot be read" in refusal(tmp_path / "loop.gguf")


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    path = model_file(tmp_path)

    def deny(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", deny)
    assert refusal(path) == f"{path}: cannot be read: Permission denied"


# --- shards --------------------------------------------------------------------------------

ROWS = (("a", (64,), 3, 40), ("b", (32,), 3, 20), ("c", (8,), 0, 32))


def shard_metadata(number: int, total: int, tensors: int = 3) -> dict:
    mine = {
        "split.no": (w.U16, number),
        "split.count": (w.U16, total),
        "split.tensors.count": (w.I32, tensors),
    }
    return {**w.METADATA, **mine} if number == 0 else mine


def split_model(folder: Path, *, first_is_empty: bool = True) -> list[Path]:
    parts = [(), ROWS[:2], ROWS[2:]] if first_is_empty else [ROWS[:1], ROWS[1:2], ROWS[2:]]
    return [
        model_file(
            folder,
            f"big-{number + 1:05}-of-00003.gguf",
            metadata=shard_metadata(number, 3),
            tensors=rows,
        )
        for number, rows in enumerate(parts)
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("first_is_empty", [True, False])
def test_any_shard_stands_for_the_whole_model(tmp_path, which, first_is_empty):
    paths = split_model(tmp_path, first_is_empty=first_is_empty)
    found = inspect_model(paths[which])
    assert found.files == 3
    assert found.size_bytes == sum(path.stat().st_size for path in paths)
    assert (found.architecture, found.context_tokens) == ("llama", 2048)
    assert found.parameters == 64 + 32 + 8
    assert found.tensor_types == {"F32": 8, "Q4_1": 96}
    assert found.name == paths[which].name


def test_all_shards_give_the_same_header_digest(tmp_path):
    paths = split_model(tmp_path)
    heads = b"".join(path.read_bytes()[: read_header(path).header_bytes] for path in paths)
    digests = {inspect_model(path).header_sha256 for path in paths}
    assert digests == {hashlib.sha256(heads).hexdigest()}


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_missing_shard_is_named(tmp_path, gone):
    paths = split_model(tmp_path)
    paths[gone].unlink()
    message = refusal(paths[(gone + 1) % 3])
    assert f"shard {gone + 1} of 3 is missing: {paths[gone].name}" in message


def test_a_damaged_shard_is_named_even_if_another_was_given(tmp_path):
    paths = split_model(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-20])
    message = refusal(paths[0])
    assert message.startswith(str(paths[2]))
    assert "is cut short" in message


def test_shards_that_swapped_names_are_refused(tmp_path):
    paths = split_model(tmp_path)
    spare = tmp_path / "spare"
    paths[1].rename(spare)
    paths[2].rename(paths[1])
    spare.rename(paths[2])
    assert "is named shard 2, but says it is shard 3" in refusal(paths[0])


def test_a_shard_under_a_plain_name_is_refused(tmp_path):
    path = split_model(tmp_path)[0].rename(tmp_path / "model.gguf")
    message = refusal(path)
    assert "says it is one of 3 shards, but 1 are named" in message
    assert "NAME-00001-of-00003.gguf" in message


def test_shards_of_two_models_are_refused(tmp_path):
    paths = split_model(tmp_path)
    paths[2].write_bytes(w.gguf(shard_metadata(2, 3), [*ROWS[2:], ("d", (8,), 0, 32)]))
    assert "announces 3 tensors, but its shards hold 4" in refusal(paths[0])


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    paths = split_model(tmp_path)
    paths[2].write_bytes(w.gguf(shard_metadata(2, 3), ROWS[:1]))
    assert "the same tensor twice" in refusal(paths[0])


def test_shards_without_any_tensor_are_no_model(tmp_path):
    for number in (0, 1):
        name = f"big-{number + 1:05}-of-00002.gguf"
        path = model_file(tmp_path, name, metadata=shard_metadata(number, 2, 0), tensors=[])
    assert "holds no tensors" in refusal(path)


def test_shards_that_say_nothing_of_a_split_are_found_by_name(tmp_path):
    for number, row in enumerate(ROWS, start=1):
        path = model_file(tmp_path, f"big-{number:05}-of-00003.gguf", tensors=[row])
    assert inspect_model(path).parameters == 64 + 32 + 8


@pytest.mark.parametrize("said", [0, 1])
def test_a_file_that_says_it_was_never_split_is_whole(tmp_path, said):
    metadata = {**w.METADATA, "split.count": (w.U16, said), "split.no": (w.U16, 0)}
    assert inspect_model(model_file(tmp_path, metadata=metadata)).files == 1


def test_a_split_of_one_is_whole(tmp_path):
    path = model_file(tmp_path, "a-00001-of-00001.gguf", metadata=shard_metadata(0, 1, 1))
    assert inspect_model(path).files == 1


@pytest.mark.parametrize("name", ["a-00004-of-00003.gguf", "a-00000-of-00003.gguf"])
def test_a_shard_number_that_cannot_be_is_refused(tmp_path, name):
    assert "which cannot be" in refusal(model_file(tmp_path, name))


# --- folders -------------------------------------------------------------------------------


def model_folder(folder: Path, config: object) -> Path:
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    (folder / "config.json").write_bytes(text)
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    (folder / ".gitattributes").write_bytes(b"hidden")
    (folder / "original").mkdir()
    (folder / "original" / "consolidated.pth").write_bytes(b"\0" * 5000)
    return folder


def test_a_folder_gives_context_and_size(tmp_path):
    folder = model_folder(tmp_path, {"max_position_embeddings": 4096})
    found = inspect_model(folder)
    assert found.format is ModelFormat.DIRECTORY
    assert found.name == tmp_path.name
    assert found.context_tokens == 4096
    assert found.files == 2
    assert found.size_bytes == 1000 + (folder / "config.json").stat().st_size


def test_a_folder_of_a_model_that_sees_keeps_its_context_one_level_down(tmp_path):
    config = {"text_config": {"max_position_embeddings": 131_072}, "vision_config": {}}
    assert inspect_model(model_folder(tmp_path, config)).context_tokens == 131_072


@pytest.mark.parametrize(
    "config",
    [{}, {"max_position_embeddings": "4096"}, {"max_position_embeddings": -1}, {"text_config": 3}],
)
def test_a_folder_that_names_no_context_gives_a_reason(tmp_path, config):
    found = inspect_model(model_folder(tmp_path, config))
    assert found.context_tokens is None
    assert "max_position_embeddings" in found.unavailable["context_tokens"]


def test_what_is_not_read_from_a_folder_is_null_with_a_reason(tmp_path):
    found = inspect_model(model_folder(tmp_path, {"max_position_embeddings": 1}))
    nulls = {name for name, value in attrs.asdict(found).items() if value is None}
    assert nulls == set(found.unavailable)
    assert "parameters" in nulls


def test_the_current_folder_has_a_name_too(tmp_path, monkeypatch):
    monkeypatch.chdir(model_folder(tmp_path, {}))
    assert inspect_model(Path()).name == tmp_path.name


def test_a_folder_without_a_config_is_refused(tmp_path):
    message = refusal(tmp_path)
    assert "is a folder without config.json" in message
    assert "give a .gguf file" in message


def test_a_folder_of_gguf_files_is_told_to_name_one(tmp_path):
    model_file(tmp_path, "tiny.gguf")
    assert "for example tiny.gguf" in refusal(tmp_path)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}'])
def test_a_config_that_is_no_json_is_refused(tmp_path, text):
    message = refusal(model_folder(tmp_path, text))
    assert f"{tmp_path / 'config.json'}: is not JSON" in message


@pytest.mark.parametrize("config", [[], 3, "text", None])
def test_a_config_that_is_no_table_is_refused(tmp_path, config):
    assert "holds no table of settings" in refusal(model_folder(tmp_path, config))


def test_a_folder_with_a_broken_link_counts_what_is_there(tmp_path):
    folder = model_folder(tmp_path, {})
    (folder / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    assert inspect_model(folder).files == 2


# --- the file cache ------------------------------------------------------------------------


def written(folder: Path) -> Path:
    pages = folder / "pages"
    pages.write_bytes(b"\1" * (16 * mmap.PAGESIZE + 1))
    return pages


def test_a_file_just_written_is_in_the_file_cache(tmp_path):
    ratio = resident_ratio(written(tmp_path))
    assert ratio is None or ratio == 1.0


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="cannot drop a file from the cache")
def test_a_file_dropped_from_the_cache_is_not_resident(tmp_path):
    path = written(tmp_path)
    before = resident_ratio(path)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    after = resident_ratio(path)
    if before != 1.0 or after == 1.0:
        pytest.skip("this file system keeps what it is told to drop")
    assert after == pytest.approx(0.0, abs=0.3)
    assert resident_ratio(path) == after, "asking must read nothing in"


def test_windows_add_up_to_the_whole_file(tmp_path, monkeypatch):
    path = written(tmp_path)
    whole = resident_ratio(path)
    monkeypatch.setattr(residency_module, "_WINDOW_BYTES", 4 * mmap.PAGESIZE)
    assert resident_ratio(path) == whole


def test_a_folder_is_weighed_by_its_files(tmp_path):
    written(tmp_path)
    ratio = resident_ratio(tmp_path)
    assert ratio is None or ratio == 1.0


def test_a_shard_is_weighed_with_its_whole_model(tmp_path):
    paths = split_model(tmp_path)
    assert model_files(paths[1]) == tuple(paths)
    assert resident_ratio(paths[1]) in (None, 1.0)


def test_what_cannot_be_known_is_none_and_never_an_error(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert resident_ratio(tmp_path / "empty") is None
    assert resident_ratio(tmp_path / "gone") is None
    assert resident_ratio(Path("/dev/null")) is None
    assert resident_ratio(Path("a\0b")) is None


def test_a_kernel_that_answers_everyone_alike_is_not_believed(tmp_path, monkeypatch):
    path = written(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_args: False)
    assert resident_ratio(path) is None


class NoCalls:
    """A C library with none of the calls."""

    def __getattr__(self, name: str):
        raise AttributeError(name)


def test_a_system_without_the_call_gives_none(tmp_path, monkeypatch):
    monkeypatch.setattr(residency_module.ctypes, "CDLL", lambda *_a, **_k: NoCalls())
    assert resident_ratio(written(tmp_path)) is None


@pytest.mark.parametrize("failing", ["mmap", "mincore"])
def test_a_call_that_fails_gives_none(tmp_path, monkeypatch, failing):
    real = residency_module._libc()

    class Failing:
        munmap = real.munmap
        mmap = real.mmap
        mincore = real.mincore

    answers = {"mmap": residency_module._MAP_FAILED, "mincore": -1}
    setattr(Failing, failing, staticmethod(lambda *_args: answers[failing]))
    monkeypatch.setattr(residency_module, "_libc", Failing)
    assert resident_ratio(written(tmp_path)) is None
