"""What took the server down once, all of it again, bounded and on loopback.

An attack of inputs.json asks over HTTP, or says bytes on connections of its own. In it "$start" is the number of that
function, "$name" a new name, "$n" the number of the round, and {"$form": changes} what pressing Run sends.
"""

import itertools
import json
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
from playwright.sync_api import expect, sync_playwright

from surelock.engines.lending import CPU_BYTES
from tests.browser.server import FLAGS, ROOT, App, chromium_path, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.nginx import NGINX, front
from tests.soak.abuse import FILES, GIVEN_AWAY, INPUTS, JSON, ROUTES, grown
from tests.soak.visits import visit, visits

KEEP_MB = 300  # of kept runs
LENT_MB = CPU_BYTES / 1e6  # of idle memories, which the engine keeps for later runs
PAGE_SECONDS = 1.0
LOG_A_SECOND = 1e6 / 600
LOG_ONCE = 20_000
LIMITED = ("sh", "-c", 'ulimit -n 1024; exec "$0" "$@"', sys.executable, "app.py")
ASKER = (sys.executable, "-m", "tests.soak.asker")
PIPES: dict[str, Any] = {
    "cwd": ROOT,
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "text": True,
}
Attack = Callable[[App], dict[str, Any]]
PARTS = "bytes=" + ",".join(f"{2 * each}-{2 * each}" for each in range(1500))


def attack(attacks: Mapping[str, Attack], log: Path) -> dict[str, Any]:
    """Serve, carry out the attacks, report. ok: each is."""
    parts: dict[str, Any] = {}
    with (
        serve(
            "--mcp", "--max-length", "256", "--keep-mb", str(KEEP_MB), log=log, command=LIMITED
        ) as app,
        front(app, log.parent) if NGINX else nullcontext(app) as behind,
    ):
        wait_for_model(app)
        assert not visit(app, "pause", random.Random(0), []), "it works before it is attacked"
        for name, act in attacks.items():
            time.sleep(5)  # what was dropped goes back to the system
            what = INPUTS["attacks"].get(name, {})
            parts[name] = watched(behind if what.get("front") else app, log, what, act)
            print(name, parts[name], file=sys.stderr, flush=True)
    return {
        "ok": not any(each["not_ok"] for each in parts.values()),
        "parts": parts,
        "log_bytes": log.stat().st_size,
    }


def watched(app: App, log: Path, what: dict[str, Any], act: Attack) -> dict[str, Any]:
    """Carry out an attack beside honest visitors, one of whom asks for the page. not_ok: what it found or did."""
    process = Path(f"/proc/{app.process.pid}")
    before = app.memory()
    written = log.stat().st_size
    (process / "clear_refs").write_text("5")  # the most memory is measured from now on
    begun = time.monotonic()
    many = what.get("visitors", 1)

    def come(_: int) -> tuple[str, float]:
        time.sleep(1)
        began = time.monotonic()
        ran = list[str]()
        problem = visit(app, "pause", random.Random(began), ran) or (
            "" if ran else "it was refused"
        )
        return problem, round(time.monotonic() - began, 2)

    with ThreadPoolExecutor(many) as pool, subprocess.Popen([*ASKER, app.url], **PIPES) as asker:
        came = pool.map(come, range(many))
        found = act(app)
        ends = list(came)
        slowest = float(asker.communicate(timeout=60)[0] or 30)
    seconds = time.monotonic() - begun
    text = log.read_bytes()[written:].decode("utf-8", "replace")
    most = next(
        line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM")
    )
    runs = {end for end, _ in ends}
    took = max(took for _, took in ends)
    memory = int(most.split()[1]) / 1e3 - before / 1e6
    long = what.get("log", LOG_ONCE + LOG_A_SECOND * seconds)
    good = {
        "found": found.pop("ok"),
        "runs": runs == {""} and took <= what.get("visit_seconds", 300),
        "memory": memory <= what.get("most_mb", KEEP_MB + LENT_MB),
        "page": slowest <= PAGE_SECONDS,
        "log": len(text) <= long and not any(part in text for part in what.get("silent", ())),
    }
    report = {
        "not_ok": [name for name, each in good.items() if not each],
        **found,
        "problems": [*runs - {""}],
    }
    numbers = {
        "run_seconds": took,
        "memory_mb": round(memory),
        "page_seconds": slowest,
        "log_bytes": len(text),
    }
    return report | numbers | {"seconds": round(seconds)}


def carried_out(app: App, what: dict[str, Any]) -> dict[str, Any]:
    """Carry out an attack: which statuses came, and whether they are those that may."""
    visitor = Visitor(app.url)
    functions = visitor.http.get("/config").json()["dependencies"]
    lists = {"functions": [each["id"] for each in functions], "routes": ROUTES, "files": FILES}
    over = {
        name: lists[each] if isinstance(each, str) else each
        for name, each in what.get("over", {}).items()
    }
    facts = {
        "$parts": PARTS,
        "$event": "",
        **{f"${each['api_name']}": each["id"] for each in functions},
    }
    if "first" in what:
        facts["$run"] = list(visitor.run(**what["first"])) and visitor.id
    inputs = {each["id"]: len(each["inputs"]) for each in functions}
    statuses, texts = answered(app, what, rounds(visitor, what, facts, over, inputs))
    if "says" in what:
        facts["$event"] = texts[-1][13:-2] if texts else ""
        statuses += held(app, what, facts, over)
    visitor.close()
    ok = set(statuses) <= set(
        what.get("statuses", {*statuses} - {500})
    ) and statuses.total() >= what.get("answers", 0)
    ok = ok and ("said" not in what or any(what["said"] in text for text in texts))
    ok = ok and not any(part in text for text in texts for part in GIVEN_AWAY)
    return {"ok": ok, "statuses": dict(statuses)}


def rounds(
    visitor: Visitor,
    what: dict[str, Any],
    facts: dict[str, Any],
    over: dict[str, list[Any]],
    inputs: dict[int, int],
) -> Iterator[list[Any]]:
    """Everything that an attack asks, filled in. inputs: how many each function has."""
    until = time.monotonic() + what.get("seconds", 1e9)
    for number in range(what.get("times", 1)) if "seconds" not in what else itertools.count():
        for values in itertools.product(*over.values()):
            known = facts | dict(zip(over, values, strict=True)) | {"$n": number}
            known["$inputs"] = inputs.get(known.get("$function", -1))
            for each in what.get("asks", ()):
                if time.monotonic() > until:
                    return
                yield filled(each, known, visitor)


def filled(value: Any, known: dict[str, Any], visitor: Visitor | None = None) -> Any:
    """A value with what stands for something in its place."""
    if isinstance(value, list):
        return [filled(each, known, visitor) for each in value]
    if isinstance(value, dict) and "$form" in value and visitor is not None:
        return visitor.form(**grown(value["$form"]))
    if isinstance(value, dict):
        return grown(
            {known.get(name, name): filled(each, known, visitor) for name, each in value.items()}
        )
    if not isinstance(value, str) or "$" not in value:
        return value
    names = known | {"$name": secrets.token_hex(6)}
    if value in names:
        return grown(names[value])
    for name in sorted(names, key=len, reverse=True):
        value = value.replace(name, str(names[name]))
    return value


def answered(
    app: App, what: dict[str, Any], turns: Iterator[list[Any]]
) -> tuple[Counter[int], list[str]]:
    """Send everything, so much at once: the statuses, and the ends of what came."""
    turn = threading.Lock()
    answers = []
    many = what.get("at_once", 1)

    def taken() -> Iterator[list[Any]]:
        while True:
            with turn:
                if (each := next(turns, None)) is None:
                    return
            yield each

    def send(_: int) -> None:
        with httpx.Client(base_url=app.url, timeout=300) as http:
            for method, path, body, *headers in taken():
                content = (
                    body.encode("latin-1") if isinstance(body, str) else body and json.dumps(body)
                )
                try:
                    answer = http.request(
                        method, f"/{path}", content=content, headers=JSON | dict(*headers)
                    )
                    if what.get("follow") and answer.status_code == 200:
                        answer = http.get(f"/gradio_api/call/decode/{answer.json()['event_id']}")
                    answers.append((answer.status_code, answer.text[-500:]))
                except httpx.TransportError:  # refused while it was still being sent
                    answers.append((0, ""))

    with ThreadPoolExecutor(many) as pool:
        list(pool.map(send, range(many)))
    return Counter(status for status, _ in answers), [text for _, text in answers]


def held(
    app: App, what: dict[str, Any], facts: dict[str, Any], over: dict[str, list[Any]]
) -> Counter[int]:
    """Open so many connections at once, say that, hold them: how the answers begin that came."""
    place = urlsplit(app.url)
    statuses = Counter[int]()
    read = what.get("read", True)
    with ExitStack() as stack:
        links = []
        for number, text, *values in itertools.product(
            range(what["times"]), grown(what["says"]), *over.values()
        ):
            links.append(link := stack.enter_context(socket.socket()))
            if not read:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect((str(place.hostname), place.port or 80))
            with suppress(OSError):  # it was given up by then
                text = filled(text, facts | {"$n": number} | dict(zip(over, values, strict=True)))
                link.sendall(f"{what.get('head', '')}{text}".encode())
        time.sleep(what["hold"])
        for link in links if read else ():
            link.setblocking(False)
            with suppress(OSError, IndexError):  # nothing came, or the end
                statuses[int(link.recv(64).split()[1])] += 1
    return statuses


def many_hashes(app: App) -> dict[str, Any]:
    """Two hundred long runs of made-up visitors, paused and never left: the oldest go to make room."""
    visitor = Visitor(app.url)
    runs = list[str]()
    for number in range(200):
        visitor.http.headers["x-surelock-visitor"] = secrets.token_hex(6)
        runs.append(visitor.open(gen_length=224, steps=224, block_length=224, seed=number))
        list(visitor.read(runs[-1], steps=1))
    kept = [visitor.http.get(f"/surelock/runs/{run}/trace").status_code == 200 for run in runs]
    return {
        "ok": len(kept) == 200 and any(kept) and kept == sorted(kept),
        "dropped": kept.count(False),
    }


def unread_exports(app: App) -> dict[str, Any]:
    """Exports of which nobody reads anything: another of the same address comes in the time that making all takes."""
    visitor = Visitor(app.url)
    place = urlsplit(app.url)
    many = 20
    list(visitor.run(gen_length=224, steps=112, block_length=224))

    def export() -> tuple[int, float]:
        begun = time.monotonic()
        return len(visitor.trace(visitor.id)["records"]), time.monotonic() - begun

    said = f"GET /surelock/runs/{visitor.id}/trace HTTP/1.1\r\nHost: localhost\r\n\r\n"
    alone = export()[1]
    with ExitStack() as stack:
        for _ in range(many):
            link = stack.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect((str(place.hostname), place.port or 80))
            link.sendall(said.encode())
        time.sleep(1)
        records, beside = export()
    return {
        "ok": records == 224 and beside < 2 * many * alone,
        "alone": round(alone, 2),
        "beside": round(beside, 2),
    }


def hostile_rules(app: App) -> dict[str, Any]:
    """Two hundred rules that break, loop or reach out, in one tab: each is named, and the next run decodes."""
    rules = list(INPUTS["rules"].items()) * 20
    lanes = [{"name": "Mine", "compute": {"kind": "own"}}]
    chromium = chromium_path("chromium-headless-shell")
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=chromium, args=FLAGS).new_page()
        page.goto(
            f"{app.url}/?{urlencode({'gen_length': 16, 'steps': 16, 'lanes': json.dumps(lanes)})}"
        )
        page.wait_for_function("window.surelock?.stage.trace && surelock.page.now.arrived")
        page.evaluate("document.querySelector('.sidebar:not(.open) .toggle-button')?.click()")
        page.locator(".sl-code").evaluate("(node) => { node.closest('details').open = true; }")
        for code, said in [*rules, ("const rows = ({ active }) => active;", "")]:
            page.fill(".sl-code", code)
            page.locator(".sl-code").blur()
            page.click(".sl-action-run")
            expect(page.locator(".sl-status")).to_contain_text(said, timeout=20_000)
        page.wait_for_function("surelock.live.run?.trace.complete")
    return {"ok": True, "rules": len(rules)}


ATTACKS: dict[str, Attack] = {
    each.__name__: each for each in (visits, many_hashes, unread_exports, hostile_rules)
}
ATTACKS |= {name: partial(carried_out, what=what) for name, what in INPUTS["attacks"].items()}
