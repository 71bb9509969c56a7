"""What `lm-eval` has measured: the results file that its --output_path writes."""

from pathlib import Path
from typing import Any

import msgspec

from ftui.errors import DataError
from ftui.system.input_files import read_input


class TaskFigure(msgspec.Struct, frozen=True):
    """A measure of a task with its standard error, where there is one. `of`: the model, as lm-eval was given it."""

    task: str
    measure: str
    value: float
    stderr: float | None
    of: str


def read_lm_eval(path: Path) -> list[TaskFigure]:
    """The figures of a results file, in its order; a measure's filter is part of its name unless it is `none`.

    Raises:
        DataError: it cannot be read, or is none.
    """
    try:
        content: dict[str, Any] = msgspec.json.decode(read_input(path), type=dict)
        tasks: dict[str, dict[str, Any]] = msgspec.convert(content["results"], dict[str, dict[str, Any]])
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except (msgspec.MsgspecError, KeyError, UnicodeError) as error:
        raise DataError(
            f"{path} holds no results of lm-eval ({error}).",
            hint="Name the results_*.json that lm-eval --output_path writes.",
        ) from error
    return [figure for task, values in tasks.items() for figure in _figures(task, values, _model(content))]


def _figures(task: str, values: dict[str, Any], model: str) -> list[TaskFigure]:
    figures = []
    for key, value in values.items():
        name, _, kept_by = key.partition(",")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not kept_by or name.endswith("_stderr") or not is_number:  # its alias, the number of its samples
            continue
        error = values.get(f"{name}_stderr,{kept_by}")
        title = str(values.get("alias") or task).strip(" -")
        measure = name if kept_by == "none" else f"{name} ({kept_by})"
        figures.append(TaskFigure(title, measure, value, error if isinstance(error, int | float) else None, model))
    return figures


def _model(content: dict[str, Any]) -> str:
    name, config = content.get("model_name"), content.get("config")
    if isinstance(name, str) and name:
        return name
    arguments = config.get("model_args") if isinstance(config, dict) else None
    return arguments if isinstance(arguments, str) else "lm-eval"
