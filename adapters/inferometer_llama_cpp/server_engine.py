"""The live llama-server: a child process, spoken to over HTTP on this machine."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from inferometer import (
    Chunk,
    Context,
    EngineError,
    EngineIdentity,
    Finished,
    Request,
    Usage,
)
from inferometer.serving import (
    Endpoint,
    EventStream,
    Reply,
    ServerProcess,
    free_port,
    port_in_use,
    post_events,
)
from inferometer_llama_cpp.events import Translator, rejection
from inferometer_llama_cpp.evidence import EVIDENCE
from inferometer_llama_cpp.options import window
from inferometer_llama_cpp.server import ServerOptions
from inferometer_llama_cpp.server_client import Client
from inferometer_llama_cpp.server_identity import Facts, identity
from inferometer_llama_cpp.server_launch import Launch, help_text
from inferometer_llama_cpp.server_log import StartupLog, first_error
from inferometer_llama_cpp.server_request import payload

_SILENCE_LIMIT_S = 600.0
"""Longest wait for the next byte of an answer. A server that computes pings every 30 s."""
_DEATH_WAIT_S = 2.0
"""How long after a broken connection the death of the server may become visible."""
_LOG_WAIT_S = 0.2
"""The same for a failure that was answered, and for the log: the server writes it apart."""
_LOST = {"connection_lost", "stream_truncated"}
_VAGUE = _LOST | {"server_error", "server_error_in_stream", "bad_response", "stalled"}
"""Kinds that tell what was seen and not why: only these does the server's log overrule."""
_TEMPLATE_KEY = b"tokenizer.chat_template"
_METADATA_BYTES = 64 * 1024 * 1024
"""Metadata stand before the tensors; even a large vocabulary takes a tenth of this."""
_GGUF_MAGIC = b"GGUF"


class LlamaServer:
    """One llama-server with one slot."""

    def __init__(self, options: ServerOptions, context: Context) -> None:
        self._options = options
        self._context = context
        self._model: Path | None = None
        self._help_text = ""
        self._process: ServerProcess | None = None
        self._client = Client(Endpoint(port=0))
        self._slot_folder: Path | None = None

    def prepare(self, model: Path) -> None:
        """Check the model file, and that the binary, if one was named, is a llama-server."""
        self._model = _checked(model)
        if self._options.binary:
            self._help_text = help_text(self._options.binary)

    def load(self) -> None:
        """Start the server and wait until it is ready, and is known to be ours."""
        launch = self._plan_launch()
        self._client = Client(Endpoint(launch.port))
        self._process = ServerProcess.start(
            self._argv(launch),
            self._context.log_path,
            env=_environment(),
            evidence=EVIDENCE,
        )
        self._process.wait_ready(
            self._client.is_ready, self._options.ready_limit_s, reason=first_error
        )
        self._process.raise_if_dead("load")
        self._check_ours(launch)

    def identify(self) -> EngineIdentity:
        """Ask the server, and its start-up log, what is loaded and how."""
        log = self._process.log() if self._process is not None else ""
        facts = Facts(
            props=self._client.props(),
            meta=self._client.model().get("meta") or {},
            log=StartupLog(log),
            wheel=None if self._options.binary else metadata.version("xllamacpp"),
            has_template=self._model is None or _has_template(self._model),
        )
        return identity(facts, self._options, self._client.tokens)

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        """Return the ids of a text, adding none."""
        return self._client.tokens(text, special=special)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens left out."""
        return self._client.text([token for token in ids if not self._client.is_control(token)])

    def generate(self, request: Request) -> Iterator[Chunk | Finished]:
        """Stream one request; see ``inferometer_llama_cpp.events`` for what the stream means."""
        body = payload(request)
        log_mark = self._process.log_end() if self._process is not None else 0
        try:
            answer = post_events(
                self._client.endpoint, "/completion", body, timeout_s=_SILENCE_LIMIT_S
            )
            if isinstance(answer, Reply):
                raise rejection(answer.status, answer.body)
            yield from _translated(answer, request.max_output_tokens)
        except EngineError as error:
            self._raise_cause(error, log_mark)
            raise

    def reset_cache(self) -> None:
        """Erase the slot: its prompt is forgotten."""
        self._client.erase_slot()

    def usage(self) -> Usage:
        """Return nothing: llama-server reports no memory peak."""
        return Usage()

    def unload(self) -> None:
        """Stop the server and remove its folder."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
        folder, self._slot_folder = self._slot_folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    # --- starting --------------------------------------------------------------------------

    def _plan_launch(self) -> Launch:
        if self._model is None:
            raise EngineError("load was called before prepare", kind="not_prepared", fatal=True)
        self._slot_folder = self._context.scratch_dir
        self._slot_folder.mkdir(parents=True, exist_ok=True)
        return Launch(
            options=self._options,
            model=self._model,
            port=self._port(),
            alias=f"inferometer-{uuid.uuid4().hex}",
            slot_folder=self._slot_folder,
            context_tokens=window(self._options, self._context),
        )

    def _port(self) -> int:
        wanted = self._options.port
        if wanted is None:
            return free_port()
        if port_in_use(wanted):
            raise EngineError(
                f"port {wanted} is in use, so that another server would be measured: stop it, or "
                "leave the option `port` out and a free one is taken",
                kind="port_in_use",
                fatal=True,
            )
        return wanted

    def _argv(self, launch: Launch) -> list[str]:
        if self._options.binary is None:
            return launch.embedded()
        return launch.stock(self._options.binary, self._help_text, self._options.extra_args)

    def _check_ours(self, launch: Launch) -> None:
        alias, path = self._client.served()
        if alias != launch.alias:
            other = path or alias or "no model it names"
            raise EngineError(
                f"another server answers at {self._client.endpoint}: it has {other}, "
                f"ours was to have {launch.model}. Stop it, or leave the option `port` out",
                kind="wrong_server",
                detail={"found": other, "wanted": str(launch.model)},
                fatal=True,
            )

    def _raise_cause(self, error: EngineError, log_mark: int) -> None:
        """Blame the server's death, or what it logged since, for an error that it explains."""
        if error.kind not in _VAGUE or self._process is None:
            return
        wait_s = _DEATH_WAIT_S if error.kind in _LOST else _LOG_WAIT_S
        self._process.raise_if_dead("a request", within_s=wait_s)
        cause = self._process.explained(error, log_mark)
        if cause is not error:
            raise cause from error


def _translated(stream: EventStream, asked_tokens: int) -> Iterator[Chunk | Finished]:
    translator = Translator(asked_tokens, stream.sent_ns)
    with stream:
        for arrival in stream:
            yield from translator.arrival(arrival.received_ns, arrival.events)
            if translator.finished:
                return
        translator.close()


def _has_template(model: Path) -> bool:
    """Return whether a GGUF file has a chat template, by its key among the metadata."""
    with model.open("rb") as file:
        return _TEMPLATE_KEY in file.read(_METADATA_BYTES)


def _checked(model: Path) -> Path:
    try:
        with model.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise EngineError(
            f"the model cannot be read: {error}", kind="model_unreadable", fatal=True
        ) from error
    if magic != _GGUF_MAGIC:
        raise EngineError(
            f"{model} is not a GGUF file, and llama-server reads no other",
            kind="model_unreadable",
            fatal=True,
        )
    # Not resolved: a split model's parts are found by the names of the links.
    return model.absolute()


def _environment() -> dict[str, str]:
    # A server reads settings from there as well; ours are to be the only ones.
    return {key: text for key, text in os.environ.items() if not key.startswith("LLAMA_ARG_")}
