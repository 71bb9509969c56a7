"""The engine's dry run beside a screen: how many rows, tokens and steps a profile amounts to. Leaving ends it."""

import asyncio
import tempfile
from pathlib import Path

from ftui.cli import dry_run
from ftui.profile.layers import ResolvedProfile
from ftui.profile.serialize import to_toml
from ftui.supervisor.process_tree import clean_environment
from ftui.system.files import replace_file


async def count_rows(resolved: ResolvedProfile) -> dry_run.DryRun:
    """As `ftui --run P --dry-run` counts them, in a process that is killed when the one who waits is cancelled."""
    with tempfile.TemporaryDirectory(prefix="ftui-") as folder:
        profile = Path(folder) / "profile.toml"
        replace_file(profile, to_toml(resolved.profile).encode())
        process = await asyncio.create_subprocess_exec(
            *dry_run.dry_run_command(profile),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=clean_environment() | {"TMPDIR": folder},  # one that is killed leaves nothing behind
        )
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return dry_run.read_result(output, errors, process.returncode or 0)
