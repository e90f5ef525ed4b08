"""A model and its context inside llama.cpp, through its C API.

The C functions are used as llama-cpp-python binds them, without its ``Llama`` class: that class
reuses prompts silently and does not say how much, cannot leave flash attention to the engine,
cannot be told to keep off the GPU, and fills every batch token by token in Python. The C API is
the one llama.cpp documents; of the class we would need private parts.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import llama_cpp

from inferometer import EngineError
from inferometer_llama_cpp import native_log
from inferometer_llama_cpp.load_log import LoadLog
from inferometer_llama_cpp.options import CommonOptions

# Numbers of the GGUF format; llama-cpp-python does not name all of them.
_KV_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
_ALL_LAYERS = 0x7FFFFFFF
"""Not every release takes a negative number for it; all take more than there are."""
_FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}


class Loaded:
    """A loaded model with one context, ready for requests.

    Args:
        path: the model file.
        options: what the user set; None is left to the engine.
        window: tokens the context window is to hold.

    Raises:
        EngineError: llama.cpp could not load it, with the reason from its log.
    """

    def __init__(self, path: Path, options: CommonOptions, window: int) -> None:
        llama_cpp.llama_backend_init()
        self.model: Any = None
        self.context: Any = None
        with native_log.keep() as log:
            try:
                self.model = _model(path, options, log)
                self.context = _context(self.model, options, window, log)
                self._check_continues(path)
            except EngineError:
                self.close()
                raise
        self.log = log
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size: int = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.window: int = llama_cpp.llama_n_ctx_seq(self.context)

    @property
    def memory(self) -> Any:
        """What the context remembers tokens in; None where it has no memory."""
        return llama_cpp.llama_get_memory(self.context)

    def close(self) -> None:
        """Free the context, then the model it belongs to."""
        if self.context is not None:
            llama_cpp.llama_free(self.context)
        if self.model is not None:
            llama_cpp.llama_model_free(self.model)
        self.context = self.model = None

    def ends_generation(self, token: int) -> bool:
        """Whether a token is one of those a model ends its answer with."""
        return bool(llama_cpp.llama_vocab_is_eog(self.vocab, token))

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Return the ids of a text, adding none."""
        data = text.encode()
        count = -self._tokenize(data, (llama_cpp.llama_token * 0)(), special)
        found = (llama_cpp.llama_token * count)()
        self._tokenize(data, found, special)
        return list(found)

    def detokenize(self, ids: list[int]) -> str:
        """Return the text of ids, control tokens left out."""
        given = (llama_cpp.llama_token * len(ids))(*ids)
        length = -self._detokenize(given, ctypes.create_string_buffer(0))
        text = ctypes.create_string_buffer(length)
        self._detokenize(given, text)
        return text.raw.decode("utf-8", "replace")

    def _check_continues(self, path: Path) -> None:
        # Embedding and diffusion models get no memory; translators have an encoder in front.
        if llama_cpp.llama_model_has_encoder(self.model) or self.memory is None:
            raise EngineError(
                f"{path} holds a model that does not continue a prompt token by token, so there "
                "is no prefill and no decode to measure; choose a text generation model",
                kind="model_unsupported",
                fatal=True,
            )

    def _tokenize(self, data: bytes, found: Any, special: bool) -> int:
        count: int = llama_cpp.llama_tokenize(
            self.vocab, data, len(data), found, len(found), False, special
        )
        return count

    def _detokenize(self, ids: Any, text: Any) -> int:
        written: int = llama_cpp.llama_detokenize(
            self.vocab, ids, len(ids), text, len(text), False, False
        )
        return written


def _model(path: Path, options: CommonOptions, log: LoadLog) -> Any:
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = _ALL_LAYERS if options.gpu_layers < 0 else options.gpu_layers
    if options.gpu_layers == 0:
        # Without this a GPU build still computes long prompts on the GPU.
        params.split_mode = llama_cpp.LLAMA_SPLIT_MODE_NONE
        params.main_gpu = -1
    _set_mmap(params, mmap=options.mmap)
    model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    if model is None:
        raise _failed(f"llama.cpp could not load {path}", log)
    return model


def _set_mmap(params: Any, *, mmap: bool) -> None:
    # Older releases have a flag where newer ones have a mode.
    if hasattr(params, "load_mode"):
        params.load_mode = (
            llama_cpp.LLAMA_LOAD_MODE_MMAP if mmap else llama_cpp.LLAMA_LOAD_MODE_NONE
        )
    else:
        params.use_mmap = mmap


def _context(model: Any, options: CommonOptions, window: int, log: LoadLog) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = window
    params.n_threads = options.threads or _default_threads()
    params.n_threads_batch = options.threads_batch or params.n_threads
    params.n_batch = options.batch or params.n_batch
    params.n_ubatch = options.ubatch or params.n_ubatch
    params.flash_attn_type = _FLASH_ATTENTION[options.flash_attention]
    params.type_k = _KV_TYPES[options.kv_key_type]
    params.type_v = _KV_TYPES[options.kv_value_type]
    params.no_perf = False
    context = llama_cpp.llama_init_from_model(model, params)
    if context is None:
        raise _failed(f"llama.cpp could not make a context of {window} tokens", log)
    return context


def _default_threads() -> int:
    # The C default is a fixed 4. llama-cpp-python's own rule stands for physical cores.
    return max(1, (os.cpu_count() or 1) // 2)


def _failed(what: str, log: LoadLog) -> EngineError:
    return EngineError(f"{what}: {log.reason}", kind=log.failure, fatal=True)
