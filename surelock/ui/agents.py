"""Agents (Model Context Protocol): their requests are read, counted and refused before the protocol's own stack."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from surelock.ui.gate import AGENTS, BRIEF, CALL, Refused
from surelock.ui.shares import SCRIPTS, Shares

MOST_BESIDE = 20_000  # characters of a request besides its prompt: the protocol repeats many of them
MOST_ID = 100  # characters
_TOOL = re.compile(rf"(\w{{1,100}}_)?{SCRIPTS}")  # a Space puts its name before that of the tool
_INVALID = -32600  # JSON-RPC's code of a request that is none


class AgentRefused(Refused):
    """A refusal that an agent reads.

    request: the id of what is refused, None if there is none.
    call: whether it is a call of the tool, whose result the refusal is; else it is an error of the protocol.
    """

    def __init__(
        self, message: str, request: int | str | None = None, call: bool = False, seconds: float = 0.0
    ) -> None:
        super().__init__(200 if call else 400, message, seconds)
        self._request, self._call = request, call

    @property
    def response(self) -> Response:
        """The answer of JSON-RPC."""
        says: dict[str, Any] = {"error": {"code": _INVALID, "message": str(self)}}
        if self._call:
            says = {"result": {"content": [{"type": "text", "text": str(self)}], "isError": True}}
        return JSONResponse({"jsonrpc": "2.0", "id": self._request, **says}, self.status)


class Agents:
    """The requests of agents. Calls of the tool have places among those of scripts, and are refused in the same words.

    check: raises ValueError for parameters of /decode that it refuses.
    """

    def __init__(self, shares: Shares, check: Callable[[Mapping[str, Any]], None]) -> None:
        self._shares, self._check = shares, check

    def admit(self, scope: Scope, body: Any) -> ExitStack:
        """Admit a request, see `Gate`. Requests that are not an agent's are admitted by the shares. Raises Refused."""
        if scope["method"] != "POST" or not AGENTS["POST"].fullmatch(scope["path"]):
            return self._shares.admit(scope, body)
        request, params = _read(body)
        call = body["method"] == "tools/call" and request is not None
        with ExitStack() as answered:
            try:
                if call:  # its place first: to be refused one takes no more of the server than that
                    answered.enter_context(self._shares.admit_agent(scope))
                    self._check(_arguments(params))
                if len(json.dumps({**body, "params": _without_prompt(params)})) > MOST_BESIDE:
                    raise ValueError(f"An agent's request has at most {MOST_BESIDE:,} characters besides its prompt.")
            except Refused as error:
                raise AgentRefused(str(error), request, call, error.seconds) from None
            except ValueError as error:
                raise AgentRefused(str(error), request, call) from None
            scope[CALL if call else BRIEF] = True
            return answered.pop_all()


def _read(body: Any) -> tuple[int | str | None, Mapping[str, Any]]:
    """The id and the params of a request. Raises AgentRefused for what is none."""
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        raise AgentRefused('An agent sends one JSON-RPC object at a time: {"jsonrpc": "2.0", "method": ...}.')
    request, method, params = body.get("id"), body.get("method"), body.get("params") or {}
    if not (request is None or type(request) is int or (isinstance(request, str) and len(request) <= MOST_ID)):
        raise AgentRefused(f"id must be a whole number or a text of at most {MOST_ID} characters.")
    if not isinstance(method, str) or not isinstance(params, dict):
        raise AgentRefused("method must be a text, and params an object.", request)
    return request, params


def _without_prompt(params: Mapping[str, Any]) -> dict[str, Any]:
    given = params.get("arguments")
    if not isinstance(given, dict) or not isinstance(given.get("prompt"), str):
        return {**params}
    return {**params, "arguments": {name: value for name, value in given.items() if name != "prompt"}}


def _arguments(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a call. Raises ValueError for another tool."""
    name, given = params.get("name"), params.get("arguments") or {}
    if not isinstance(name, str) or not _TOOL.fullmatch(name):
        raise ValueError(f"There is one tool here: {SCRIPTS}.")
    if not isinstance(given, dict):
        raise ValueError("arguments must be an object: the parameters of the tool by name.")
    return given
