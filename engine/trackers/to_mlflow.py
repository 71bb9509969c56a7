"""MLflow: a run on the server that MLFLOW_TRACKING_URI names, else in a folder that `mlflow ui` shows.

mlflow-skinny is enough. Its client is told which run it is about each time: nothing global is begun, and nothing is
logged by itself.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

from ftui.system.files import make_private_folder

from .metric_names import Values
from .position import Position
from .sinks import TrackedRun

MOST_METRICS, MOST_PARAMS, LONGEST_PARAM = 1000, 100, 6000  # that MLflow takes at once
_REFUSED = re.compile(r"[^\w\-. /]")  # in names of metrics and parameters


class MLflow:
    """A `Sink` that logs to an experiment (MLFLOW_EXPERIMENT_NAME, else `ftui`)."""

    def __init__(self, subject: TrackedRun, position: Position) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            folder = make_private_folder(subject.folder / "mlflow", inside=subject.folder)
            os.environ["MLFLOW_TRACKING_URI"] = folder.as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            print(f"written to {folder}", flush=True)
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        self._client = MlflowClient()
        self._waiting: list[Any] = []
        if position.library_run:
            self._run_id = position.library_run
            self._client.update_run(self._run_id, status="RUNNING", name=subject.name)
            return
        tags = {"ftui.run_id": subject.run_id}
        self._run_id = self._client.create_run(self._experiment(), run_name=subject.name, tags=tags).info.run_id
        position.library_run = self._run_id
        params = [Param(name, value) for name, value in flat_params(subject.profile)]
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self._run_id, params=params[first : first + MOST_PARAMS])
        self._client.log_text(self._run_id, subject.profile_text, "profile.toml")

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "ftui"
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def scalars(self, step: int, time: float, values: Values) -> None:
        """Keep the values for `flush`, with the time of the record."""
        stamp = round(time * 1000)
        self._waiting += [self._metric(_REFUSED.sub("_", name), value, stamp, step) for name, value in values.items()]
        if len(self._waiting) >= MOST_METRICS:
            self.flush()

    def text(self, step: int, time: float, name: str, prompt: str, completion: str) -> None:
        """Store prompt and answer as a text file of the run."""
        self._client.log_text(self._run_id, f"{prompt}\n\n{completion}", f"{name}/step-{step:06d}.txt")

    def forget(self, step: int, time: float) -> bool:
        """False: MLflow keeps what it has."""
        return False

    def flush(self) -> None:
        """Send what is kept, as much at once as MLflow takes."""
        while self._waiting:
            self._client.log_batch(self._run_id, metrics=self._waiting[:MOST_METRICS])
            self._waiting = self._waiting[MOST_METRICS:]

    def close(self, *, badly: bool) -> None:
        """Send what is left, and mark the run as failed or finished."""
        self.flush()
        self._client.set_terminated(self._run_id, status="FAILED" if badly else "FINISHED")


def flat_params(profile: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Each key of a profile as `train.learning_rate`, with its value as text, cut to what MLflow takes."""
    for name, value in profile.items():
        key = f"{above}{_REFUSED.sub('_', name)}"
        if isinstance(value, dict):
            yield from flat_params(value, f"{key}.")
        else:
            yield key, str(value)[:LONGEST_PARAM]
