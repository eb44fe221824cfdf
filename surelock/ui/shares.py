"""Fair shares of the queue: visitors come before scripts, clients take turns, and equal jobs are computed once."""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs

import gradio as gr
from gradio.server_messages import EstimationMessage
from starlette.datastructures import Headers
from starlette.types import Scope

from surelock.ui.addresses import client_of
from surelock.ui.connections import room
from surelock.ui.gate import API, SOCKET, Refused
from surelock.ui.parameters import ENDPOINT as SCRIPTS
from surelock.ui.parameters import check_names
from surelock.ui.readers import Inboxes, Link, Readers
from surelock.ui.session import Sessions

DEVICE_SLOT = "device"  # the queue of everything that decodes, one at a time
AGAIN_SECONDS = 0.5  # until a script hears that the queue is full
MOST_FOLLOWERS = 200  # requests that wait or are served without a place of their own
MOST_STREAMS = 400  # open streams of one client, at most half of all connections; a page has two
MOST_INBOXES = 200  # idle sessions whose last messages are kept
TICKET = "x-surelock-ticket"  # a header: the call of an agent, which the protocol's stack hands on as one of a script
_CALL = re.compile(rf"{API}/call/(v2/)?{SCRIPTS}(?:/(\w+))?/?")
_KEY = "surelock.key"  # in the scope of a request: the key of its job, None if it has none
_CLIENT = "surelock.client"  # the same: its client
Ask = Callable[[list[Any]], str | None]  # returns the key of a job from the data of a request


class Shares:
    """The shares of each client in the queue of a page.

    size: the number of places for visitors, and again for scripts.
    keys: for each function of the page that requests a job, by its number, a function that returns the job's key.

    One client may have three quarters of the places for visitors and a quarter of those for scripts. A client is an
    address, so a class behind one address is one client. A request for the same job as another takes no place: both are
    served together, or at once if the job is computed already.
    """

    def __init__(
        self, page: gr.Blocks, size: int, readers: Readers, sessions: Sessions, keys: Mapping[int, Ask]
    ) -> None:
        self._queue, self.readers, self._sessions, self._keys = page._queue, readers, sessions, keys
        self._most = {False: (size, max(1, 3 * size // 4)), True: (size, max(1, size // 4))}
        self._entering: dict[object, tuple[object, bool, str]] = {}
        self._agents: dict[str, str] = {}  # the clients of agents' calls, by ticket
        self._streams: Counter[str] = Counter()  # by client
        self._most_streams = 3 * room() // 4  # of all clients: the other connections load pages
        self._scripts = {number for number, fn in page.fns.items() if fn.api_name == SCRIPTS}
        self._holder: Any = None  # the event that was given the device last
        self._next = self._queue.get_events
        self._queue.max_size = None  # `admit` says who waits
        self._queue.pending_messages_per_session = Inboxes(  # type: ignore[assignment]
            MOST_INBOXES, self._busy, self._queue.pending_event_ids_session
        )
        self._queue.get_events = self._in_turn
        self._queue.broadcast_estimations = self._tell_places

    def admit(self, scope: Scope, body: Any) -> ExitStack:
        """Admit a request. Close the returned stack when it has been answered. Raises Refused."""
        path, client = scope["path"], client_of(scope)
        scope[_CLIENT] = client
        called = _CALL.fullmatch(path)
        if scope["method"] == "POST":
            if not called and path.rstrip("/") != f"{API}/queue/join":
                return ExitStack()
            number = body.get("fn_index") if isinstance(body, dict) else None
            if not called and type(number) is not int:
                raise Refused(400, "fn_index must be the number of one of the page's functions.")
            if called and called[1] and isinstance(body, dict):
                _check_parameters(body)
            script = bool(called) or number in self._scripts
            ticket = Headers(scope=scope).get(TICKET)
            if script and ticket in self._agents:  # it has its place already
                scope[_KEY], scope[_CLIENT] = ticket, self._agents[ticket]
                return ExitStack()
            scope[_KEY] = None if script else self._key(number, body)
            return self._enter(script, client, scope[_KEY], body)
        if path.startswith(f"{API}/heartbeat/"):
            return self._stream(client, None, scope)
        if path == f"{API}/queue/data":
            sessions = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [])
            session = sessions[0] if len(sessions) == 1 else ""  # of two, others would take the other one
            if session not in self._queue.pending_messages_per_session:
                raise Refused(404, "Nothing was asked for under that session.")
            return self._stream(client, session, scope)
        if called and called[2]:
            return self._stream(client, self._session_of(called[2]), scope)
        return ExitStack()

    def admit_agent(self, scope: Scope) -> ExitStack:
        """Admit the call of an agent, which has the place of a script until it has been answered. Raises Refused."""
        ticket, client = secrets.token_hex(16), client_of(scope)
        answered = self._enter(True, client, ticket, {})
        self._agents[ticket] = client
        answered.callback(self._agents.pop, ticket)
        scope["headers"] = [*scope["headers"], (TICKET.encode(), ticket.encode())]
        return answered

    def _key(self, number: Any, body: Mapping[str, Any]) -> str | None:
        ask, values = self._keys.get(number), body.get("data")
        return ask(values) if ask is not None and isinstance(values, list) else None

    def _enter(self, script: bool, client: str, key: str | None, body: Mapping[str, Any]) -> ExitStack:
        places = {_group(each): (_is_script(each), _client(each)) for each in self._waiting() if not self._free(each)}
        places |= {group: (of_script, who) for group, of_script, who in self._entering.values()}
        group = object() if key is None else key
        if key in places or (key is not None and self._sessions.follows(str(body.get("session_hash")), key)):
            self._check_crowd(client)
        else:
            most, most_of_one = self._most[script]
            same_kind = [who for of_script, who in places.values() if of_script == script]
            if same_kind.count(client) >= most_of_one:
                raise _full(f" for you: {most_of_one} of your", script)
            if len(same_kind) >= most:
                raise _full(f": {most}", script)
        request, answered = object(), ExitStack()
        self._entering[request] = (group, script, client)
        answered.callback(self._entering.pop, request)
        return answered

    def _check_crowd(self, client: str) -> None:
        here = [_client(each) for each in (*self._waiting(), *self._running())]
        here += [who for _, _, who in self._entering.values()]
        most_of_one = 3 * MOST_FOLLOWERS // 4
        if len(here) >= MOST_FOLLOWERS:
            raise _full(f": {MOST_FOLLOWERS}")
        if here.count(client) >= most_of_one:
            raise _full(f" for you: {most_of_one} of your")

    def _stream(self, client: str, session: str | None, scope: Scope) -> ExitStack:
        if self._streams.total() >= self._most_streams:
            raise Refused(503, "Too many streams are open; try again in a moment.")
        if self._streams[client] >= min(MOST_STREAMS, self._most_streams * 2 // 3):
            raise Refused(429, "Too many open streams from one address; close some pages.")
        self._streams[client] += 1
        answered = ExitStack()
        answered.callback(self._close_stream, client)
        if session is not None:
            answered.callback(self.readers.open(session, Link(scope.get(SOCKET))))
        return answered

    def _close_stream(self, client: str) -> None:
        self._streams -= Counter([client])

    def _waiting(self) -> list[Any]:
        return [event for each in self._queue.event_queue_per_concurrency_id.values() for event in each.queue]

    def _running(self) -> list[Any]:
        return [event for events in self._queue.active_jobs if events for event in events]

    def _busy(self) -> set[str]:
        """The sessions that wait, run or read a stream."""
        return {event.session_hash for event in (*self._waiting(), *self._running())} | self.readers.sessions

    def _session_of(self, event_id: str) -> str:
        event = self._queue.event_ids_to_events.get(event_id)
        if event is not None:
            return event.session_hash
        for session, ids in self._queue.pending_event_ids_session.items():
            if event_id in ids:
                return session
        raise Refused(404, "There is no such call, or its answer has been read.")

    def _free(self, event: Any) -> bool:
        """Whether an event needs no computation of its own: its job is being computed, or is finished."""
        key = event.request.scope.get(_KEY)
        if key is not None:
            return self._sessions.follows(event.session_hash, key)
        more = not (_is_script(event) or event.fn._id in self._keys) and event.data.data  # of the run that it names
        return bool(more) and self._sessions.goes_on(more[0])

    def _in_turn(self) -> Any:
        """The next event: one that needs no device, else Gradio's choice from the ordered queue."""
        if self._queue.active_jobs.count(None) < 2:  # Gradio's limit of forty is for threads; a follower has none
            self._queue.active_jobs.append(None)
        for each in self._queue.event_queue_per_concurrency_id.values():
            before: Counter[tuple[bool, str]] = Counter()
            order: dict[object, tuple[bool, int]] = {}
            for event in each.queue:
                kind = _is_script(event), _client(event)
                if _group(event) not in order:
                    order[_group(event)] = kind[0], before[kind]
                    before[kind] += 1
            each.queue.sort(key=lambda event: order[_group(event)])
        device = self._queue.event_queue_per_concurrency_id.get(DEVICE_SLOT)
        if device is None:
            return self._next()
        for event in device.queue:
            if self._free(event):
                device.queue.remove(event)
                return [event], False, DEVICE_SLOT
        taken = self._sessions.computing or self._holder in self._running()
        device.concurrency_limit = device.current_concurrency + (not taken)
        found = self._next()
        if found and found[2] == DEVICE_SLOT:
            self._holder = found[0][0]
        return found

    def _tell_places(self, concurrency_id: str, after: int | None = None) -> None:
        """Send each waiting event its place. Events of the same job have one place.

        concurrency_id: the queue. after: only events from this index on are notified; None is all.
        """
        places: dict[object, int] = {}
        waiting: list[Any] = []
        for number, event in enumerate(self._queue.event_queue_per_concurrency_id[concurrency_id].queue):
            if not self._free(event):
                places.setdefault(_group(event), len(places))
                if after is None or number >= after:
                    waiting.append(event)
        for event in waiting:
            place = EstimationMessage(rank=places[_group(event)], rank_eta=None, queue_size=len(places))
            self._queue.send_message(event, place)


def _check_parameters(names: Mapping[str, Any]) -> None:
    try:
        check_names(names)
    except ValueError as error:
        raise Refused(400, str(error)) from None


def _is_script(event: Any) -> bool:
    return event.fn.api_name == SCRIPTS


def _client(event: Any) -> str:
    scope = event.request.scope
    return scope[_CLIENT] if _CLIENT in scope else client_of(scope)


def _group(event: Any) -> object:
    """The group of an event: the key of its job, else the event itself."""
    return event.request.scope.get(_KEY) or event


def _full(whose: str, script: bool = False) -> Refused:
    message = f"The queue is full{whose} runs wait already. Try again in a moment."
    return Refused(503, message, AGAIN_SECONDS if script else 0.0)
