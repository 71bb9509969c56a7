"""What the base model's loss on a row was, where a curriculum has measured it."""

import numpy as np
from safetensors import SafetensorError, safe_open

from ftui.runs.run_folder import Run
from ftui.system.files import open_plain

from ..data.load_rows import DataSplit


def read_base_losses(run: Run, split: DataSplit) -> dict[int, float]:
    """The mean loss (nats) of rows by the number of their first sequence; of a run without a curriculum, none."""
    try:
        with open(open_plain(run.losses), "rb"), safe_open(run.losses, framework="numpy") as file:
            values = np.asarray(file.get_tensor("losses"))
    except (OSError, SafetensorError):  # it is a courtesy: the run itself checks the file when it resumes
        return {}
    numbers = split.indices[:: split.per_example]
    if len(values) != len(numbers):
        return {}
    return {int(number): float(value) for number, value in zip(numbers, values, strict=True) if np.isfinite(value)}
