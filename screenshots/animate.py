"""The moving picture of the README: the live view of a recorded run, played again from its records in some seconds.

Between two frames, the records of a few seconds are appended to the run's files, as their writers did, and the screen
reads them. The clock is that of the recording.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
from PIL import Image, ImageChops

from ftui.runs.events import AnyRecord, PhaseChanged, RunOpened, RunStopped
from ftui.runs.journal import Tail, encode
from ftui.runs.records.supervisor_records import Adopted, EngineStarted
from ftui.runs.run_folder import Run
from ftui.system.process_id import this_process
from screenshots.cells import cells_of, paint
from tests.support.replayed import write_summaries
from tests.support.shown_app import shown_app, strips_of

SIZE = (100, 28)
BEGIN = 9.0  # seconds after the first record: training begins
SECONDS_A_FRAME = 3.2
FRAME, PAUSE, LAST = 130, 900, 4000  # milliseconds that a usual frame, a notable moment and the end are shown
COLORS = 31  # and one that is transparent


@dataclasses.dataclass
class Line:
    """A record with the file it belongs to."""

    path: Path
    record: AnyRecord


async def animate(run: Run, target: Path) -> None:
    """Write the GIF of a replayed run; its files are emptied and written again."""
    lines = empty_files(run)
    begin = lines[0].record.time
    now = begin
    position = 0

    def write_until(time: float) -> None:
        nonlocal position, now
        now = time
        while position < len(lines) and lines[position].record.time <= time:
            with lines[position].path.open("ab") as file:
                file.write(encode(lines[position].record))
            position += 1
        write_summaries(run, time=time, supervisor=this_process())

    write_until(begin + BEGIN)
    pictures, durations = [], []
    async with shown_app(run=run, size=SIZE, clock=lambda: now) as shown:
        palette = shown.app.look.palette
        for time, duration in moments(lines):
            write_until(time)
            shown.screen.tick()
            await shown.pilot.pause()
            rows = cells_of(strips_of(shown.app), palette["text"], palette["background"])
            pictures.append(paint(rows, palette["background"]).reduce(2))
            durations.append(duration)
    write_gif(pictures, durations, target)


def empty_files(run: Run) -> list[Line]:
    """All records in the order of time; their files are left empty. This process stands for every engine."""
    lines = []
    for path in (run.supervisor_log, run.journal, run.metrics, run.telemetry):
        for record in Tail(path).read():
            if isinstance(record, RunOpened | EngineStarted | Adopted):
                record = msgspec.structs.replace(record, identity=this_process())
            lines.append(Line(path, record))
        path.write_bytes(b"")
    run.curves.unlink(missing_ok=True)
    return sorted(lines, key=lambda line: line.record.time)


def moments(lines: list[Line]) -> Iterator[tuple[float, int]]:
    """When a frame is taken, and how long it is shown (ms): evenly, and at what should be noticed."""
    begin, end = lines[0].record.time + BEGIN, lines[-1].record.time
    notable = [line.record.time for line in lines if is_notable(line.record)]
    steady = [begin + SECONDS_A_FRAME * number for number in range(int((end - begin) / SECONDS_A_FRAME))]
    for time in sorted([*steady, *notable]):
        yield time, PAUSE if time in notable else FRAME
    yield end, LAST


def is_notable(record: AnyRecord) -> bool:
    """A pause, a park, another attempt: shorter than the time between two frames, and the point of it all."""
    match record:
        case PhaseChanged(phase="held") | RunStopped():
            return True
        case PhaseChanged(phase="starting"):
            return record.attempt > 1
    return False


def write_gif(pictures: list[Image.Image], durations: list[int], target: Path) -> None:
    """One palette for all frames. What did not change since the frame before is transparent: a third of the size."""
    palette = pictures[len(pictures) // 2].quantize(COLORS, method=Image.Quantize.MAXCOVERAGE)
    images = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    unchanged = Image.new("P", images[0].size, COLORS)
    frames = images[:1]
    for before, after in itertools.pairwise(images):
        difference = ImageChops.difference(before.convert("RGB"), after.convert("RGB")).convert("L")
        frames.append(Image.composite(after, unchanged, difference.point(lambda level: 255 if level else 0)))
        frames[-1].putpalette(palette.getpalette() or [])
    frames[0].save(
        target, save_all=True, append_images=frames[1:], duration=durations, loop=0, disposal=1, transparency=COLORS,
        optimize=False,
    )  # fmt: skip
