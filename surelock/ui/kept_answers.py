"""The page and its configuration, made once for all visitors."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST = 8  # answers that are kept; of more the least used makes room
_PATHS = ("/", "/config")
_ADDRESS = ("host", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server")  # what Gradio reads addresses from
Key = tuple[object, ...]


class KeptAnswers:
    """ASGI middleware that keeps the answers to `/` and `/config`, one for each address of the server.

    Gradio 6.31 makes them anew for each request, in up to forty threads at once: a class that opens the page would
    stop the server for seconds. Here one is made at a time.

    Their queries are not passed on: only the browser reads them. Gradio would take `page` for a page of its own and
    answer 404.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._kept: dict[Key, list[Message]] = {}
        self._uses: dict[Key, int] = {}
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or scope["path"] not in _PATHS:
            return await self.app(scope, receive, send)
        scope = {**scope, "method": "GET", "query_string": b""}  # of an answer to HEAD the server sends no body
        key = _key(scope)
        messages = self._kept.get(key)
        if messages is None:
            async with self._making:
                messages = self._kept.get(key) or await self._made(key, scope, receive)
        if key in self._uses:
            self._uses[key] += 1
        for message in messages:
            await send(dict(message))

    async def _made(self, key: Key, scope: Scope, receive: Receive) -> list[Message]:
        """The messages of the answer, which is kept if it is a good one."""
        messages: list[Message] = []

        async def take(message: Message) -> None:
            messages.append(message)

        await self.app(scope, receive, take)
        if messages[0]["status"] == 200:
            if len(self._kept) >= MOST:
                least = min(self._uses, key=self._uses.__getitem__)
                del self._kept[least], self._uses[least]
            self._kept[key], self._uses[key] = messages, 0
        return messages


def _key(scope: Scope) -> Key:
    """All of a request that the answer depends on."""
    addresses = (tuple(Headers(scope=scope).getlist(name)) for name in _ADDRESS)
    return (scope["path"], scope["scheme"], scope.get("root_path"), tuple(scope.get("server") or ()), *addresses)
