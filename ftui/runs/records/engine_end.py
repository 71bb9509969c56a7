"""Why an engine ended that wrote no ending of its own, in words, from what its supervisor saw."""

import re

from ftui import units
from ftui.errors import BUG, EXIT_WORDS, FINISHED, PARKED, PREEMPTED_NOT_SAVED, DiskError, HostMemoryError, StalledError
from ftui.runs.records.supervisor_records import EngineEnded

RANK_FAILED = re.compile(r"rank \d+ failed: ")
"""How a rank above 0, which writes no records, begins the line that says why it ended."""


def explain_end(record: EngineEnded, stalled: str) -> tuple[str, str, int]:
    """Message, error in a few words and exit code. `stalled`: where and how long it stood still, or nothing."""
    if record.lost_node and record.code == PARKED:
        return f"The run was parked: {record.lost_node}.", f"exit code {PARKED}", PARKED
    if record.lost_node:
        return f"The engine was ended: {record.lost_node}.", record.lost_node, PREEMPTED_NOT_SAVED
    if record.stalled:
        message = f"The engine was killed: {stalled or 'it stood still'}."
        return message, "stalled", StalledError.exit_code
    if record.oom_kills:
        ending = f"was killed ({record.signal})" if record.signal else f"ended (exit code {record.code})"
        message = f"The engine {ending}: the host ran out of memory{_engine_memory(record)}."
        return message, "host memory", HostMemoryError.exit_code
    if record.signal in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"):
        memory = _engine_memory(record) if record.signal == "SIGKILL" else ""
        return f"The engine was killed ({record.signal}){memory}.", record.signal, PREEMPTED_NOT_SAVED
    if record.signal:
        return f"The engine crashed ({record.signal}).", record.signal, BUG
    if record.code is None:
        reason_unknown = "its supervisor had been replaced, so its exit code is unknown"
        return f"The engine ended without writing why ({reason_unknown}).", "exit code unknown", BUG
    if record.code == DiskError.exit_code:
        message = "The disk did not take the engine's last record: it is full, or it fails (exit code 40)."
        return message, "exit code 40", record.code
    code = record.code if record.code in EXIT_WORDS and record.code != FINISHED else BUG
    if reason := next((line for line in record.last_lines if RANK_FAILED.match(line)), ""):
        return reason, f"exit code {record.code}", code
    return f"The engine ended without writing why (exit code {record.code}).", f"exit code {record.code}", code


def _engine_memory(record: EngineEnded) -> str:
    """The memory it had when it was last looked at; nothing where that is not known."""
    if record.engine_memory is None or record.memory_total is None:
        return ""
    return f"; the engine had {units.size(record.engine_memory)} of {units.size(record.memory_total)}"
