"""Loading a model: in which type, with which kernel, with whose code; and what is refused, by name."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    Gemma3Config,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlavaConfig,
    SiglipVisionConfig,
    T5Config,
    T5ForConditionalGeneration,
    dynamic_module_utils,
)

from ftui.engine import check_profile
from ftui.engine.checkpoints.resume import pin_commit
from ftui.engine.models.attention import choose_attention
from ftui.engine.models.files import hub
from ftui.engine.models.files.fingerprints import weights_fingerprint
from ftui.engine.models.files.hub import base_folder
from ftui.engine.models.load_model import load_model, read_config
from ftui.engine.models.methods import storage_dtype
from ftui.engine.system.device import Hardware
from ftui.engine.training.prepare import prepare
from ftui.errors import ModelError
from ftui.profile.schema import Profile
from ftui.profile.sections.model import ModelSection
from ftui.profile.serialize import fingerprint, weights_difference
from ftui.runs.events import RunStarted, Step
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt, killed_attempt, records
from tests.support.tiny import chats, column, make_profile, make_tokenizer, train_run, write_rows

TINY: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 256,
}  # fmt: skip
CPU = Hardware(torch.device("cpu"), "bf16", 1, "cpu", None)


def load(folder: Path, **keys: Any) -> Any:
    return load_model(folder, ModelSection(name_or_path=str(folder), **keys), torch.float32)


# -- type and kernel


@pytest.mark.parametrize(
    ("wanted", "changed", "expected"),
    [
        ("auto", {}, "flash_attention_2"),
        ("auto", {"dtype": torch.float16}, "flash_attention_2"),
        ("auto", {"dtype": torch.float32}, None),
        ("auto", {"device": "cpu"}, None),
        ("auto", {"device": "mps"}, None),
        ("auto", {"is_importable": False}, None),
        ("auto", {"is_supported": False}, None),
        ("sdpa", {}, "sdpa"),
        ("eager", {}, "eager"),
        ("flash_attention_2", {"device": "cpu"}, "flash_attention_2"),
    ],
)
def test_auto_takes_flash_attention_where_it_can_work(wanted: str, changed: Any, expected: str | None) -> None:
    facts: Any = {"device": "cuda", "dtype": torch.bfloat16, "is_importable": True, "is_supported": True}
    assert choose_attention(wanted, **(facts | changed)) == expected


@pytest.mark.parametrize(
    ("dtype", "method", "expected"),
    [
        ("auto", "lora", torch.bfloat16),
        ("auto", "full", torch.float32),
        ("float32", "lora", torch.float32),
        ("float16", "lora", torch.float16),
        ("bfloat16", "full", torch.bfloat16),
    ],
)
def test_the_profile_says_how_weights_are_stored(dtype: str, method: str, expected: Any, model_folder: Path) -> None:
    profile = make_profile(model_folder, Path("rows"), model={"dtype": dtype}, adapter={"method": method})
    assert storage_dtype(profile, CPU) == expected
    model = load_model(model_folder, profile.model, storage_dtype(profile, CPU))
    assert {weight.dtype for weight in model.parameters()} == {expected}


@pytest.mark.parametrize("method", ["full", "freeze"])
def test_trained_weights_are_never_float16(method: str, model_folder: Path) -> None:
    adapter = {"method": method} | ({"trainable_layers": 1} if method == "freeze" else {})
    with pytest.raises(ValueError, match=r"float16: set model\.dtype"):
        make_profile(model_folder, Path("rows"), model={"dtype": "float16"}, adapter=adapter)


def test_a_whole_run_on_weights_of_16_bits(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    train = {"max_steps": 6, "per_device_train_batch_size": 6, "learning_rate": 1e-2, "precision": "bf16"}
    losses = column(
        train_run(tmp_path / "run", make_profile(model_folder, rows, train=train, model={"dtype": "bfloat16"})), "loss"
    )
    assert losses[-1] < losses[0]
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "final").dtype == torch.bfloat16


# -- refused


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    T5ForConditionalGeneration(
        T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=30)
    ).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="encoder-decoder"):
        load(tmp_path)


@pytest.mark.parametrize("kind", [Gemma3Config, LlavaConfig])
def test_a_model_that_sees_is_refused(kind: Any, tmp_path: Path) -> None:
    text = Gemma3TextConfig(**TINY) if kind is Gemma3Config else LlamaConfig(**TINY)
    kind(text_config=text, vision_config=SiglipVisionConfig(hidden_size=16)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="more than text"):
        load(tmp_path)


def test_a_model_that_fills_gaps_is_refused(tmp_path: Path) -> None:
    BertForMaskedLM(
        BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30)
    ).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="BertForMaskedLM"):
        load(tmp_path)


def test_weights_that_would_be_random_are_refused(tmp_path: Path) -> None:
    model = LlamaForSequenceClassification(LlamaConfig(**TINY, pad_token_id=0))
    model.save_pretrained(tmp_path / "classes")
    with pytest.raises(ModelError, match="no causal language model"):
        load(tmp_path / "classes")
    config = json.loads((tmp_path / "classes" / "config.json").read_bytes())
    (tmp_path / "classes" / "config.json").write_text(json.dumps(config | {"architectures": None}))
    with pytest.raises(ModelError, match=r"lack weights.*lm_head"):
        load(tmp_path / "classes")


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    LlamaConfig(**TINY).save_pretrained(tmp_path)
    section = ModelSection(name_or_path=str(tmp_path))
    with pytest.raises(ModelError, match="none in its folder"):
        base_folder(section, tmp_path, lambda detail: None)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match=r"pytorch_model.bin: a pickle"):
        base_folder(section, tmp_path, lambda detail: None)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_base_that_holds_an_adapter_too_is_refused(method: str, model_folder: Path, tmp_path: Path) -> None:
    """transformers would put the adapter into the base: nothing to train is left then, or a second one comes on top."""
    base, rows = tmp_path / "base", write_rows(tmp_path / "rows.jsonl", chats(8))
    shutil.copytree(model_folder, base)
    adapter = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(target_modules=["q_proj"]))
    adapter.save_pretrained(str(base))
    assert AutoModelForCausalLM.from_pretrained(base)._hf_peft_config_loaded
    with pytest.raises(ModelError, match="has an adapter beside a model") as refusal:
        train_run(tmp_path / "run", make_profile(base, rows, adapter={"method": method}, train={"max_steps": 1}))
    assert "Merge" in refusal.value.hint and "adapter.name_or_path" in refusal.value.hint


def test_a_gguf_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no file .*m\.gguf"):
        base_folder(ModelSection(name_or_path=str(tmp_path / "m.gguf")), tmp_path, lambda detail: None)


# -- a branch on the hub


class Branch:
    """Plays the hub: a model whose `main` and `v1` move to another commit, of which both stay there."""

    def __init__(self, commits: dict[str, Path], patch: pytest.MonkeyPatch) -> None:
        self.commits, self.now = commits, next(iter(commits))
        for module in (hub, check_profile):
            patch.setattr(module, "model_folder", self.folder)

    def folder(self, name: str, revision: str | None, *_: Any, **__: Any) -> tuple[Path, str]:
        commit = self.now if revision in (None, "v1") else str(revision)
        return self.commits[commit], commit


OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture
def branch(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Branch:
    other = tmp_path / "other"
    shutil.copytree(model_folder, other)
    torch.manual_seed(9)
    LlamaForCausalLM(AutoConfig.from_pretrained(model_folder)).save_pretrained(other)
    return Branch({OLD: model_folder, NEW: other}, monkeypatch)


@pytest.mark.parametrize(
    ("begun", "resumed"),
    [
        (None, None), (None, NEW), *(pytest.param(*one, marks=pytest.mark.slow) for one in
                                     (("v1", "v1"), (None, OLD), ("v1", OLD))),
    ],
    ids=str,
)  # fmt: skip
def test_a_resumed_run_stays_with_the_commit_it_began_with(
    begun: str | None, resumed: str | None, branch: Branch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(12))

    def profile(revision: str | None) -> Profile:
        return make_profile(
            tmp_path, rows, model={"name_or_path": "us/model", "revision": revision}, adapter={"method": "lora"},
            train={"max_steps": 4, "learning_rate": 1e-2}, checkpoint={"save_steps": 2, "save_minutes": None},
        )  # fmt: skip

    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    assert attempt(whole, profile(begun)) == 0
    killed_attempt(run, profile(begun), 3, monkeypatch)
    branch.now = NEW
    assert weights_difference(profile(begun), profile(resumed)) == []
    if resumed == NEW:
        with pytest.raises(ModelError, match="the base model changed"):
            attempt(run, profile(resumed), 2)
        return
    assert attempt(run, profile(resumed), 2) == 0
    assert [step.loss for step in records(run, Step)][-2:] == [step.loss for step in records(whole, Step)][-2:]
    assert records(run, RunStarted)[-1].reproducibility == "EXACT"
    assert json.loads((run.final / "adapter_config.json").read_bytes())["revision"] == OLD


def test_a_fork_takes_the_branch_as_it_is_now(branch: Branch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And from its own first checkpoint on it stays with that."""
    run = Run(tmp_path / "run")
    profile = make_profile(
        tmp_path, write_rows(tmp_path / "rows.jsonl", chats(12)), model={"name_or_path": "us/model"},
        adapter={"method": "lora"}, train={"max_steps": 4}, checkpoint={"save_steps": 2, "save_minutes": None},
    )  # fmt: skip
    killed_attempt(run, profile, 3, monkeypatch)
    facts = msgspec.structs.replace(run.read_facts(), run_id="1" * 16, parent_run=run.read_facts().run_id, fork=True)
    run.facts.write_bytes(msgspec.json.encode(facts))
    assert pin_commit(run, profile).model.revision is None
    branch.now = NEW
    assert attempt(run, profile, 2) == 0
    assert "base_model" in records(run, RunStarted)[-1].reproducibility_reasons[0]
    assert pin_commit(run, profile).model.revision == NEW


def test_another_branch_is_another_model() -> None:
    def on(revision: str | None) -> Profile:
        return make_profile(Path("x"), Path("rows"), model={"name_or_path": "us/model", "revision": revision})

    assert weights_difference(on(None), on("v1")) == ['model.revision: "none" -> "v1"']
    assert fingerprint(on("v1")) == fingerprint(on(None)) == fingerprint(on(OLD))


# -- code that comes with a model

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({marker!r}).write_text("ran")

class ForeignConfig(LlamaConfig):
    model_type = "foreign"

class ForeignForCausalLM(LlamaForCausalLM):
    config_class = ForeignConfig

    def forward(self, *arguments, **options):
        outputs = super().forward(*arguments, **options)
        outputs.logits = outputs.logits * 2
        return outputs
"""


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of a type that transformers does not know, whose code leaves a mark when it runs."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    folder = tmp_path / "foreign"
    torch.manual_seed(3)
    tokenizer = make_tokenizer()
    LlamaForCausalLM(LlamaConfig(**TINY, pad_token_id=0, eos_token_id=2)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_bytes())
    config |= {
        "model_type": "foreign",
        "architectures": ["ForeignForCausalLM"],
        "auto_map": {
            "AutoConfig": "modeling_foreign.ForeignConfig",
            "AutoModelForCausalLM": "modeling_foreign.ForeignForCausalLM",
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_foreign.py").write_text(CODE.format(marker=str(tmp_path / "marker")))
    return folder


def test_code_is_not_run_without_trust(foreign: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    for way in (
        lambda: load(foreign),
        lambda: read_config(foreign),
        lambda: prepare(make_profile(foreign, rows, train={"max_steps": 1}), tmp_path, lambda detail: None),
    ):
        with pytest.raises(ModelError) as refusal:
            way()
        assert "--allow remote-code" in refusal.value.hint
    assert not (tmp_path / "marker").exists()


def test_a_whole_run_with_trusted_code(foreign: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(24))
    train = {"max_steps": 4, "per_device_train_batch_size": 6, "learning_rate": 1e-2}
    profile = make_profile(foreign, rows, train=train, model={"trust_remote_code": True})
    losses = column(train_run(tmp_path / "run", profile), "loss")
    assert (tmp_path / "marker").read_text() == "ran"
    assert losses[-1] < losses[0]
    final = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "final", trust_remote_code=True)
    assert type(final).__name__ == "ForeignForCausalLM"


def test_code_is_part_of_the_fingerprint(foreign: Path, tmp_path: Path) -> None:
    before = weights_fingerprint(foreign, tmp_path / "cache", lambda: None)
    assert weights_fingerprint(foreign, tmp_path / "cache", lambda: None) == before
    code = foreign / "modeling_foreign.py"
    code.write_text(code.read_text().replace("* 2", "* 3"))
    assert weights_fingerprint(foreign, tmp_path / "cache", lambda: None) != before


def test_code_of_another_repository_is_refused(foreign: Path) -> None:
    text = (foreign / "config.json").read_text()
    (foreign / "config.json").write_text(text.replace('"modeling_foreign.', '"somebody/else--modeling_foreign.'))
    with pytest.raises(ModelError, match="somebody/else"):
        load(foreign, trust_remote_code=True)
