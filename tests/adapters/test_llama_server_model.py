"""The embedded llama-server, for real, with the demo model."""

from __future__ import annotations

import os
import signal
import sys
import time

import psutil
import pytest

from inferometer import CacheMode, Chunk, Context, EngineError, FinishReason, Request, TokenPrompt
from inferometer.serving import ServerProcess, free_port, get_json
from inferometer_llama_cpp.options import CommonOptions
from inferometer_llama_cpp.server import ServerOptions, create
from inferometer_llama_cpp.server_launch import Launch

pytestmark = pytest.mark.model

LIMIT_S = 30.0
CHAT = "<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n"


def new_engine(folder, **options):
    context = Context(context_tokens=200, log_path=folder / "log", cache_dir=folder)
    return create(ServerOptions(threads=1, **options), context)


@pytest.fixture(scope="module")
def engine(demo_model, tmp_path_factory):
    engine = new_engine(tmp_path_factory.mktemp("llama"))
    engine.prepare(demo_model)
    engine.load()
    yield engine
    engine.unload()


@pytest.fixture
def fresh(demo_model, tmp_path):
    engines = []

    def load(**options):
        engine = new_engine(tmp_path, **options)
        engines.append(engine)
        engine.prepare(demo_model)
        engine.load()
        return engine

    yield load
    for engine in engines:
        engine.unload()


@pytest.fixture(scope="module")
def prompt(engine):
    return tuple(engine.tokenize(CHAT, special=True))


def run(engine, ids, tokens=6, mode=CacheMode.COLD, **more):
    request = Request(
        request_id="r",
        prompt=TokenPrompt(tuple(ids)),
        max_output_tokens=tokens,
        cache_mode=mode,
        **more,
    )
    *chunks, end = engine.generate(request)
    return chunks, end


def fault_of(engine, ids, tokens=6) -> EngineError:
    with pytest.raises(EngineError) as caught:
        run(engine, ids, tokens)
    return caught.value


# --- streaming -----------------------------------------------------------------------------


def test_every_asked_token_arrives_with_its_id(engine, prompt):
    chunks, end = run(engine, prompt)
    ids = [token for chunk in chunks for token in chunk.token_ids]
    assert sum(chunk.tokens for chunk in chunks) == len(ids) == end.output_tokens == 6
    assert engine.detokenize(ids) == "".join(chunk.answer for chunk in chunks)
    assert end.reason is FinishReason.LENGTH


def test_arrivals_are_stamped_in_order_after_the_request(engine, prompt):
    chunks, end = run(engine, prompt)
    stamps = [chunk.received_ns for chunk in chunks]
    assert stamps == sorted(stamps)
    assert end.sent_ns < stamps[0]


def test_the_servers_own_prefill_fits_into_the_wait_for_the_first_token(engine, prompt):
    chunks, end = run(engine, prompt)
    assert 0 < end.timings.prefill_ns < chunks[0].received_ns - end.sent_ns
    assert end.timings.prefill_tokens == len(prompt)
    assert end.timings.decode_steps == 5


def test_greedy_answers_are_the_same_each_time(engine, prompt):
    first, again = (run(engine, prompt)[0] for _ in range(2))
    assert [chunk.token_ids for chunk in first] == [chunk.token_ids for chunk in again]


def test_one_token_has_no_decode_time(engine, prompt):
    chunks, end = run(engine, prompt, tokens=1)
    assert len(chunks) == 1
    assert end.timings.decode_ns is None


def test_the_end_token_counts_and_ends_the_answer(engine):
    answered = CHAT + "The Nile, the Amazon and the Danube."
    chunks, end = run(engine, engine.tokenize(answered, special=True), ignore_eos=False)
    assert end.reason is FinishReason.STOP_EOS
    assert end.output_tokens == sum(chunk.tokens for chunk in chunks) < 6
    assert (chunks[-1].tokens, chunks[-1].answer) == (1, "")


def test_ids_held_back_inside_a_character_leave_the_count_exact(engine):
    # The likeliest answer to llamas is llamas, three tokens each.
    chunks, end = run(engine, engine.tokenize("🦙" * 10), tokens=8)
    assert None in [chunk.token_ids for chunk in chunks]
    assert sum(chunk.tokens for chunk in chunks) == end.output_tokens == 8
    assert len(chunks) < 8


# --- the cache -----------------------------------------------------------------------------


def test_cold_reuses_nothing_even_right_after_the_same_prompt(engine, prompt):
    run(engine, prompt)
    _, end = run(engine, prompt, mode=CacheMode.COLD)
    assert (end.cached_prompt_tokens, end.timings.prefill_tokens) == (0, len(prompt))


def test_reuse_takes_all_but_the_last_token_and_still_tells_the_whole_prompt(engine, prompt):
    run(engine, prompt)
    _, end = run(engine, prompt, mode=CacheMode.REUSE)
    assert end.cached_prompt_tokens == len(prompt) - 1
    assert end.prompt_tokens == len(prompt)
    assert end.timings.prefill_tokens == 1


def test_after_a_reset_there_is_nothing_to_reuse(engine, prompt):
    run(engine, prompt)
    engine.reset_cache()
    assert run(engine, prompt, mode=CacheMode.REUSE)[1].cached_prompt_tokens == 0


# --- limits --------------------------------------------------------------------------------


def test_a_prompt_that_does_not_fit_is_refused_before_the_first_event(engine, prompt):
    fault = fault_of(engine, prompt[:1] * 300)
    assert (fault.kind, fault.fatal) == ("context_overflow", False)
    assert (fault.detail["n_prompt_tokens"], fault.detail["n_ctx"]) == (300, 256)


@pytest.mark.parametrize(
    ("asked", "got", "reason"),
    [
        (15, 15, FinishReason.LENGTH),
        (16, 16, FinishReason.LENGTH),
        (17, 16, FinishReason.CONTEXT_FULL),
    ],
)
def test_a_window_of_256_holds_256_tokens(engine, prompt, asked, got, reason):
    _, end = run(engine, (prompt * 20)[:240], tokens=asked)
    assert (end.output_tokens, end.reason) == (got, reason)


@pytest.mark.parametrize("ids", [(1, 99_999_999), (1, -5), ()])
def test_a_prompt_that_is_none_is_refused_and_the_next_one_works(engine, prompt, ids):
    assert fault_of(engine, ids).kind == "request_rejected"
    assert run(engine, prompt)[1].output_tokens == 6


def test_leaving_early_frees_the_server(engine, prompt):
    stream = engine.generate(
        Request(request_id="r", prompt=TokenPrompt(prompt), max_output_tokens=200)
    )
    assert isinstance(next(stream), Chunk)
    stream.close()
    deadline = time.monotonic() + LIMIT_S
    while get_json(engine._client.endpoint, "/slots").body[0]["is_processing"]:
        assert time.monotonic() < deadline
    assert run(engine, prompt, tokens=2)[1].output_tokens == 2


# --- who it is -----------------------------------------------------------------------------


def test_the_identity_names_build_model_and_tokenizer(engine):
    known = engine.identify()
    assert known.version.startswith("b")
    assert known.version[1:] in known.libraries["xllamacpp"]
    assert (known.architecture, known.quantization) == ("llama", "Q4_1")
    assert known.parameters == 134_515_008
    assert known.tokenizer.vocab_size == 49_152
    assert (known.tokenizer.bos_id, known.tokenizer.bos_text) == (1, "<|im_start|>")
    assert (known.tokenizer.eos_text, known.tokenizer.adds_bos) == ("<|im_end|>", False)
    assert "<|im_start|>" in known.chat_template


def test_the_identity_tells_the_settings_in_effect(engine):
    known = engine.identify()
    # A window smaller than the batch cuts the batch, silently.
    assert known.options["ubatch"] == known.options["batch"] == 256
    assert known.context_tokens == known.options["context_tokens"] == 256
    assert (known.options["threads"], known.options["threads_batch"]) == (1, 1)
    assert known.options["flash_attention"] in {"on", "off"}
    assert (known.options["kv_key_type"], known.options["slots"]) == ("f16", 1)


def test_layers_asked_for_and_layers_offloaded_are_told_apart(engine):
    known = engine.identify()
    assert known.options["gpu_layers_asked"] == -1
    assert known.options["layers"] == 31
    assert (known.backend == "cpu") == (known.options["layers_offloaded"] == 0)


def test_what_is_unknown_has_a_reason(engine):
    known = engine.identify()
    assert known.commit is None
    assert "does not tell" in known.unavailable["commit"]
    silent = {name for name, value in known.options.items() if value is None}
    assert {f"options.{name}" for name in silent} <= set(known.unavailable)


def test_other_settings_show_in_the_identity(fresh):
    known = fresh(
        kv_key_type="q8_0",
        kv_value_type="q8_0",
        flash_attention="on",
        batch=128,
        ubatch=64,
        mmap=False,
    ).identify()
    options = known.options
    assert (options["kv_key_type"], options["kv_value_type"]) == ("q8_0", "q8_0")
    assert (options["batch"], options["ubatch"]) == (128, 64)
    assert (options["flash_attention"], options["mmap"]) == ("on", False)


# --- text ----------------------------------------------------------------------------------


def test_control_tokens_are_read_only_when_asked(engine):
    assert list(engine.tokenize("<|im_start|>", special=True)) == [1]
    assert len(engine.tokenize("<|im_start|>")) > 1


def test_control_tokens_are_left_out_of_text(engine, prompt):
    assert engine.detokenize(prompt) == "user\nName three rivers.\nassistant\n"
    assert engine.detokenize(engine.tokenize("a <|im_start|> in plain text")) == (
        "a <|im_start|> in plain text"
    )


def test_plain_text_gets_no_token_added(engine):
    assert engine.detokenize(engine.tokenize("Über 🦙 rivers")) == "Über 🦙 rivers"


# --- dying and leaving ---------------------------------------------------------------------


def test_a_server_killed_under_a_request_is_no_network_error(fresh, prompt):
    engine = fresh()
    stream = engine.generate(
        Request(request_id="r", prompt=TokenPrompt(prompt), max_output_tokens=200)
    )
    next(stream)
    os.kill(engine._process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="SIGKILL during a request") as caught:
        list(stream)
    assert (caught.value.kind, caught.value.fatal) == ("killed", True)
    assert fault_of(engine, prompt).kind == "killed"


def test_unload_leaves_no_process_and_no_folder(fresh):
    engine = fresh()
    process, folder = psutil.Process(engine._process.pid), engine._slot_folder
    engine.unload()
    assert not process.is_running()
    assert not folder.exists()


def test_a_model_cut_short_fails_to_load_with_the_servers_words(demo_model, tmp_path):
    damaged = tmp_path / "cut.gguf"
    with demo_model.open("rb") as whole:
        damaged.write_bytes(whole.read(4_000_000))
    engine = new_engine(tmp_path)
    engine.prepare(damaged)
    with pytest.raises(EngineError) as caught:
        engine.load()
    engine.unload()
    assert (caught.value.kind, caught.value.fatal) == ("model_unreadable", True)
    assert "data is not within the file bounds" in str(caught.value)


@pytest.fixture
def embedded(demo_model, tmp_path):
    launch = Launch(
        options=CommonOptions(threads=1),
        model=demo_model,
        port=free_port(),
        alias="moss",
        slot_folder=tmp_path,
        context_tokens=256,
    )
    with ServerProcess.start(launch.embedded(), tmp_path / "log") as process:
        yield process


def end_of_input(process: ServerProcess) -> None:
    process._child.stdin.close()
    process._child.wait(LIMIT_S)


def test_the_end_of_its_input_ends_the_embedded_server(embedded, tmp_path):
    log = tmp_path / "log"
    embedded.wait_ready(lambda: "model loaded" in log.read_text(), LIMIT_S)
    end_of_input(embedded)
    assert not embedded.alive


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux turns the end of a pipe into a signal"
)
def test_the_end_of_its_input_ends_it_even_while_the_model_loads(embedded, tmp_path):
    log = tmp_path / "log"
    embedded.wait_ready(lambda: "loading model" in log.read_text(), LIMIT_S)
    end_of_input(embedded)
    assert "model loaded" not in log.read_text()
