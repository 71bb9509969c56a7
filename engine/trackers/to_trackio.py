"""trackio: a local database (or a Space, where TRACKIO_SPACE_ID names one); a run of the same name is continued."""

import html
import os
import warnings
from typing import TextIO

from ftui.system.files import make_private_folder

from .metric_names import Values
from .position import Position
from .sinks import TrackedRun


class Trackio:
    """A `Sink` that logs to a trackio project (TRACKIO_PROJECT, else `ftui`)."""

    def __init__(self, subject: TrackedRun, position: Position) -> None:
        folder = os.environ.setdefault("TRACKIO_DIR", str(subject.folder / "trackio"))
        make_private_folder(subject.folder / "trackio", inside=subject.folder)
        import trackio

        self._position = position
        warnings.showwarning = self._note  # it raises nothing: what it could not keep is only a warning
        self._library = trackio
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT") or "ftui",
            name=subject.first_name,  # by which it finds the run again
            resume="allow",
            config=subject.profile,
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        print(f"written to {folder}", flush=True)

    def _note(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        print(f"{category.__name__}: {message}", flush=True)
        self._position.note = self._position.note or str(message).split("\n")[0]

    def scalars(self, step: int, time: float, values: Values) -> None:
        """Log the values at that step; trackio stamps the time itself."""
        self._run.log(dict(values), step=step)

    def text(self, step: int, time: float, name: str, prompt: str, completion: str) -> None:
        """Log prompt and answer as Markdown, what stands in them escaped."""
        page = f"**{html.escape(prompt)}**\n\n{html.escape(completion)}"
        self._run.log({name: self._library.Markdown(page)}, step=step)

    def forget(self, step: int, time: float) -> bool:
        """False: trackio keeps what it has."""
        return False

    def flush(self) -> None:
        """trackio has a thread of its own for that."""

    def close(self, *, badly: bool) -> None:
        """Send what is left; trackio has no word for a run that failed."""
        self._library.finish()
