"""Serves agents (Model Context Protocol): /decode is the only tool.

The queue is checked before the protocol's library reads a call: a call without a place is refused here.
"""

import asyncio
import json
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import TextContent, Tool
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from surelock.ui.addresses import client_of
from surelock.ui.endpoint import AGAIN_SECONDS, Calls
from surelock.ui.gate import BODY
from surelock.ui.parameters import ENDPOINT, description, schemas
from surelock.values import Json


class Agents:
    """The ASGI application that answers agents.

    calls: runs the calls of /decode. Calls by agents wait in the same queue as calls by scripts.
    models: the labels of the models that the server offers.
    """

    def __init__(self, calls: Calls, models: list[str]) -> None:
        server: Server[Any, Any] = Server("surelock")
        schema = {"type": "object", "properties": schemas(models), "required": ["prompt"]}
        tool = Tool(name=ENDPOINT, description=description(), inputSchema=schema)
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self._calls = calls

        @server.list_tools()
        async def tools() -> list[Tool]:
            return [tool]

        @server.call_tool(
            validate_input=False
        )  # /decode checks the arguments and refuses in one sentence
        async def call(name: str, arguments: Json) -> list[TextContent]:
            request: Any = server.request_context.request
            last: Json = {}
            async with aclosing(calls.answers(arguments, request)) as answers:
                async for answer in answers:
                    if await request.is_disconnected():
                        raise ValueError("The agent has left.")
                    last = answer
            return [TextContent(type="text", text=json.dumps(last))]

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which the protocol's library answers calls."""
        return self._manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = scope[BODY]
        if isinstance(body, dict) and body.get("method") == "tools/call":
            try:
                self._check(scope, body.get("params"))
            except ValueError as error:
                refusal = {"content": [{"type": "text", "text": str(error)}], "isError": True}
                answer = JSONResponse({"jsonrpc": "2.0", "id": body.get("id"), "result": refusal})
                await asyncio.sleep(AGAIN_SECONDS)
                return await answer(scope, receive, send)
        await self._manager.handle_request(scope, receive, send)

    def _check(self, scope: Scope, params: Any) -> None:
        """Raise ValueError, one sentence, for a call of another tool and for a call for which the queue is full."""
        if not isinstance(params, dict) or params.get("name") != ENDPOINT:
            raise ValueError(f"There is one tool here: {ENDPOINT}.")
        if not isinstance(params.get("arguments"), dict):
            raise ValueError("arguments must be an object: the parameters of the tool by name.")
        self._calls.check(client_of(scope))
