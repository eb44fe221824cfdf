"""Traces of version 1, which knew two decoders by name, as traces of version 2."""

from __future__ import annotations

from typing import Any


def from_version_1(document: dict[str, Any]) -> dict[str, Any]:
    """The document in version 2. What is damaged stays damaged: the check of version 2 says so."""
    header, records = document.get("header"), document.get("records")
    if not isinstance(header, dict) or not isinstance(header.get("settings"), dict) or not isinstance(records, list):
        return document | {"version": 2}
    settings, lock = dict(header["settings"]), header.get("lock")
    unmask: dict[str, Any] = {"kind": settings.pop("remasking", "low_confidence")}
    threshold, fraction = settings.pop("threshold", None), settings.pop("select_fraction", 1.0)
    if unmask["kind"] == "threshold" and threshold is not None:
        unmask["p"] = threshold
    settings.pop("replay", None)
    select = {"kind": "select", "fraction": fraction} if fraction != 1 else None
    everything = locked = select or {"kind": "everything"}
    if isinstance(lock, dict):
        rule = {"kind": "lock", **{name: value for name, value in lock.items() if name != "schedule"}}
        locked = {"kind": "both", "lock": rule, "select": select} if select else rule
    shared = {"unmask": unmask, "settings": settings, "events": [], "parent": None}
    names = ("Selection", "SureLock and selection") if select else ("Every position", "SureLock")
    contestants = [
        {"id": "everything", "name": names[0], "compute": everything, **shared},
        {"id": "surelock", "name": names[1], "compute": locked, **shared},
    ]
    kept = {name: value for name, value in header.items() if name not in ("settings", "lock")}
    return document | {
        "version": 2,
        "header": kept | {"contestants": contestants},
        "records": [_record(record) for record in records],
    }


def _record(record: Any) -> Any:
    if not isinstance(record, dict) or "decoder" not in record:
        return record
    own = "everything" if record["decoder"] == "baseline" else record["decoder"]
    return {"contestant": own} | {name: value for name, value in record.items() if name != "decoder"}
