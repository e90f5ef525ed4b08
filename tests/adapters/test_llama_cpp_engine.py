"""llama.cpp in this process, for real."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inferometer import (
    CacheMode,
    ChatPrompt,
    Chunk,
    Context,
    EngineError,
    Finished,
    FinishReason,
    Request,
    Sampling,
    TokenPrompt,
    Unsupported,
)
from inferometer_llama_cpp.in_process import LlamaCppOptions, adapter

pytestmark = pytest.mark.llama_cpp
llama_cpp = pytest.importorskip(
    "llama_cpp", reason="llama-cpp-python is not installed: run `make test-engines`"
)

BARE = Path(__file__).parents[2] / "benchmarks" / "bare_llama_cpp.py"
BATCH = 64
WINDOW = 256
PROMPT = 40
TEXT = (
    "There was once a young man who walked from town to town with nothing but a stick and a "
    "song. In the evening he sat down by the road, and whoever came along had to tell him the "
    "strangest thing that had happened to them. The miller told of a fish that could count, and "
    "the smith told of a horse with two shadows. "
) * 4
ENDS_AT_ONCE = "<|im_start|>assistant\nHello, how can I help you today?"
SLACK_NS = 1_000_000


def make(model: Path, **options):
    chosen = LlamaCppOptions(**{"threads": 1, "batch": BATCH, "context_tokens": WINDOW, **options})
    context = Context(context_tokens=128, log_path=Path("unused.log"), cache_dir=Path("unused"))
    engine = adapter().create(chosen, context)
    engine.prepare(model)
    return engine


@pytest.fixture(scope="module")
def engine(demo_model):
    loaded = make(demo_model)
    loaded.load()
    yield loaded
    loaded.unload()


@pytest.fixture(scope="module")
def ids(engine):
    return tuple(engine.tokenize(TEXT))


@pytest.fixture(scope="module")
def expected(engine, ids):
    """The greedy continuation of the prompt that most tests use."""
    return outputs(run(engine, ids[:PROMPT]))


def request(ids, tokens=6, **changes):
    return Request(
        request_id="test", prompt=TokenPrompt(tuple(ids)), max_output_tokens=tokens, **changes
    )


def run(engine, ids, tokens=6, **changes):
    return list(engine.generate(request(ids, tokens, **changes)))


def reuse(engine, ids, tokens=6):
    return run(engine, ids, tokens, cache_mode=CacheMode.REUSE)


def outputs(events):
    return [event.token_ids[0] for event in events[:-1]]


# --- the stream ----------------------------------------------------------------------------


def test_each_token_is_a_chunk_of_its_own_and_the_end_comes_once_and_last(engine, ids):
    *chunks, end = run(engine, ids[:PROMPT], 6)
    assert all(isinstance(chunk, Chunk) and chunk.tokens == 1 for chunk in chunks)
    assert isinstance(end, Finished)
    assert end.reason is FinishReason.LENGTH
    assert len(chunks) == end.output_tokens == 6
    assert end.prompt_tokens == PROMPT


def test_every_id_is_in_the_vocabulary(engine, ids):
    size = engine.identify().tokenizer.vocab_size
    assert all(0 <= token < size for token in outputs(run(engine, ids[:PROMPT])))


def test_greedy_output_repeats(engine, ids, expected):
    assert outputs(run(engine, ids[:PROMPT])) == expected


def test_greedy_output_is_that_of_a_bare_loop(engine, ids, demo_model, expected):
    bare = llama_cpp.Llama(
        str(demo_model), n_ctx=WINDOW, n_batch=BATCH, n_threads=1, n_threads_batch=1,
        flash_attn=True, verbose=False,
    )  # fmt: skip
    loop = bare.generate(list(ids[:PROMPT]), top_k=1, temp=0.0, repeat_penalty=1.0)
    assert [next(loop) for _ in expected] == expected
    bare.close()


def test_the_bare_benchmark_measures_the_same_tokens(ids, demo_model, tmp_path, expected):
    prompt = tmp_path / "ids.json"
    prompt.write_text(json.dumps(ids[:PROMPT]))
    command = [sys.executable, BARE, "--model", demo_model, "--ids", prompt, "--output-tokens", "6"]
    command += ["--flash-attention", "on"]  # what `auto` comes to
    done = subprocess.run(command, input="\n\n", capture_output=True, text=True, check=True)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["ids"] == second["ids"] == expected
    assert first["tokens"] == 6
    assert min(first["ttft_ns"], first["decode_ns"], second["ttft_ns"]) > 0


def test_a_prompt_longer_than_a_batch_is_evaluated_whole(engine, ids):
    *_, end = run(engine, ids[: 2 * BATCH + 1], 2)
    assert end.timings.prefill_tokens == 2 * BATCH + 1
    assert end.timings.decode_steps == 1


def test_sampling_repeats_with_its_seed_and_differs_with_another(engine, ids):
    def drawn(seed):
        return outputs(run(engine, ids[:8], 8, sampling=Sampling(temperature=1.5, seed=seed)))

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_it_stops_at_the_end_token_when_asked_and_counts_it(engine):
    prompt = engine.tokenize(ENDS_AT_ONCE, special=True)
    chunk, end = run(engine, prompt, 6, ignore_eos=False)
    assert engine.detokenize(chunk.token_ids) == ""
    assert end.reason is FinishReason.STOP_EOS
    assert end.output_tokens == 1


def test_it_goes_on_past_the_end_token_when_told_to(engine):
    prompt = engine.tokenize(ENDS_AT_ONCE, special=True)
    assert run(engine, prompt, 6)[-1].reason is FinishReason.LENGTH


def test_a_cancelled_request_leaves_the_engine_ready(engine, ids, expected):
    stream = engine.generate(request(ids[5:25], 50))
    next(stream), next(stream)
    stream.close()
    assert outputs(run(engine, ids[:PROMPT])) == expected


def test_what_a_cancelled_request_left_is_reused_exactly(engine, ids, expected):
    stream = engine.generate(request(ids[:PROMPT], 50))
    next(stream), next(stream)
    stream.close()
    events = reuse(engine, (*ids[:PROMPT], expected[0], ids[0]))
    assert events[-1].cached_prompt_tokens == PROMPT + 1


# --- what is refused -----------------------------------------------------------------------


def refusal(engine, asked):
    with pytest.raises(EngineError) as caught:
        next(engine.generate(asked))
    return caught.value


def test_a_prompt_longer_than_the_window_is_refused_with_both_numbers(engine, ids):
    error = refusal(engine, request((*ids, *ids)[: WINDOW + 1]))
    assert error.kind == "context_overflow"
    assert str(WINDOW) in str(error)
    assert str(WINDOW + 1) in str(error)
    assert error.detail == {"prompt_tokens": WINDOW + 1, "context_tokens": WINDOW}


def test_a_prompt_that_fills_the_window_gives_one_token_and_says_why(engine, ids):
    *chunks, end = run(engine, (*ids, *ids)[:WINDOW], 6)
    assert len(chunks) == 1
    assert end.reason is FinishReason.CONTEXT_FULL


@pytest.mark.parametrize("wrong", [-1, 49_152, 2**31, 2**40])
def test_ids_outside_the_vocabulary_are_refused(engine, wrong):
    error = refusal(engine, request([1, wrong, 2]))
    assert error.kind == "request_rejected"
    assert str(wrong) in str(error)


def test_a_request_without_prompt_is_refused(engine):
    assert refusal(engine, request([])).kind == "request_rejected"


def test_the_seed_that_means_any_seed_is_refused(engine):
    any_seed = Sampling(temperature=1.0, seed=2**32 - 1)
    assert refusal(engine, request([1], sampling=any_seed)).kind == "request_rejected"


def test_messages_are_unsupported(engine):
    chat = ChatPrompt(({"role": "user", "content": "hello"},))
    with pytest.raises(Unsupported):
        next(engine.generate(Request(request_id="chat", prompt=chat, max_output_tokens=1)))


def test_a_refused_request_leaves_the_engine_ready(engine, ids, expected):
    refusal(engine, request([-1]))
    assert outputs(run(engine, ids[:PROMPT])) == expected


# --- the cache -----------------------------------------------------------------------------


def test_cold_is_cold_even_after_the_same_prompt(engine, ids):
    run(engine, ids[:PROMPT])
    *_, end = run(engine, ids[:PROMPT])
    assert end.cached_prompt_tokens == 0
    assert end.timings.prefill_tokens == PROMPT


def test_a_repeated_prompt_is_reused_but_for_one_token(engine, ids, expected):
    run(engine, ids[:PROMPT])
    events = reuse(engine, ids[:PROMPT])
    assert events[-1].cached_prompt_tokens == PROMPT - 1
    assert outputs(events) == expected


def test_a_remainder_of_one_token_has_a_prefill_of_one_token(engine, ids):
    cold = run(engine, ids[:PROMPT])[-1].timings
    reused = reuse(engine, ids[:PROMPT], 6)[-1].timings
    assert reused.prefill_tokens == 1
    assert reused.decode_steps == 5
    assert 0 < reused.prefill_ns < cold.prefill_ns
    assert 0 < reused.prefill_ns < reused.decode_ns


def test_of_a_half_shared_prompt_the_shared_half_is_reused(engine, ids):
    other = (*ids[:20], *ids[60:80])
    fresh = outputs(run(engine, other))
    run(engine, ids[:PROMPT])
    events = reuse(engine, other)
    assert events[-1].cached_prompt_tokens == 20
    assert events[-1].timings.prefill_tokens == 20
    assert outputs(events) == fresh


def test_its_own_answer_is_reused_when_the_conversation_goes_on(engine, ids):
    said = outputs(run(engine, ids[:PROMPT], 6))
    *_, end = reuse(engine, (*ids[:PROMPT], *said, *ids[60:64]))
    # The last token came out, but was never put in.
    assert end.cached_prompt_tokens == PROMPT + 5


def test_a_reset_forgets_every_prompt(engine, ids):
    run(engine, ids[:PROMPT])
    engine.reset_cache()
    assert reuse(engine, ids[:PROMPT])[-1].cached_prompt_tokens == 0


def test_a_computation_that_fails_is_an_error_and_leaves_nothing_behind(
    engine, ids, expected, monkeypatch
):
    run(engine, ids[:PROMPT])
    with monkeypatch.context() as broken:
        broken.setattr(llama_cpp, "llama_decode", lambda context, batch: 1)
        error = refusal(engine, request(ids[:PROMPT], cache_mode=CacheMode.REUSE))
    assert error.kind == "decode_failed"
    assert error.detail == {"status": 1, "tokens": PROMPT - 1}
    events = reuse(engine, ids[:PROMPT])
    assert events[-1].cached_prompt_tokens == 0
    assert outputs(events) == expected


# --- its own timings -----------------------------------------------------------------------


def test_its_timings_fit_inside_what_the_caller_sees(engine, ids):
    stamps, events = [], []
    begun = time.perf_counter_ns()
    for event in engine.generate(request(ids[:PROMPT], 8)):
        stamps.append(time.perf_counter_ns())
        events.append(event)
    said = events[-1].timings
    assert 0 < said.prefill_ns <= stamps[0] - begun + SLACK_NS
    assert 0 < said.decode_ns <= stamps[7] - stamps[0] + SLACK_NS
    assert said.decode_steps == 7


def test_one_output_token_has_no_decode_time(engine, ids):
    *_, end = run(engine, ids[:PROMPT], 1)
    assert end.timings.decode_ns is None
    assert end.timings.prefill_ns > 0


def test_each_request_starts_its_counters_anew(engine, ids):
    for _ in range(2):
        raw = run(engine, ids[:PROMPT], 4)[-1].raw
        assert raw["ended_n_p_eval_tokens"] == PROMPT
        assert raw["ended_n_eval_tokens"] == 3


# --- what it says about itself -------------------------------------------------------------


def test_it_tells_what_is_loaded(engine):
    told = engine.identify()
    assert told.engine == "llama.cpp"
    assert told.version == llama_cpp.__version__
    assert told.libraries["ggml"]
    assert told.architecture == "llama"
    assert told.parameters == 134_515_008
    assert told.context_tokens == WINDOW
    assert told.tokenizer.vocab_size == 49_152
    assert (told.tokenizer.bos_id, told.tokenizer.bos_text) == (1, "<|im_start|>")
    assert told.tokenizer.eos_text == "<|im_end|>"
    assert told.tokenizer.adds_bos is False
    assert "<|im_start|>" in told.chat_template


def test_it_tells_the_options_in_effect(engine):
    options = engine.identify().options
    assert options["threads"] == options["threads_batch"] == 1
    assert options["batch"] == options["ubatch"] == BATCH
    assert options["flash_attention"] in ("on", "off")
    assert options["layers"] == 31


def test_layers_asked_for_a_gpu_that_is_not_there_are_seen_not_to_be_on_it(engine):
    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this build of llama.cpp has a GPU")
    told = engine.identify()
    assert told.backend == "cpu"
    assert told.device
    assert (told.options["gpu_layers_asked"], told.options["layers_offloaded"]) == (-1, 0)


def test_every_unknown_has_a_sentence(engine):
    told = engine.identify()
    facts = ("commit", "build", "backend", "device", "architecture", "quantization")
    unknown = {name for name in facts if getattr(told, name) is None}
    unknown |= {f"options.{name}" for name, value in told.options.items() if value is None}
    assert set(told.unavailable) == unknown


def test_text_goes_to_ids_and_back_without_anything_added(engine):
    ids = engine.tokenize("Grüße, 世界!")
    assert engine.identify().tokenizer.bos_id not in ids
    assert engine.detokenize(ids) == "Grüße, 世界!"
    assert list(engine.tokenize("")) == []
    assert engine.detokenize([]) == ""


def test_control_tokens_are_read_only_when_asked_and_never_written(engine):
    assert list(engine.tokenize("<|im_end|>", special=True)) == [2]
    assert len(engine.tokenize("<|im_end|>")) > 1
    assert engine.detokenize([2]) == ""


def test_it_claims_no_memory_figure_it_does_not_have(engine):
    assert engine.usage().peak_memory_bytes is None


# --- loading -------------------------------------------------------------------------------


def test_it_can_be_unloaded_before_loading_and_twice_and_loaded_again(demo_model, ids, expected):
    again = make(demo_model)
    again.unload()
    for _ in range(2):
        again.load()
        assert outputs(run(again, ids[:PROMPT])) == expected
        again.unload()
    again.unload()


def test_nothing_works_before_loading(demo_model):
    with pytest.raises(EngineError, match="no model is loaded"):
        make(demo_model).tokenize("a")
    with pytest.raises(EngineError, match="no model is loaded"):
        next(make(demo_model).generate(request([1])))


def test_the_window_is_what_the_core_needs_when_the_user_does_not_say(demo_model):
    roomy = make(demo_model, context_tokens=None, gpu_layers=0)
    roomy.load()
    assert roomy.identify().context_tokens == 256
    roomy.unload()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(EngineError, match=r"none\.gguf cannot be read: No such file"):
        make(tmp_path / "none.gguf")


def test_a_file_that_is_not_a_model_fails_with_the_reason(tmp_path):
    path = tmp_path / "notes.gguf"
    path.write_text("This is not a model.\n" * 10)
    with pytest.raises(EngineError, match="invalid magic") as caught:
        make(path).load()
    assert caught.value.kind == "load_failed"
    assert str(path) in str(caught.value)


def test_a_model_that_was_cut_short_fails_with_the_reason(demo_model, tmp_path):
    path = tmp_path / "half.gguf"
    with demo_model.open("rb") as whole:
        path.write_bytes(whole.read(40_000_000))
    with pytest.raises(EngineError, match="corrupted or incomplete"):
        make(path).load()


def test_options_that_exclude_each_other_fail_with_the_reason(demo_model):
    impossible = make(demo_model, flash_attention="off", kv_value_type="q8_0")
    with pytest.raises(EngineError, match="quantized V cache"):
        impossible.load()
