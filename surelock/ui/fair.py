"""Fair shares of the one queue: visitors of the page before scripts, clients in turn, nobody computes for no reader."""

from __future__ import annotations

import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import parse_qs

import gradio as gr
from gradio.server_messages import ProcessCompletedMessage
from starlette.types import Scope

from surelock.ui.gate import API, Refused, client_of

SCRIPTS = "decode"  # the name of the public endpoint
UNREAD_SECONDS = 10.0  # how long a run goes on that nobody reads
MOST_STREAMS = 400  # open at once by one client; a page has two
MOST_INBOXES = 2000  # sessions for which messages are kept until they read them
MOST_TAKEN_BACK = 1000  # names of asks that are remembered
_CALL = re.compile(rf"{API}/call/(?:v2/)?{SCRIPTS}(?:/(\w+))?/?")
Item = TypeVar("Item")


class Readers:
    """Who reads what, by session (of a script's call its own id)."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()

    def while_read(self, items: Iterator[Item], session: str | None) -> Iterator[Item]:
        """The same items, for as long as somebody reads what that session gets; None: whoever may."""
        seen = time.monotonic()
        for item in items:
            now = time.monotonic()
            if session is None or self.open[session]:
                seen = now
            elif now - seen > UNREAD_SECONDS:
                return
            yield item


class Asks:
    """What pages take back of what they asked the queue of ``page`` for, by the unguessable name that each ask has in
    its event's data (``ask``).
    """

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page
        self._taken_back: OrderedDict[str, None] = OrderedDict()

    def take_back(self, ask: str) -> None:
        """Out of the queue with it, and all behind it are told their places. What has had its turn, or has not come
        yet, ends by `while_wanted`. To be called by the thread that the queue lives in.
        """
        self._taken_back[ask] = None
        while len(self._taken_back) > MOST_TAKEN_BACK:
            self._taken_back.popitem(last=False)
        queue = self._page._queue
        for each in queue.event_queue_per_concurrency_id.values():
            for event in [event for event in each.queue if _name(event.data and event.data.event_data) == ask]:
                each.queue.remove(event)
                queue.event_ids_to_events.pop(event._id, None)
                queue.send_message(event, ProcessCompletedMessage(output={"data": [gr.skip()]}, success=True))
                queue.broadcast_estimations(event.concurrency_id)

    def while_wanted(self, items: Iterator[Item], data: Any) -> Iterator[Item]:
        """The same items, until what was asked for in an event with this data is taken back."""
        ask = _name(data)
        if ask not in self._taken_back:
            for item in items:
                if ask in self._taken_back:
                    return
                yield item


class Inboxes(OrderedDict[str, Any]):
    """Gradio's messages by session. Full, the oldest makes room that `used` does not name: Gradio's own forgets whoever
    came first, who may wait or run still, and its queue ends for all when it has something to tell them.
    """

    def __init__(self, most: int, used: Callable[[], set[str]]) -> None:
        super().__init__()
        self._most, self._used = most, used

    def __setitem__(self, session: str, messages: Any) -> None:
        if session not in self and len(self) >= self._most:
            used = self._used()
            gone = next((each for each in self if each not in used), None)
            if gone is not None:
                del self[gone]
        super().__setitem__(session, messages)


class Shares:
    """What each client may have of the queue of ``page``, which holds ``size`` visitors.

    One client's visitors take at most three quarters of it. Scripts wait in as many places again, and one client's in
    a quarter of those. A client is an address: a class behind one counts as one.
    """

    def __init__(self, page: gr.Blocks, size: int, readers: Readers) -> None:
        self._queue, self._readers = page._queue, readers
        self._most = {False: (size, max(1, 3 * size // 4)), True: (size, max(1, size // 4))}
        self._entering: Counter[tuple[bool, str]] = Counter()
        self._streams: Counter[str] = Counter()  # by client
        self._scripts = {number for number, fn in page.fns.items() if fn.api_name == SCRIPTS}
        self._next = self._queue.get_events
        self._queue.max_size = None  # `admit` says who waits
        self._queue.pending_messages_per_session = Inboxes(MOST_INBOXES, self._busy)  # type: ignore[assignment]
        self._queue.get_events = self._in_turn

    def admit(self, scope: Scope, body: Any) -> Callable[[], None]:
        """Let a request in, or raise Refused; what it returns is to be called when the request has been answered."""
        path, client = scope["path"], client_of(scope)
        if scope["method"] == "POST":
            called = _CALL.fullmatch(path)
            if called or path.rstrip("/") == f"{API}/queue/join":
                number = body.get("fn_index") if isinstance(body, dict) else None
                if not called and type(number) is not int:
                    raise Refused(400, "fn_index must be the number of one of the page's functions.")
                return self._enter(bool(called) or number in self._scripts, client)
            return _nothing
        if path.startswith(f"{API}/heartbeat/"):
            return self._stream(client, None)
        if path == f"{API}/queue/data":
            asked = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
            if asked not in self._queue.pending_messages_per_session:
                raise Refused(404, "Nothing was asked for under that session.")
            return self._stream(client, asked)
        if (called := _CALL.fullmatch(path)) and called[1]:
            return self._stream(client, self._session_of(called[1]))
        return _nothing

    def _enter(self, script: bool, client: str) -> Callable[[], None]:
        waiting = [event for each in self._queue.event_queue_per_concurrency_id.values() for event in each.queue]
        kind = [client_of(event.request.scope) for event in waiting if (event.fn.api_name == SCRIPTS) == script]
        entering = sum(count for (kind_of, _), count in self._entering.items() if kind_of == script)
        most, own = self._most[script]
        if kind.count(client) + self._entering[script, client] >= own:
            raise Refused(503, f"The queue is full for you: {own} of your runs wait already. Try again in a moment.")
        if len(kind) + entering >= most:
            raise Refused(503, f"The queue is full: {most} runs wait already. Try again in a moment.")
        return _counted(self._entering, (script, client))

    def _stream(self, client: str, session: str | None) -> Callable[[], None]:
        if self._streams[client] >= MOST_STREAMS:
            raise Refused(429, "Too many open streams from one address; close some pages.")
        ended = _counted(self._streams, client)
        if session is None:
            return ended
        unread = _counted(self._readers.open, session)

        def both() -> None:
            ended()
            unread()

        return both

    def _busy(self) -> set[str]:
        """The sessions that wait or run."""
        waiting = [each.queue for each in self._queue.event_queue_per_concurrency_id.values()]
        running = [events for events in self._queue.active_jobs if events]
        return {event.session_hash for events in (*waiting, *running) for event in events}

    def _session_of(self, event_id: str) -> str:
        event = self._queue.event_ids_to_events.get(event_id)
        if event is not None:
            return event.session_hash
        for session, ids in self._queue.pending_event_ids_session.items():
            if event_id in ids:
                return session
        raise Refused(404, "There is no such call, or its answer has been read.")

    def _in_turn(self) -> Any:
        """Gradio's choice of the next event, after what waits was put in order."""
        for each in self._queue.event_queue_per_concurrency_id.values():
            before: Counter[tuple[bool, str]] = Counter()
            order = {}
            for event in each.queue:
                kind = event.fn.api_name == SCRIPTS, client_of(event.request.scope)
                order[event] = kind[0], before[kind]
                before[kind] += 1
            each.queue.sort(key=order.__getitem__)
        return self._next()


def _name(data: Any) -> str:
    """What the page calls its ask, or "" where it does not name it."""
    ask = data.get("ask") if isinstance(data, dict) else None
    return ask if isinstance(ask, str) else ""


def _nothing() -> None:
    return None


def _counted(counter: Counter[Any], key: Any) -> Callable[[], None]:
    """Count one more; what it returns takes it back."""
    counter[key] += 1

    def back() -> None:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]

    return back
