"""Whatever becomes of a checkpoint's files is seen: the newest whole one is taken, the damaged ones are put aside."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ftui.engine.checkpoints.resume import find_checkpoint
from ftui.engine.runtime.event_writer import EventWriter
from ftui.runs import checkpoint_folders
from ftui.runs.checkpoint_folders import MANIFEST
from ftui.runs.events import CheckpointRejected
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.faults.conftest import Account
from tests.support.bench import Workbench, bench_at, opened, records, resumed_from
from tests.support.sameness import same_weights
from tests.support.zygote import Zygote, tail_of

FLIPS = 20
KILLED_AT = 14  # steps: there are checkpoints of 4, 8, 10 (the best) and 12 then


@dataclass(frozen=True)
class Victim:
    """A run that was killed: its folder, and a copy of its checkpoints as they were."""

    bench: Workbench
    run: Run
    whole: Path

    @property
    def steps(self) -> list[int]:
        return [checkpoint.step for checkpoint in checkpoint_folders.checkpoints_in(self.whole)]

    def put_back(self) -> None:
        shutil.rmtree(self.run.checkpoints)
        shutil.copytree(self.whole, self.run.checkpoints)


@pytest.fixture(scope="module")
def victim(bench_source: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Victim:
    bench = bench_at(bench_source, tmp_path_factory.mktemp("damage") / "bench")
    run = opened(bench, bench.profile("damaged"))
    assert zygote.start(run, bench.env, hooks={"kill": ["optimizer", KILLED_AT]}).wait() == -9, tail_of(run)
    checkpoint_folders.sweep(run.checkpoints)
    whole = run.folder / "whole"
    shutil.copytree(run.checkpoints, whole)
    return Victim(bench, run, whole)


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    os.truncate(path, 0)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_one_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def zero_the_tail(path: Path) -> None:
    """As after a power cut: the length is right, the second half never came to the disk."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def flips() -> Iterator[Callable[[Path], None]]:
    """One bit, at a place of its own each time."""
    for seed in range(FLIPS):

        def flip(path: Path, seed: int = seed) -> None:
            chance = random.Random(f"{seed} {path.name}")
            data = bytearray(path.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)

        yield flip


@pytest.mark.parametrize("damage", [delete, empty, halve, cut_one_byte, lengthen, zero_the_tail, "flip"])
def test_every_damage_of_every_file_is_seen(
    victim: Victim, damage: Callable[[Path], None] | str, account: Account
) -> None:
    events, tail = EventWriter(victim.run, attempt=2, token="t"), Tail(victim.run.journal)
    damages = list(flips()) if isinstance(damage, str) else [damage]
    steps, count = victim.steps, 0
    files = sorted(p.relative_to(victim.whole / f"checkpoint-{steps[0]}") for p in files_of(victim.whole, steps[0]))
    assert {Path(MANIFEST), Path("resume/state.json"), Path("resume/optimizer.safetensors")} <= set(files)
    for act in damages:
        for name in files:
            for num_damaged in (1, 2):
                victim.put_back()
                tail.read()
                for step in steps[:num_damaged]:
                    act(victim.run.checkpoints / f"checkpoint-{step}" / name)
                found = find_checkpoint(victim.run, events)
                count += 1
                assert found is not None and found.step == steps[num_damaged], name
                check_rejected(victim.run, tail, steps[:num_damaged], str(name))
    account.words += [f"{damage if isinstance(damage, str) else damage.__name__}: {count} of {count} seen"]


def files_of(root: Path, step: int) -> list[Path]:
    return [path for path in (root / f"checkpoint-{step}").rglob("*") if path.is_file()]


def check_rejected(run: Run, tail: Tail, steps: list[int], name: str) -> None:
    """Each damaged one is put aside with a record that names the file."""
    rejected = [r for r in tail.read() if isinstance(r, CheckpointRejected)]
    assert [r.path for r in rejected] == [f"checkpoints/checkpoint-{step}" for step in steps]
    for record in rejected:
        newer = name == MANIFEST and record.reason.startswith("written by a newer ftui")
        assert newer or record.reason.startswith(f"{name}: "), (name, record.reason)
        assert record.moved_to.startswith("checkpoints/quarantine/")
        assert (run.folder / record.moved_to).is_dir()
        assert not (run.folder / record.path).exists()


def test_the_run_goes_on_from_the_one_before_and_ends_the_same(
    victim: Victim, bench_source: Path, memory: Path, zygote: Zygote
) -> None:
    victim.put_back()
    newest, before = victim.steps[:2]
    zero_the_tail(victim.run.checkpoints / f"checkpoint-{newest}" / "resume" / "optimizer.safetensors")
    result = victim.bench.ftui("--run", "damaged.toml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert resumed_from(victim.run) == f"checkpoints/checkpoint-{before}"
    rejected = [r for r in records(victim.run) if isinstance(r, CheckpointRejected) and r.token != "t"]
    assert [r.reason.split(":")[0] for r in rejected] == ["resume/optimizer.safetensors"]
    assert f"checkpoint-{newest}" in result.stdout

    other = bench_at(bench_source, memory / "other")
    reference = opened(other, other.profile("damaged"))
    assert zygote.start(reference, other.env).wait() == 0, tail_of(reference)
    same_weights(reference.final, victim.run.final)
