"""TensorBoard: one file of events, written with its own protocol buffers (no TensorFlow, no torch).

The position holds how long the file was then: what a crash left beyond that is cut off, so no event is there twice.
Steps that a resume takes anew are taken back with a START event, which TensorBoard knows as `purge_step`.
"""

import os
import socket
import time as clock

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from ftui.system.files import make_private_folder, open_private

from .metric_names import Values
from .position import Position
from .sinks import TrackedRun

FROM_THE_BEGINNING = (
    "journal", "metrics", "telemetry", "supervisor", "starts", "step", "evaluated", "sampled", "prompts",
)  # fmt: skip
"""What a position forgets where the file is gone."""


class TensorBoard:
    """A `Sink` that appends to one events file in trackers/tensorboard; begun anew where the file was lost."""

    def __init__(self, subject: TrackedRun, position: Position) -> None:
        self._position = position
        folder = make_private_folder(subject.folder / "tensorboard", inside=subject.folder)
        path = folder / position.event_file
        continues = bool(position.event_file) and path.is_file() and path.stat().st_size >= position.event_bytes
        if not continues:  # the first time, or the file is gone: all of it can be written again
            for name in FROM_THE_BEGINNING:
                setattr(position, name, getattr(Position(), name))
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
            name = f"events.out.tfevents.{int(clock.time()):010d}.{socket.gethostname()}.{subject.run_id}"
            path, position.event_file, position.event_bytes = folder / name, name, 0
        descriptor = open_private(path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(descriptor, position.event_bytes)
        self._file = os.fdopen(descriptor, "ab")
        self._records = RecordWriter(self._file)
        if not position.event_bytes:
            self._write(Event(wall_time=clock.time(), file_version="brain.Event:2"))
            self._write_text(0, clock.time(), "profile", subject.profile_text)

    def scalars(self, step: int, time: float, values: Values) -> None:
        """Append one event with all values."""
        summaries = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(wall_time=time, step=step, summary=Summary(value=summaries)))

    def text(self, step: int, time: float, name: str, prompt: str, completion: str) -> None:
        """Append prompt and answer as one text."""
        self._write_text(step, time, name, f"{prompt}\n\n{completion}")

    def forget(self, step: int, time: float) -> bool:
        """Append a START event: TensorBoard drops all steps after `step` that came before it."""
        self._write(Event(wall_time=time, step=step + 1, session_log=SessionLog(status=SessionLog.START)))
        return True

    def flush(self) -> None:
        """Write what is buffered, and note the length of the file in the position."""
        self._records.flush()
        self._position.event_bytes = os.fstat(self._file.fileno()).st_size

    def close(self, *, badly: bool) -> None:
        """Close the file; it says nothing of how the run ended."""
        self._records.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())

    def _write_text(self, step: int, time: float, name: str, text: str) -> None:
        """TensorBoard shows Markdown: indented lines are shown as they are."""
        indented = "\n".join(f"    {line}" for line in text.splitlines())
        tensor = TensorProto(
            dtype=DT_STRING,
            string_val=[indented.encode(errors="replace")],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )
        metadata = create_summary_metadata(display_name="", description="")
        value = Summary.Value(tag=f"{name}/text_summary", metadata=metadata, tensor=tensor)
        self._write(Event(wall_time=time, step=step, summary=Summary(value=[value])))
