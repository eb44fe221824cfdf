"""Converts traces of version 2, which called lanes contestants."""

from typing import Any


def from_version_2(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document in version 3. Damage is kept, for the check of version 3 to report."""
    header, records = _renamed(document.get("header"), "contestants", "lanes"), document.get("records")
    if isinstance(header, dict) and isinstance(groups := header.get("timed_together"), list):
        header = header | {"timed_together": [{"lanes": lanes} for lanes in groups]}
    if isinstance(records, list):
        records = [_renamed(record, "contestant", "lane") for record in records]
    return document | {"version": 3, "header": header, "records": records}


def _renamed(value: Any, name: str, other: str) -> Any:
    """The same object in the same order, with the key `name` renamed to `other`."""
    if not isinstance(value, dict) or name not in value:
        return value
    return {other if key == name else key: item for key, item in value.items()}
