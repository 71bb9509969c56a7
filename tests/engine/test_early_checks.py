"""What is refused before the training libraries are loaded, in the words of those who would refuse it later."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftui.engine.data.load_rows import load_data
from ftui.engine.early_checks import check_inputs
from ftui.errors import DataError, FtuiError, ModelError
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.events import RunFailed
from ftui.runs.run_folder import Run, RunFacts
from tests.support.attempts import records
from tests.support.fresh_python import answer_of
from tests.support.tiny import chats, make_profile, write_rows

GOOD = "".join(json.dumps(row) + "\n" for row in chats(8))

ROWS = {
    "not JSON": ("rows.jsonl", "hello\nworld\n"),
    "one row of many": ("rows.jsonl", f'{GOOD}{{"messages": [\n{GOOD}'),
    "unknown columns": ("rows.jsonl", '{"foo": 1, "bar": "x"}\n' * 9),
    "no rows": ("rows.jsonl", ""),
    "no table": ("rows.parquet", "hello"),
    "unknown kind": ("rows.docx", "hello"),
}


def cut_weights(model: Path) -> None:
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])


def damage_header(model: Path) -> None:
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"dtype"', b"'dtype'", 1))


MODELS: dict[str, Callable[[Path], Any]] = {
    "no config": lambda model: (model / "config.json").unlink(),
    "config is not JSON": lambda model: (model / "config.json").write_text("{oops"),
    "no weights": lambda model: (model / "model.safetensors").unlink(),
    "weights cut short": cut_weights,
    "damaged header": damage_header,
    "adapter beside it": lambda model: (model / "adapter_config.json").write_text("{}"),
}


def same_words(profile: Profile, tmp_path: Path, kind: type[FtuiError]) -> str:
    with pytest.raises(kind) as early:
        check_inputs(profile)
    with pytest.raises(kind) as late:
        load_data(profile, tmp_path / "cache", lambda detail: None)
    assert (early.value.message, early.value.hint) == (late.value.message, late.value.hint)
    return early.value.message


@pytest.mark.parametrize("key", ["train", "eval"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_are_refused_early_in_the_words_of_later(key: str, name: str, model_folder: Path, tmp_path: Path) -> None:
    file, text = ROWS[name]
    wrong = tmp_path / file
    wrong.write_text(text)
    good = write_rows(tmp_path / "good.jsonl", chats(8))
    same_words(make_profile(model_folder, good, data={key: str(wrong)}), tmp_path, DataError)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{% for x in %}",
            "t.jinja:1: this is no Jinja template: Expected an expression, got 'end of",
        ),
        ("{{ messages }}\n{% if a %}\n", "t.jinja:2: this is no Jinja template: Unexpected end of template"),
        ("a\nb\n{{ messages | nothing }}", "t.jinja:3: this is no Jinja template: No filter named 'nothing'."),
    ],
)
def test_a_template_is_refused_early_by_its_line(text: str, words: str, model_folder: Path, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text(text)
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    profile = make_profile(model_folder, rows, data={"chat_template": str(template)})
    assert words in same_words(profile, tmp_path, DataError)


def test_bad_rows_that_are_skipped_are_no_error(model_folder: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "rows.jsonl"
    wrong.write_text(ROWS["one row of many"][1])
    check_inputs(make_profile(model_folder, wrong, data={"on_bad_row": "skip"}))
    with pytest.raises(DataError):
        check_inputs(make_profile(model_folder, wrong))


def test_what_is_on_the_hub_is_left_to_those_who_fetch_it(tmp_path: Path) -> None:
    profile = make_profile(Path("nobody/nothing"), tmp_path / "rows.jsonl", data={"train": ["nobody/rows"]})
    check_inputs(profile)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_refused_early_in_the_words_of_later(name: str, model_folder: Path, tmp_path: Path) -> None:
    model = shutil.copytree(model_folder, tmp_path / "model")
    MODELS[name](model)
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    same_words(make_profile(model, rows), tmp_path, ModelError)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["rows", "model"])
def test_an_engine_refuses_it_before_it_loads_the_libraries(wrong: str, model_folder: Path, tmp_path: Path) -> None:
    model = shutil.copytree(model_folder, tmp_path / "model")
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    if wrong == "rows":
        rows.write_text("hello\n")
    else:
        cut_weights(model)
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    run.profile.write_text(to_toml(make_profile(model, rows)))
    facts = RunFacts(run_id="0123456789abcdef", name="run", created=0.0, profile_name="test")
    run.facts.write_bytes(msgspec.json.encode(facts))
    code = "from ftui.engine import __main__ as engine; import sys; engine.redact_output = lambda: None\n"
    answer = answer_of(f"{code}code = engine.main([sys.argv[1]]); print(code, 'torch' in sys.modules)", str(run.folder))
    (failed,) = records(run, RunFailed)
    assert answer.split()[-2:] == [str(failed.exit_code), "False"] and failed.exit_code in (31, 32)
