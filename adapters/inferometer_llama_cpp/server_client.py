"""What is asked of a running llama-server besides generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import Factory, frozen

from inferometer import EngineError, Refused, Unsupported
from inferometer.serving import Endpoint, Reply, get_json, post_json
from inferometer_llama_cpp.events import rejection

_NOT_IMPLEMENTED = 501


@frozen
class Client:
    """Speaks to one server; a refusal is an ``EngineError`` in the server's words."""

    endpoint: Endpoint
    _control: dict[int, bool] = Factory(dict)

    def is_ready(self) -> bool:
        """Whether the model is loaded: before that, nobody listens or the answer is 503."""
        try:
            return get_json(self.endpoint, "/health").ok
        except EngineError:
            return False

    def props(self) -> Mapping[str, Any]:
        """Return what the server says about itself."""
        return _body(get_json(self.endpoint, "/props"))

    def model(self) -> Mapping[str, Any]:
        """Return the entry of the one model it serves."""
        return _first(_body(get_json(self.endpoint, "/v1/models")))

    def served(self) -> tuple[str | None, str | None]:
        """Return the model's name and path at whichever server answers, None where untold."""
        models, props = (self._if_any(path) for path in ("/v1/models", "/props"))
        return _first(models).get("id"), props.get("model_path")

    def tokens(self, text: str, *, add_special: bool = False, special: bool = False) -> list[int]:
        """Return the ids of a text; ``special`` reads control tokens in it."""
        asked = {"content": text, "add_special": add_special, "parse_special": special}
        ids: list[int] = self._post("/tokenize", asked)["tokens"]
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, that of control tokens included."""
        text: str = self._post("/detokenize", {"tokens": list(ids)})["content"]
        return text

    def is_control(self, token: int) -> bool:
        """Whether an id is a control token.

        The server does not tell: they are those whose text means them only where control
        tokens are read.
        """
        if token not in self._control:
            text = self.text([token])
            read, unread = (self.tokens(text, special=special) for special in (True, False))
            self._control[token] = read == [token] and unread != [token]
        return self._control[token]

    def erase_slot(self) -> None:
        """Have the only slot forget its prompt."""
        reply = post_json(self.endpoint, "/slots/0?action=erase", {})
        if reply.status == _NOT_IMPLEMENTED:
            raise Unsupported("this llama-server cannot erase a slot: it knows no --slot-save-path")
        if not reply.ok:
            raise Refused(f"llama-server did not erase its slot: {reply.body}")

    def _if_any(self, path: str) -> Mapping[str, Any]:
        try:
            return _body(get_json(self.endpoint, path))
        except EngineError:
            return {}

    def _post(self, path: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        return _body(post_json(self.endpoint, path, payload))


def _body(reply: Reply) -> Mapping[str, Any]:
    if not reply.ok or not isinstance(reply.body, Mapping):
        raise rejection(reply.status, reply.body)
    return reply.body


def _first(models: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(models.get("data") or ()), {})
