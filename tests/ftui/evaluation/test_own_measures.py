from pathlib import Path

import pytest

from ftui.errors import UsageError
from ftui.evaluation.own_measures import apply_measures, load_measures
from ftui.profile.consent import check_measures

GOOD = """
from math import log
import json
LIMIT = 3
class Helper: pass
def _words(text): return text.split()
def num_words(answer, row): return len(_words(answer))
def is_right(answer, row): return row["output"] == answer
"""


def test_each_public_function_is_a_measure(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(GOOD)
    measures = load_measures(path)
    assert list(measures) == ["num_words", "is_right"]
    assert apply_measures(measures, path, "a b", {"output": "a b"}, "f.jsonl:3") == {"num_words": 2.0, "is_right": 1.0}


FAULTS = (
    ("def f(answer, row):\n    x = 1\n    return row['no']\n", "m.py, line 3: f fails on f.jsonl:3: KeyError: 'no'"),
    ("import os\ndef f(answer, row):\n    return 'much'\n", "m.py, line 2: f gives 'much' for f.jsonl:3"),
    ("def f(answer, row):\n    return float('nan')\n", "m.py, line 1: f gives nan"),
    ("def f(answer, row):\n    return None\n", "f gives None"),
    ("def f(answer):\n    return 1\n", "f fails on f.jsonl:3: TypeError"),
    ("def f(answer, row:\n", "m.py, line 1: SyntaxError"),
    ("x = 1\nimport no_such_module\n", "m.py, line 2: ModuleNotFoundError"),
    ("x = 1\n", "has no function"),
    ("def bleu(answer, row): return 1\n", "bleu is a measure of ftui"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_faults_name_file_line_and_row(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m.py"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        apply_measures(load_measures(path), path, "an answer", {}, "f.jsonl:3")
    assert message in error.value.message


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_measures(tmp_path / "none.py")


def test_consent_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Python code") as error:
        check_measures(tmp_path / "m.py", ["remote-code"])
    assert "--allow measures" in error.value.hint
    check_measures(tmp_path / "m.py", ["measures"])
