"""How the libraries are imported: seen in processes of their own, as each is imported once."""

import json
from pathlib import Path

import msgspec
import pytest

from ftui.engine.services.server import METHODS, NEED_LIBRARIES
from ftui.profile.serialize import to_toml
from ftui.runs.run_folder import Run, RunFacts
from tests.support.fresh_python import answer_of
from tests.support.tiny import chats, make_profile, write_rows

UNNEEDED = {
    "torch._inductor.compile_fx", "torch.utils.tensorboard", "torchvision", "transformers.trainer",
    "datasets", "pyarrow", "pandas", "sklearn", "matplotlib", "wandb", "trackio", "textual", "rich", "pytest",
    "ftui.tui", "ftui.cli", "ftui.importers", "ftui.estimate.api", "ftui.helper.client",
}  # fmt: skip
"""What only other runs, other commands or screens need. Not so scipy: transformers imports it where it is."""

ENGINE = f"""
import gc, json, os, sys
from ftui.engine import __main__ as engine

def report(events, record):
    answer = dict(loaded=sorted({UNNEEDED} & set(sys.modules)), compile=sys.modules["torch"].compile.__module__,
                  frozen=gc.get_freeze_count(), searches=gc.isenabled(), step=record.step)
    os.write(1, json.dumps(answer).encode())
    os._exit(0)

engine.EventWriter.write_step = report
engine.redact_output = lambda: None
engine.main(sys.argv[1:])
"""

MODELS = """
import json, sys
from pathlib import Path
from ftui.engine.system.environment import settle_environment
settle_environment()
import transformers
from transformers.utils import import_utils
scan, is_read = import_utils.create_import_structure_from_path, []
import_utils.create_import_structure_from_path = lambda path: is_read.append(path) or scan(path)
make, lists = import_utils._LazyModule.__init__, {}
def note(module, name, file, names, **options):
    lists[name] = names
    make(module, name, file, names, **options)
import_utils._LazyModule.__init__ = note
from ftui.engine.system.libraries import import_libraries
import_libraries()
assert not is_read, "the sources of all models were read again"
own = import_utils.spread_import_structure(scan(transformers.models.__file__))
assert lists["transformers.models"] == own and sum(map(len, own.values())) > 1000
assert transformers.models.llama.LlamaConfig is transformers.LlamaConfig
from transformers.utils.import_utils import define_import_structure as define
assert define(str(Path(transformers.models.llama.__file__)))
"""


@pytest.mark.slow
def test_an_engine_loads_nothing_that_a_plain_run_does_not_need(model_folder: Path, tmp_path: Path) -> None:
    """To the end of step 1 of a LoRA run; and nothing looks for garbage among the libraries, then or later."""
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    run.profile.write_text(to_toml(make_profile(model_folder, rows, adapter={"method": "lora", "r": 4})))
    facts = RunFacts(run_id="0123456789abcdef", name="run", created=0.0, profile_name="test")
    run.facts.write_bytes(msgspec.json.encode(facts))
    answer = json.loads(answer_of(ENGINE, str(run.folder)))
    assert answer["step"] == 1 and answer["loaded"] == []
    assert answer["compile"] == "torch", "torch.compile is torch's own again"
    assert answer["frozen"] > 100_000 and answer["searches"]


@pytest.mark.slow
def test_transformers_reads_the_sources_of_its_models_once() -> None:
    answer_of(MODELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS.values())))
def test_the_helper_loads_what_a_method_needs(name: str) -> None:
    code = f"""
import json, sys
from ftui.engine.services.server import _import_module
_import_module({name!r})
print(json.dumps([sorted({UNNEEDED} & set(sys.modules)), "torch" in sys.modules]))
"""
    unneeded, has_torch = json.loads(answer_of(code))
    assert set(unneeded) <= {"ftui.estimate.api"}
    assert has_torch == (name in NEED_LIBRARIES)
