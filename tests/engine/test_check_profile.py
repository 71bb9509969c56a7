"""What needs the training libraries to be refused is refused by every command, with one message and one exit code."""

import dataclasses
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from ftui.cli import dry_run, estimate, preview
from ftui.engine.services.server import answer
from ftui.engine.simulate import host
from ftui.errors import DataError, FtuiError, ProfileError
from ftui.estimate.api import Known
from ftui.estimate.closed_form import ENGINE_BYTES
from ftui.estimate.simulation import with_libraries
from ftui.hardware.detect import find_machine
from ftui.hardware.devices import Card, find_card
from ftui.helper.protocol import Request
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.events import Warned
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.attempts import attempt
from tests.support.tiny import PLAIN, chats, make_profile, make_tokenizer, write_rows

CUDA = find_card("rtx4090")


class InProcess:
    """`ftui.helper.client.Helper` without the process: the server's own answers."""

    def __init__(self, allow: Collection[str] = ()) -> None: ...

    def ask(self, method: str, *, on_detail: object = None, **params: Any) -> Any:
        if isinstance(profile := params.get("profile"), Profile):
            params["profile"] = to_toml(profile)
        response = answer(Request(1, method, params), lambda detail: None)
        if response.problem is not None:
            raise response.problem.error()
        return response.answer

    def close(self) -> None: ...


def machine_card() -> Card:
    return find_machine().cpu.card


def told(work: Callable[[], object]) -> tuple[str, str, str, int] | None:
    try:
        work()
    except FtuiError as error:
        return type(error).__name__, error.message, error.hint, error.exit_code
    return None


@pytest.fixture(autouse=True)
def commands_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (dry_run, preview, estimate):
        monkeypatch.setattr(module, "Helper", InProcess)
    monkeypatch.setattr(host, "_measure", lambda num_threads: ENGINE_BYTES)  # else a process of 5 s, for a figure


def answers(profile: Profile, folder: Path) -> dict[str, Any]:
    """What each command says of a profile on the CPU of this machine."""
    folder.mkdir(exist_ok=True)
    path = folder / "p.toml"
    path.write_text(to_toml(profile))
    helper: Any = InProcess()
    return {
        "start": told(lambda: attempt(Run(folder / "run"), profile)),
        "dry run": told(lambda: dry_run.preview(resolve(path))),
        "preview": told(lambda: preview.print_preview(str(path), [], None, [], 0, None, True, False)),
        "estimate": told(lambda: estimated(path)),
        "probe": told(lambda: helper.ask("probe", profile=profile)),
        "profile": told(lambda: helper.ask("profile_step", profile=profile, num_steps=1, trace=None)),
    }


def estimated(path: Path) -> None:
    estimate.print_estimate(str(path), [], None, machine_card().name, [], False, False, False, "ddp", True)


@pytest.fixture
def moe_folder(tmp_path: Path) -> Path:
    """A mixture of experts, whose experts are no linear layers."""
    folder, tokenizer = tmp_path / "moe", make_tokenizer(PLAIN)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, moe_intermediate_size=64, num_experts=8,
        num_experts_per_tok=2, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    torch.manual_seed(1)
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


LORA, FREEZE = {"method": "lora"}, {"method": "freeze"}
Sections = dict[str, dict[str, Any]]
REFUSED: dict[str, tuple[int, str, Sections]] = {
    "flash attention on a CPU": (
        33, "Flash attention needs an NVIDIA GPU",
        {
            "model": {"attn_implementation": "flash_attention_2"}, "hardware": {"device": "auto"},
            "train": {"precision": "auto"},
        },
    ),
    "Liger on a CPU": (33, "Liger's kernels run on a GPU only", {"train": {"use_liger_kernel": True}}),
    "tf32 on a CPU": (33, "tf32 needs an NVIDIA GPU", {"train": {"tf32": True}}),
    "a GPU that is not here": (33, "NVIDIA", {"hardware": {"device": "cuda"}}),
    "target modules": (
        32, "adapter.target_modules: 'q_prj' is no module", {"adapter": LORA | {"target_modules": ["q_prj"]}},
    ),
    "a pattern of target modules": (32, "Target modules", {"adapter": LORA | {"target_modules": "nothing_.*"}}),
    "modules to save": (32, "adapter.modules_to_save", {"adapter": LORA | {"modules_to_save": ["wte"]}}),
    "a layer": (32, "there is no layer 77", {"adapter": LORA | {"layers_to_transform": [77]}}),
    "a rank": (32, "adapter.rank_pattern: 'nothing'", {"adapter": LORA | {"rank_pattern": {"nothing": 4}}}),
    "weights to train": (
        32, "adapter.trainable_modules: 'nowhere'", {"adapter": FREEZE | {"trainable_modules": ["nowhere"]}},
    ),
    "layers to train": (32, "adapter.trainable_layers is 9", {"adapter": FREEZE | {"trainable_layers": 9}}),
    "frozen new tokens": (
        32, "would never be trained",
        {"adapter": FREEZE | {"trainable_layers": 1}, "model": {"extra_special_tokens": ["<|tool|>"]}},
    ),
    "a program to push with": (30, "push.to: There is no program", {"push": {"to": "command:no-such {folder}"}}),
    "longer rows than the model sees": (31, "the model sees at most", {"data": {"max_length": 900_000}}),
}  # fmt: skip


ALIKE = ("Liger on a CPU", "a pattern of target modules", "modules to save", "a rank", "weights to train")
"""Refused in the same places as another of them."""


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.slow) if what in ALIKE else what for what in REFUSED]
)
def test_every_command_refuses_it_alike(what: str, model_folder: Path, tmp_path: Path) -> None:
    code, words, sections = REFUSED[what]
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    train = {"train": {"max_steps": 1} | sections.get("train", {})}
    found = answers(make_profile(model_folder, rows, **sections | train), tmp_path)
    if what == "a GPU that is not here":  # an estimate is for the card that is asked about
        assert found.pop("estimate") is None
    assert len(set(found.values())) == 1, found
    refusal = found["start"]
    assert refusal is not None and refusal[3] == code and words in refusal[1], refusal


@pytest.mark.slow
def test_a_model_that_cannot_be_quantised_is_refused_alike_and_the_way_out_works(
    moe_folder: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    profile = make_profile(moe_folder, rows, adapter={"method": "qlora"}, train={"max_steps": 1})
    found = answers(profile, tmp_path)
    assert len(set(found.values())) == 1, found
    assert found["start"] is not None and "can be stored in few bits" in found["start"][1]
    assert 'method = "lora"' in found["start"][2]
    obeyed = make_profile(moe_folder, rows, adapter={"method": "lora"}, train={"max_steps": 1})
    assert set(answers(obeyed, tmp_path / "obeyed").values()) == {None}


def test_an_adapter_of_another_base_is_refused_alike(model_folder: Path, moe_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    lora = make_profile(moe_folder, rows, adapter={"method": "lora"}, train={"max_steps": 1})
    assert attempt(Run(tmp_path / "first"), lora) == 0
    start = str(tmp_path / "first" / "final")
    found = answers(
        make_profile(model_folder, rows, adapter={"method": "lora", "name_or_path": start}, train={"max_steps": 1}),
        tmp_path,
    )
    assert len(set(found.values())) == 1, found
    assert found["start"] is not None and "does not fit" in found["start"][1]


def test_a_run_that_has_trained_does_not_stand_still_for_its_push(model_folder: Path, tmp_path: Path) -> None:
    """It goes on from its checkpoint on a machine without the volume, the token or the program, and says so."""
    rows, volume = write_rows(tmp_path / "rows.jsonl", chats(8)), tmp_path / "volume"
    volume.mkdir()
    steps: Sections = {"train": {"max_steps": 1}, "push": {"to": str(volume / "x")}}
    run, profile = Run(tmp_path / "run"), make_profile(model_folder, rows, **steps)
    assert attempt(run, profile) == 0
    volume.rmdir()
    volume.touch()
    assert attempt(run, profile, 2) == 0
    warnings = [record.message for record in Tail(run.journal).read() if isinstance(record, Warned)]
    assert any(f"{volume} is no folder" in message and "Training goes on" in message for message in warnings)
    shutil.rmtree(run.checkpoints)
    with pytest.raises(ProfileError, match=r"push\.to"):
        attempt(run, profile, 3)


def test_missing_rows_are_the_estimates_fault_too(model_folder: Path, tmp_path: Path) -> None:
    profile = make_profile(model_folder, tmp_path / "nowhere.jsonl", train={"max_steps": 1})
    helper: Any = InProcess()
    known = with_libraries(helper, profile, machine_card(), Known())
    assert known.simulated is not None and isinstance(known.refusal, DataError), (
        "the form shows the memory all the same"
    )
    assert told(lambda: helper.ask("count_rows", profile=profile)) == told(lambda: refuse(known.refusal))


def refuse(error: FtuiError | None) -> None:
    if error is not None:
        raise error


def test_rows_that_a_run_would_refuse_end_an_estimate_alike(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [*chats(4), {"nothing": "known"}, *chats(4)])
    found = answers(make_profile(model_folder, rows, train={"max_steps": 1}), tmp_path)
    assert found["start"] is not None and found["start"][3] == 31
    assert len({found[name] for name in ("start", "dry run", "estimate", "probe", "profile", "preview")}) == 1, found


@pytest.mark.parametrize("what", ["flash attention on a CPU", "Liger on a CPU", "tf32 on a CPU"])
def test_an_estimate_is_for_the_card_it_is_asked_about(what: str, model_folder: Path, tmp_path: Path) -> None:
    """What a rented card can do is no fault because the machine that asks has none."""
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    sections = REFUSED[what][2]
    train = {"max_steps": 1, "precision": "fp16"} | sections.get("train", {})
    profile = make_profile(model_folder, rows, **sections | {"train": train, "hardware": {"device": "auto"}})
    helper: Any = InProcess()
    known = with_libraries(helper, profile, CUDA, Known())
    assert known.counts is not None and known.simulated is not None
    old = dataclasses.replace(CUDA, capability=75)
    if what != "Liger on a CPU":
        assert "Ampere" in str(told(lambda: with_libraries(helper, profile, old, Known())))


@pytest.mark.slow
def test_a_model_that_cannot_be_fetched_is_no_refusal_of_an_estimate(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    profile = make_profile(Path("x"), rows, model={"name_or_path": "Qwen/Qwen3-0.6B"}, adapter={"method": "lora"})
    helper: Any = InProcess()
    known = with_libraries(helper, profile, CUDA, Known())
    assert known.counts is not None and known.counts.bytes_per_token is not None  # of its family, without its tokenizer
    assert known.counting_problem is not None and known.simulated is not None
    wrong = make_profile(
        Path("x"), rows, model={"name_or_path": "Qwen/Qwen3-0.6B"},
        adapter={"method": "lora", "target_modules": ["q_prj"]},
    )  # fmt: skip
    assert "is no module" in str(told(lambda: with_libraries(helper, wrong, CUDA, Known())))


@pytest.mark.slow
def test_tokens_that_the_tokenizer_has_are_not_new(model_folder: Path, tmp_path: Path) -> None:
    """They are in the base's vocabulary: nothing is said of embeddings that stay frozen."""
    rows = write_rows(tmp_path / "rows.jsonl", chats(8))
    profile = make_profile(
        model_folder, rows, model={"extra_special_tokens": ["<|im_end|>"]},
        adapter={"method": "freeze", "trainable_layers": 1}, train={"max_steps": 1},
    )  # fmt: skip
    assert set(answers(profile, tmp_path).values()) == {None}


def test_a_check_leaves_the_process_as_it_was(model_folder: Path, tmp_path: Path) -> None:
    rows, threads = write_rows(tmp_path / "rows.jsonl", chats(8)), torch.get_num_threads()
    profile = make_profile(
        model_folder, rows, train={"max_steps": 1, "full_determinism": True}, hardware={"num_threads": threads + 1}
    )
    state = torch.get_rng_state()
    helper: Any = InProcess()
    helper.ask("check", profile=profile)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads and not torch.are_deterministic_algorithms_enabled()
