"""A third party's adapter that computes nothing and can fail in every way a real one does.

It is a complete plugin: public API only, one entry point. The tests run it through the real
launcher and worker, so that what they see of a crash or a hang is what a user would see.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import field, frozen, validators

from inferometer import (
    Adapter,
    Capabilities,
    Chunk,
    Context,
    EngineError,
    EngineIdentity,
    Finished,
    FinishReason,
    LogEvidence,
    Placement,
    Probe,
    Request,
    Timings,
    Tokenizer,
    Usage,
    hookimpl,
)

FAULTS = (
    "none",
    # the process
    "killed",
    "exits",
    "hangs",
    "hangs_in_load",
    "hangs_with_a_child",
    "hangs_and_ignores_sigterm",
    "prints",
    "aborts_with_oom_in_log",
    "leaks_a_child",
    "leaks_a_daemon",
    "dies_and_leaves_a_fork",
    # the stream
    "miscounts",
    "ignores_ignore_eos",
    "one_arrival",
    "raises",
    "engine_error",
    "fatal_error",
    "no_finished",
    "after_finished",
    "not_a_chunk",
    "endless",
    "cached_in_cold",
    "prepends_bos",
    "figures_that_are_not_json",
    # the rest of the contract
    "create_fails",
    "create_cannot_read",
    "create_returns_nothing",
    "load_fails",
    "no_identity",
    "usage_raises",
    "unload_raises",
)


@frozen(kw_only=True)
class Options:
    """What goes wrong, when, and how often."""

    fault: str = field(
        default="none",
        validator=validators.in_(FAULTS),
        metadata={"doc": "What goes wrong."},
    )
    after: int = field(default=0, metadata={"doc": "Requests answered well before it does."})
    once_file: str = field(
        default="", metadata={"doc": "Go wrong only if this file is absent, then make it."}
    )
    tell: str = field(
        default="", metadata={"doc": "File that a process id is written to when it goes wrong."}
    )
    exit_code: int = field(default=1, metadata={"doc": "What `exits` exits with."})
    context_tokens: int | None = field(default=None, metadata={"doc": "The window."})
    template: str = field(
        default="{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]",
        metadata={"doc": "The chat template."},
    )


class Engine:
    """Streams letters, one a token, until something goes wrong."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._window = context.context_tokens
        self._answered = 0
        self._kept: tuple[int, ...] = ()

    def prepare(self, model: Path) -> None: ...

    def load(self) -> None:
        if self._now("load_fails"):
            raise EngineError("the weights are of a kind this engine does not know", kind="load")
        if self._now("hangs_in_load"):
            self._hang()
        if self._now("prints"):
            os.write(1, b"this line is not a message\n")
            print("neither is this", flush=True)

    def identify(self) -> EngineIdentity:
        if self._options.fault == "no_identity":
            return None  # type: ignore[return-value]
        return EngineIdentity(
            engine="scripted",
            version="1.0",
            backend="none",
            context_tokens=self._window,
            tokenizer=Tokenizer(vocab_size=256, adds_bos=False),
            chat_template=self._options.template,
        )

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        return tuple(text.encode())

    def detokenize(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def generate(self, request: Request) -> Iterator[Chunk | Finished]:
        ids = request.prompt.ids
        wrong = self._options.fault if self._now(self._options.fault) else "none"
        self._answered += 1
        reused = self._reused(request, ids)
        self._before(wrong)
        wanted = request.max_output_tokens
        if wrong == "ignores_ignore_eos":
            wanted = max(1, wanted // 2)
        yield from self._tokens(wrong, wanted)
        if wrong == "no_finished":
            return
        yield Finished(
            reason=FinishReason.STOP_EOS if wrong == "ignores_ignore_eos" else FinishReason.LENGTH,
            prompt_tokens=len(ids) + (wrong == "prepends_bos"),
            output_tokens=wanted + (wrong == "miscounts"),
            cached_prompt_tokens=7 if wrong == "cached_in_cold" else reused,
            timings=Timings(prefill_ns=1_000, prefill_tokens=len(ids) - reused, source="made up"),
            raw={"state": object()} if wrong == "figures_that_are_not_json" else {},
        )
        if wrong == "after_finished":
            yield Chunk(tokens=1, token_ids=(65,))

    def reset_cache(self) -> None:
        self._kept = ()

    def usage(self) -> Usage:
        if self._options.fault == "usage_raises":
            raise ValueError("no such counter")
        return Usage()

    def unload(self) -> None:
        if self._options.fault == "unload_raises":
            raise ValueError("already freed")

    def _reused(self, request: Request, ids: tuple[int, ...]) -> int:
        same = request.cache_mode == "reuse" and ids == self._kept
        self._kept = ids
        return len(ids) - 1 if same else 0

    def _tokens(self, wrong: str, wanted: int) -> Iterator[Chunk]:
        if wrong == "one_arrival":
            yield Chunk(tokens=wanted, token_ids=(65,) * wanted)
            return
        for number in range(wanted):
            yield Chunk(tokens=1, token_ids=(65 + number % 26,))
            if number == 0:
                self._mid_stream(wrong)
        if wrong == "not_a_chunk":
            yield "some text"  # type: ignore[misc]
        while wrong == "endless":
            yield Chunk(tokens=1, token_ids=(65,))

    # --- going wrong -----------------------------------------------------------------------

    def _before(self, wrong: str) -> None:
        if wrong == "raises":
            raise ValueError("a bug in the adapter")
        if wrong == "engine_error":
            raise EngineError("the engine said no", kind="request_rejected", detail={"status": 400})
        if wrong in ("leaks_a_child", "leaks_a_daemon"):
            self._leak(in_session_of_its_own=wrong == "leaks_a_daemon")

    def _mid_stream(self, wrong: str) -> None:
        if wrong == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if wrong == "exits":
            os._exit(self._options.exit_code)
        if wrong == "hangs":
            self._hang()
        if wrong == "hangs_with_a_child":
            self._leak(in_session_of_its_own=False)
            threading.Event().wait()
        if wrong == "hangs_and_ignores_sigterm":
            signal.signal(signal.SIGTERM, lambda *_: self._tell(os.getpid()))
            self._hang()
        if wrong == "fatal_error":
            raise EngineError("the connection broke", kind="connection_lost", fatal=True)
        if wrong == "aborts_with_oom_in_log":
            os.write(2, b"status 5: kIOGPUCommandBufferCallbackErrorOutOfMemory\n")
            os.kill(os.getpid(), signal.SIGABRT)
        if wrong == "dies_and_leaves_a_fork":
            self._fork_and_die()

    def _hang(self) -> None:
        self._tell(os.getpid())
        threading.Event().wait()

    def _leak(self, *, in_session_of_its_own: bool) -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", "import threading; threading.Event().wait()"],
            start_new_session=in_session_of_its_own,
        )
        self._tell(child.pid)

    def _fork_and_die(self) -> None:
        child = os.fork()
        if child == 0:
            threading.Event().wait()
        self._tell(child)
        os.kill(os.getpid(), signal.SIGKILL)

    def _tell(self, process_id: int) -> None:
        if self._options.tell:
            Path(self._options.tell).write_text(f"{process_id}\n")

    def _now(self, fault: str) -> bool:
        if self._options.fault != fault or fault == "none" or self._answered < self._options.after:
            return False
        return not self._options.once_file or self._first_time(Path(self._options.once_file))

    def _first_time(self, marker: Path) -> bool:
        fresh = not marker.exists()
        marker.touch()
        return fresh


def create(options: Options, context: Context) -> Engine:
    """Make an engine, or fail to."""
    if options.fault == "create_fails":
        raise ImportError("libsomething.so.1: cannot open shared object file")
    if options.fault == "create_cannot_read":
        raise PermissionError(13, "Permission denied", "/dev/accelerator0")
    if options.fault == "create_returns_nothing":
        return None  # type: ignore[return-value]
    return Engine(options, context)


@hookimpl
def inferometer_adapters() -> list[Adapter]:
    return [
        Adapter(
            name="scripted",
            placement=Placement.IN_PROCESS,
            capabilities=Capabilities(
                token_ids_in=True,
                token_ids_out=True,
                reports_cached_tokens=True,
                reports_prefill_time=True,
                disables_cache=True,
                ignores_eos=True,
            ),
            create=create,
            probe=lambda _: Probe(usable=True, version="1.0"),
            options_type=Options,
            log_evidence=(
                LogEvidence(
                    pattern="this line is not a message", kind="chatty", hint="it prints too much"
                ),
            ),
        )
    ]
