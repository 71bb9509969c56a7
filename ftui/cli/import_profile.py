"""`ftui import FILE`: print the profile that another tool's file becomes, and what of it was carried over."""

import json
import sys
from pathlib import Path
from typing import Any

from ftui.errors import ProfileError, UsageError
from ftui.importers import Imported, import_file
from ftui.importers.write import list_dropped
from ftui.system.files import replace_file
from ftui.system.redact import redact
from ftui.text import complaint, shown


def import_profile(file: Path, out: Path | None, as_json: bool) -> int:
    """`ftui import FILE`: the profile to `out` (otherwise stdout), the report to stderr; as JSON both to stdout.

    Raises:
        ProfileError: it is no file of a tool that is known.
        UsageError: there is a file at `out`, or its folder is missing.
    """
    out = None if out == Path("-") else out
    if out is not None and out.exists():
        raise UsageError(f"There is a file {out} already.", hint="Give another name with -o.")
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {out.absolute().parent}.")
    result = import_file(file, None if out is None else out.absolute().parent)
    if out is not None and not result.refused:
        replace_file(out, result.text.encode())
    if as_json:
        print(redact(json.dumps(_as_json(result, out), indent=2, default=str)))
    elif out is None and not result.refused:
        sys.stdout.write(result.text)
    if not as_json:
        print(redact("\n".join(_report(result, file, out))), file=sys.stderr)
    if result.refused and not as_json:
        print(complaint(f"{file}: {result.refused}."), file=sys.stderr)
    return ProfileError.exit_code if result.refused else 0


def _as_json(result: Imported, out: Path | None) -> dict[str, Any]:
    return {
        "kind": result.kind,
        "profile": result.text,
        "written": None if out is None or result.refused else str(out),
        "carried": [{"from": item.foreign, "to": item.ours, "value": item.value} for item in result.carried],
        "dropped": [
            {"from": item.foreign, "value": item.value, "reason": item.reason, "matters": item.matters}
            for item in result.dropped
        ],
        "missing": list(result.missing),
        "unsaid": list(result.unsaid),
        "refused": result.refused or None,
    }


def _report(result: Imported, path: Path, out: Path | None) -> list[str]:
    lines = [
        f"{shown(path.name)} ({result.kind}): {len(result.carried)} values carried over, {len(result.dropped)} not."
    ]
    if out is None and not result.refused and sys.stdout.isatty():
        return [*lines, "Write it to a file with -o FILE."]  # the rest stands in the profile that is on the screen
    lines += list_dropped(result.dropped)
    lines += ["", "Not said there:", *(f"  {shown(item)}" for item in result.unsaid)] if result.unsaid else []
    lines += ["", "Still missing:", *(f"  {shown(item)}" for item in result.missing)] if result.missing else []
    if out is not None and not result.refused:
        lines += ["", f"Written to {shown(str(out))}."]
    return lines
