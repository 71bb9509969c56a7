"""Faults put into a copy of the code, each of which a named test must find: `python -m tests.mutations`.

Prints a table of docs/faults.md; ends with 1 where a test did not fall.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", "*.egg-info")


class Mutation(NamedTuple):
    """`old` in a file becomes `new`; `test` must fall."""

    what: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = (
    Mutation(
        "files of a checkpoint not synced",
        "ftui/system/checked_write.py", "    sync_open(descriptor)\n", "    pass\n",
        "tests/engine/checkpoints/test_durability.py",
    ),
    Mutation(
        "folders of a checkpoint not synced",
        "ftui/runs/checkpoint_folders.py", "    sync_folders(staged)\n", "    pass\n",
        "tests/engine/checkpoints/test_durability.py",
    ),
    Mutation(
        "what was written not compared with what the disk gives back",
        "ftui/system/checked_write.py", "if not _reads_as(file, meant, buffer):",
        "if not _reads_as(file, meant, buffer) and False:",
        "tests/faults/test_save.py::test_no_write_that_lies_is_certified",
    ),
    Mutation(
        "the same of what is made only once, such as a merged model",
        "ftui/system/checked_write.py", "!= digest.digest()", "== b''",
        "tests/ftui/system/test_checked_write.py",
    ),
    Mutation(
        "hashes of the manifest not checked",
        "ftui/runs/manifest.py", "if not quick and file_hash(path) != entry.sha256:", "if False:",
        "tests/faults/test_damage.py::test_every_damage_of_every_file_is_seen",
    ),
    Mutation(
        "random generators not restored on resume",
        "engine/checkpoints/checkpoint.py", "        rng.restore(parts.device)\n", "        pass\n",
        "tests/faults/test_cuts.py -k lora-3",
    ),
    Mutation(
        "rows of dropped steps left in the ledger on resume",
        "engine/ledger/ledger_file.py", "        rewind(folder, after)\n", "        pass\n",
        "tests/faults/test_cuts.py -k lora-3",
    ),
    Mutation(
        "patience of early stopping lost on resume",
        "engine/checkpoints/checkpoint.py", "        setattr(state, name, getattr(saved, name))\n",
        "        setattr(state, name, getattr(saved, name))\n    state.bad_evaluations = 0\n",
        "tests/faults/test_cuts.py -k early-8",
    ),
    Mutation(
        "changes made by requests not replayed",
        "engine/optim/learning_rate.py", 'state.value_at("learning_rate_factor", step)', "None",
        "tests/faults/test_cuts.py -k factor-9",
    ),
    Mutation(
        "an evaluation made on request counted as the run's own",
        "engine/training/evaluate.py", "if not requested:\n            section", "if True:\n            section",
        "tests/faults/test_control.py::test_what_is_asked_for_moves_nothing",
    ),
    Mutation(
        "requests to an earlier attempt carried out",
        "engine/runtime/request_inbox.py",
        "if (request.attempt, request.token) != (self._events.attempt, self._events.token):", "if False:",
        "tests/engine/runtime/test_control.py",
    ),
    Mutation(
        "a damaged column of a Parquet file asked for its size",
        "engine/data/files/parquet.py", "            _try_columns(file, metadata, group)\n", "",
        "tests/attacks/test_hostile_data.py -k description",
    ),
    Mutation(
        "any number of rows that share a long value read at once",
        "engine/data/files/parquet.py", "SHARED_BYTES // max(1, shared)", "BATCH",
        "tests/attacks/test_hostile_data.py -k long.parquet",
    ),
)  # fmt: skip


def falls(mutation: Mutation, copy: Path) -> bool:
    """Whether the test fails (or its process dies) with the fault in the copy; the copy is then as it was."""
    path = copy / mutation.file
    text = path.read_text()
    assert text.count(mutation.old) == 1, f"{mutation.file} has {mutation.old!r} {text.count(mutation.old)} times"
    path.write_text(text.replace(mutation.old, mutation.new))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    env = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run([*command, *mutation.test.split()], cwd=copy, env=env, capture_output=True, text=True)
    path.write_text(text)
    assert done.returncode in (0, 1) or done.returncode < 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode != 0


def main() -> int:
    """Every mutation whose words contain all arguments."""
    stood = 0
    print("| mutation | test that fails |", "|---|---|", sep="\n")
    with tempfile.TemporaryDirectory(prefix="ftui-mutations-") as folder:
        copy = Path(shutil.copytree(ROOT, Path(folder, "copy"), symlinks=True, ignore=LEFT_OUT))
        for mutation in MUTATIONS:
            if all(word in mutation.what for word in sys.argv[1:]):
                has_fallen = falls(mutation, copy)
                stood += not has_fallen
                print(f"| {mutation.what} | {f'`{mutation.test}`' if has_fallen else 'NONE'} |", flush=True)
    return min(stood, 1)


if __name__ == "__main__":
    sys.exit(main())
