"""Records what the engine did in Hermes Agent, for ``hermes contexture`` and ``/contexture``. Hermes' commands run in
separate processes, so the record is a small file for each conversation in Contexture's home."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

#: How many conversations are shown, the latest first.
SHOWN = 10


def file_of(root: str) -> str:
    """The name of a conversation's file: a hash, because an id may contain any character."""
    return hashlib.sha256(root.encode()).hexdigest()[:32]


def note(home: Path, root: str, compaction: dict[str, Any]) -> None:
    """Records a compaction from the report of a turn."""
    folder = home / "hermes.status"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / file_of(root)
    known = _read(path) or {"id": root, "compactions": 0, "before": 0, "after": 0}
    if compaction.get("outcome") == "compacted":
        known["compactions"] += 1
        known["before"] += compaction["tokens_before"]
        known["after"] += compaction["tokens_after"]
    known.update(engine=compaction["engine"], last=compaction["reason"], degraded=compaction.get("degraded", False))
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.touch(mode=0o600)
    scratch.write_text(json.dumps(known))
    scratch.replace(path)


def lines(home: Path) -> list[str]:
    """What was done so far: in total, and in the latest conversations."""
    known = []
    for path in (home / "hermes.status").glob("*"):
        conversation = None if path.suffix else _read(path)
        if conversation is not None:
            known.append((path.stat().st_mtime, conversation))
    known.sort(key=lambda one: one[0], reverse=True)
    if not known:
        return ["Nothing was compacted yet."]
    before, after, times = (sum(one[key] for _, one in known) for key in ("before", "after", "compactions"))
    saved = f", {100 * (before - after) // before} % less" if before > after else ""
    of = f"{len(known)} conversation{'s' * (len(known) > 1)}"
    told = [f"{times} compaction{'s' * (times != 1)} in {of}: {before:,} tokens became {after:,}{saved}."]
    for when, one in known[:SHOWN]:
        at = datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M")
        degraded = ", without a model where one was wanted" if one["degraded"] else ""
        told.append(f"  {at}  {one['id']}: {one['compactions']} by {one['engine']}; the last: {one['last']}{degraded}")
    return told


def _read(path: Path) -> dict[str, Any] | None:
    try:
        read = json.loads(path.read_text())
        return read if isinstance(read, dict) and "compactions" in read else None
    except (OSError, ValueError):
        return None
