import json
from pathlib import Path
from typing import Any

import pytest

from ftui.errors import DataError
from ftui.evaluation.lm_eval_results import TaskFigure, read_lm_eval

RESULTS: dict[str, Any] = {  # as lm-eval 0.4 writes them
    "results": {
        "arc_easy": {
            "alias": " - arc_easy", "acc,none": 0.55, "acc_stderr,none": 0.01, "acc_norm,none": 0.5,
            "acc_norm_stderr,none": "N/A", "sample_len": 2376,
        },
        "gsm8k": {"alias": "gsm8k", "exact_match,strict-match": 0.02, "exact_match_stderr,strict-match": 0.004},
    },
    "model_name": "Qwen/Qwen3-0.6B",
    "config": {"model": "hf", "model_args": "pretrained=Qwen/Qwen3-0.6B"},
}  # fmt: skip


def test_the_figures_of_a_results_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(RESULTS))
    model = "Qwen/Qwen3-0.6B"
    assert read_lm_eval(path) == [
        TaskFigure("arc_easy", "acc", 0.55, 0.01, model),
        TaskFigure("arc_easy", "acc_norm", 0.5, None, model),
        TaskFigure("gsm8k", "exact_match (strict-match)", 0.02, 0.004, model),
    ]


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"results": 1}', '{"results": {"a": 1}}', "\xff"])
def test_what_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="holds no results of lm-eval"):
        read_lm_eval(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_lm_eval(tmp_path / "none.json")
