"""wandb: a run whose id is the run's own, so that a later process continues it. It asks and hooks nothing."""

import html
import os
from typing import Any, Literal

from ftui.system.files import make_private_folder

from .metric_names import Values
from .position import Position
from .sinks import TrackedRun

STEP = "train/global_step"
CONNECT_SECONDS = 30.0


class Wandb:
    """A `Sink` that logs to wandb; without key or network (or by WANDB_MODE) to a folder for `wandb sync`."""

    def __init__(self, subject: TrackedRun, position: Position) -> None:
        folder = make_private_folder(subject.folder / "wandb", inside=subject.folder)
        os.environ.setdefault("WANDB_CACHE_DIR", str(folder / "cache"))
        os.environ.setdefault("WANDB_DATA_DIR", str(folder / "data"))
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._library = wandb
        self._subject = subject
        self._folder = os.environ.get("WANDB_DIR") or str(folder)
        try:
            self._run = self._init_run()
        except wandb.errors.Error as error:
            wandb.teardown()  # else the id would be in use
            self._run = self._init_run(mode="offline")
            reason = str(error).split("\n")[0].rstrip(".")
            position.note = f"{reason}. It writes to {self._run.settings.sync_dir}, which `wandb sync` sends later."
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP, step_sync=True)  # its own count only grows, a run goes back

    def _init_run(self, mode: Literal["offline"] | None = None) -> Any:
        settings = self._library.Settings(
            console="off",
            save_code=False,
            disable_code=True,
            disable_git=True,
            silent=True,
            init_timeout=CONNECT_SECONDS,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        subject = self._subject
        return self._library.init(
            project=os.environ.get("WANDB_PROJECT") or "ftui",
            id=subject.run_id,
            name=subject.name,
            resume="allow",
            dir=self._folder,
            config=subject.profile,
            mode=mode,
            settings=settings,
        )

    def scalars(self, step: int, time: float, values: Values) -> None:
        """Log the values with their step; wandb stamps the time itself."""
        self._run.log({**values, STEP: step})

    def text(self, step: int, time: float, name: str, prompt: str, completion: str) -> None:
        """Log prompt and answer as HTML, what stands in them escaped."""
        page = f"<pre><b>{html.escape(prompt)}</b>\n\n{html.escape(completion)}</pre>"
        self._run.log({name: self._library.Html(page, inject=False), STEP: step})

    def forget(self, step: int, time: float) -> bool:
        """False: wandb keeps what it has, and draws by `STEP`."""
        return False

    def flush(self) -> None:
        """wandb has threads of its own for that."""

    def close(self, *, badly: bool) -> None:
        """Send what is left, and mark the run as failed or finished."""
        self._run.finish(exit_code=int(badly))
