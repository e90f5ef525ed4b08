"""Starting a llama-server: waited for, known to be ours, given only flags it knows, stopped."""

from __future__ import annotations

import json
import socket
import stat
import sys
from pathlib import Path

import psutil
import pytest

from inferometer import Context, EngineError, Request, TokenPrompt
from inferometer_llama_cpp import server_engine
from inferometer_llama_cpp.server import ServerOptions, create
from support.http_server import ScriptedServer, whole

FLAGS = (
    "-m, --model FNAME\n-a, --alias STRING\n--host HOST\n--port PORT\n--slot-save-path PATH\n"
    "-np, --parallel N\n-c, --ctx-size N\n-ngl, --gpu-layers, --n-gpu-layers N\n"
    "-fa, --flash-attn [on|off|auto]\n-ctk, --cache-type-k TYPE\n-t, --threads N\n"
)

# A program that takes a llama-server's command line and plays its part, for real.
PROGRAM = """#!{python}
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

argv = sys.argv[1:]
if argv == ["--help"]:
    sys.exit(print({help!r}))
flags = dict(zip(argv[::2], argv[1::2]))
print("ARGV", json.dumps(argv), flush=True)
print("ENVIRONMENT", json.dumps([k for k in os.environ if k.startswith("LLAMA_ARG_")]), flush=True)
asked = dict()

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_): ...

    def answer(self, status, value):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def do_GET(self):
        count = asked[self.path] = asked.get(self.path, 0) + 1
        if self.path == "/health":
            loading = count <= {loading}
            print("HEALTH", "loading" if loading else "ready", flush=True)
            self.answer(503 if loading else 200, dict())
        elif self.path == "/v1/models":
            self.answer(200, dict(data=[dict(id=flags["--alias"])]))

    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for n in (1, 2, 3):
            event = dict(content="x", tokens=[n], stop=False, tokens_predicted=n)
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")
        self.wfile.flush()
        {after_three_tokens}

{before_listening}
HTTPServer(("127.0.0.1", int(flags["--port"])), Handler).serve_forever()
"""


@pytest.fixture
def model(tmp_path) -> Path:
    path = tmp_path / "moss.gguf"
    path.write_bytes(b"GGUF and nothing else")
    return path


@pytest.fixture
def program(tmp_path):
    def write(loading=0, before_listening="", after_three_tokens="", flags=FLAGS) -> str:
        path = tmp_path / "llama-server"
        path.write_text(
            PROGRAM.format(
                python=sys.executable,
                help=flags,
                loading=loading,
                before_listening=before_listening,
                after_three_tokens=after_three_tokens,
            )
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def engine_with(tmp_path, log):
    engines = []

    def make(**options):
        context = Context(context_tokens=300, log_path=log, cache_dir=tmp_path)
        engine = create(ServerOptions(**options), context)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.unload()


@pytest.fixture
def load(engine_with, program, model):
    """Loads an engine whose server behaves as told."""

    def run(options=None, **behaviour):
        engine = engine_with(binary=program(**behaviour), **options or {})
        engine.prepare(model)
        engine.load()
        return engine

    return run


def load_fault(engine, model) -> EngineError:
    engine.prepare(model)
    with pytest.raises(EngineError) as caught:
        engine.load()
    return caught.value


def argv_of(log) -> list[str]:
    line = next(line for line in log.read_text().splitlines() if line.startswith("ARGV"))
    return json.loads(line.removeprefix("ARGV"))


# --- readiness -----------------------------------------------------------------------------


def test_an_open_port_is_not_ready_and_loading_is_waited_for(load, log):
    load(loading=3)
    told = [line for line in log.read_text().splitlines() if line.startswith("HEALTH")]
    assert told == ["HEALTH loading"] * 3 + ["HEALTH ready"]


def test_the_wait_for_readiness_has_an_end(engine_with, program, model):
    fault = load_fault(engine_with(binary=program(loading=10**9), ready_limit_s=0.3), model)
    assert (fault.kind, fault.fatal) == ("not_ready", True)


def test_a_server_that_dies_while_loading_is_told_with_its_last_words(engine_with, program, model):
    last_words = "sys.exit('no room for tensor 7')"
    fault = load_fault(engine_with(binary=program(before_listening=last_words)), model)
    assert (fault.kind, fault.fatal) == ("engine_error", True)
    assert "(from its log: no room for tensor 7)" in str(fault)
    assert fault.detail["exit_code"] == 1


def test_running_out_of_memory_while_loading_has_its_own_name(engine_with, program, model):
    words = "sys.exit('ggml: failed to allocate buffer of 9 GiB')"
    fault = load_fault(engine_with(binary=program(before_listening=words)), model)
    assert fault.kind == "out_of_memory"


# --- whose server it is --------------------------------------------------------------------


def test_a_port_in_use_is_an_error_before_anything_starts(engine_with, program, model, log):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        fault = load_fault(engine_with(binary=program(), port=port), model)
    assert (fault.kind, fault.fatal) == ("port_in_use", True)
    assert f"port {port} is in use" in str(fault)
    assert not log.exists()


@pytest.fixture
def older_server(monkeypatch):
    """A server that took the port between our look and our start."""
    with ScriptedServer() as older:
        monkeypatch.setattr(server_engine, "free_port", lambda: older.endpoint.port)
        older.play("/health", whole({"status": "ok"}))
        yield older


WAIT = "import threading; threading.Event().wait()"


def test_another_server_that_answers_is_not_measured(engine_with, program, model, older_server):
    older_server.play("/v1/models", whole({"data": [{"id": "fern-7b"}]}))
    older_server.play("/props", whole({"model_path": "/models/fern-7b.gguf"}))
    fault = load_fault(engine_with(binary=program(before_listening=WAIT)), model)
    assert (fault.kind, fault.fatal) == ("wrong_server", True)
    assert "/models/fern-7b.gguf" in str(fault)
    assert str(model) in str(fault)


def test_even_the_same_model_in_another_server_is_not_ours(
    engine_with, program, model, older_server
):
    older_server.play("/v1/models", whole({"data": [{"id": model.name}]}))
    older_server.play("/props", whole({"model_path": str(model)}))
    fault = load_fault(engine_with(binary=program(before_listening=WAIT)), model)
    assert fault.kind == "wrong_server"


def test_a_server_of_another_kind_is_not_ours(engine_with, program, model, older_server):
    fault = load_fault(engine_with(binary=program(before_listening=WAIT)), model)
    assert fault.kind == "wrong_server"
    assert "no model it names" in str(fault)


# --- dying under a request -----------------------------------------------------------------


def request_fault(engine) -> EngineError:
    request = Request(request_id="r", prompt=TokenPrompt((1,)), max_output_tokens=9)
    with pytest.raises(EngineError) as caught:
        list(engine.generate(request))
    return caught.value


@pytest.mark.parametrize(
    ("end", "kind", "signal"),
    [
        ("os.abort()", "aborted", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        ("os._exit(7)", "engine_error", None),
    ],
)
def test_a_dead_server_is_no_network_error(load, end, kind, signal):
    engine = load(after_three_tokens=end)
    fault = request_fault(engine)
    assert (fault.kind, fault.fatal) == (kind, True)
    assert fault.detail["signal"] == signal
    assert "during a request" in str(fault)


def test_a_dead_server_is_explained_by_its_log(load):
    words = "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
    end = f"print({words!r}, flush=True); os.abort()"
    engine = load(after_three_tokens=end)
    assert request_fault(engine).kind == "gpu_out_of_memory"


def test_a_living_server_that_hangs_up_only_fails_the_request(load, monkeypatch):
    monkeypatch.setattr(server_engine, "_DEATH_WAIT_S", 0.05)
    fault = request_fault(load())
    assert (fault.kind, fault.fatal) == ("stream_truncated", False)


COMPUTE_ERROR = (
    'self.wfile.write(b\'data: {"error": {"code": 500, "message": "Compute error."}}\\n\\n\')'
)
NO_GPU_MEMORY = [
    "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    "vk::Queue::submit: ErrorOutOfDeviceMemory",
    "CUDA out of memory",
    "hipErrorOutOfMemory",
    "allocating 9 MiB on device 0: cudaMalloc failed: out of memory",
]


@pytest.mark.parametrize("words", NO_GPU_MEMORY)
def test_a_living_server_without_gpu_memory_is_not_asked_again(load, words):
    fault = request_fault(load(after_three_tokens=f"print({words!r}, flush=True); {COMPUTE_ERROR}"))
    assert (fault.kind, fault.fatal) == ("gpu_out_of_memory", True)
    assert "Compute error." in str(fault)


def test_a_living_server_that_hangs_up_is_explained_by_its_log(load, monkeypatch):
    monkeypatch.setattr(server_engine, "_DEATH_WAIT_S", 0.05)
    fault = request_fault(load(after_three_tokens=f"print({NO_GPU_MEMORY[0]!r}, flush=True)"))
    assert (fault.kind, fault.fatal) == ("gpu_out_of_memory", True)


def test_memory_that_was_short_before_the_request_is_no_cause_of_its_failure(load):
    words = f"print({NO_GPU_MEMORY[0]!r}, flush=True)"
    fault = request_fault(load(before_listening=words, after_three_tokens=COMPUTE_ERROR))
    assert (fault.kind, fault.fatal) == ("server_error_in_stream", False)


def test_a_kind_that_tells_why_is_not_overruled_by_the_log(load):
    full = COMPUTE_ERROR.replace("Compute error.", "the request exceeds the context")
    fault = request_fault(
        load(after_three_tokens=f"print('CUDA out of memory', flush=True); {full}")
    )
    assert (fault.kind, fault.fatal) == ("context_overflow", False)


# --- the command line ----------------------------------------------------------------------


def test_a_binary_gets_the_settings_of_its_options(load, model, log):
    load({"threads": 2, "kv_key_type": "q8_0"})
    argv = argv_of(log)
    flags = dict(zip(argv[::2], argv[1::2], strict=True))
    assert flags["--model"] == str(model)
    assert (flags["--ctx-size"], flags["--parallel"], flags["--threads"]) == ("512", "1", "2")
    assert (flags["--cache-type-k"], flags["--cache-type-v"]) == ("q8_0", "f16")


def test_what_was_not_asked_for_is_left_to_the_server(load, log):
    load()
    assert not {"--flash-attn", "--threads", "--batch-size", "--no-mmap"} & set(argv_of(log))


@pytest.mark.parametrize(
    ("known", "given"), [(FLAGS, "--no-mmap"), (FLAGS + "--load-mode MODE\n", "--load-mode none")]
)
def test_reading_instead_of_mapping_has_two_names(load, log, known, given):
    load({"mmap": False}, flags=known)
    assert given in " ".join(argv_of(log))


def test_guards_are_given_to_servers_that_know_them_only(load, log):
    load(flags=FLAGS)
    assert not {"--cache-ram", "--fit", "--no-context-shift", "--verbosity"} & set(argv_of(log))


def test_what_would_change_the_work_behind_our_back_is_switched_off(load, log):
    more = "--cache-ram N\n-fit, --fit [on|off]\n-lv, --verbosity N (4: trace)\n"
    load(flags=FLAGS + more)
    line = " ".join(argv_of(log))
    assert "--cache-ram 0" in line
    assert "--fit off" in line
    assert "--verbosity 4" in line


def test_verbosity_is_left_alone_where_four_means_a_line_per_token(load, log):
    load(flags=FLAGS + "--verbosity N (4: debug)\n")
    assert "--verbosity" not in argv_of(log)


@pytest.mark.parametrize(("asked", "given"), [(-1, "999"), (0, "0"), (12, "12")])
def test_all_layers_is_a_number_every_version_takes(load, log, asked, given):
    load({"gpu_layers": asked})
    argv = argv_of(log)
    assert argv[argv.index("--n-gpu-layers") + 1] == given


def test_more_arguments_of_the_user_come_last(load, log):
    load({"extra_args": ("--main-gpu", "1")})
    assert argv_of(log)[-2:] == ["--main-gpu", "1"]


def test_settings_in_the_environment_do_not_reach_the_server(load, log, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "64")
    load()
    assert "ENVIRONMENT []" in log.read_text()


def test_a_program_that_is_no_llama_server_is_refused_in_prepare(engine_with, model):
    with pytest.raises(EngineError, match="does not answer to --help") as caught:
        engine_with(binary="/bin/false").prepare(model)
    assert caught.value.kind == "not_startable"


# --- the model file ------------------------------------------------------------------------


def test_a_model_that_is_not_there_is_refused_in_prepare(engine_with, tmp_path):
    with pytest.raises(EngineError, match=r"absent\.gguf") as caught:
        engine_with().prepare(tmp_path / "absent.gguf")
    assert caught.value.kind == "model_unreadable"


def test_a_file_that_is_no_model_is_refused_in_prepare(engine_with, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a model")
    with pytest.raises(EngineError, match="is not a GGUF file"):
        engine_with().prepare(path)


def test_loading_without_preparing_is_refused(load, engine_with):
    with pytest.raises(EngineError, match="load was called before prepare"):
        engine_with().load()


# --- leaving -------------------------------------------------------------------------------


def test_unload_leaves_no_process_and_no_folder(load):
    engine = load()
    pid, folder = engine._process.pid, engine._slot_folder
    engine.unload()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    engine.unload()


def test_unload_before_load_does_nothing(load, engine_with, model):
    engine = engine_with()
    engine.unload()
    engine.prepare(model)
    engine.unload()
