"""What the stages that compare answers ask of other keys, and what the other stages ask of `[preference]`."""

from pathlib import Path
from typing import Any

import pytest

from ftui.errors import ProfileError
from ftui.profile.checks.plausible_ranges import find_implausible
from ftui.profile.layers import resolve


def refusal(folder: Path, text: str, *overrides: str) -> str:
    """The whole error that a profile is refused with; empty for none."""
    path = folder / "p.toml"
    path.write_text(f'[model]\nname_or_path = "org/model"\n[data]\ntrain = "rows.jsonl"\n{text}')
    try:
        resolve(path, overrides=overrides)
    except ProfileError as error:
        return f"{error.message}\n{error.hint}"
    return ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[run]\nstage = "dpo"', ""),
        ('[run]\nstage = "dpo"\n[preference]\nbeta = 0.3\nloss_type = ["sigmoid", "sft"]\nloss_weights = [1, 0.2]', ""),
        ('[run]\nstage = "dpo"\n[preference]\nloss_type = "ipo"', ""),
        (
            '[run]\nstage = "sft"\n[preference]\nbeta = 0.3',
            "preference.beta is for stage cpo, dpo, kto, orpo, simpo, and this",
        ),
        ('[run]\nstage = "dpo"\n[preference]\nloss_weights = [1, 2]', "loss_weights has 2 factors, and loss_type 1"),
        ('[run]\nstage = "dpo"\n[preference]\nloss_type = ["ipo", "ipo"]', "names a loss twice"),
        ('[run]\nstage = "dpo"\n[preference]\nloss_type = []', "names no loss"),
        ('[run]\nstage = "dpo"\n[preference]\nloss_type = "exo_pair"', "takes the logarithm of label_smoothing"),
        ('[run]\nstage = "dpo"\n[preference]\nloss_type = "dpo"', "loss_type"),
        ('[run]\nstage = "dpo"\n[preference]\nloss_type = "kto"', "'kto' is not one of stage dpo"),
        ('[run]\nstage = "cpo"\n[preference]\nloss_type = "hinge"\ncpo_alpha = 0.0', ""),
        ('[run]\nstage = "cpo"\n[preference]\nloss_type = "robust"', "'robust' is not one of stage cpo"),
        ('[run]\nstage = "kto"\n[preference]\ndesirable_weight = 1.3', ""),
        ('[run]\nstage = "kto"\n[preference]\nloss_type = ["kto", "apo_zero_unpaired"]', "has one loss"),
        ('[run]\nstage = "simpo"\n[preference]\nloss_type = "sigmoid"', "loss_type is for stage cpo, dpo, kto"),
        ('[run]\nstage = "dpo"\n[train]\nlabel_smoothing_factor = 0.1', "preference.label_smoothing is cDPO"),
        ('[run]\nstage = "dpo"\n[train]\nneftune_noise_alpha = 5.0', "would put noise on what stage dpo compares"),
        ('[run]\nstage = "rm"\n[preference]\ncenter_rewards_coefficient = 0.01', ""),
        ('[run]\nstage = "rm"\n[preference]\nbeta = 0.3', "preference.beta is for stage cpo, dpo, kto, orpo, simpo"),
        ('[run]\nstage = "dpo"\n[preference]\ncenter_rewards_coefficient = 0.01', "is for stage rm, and this is"),
        ('[run]\nstage = "rm"\n[eval]\nsample_prompts = ["a"]', "gives scores, and answers no prompts"),
        ('[run]\nstage = "rm"\n[preference]\nloss_type = "hinge"', "loss_type is for stage"),
        ('[run]\nstage = "orpo"\n[adapter]\nlora_dropout = 0.05', "stage orpo drops nothing"),
        ('[run]\nstage = "kto"\n[adapter]\nlora_dropout = 0.0', ""),
        ('[run]\nstage = "sft"\n[adapter]\nlora_dropout = 0.05', ""),
        *(
            (f'[run]\nstage = "{stage}"\n[preference]\n{key}', words)
            for stage, key, words in (
                ("dpo", "beta = nan", "finite"),
                ("dpo", "beta = inf", "finite"),
                ("dpo", "beta = 0", "greater than 0"),
                ("kto", "beta = -0.1", "greater than 0"),
                ("simpo", "simpo_gamma = -0.5", "greater than or equal to 0"),
                ("dpo", "label_smoothing = 0.5", "less than 0.5"),
                ("dpo", "ld_alpha = 1.5", "less than or equal to 1"),
                ("dpo", 'loss_type = ["sigmoid", "sft"]\nloss_weights = [1]', "loss_weights has 1 factors"),
                ("dpo", "loss_weights = [nan]", "finite"),
                ("dpo", "loss_weights = [-1.0]", "turn its loss around"),
                ("cpo", "loss_weights = [0]", "leave it out"),
                ("kto", "undesirable_weight = 0", "greater than 0"),
                ("dpo", 'loss_type = "ipo"\nlabel_smoothing = 0.1', "no effect on loss_type 'ipo'"),
                ("cpo", 'loss_type = "hinge"\nlabel_smoothing = 0.1', "no effect on loss_type 'hinge'"),
                ("dpo", 'loss_type = ["ipo", "robust"]\nlabel_smoothing = 0.1', ""),
                ("simpo", "label_smoothing = 0.1", ""),
                ("dpo", "discopop_tau = 0.1", "discopop, which is not in loss_type"),
                ("dpo", 'loss_type = "discopop"\ndiscopop_tau = 0.1', ""),
            )
        ),
        ('[run]\nstage = "dpo"\n[[curriculum]]\nsort_by = "loss"', "cannot sort the rows of stage dpo"),
    ],
)
def test_a_preference_section_is_checked(text: str, words: str, tmp_path: Path) -> None:
    assert (words in refusal(tmp_path, text)) if words else (refusal(tmp_path, text) == "")


@pytest.mark.parametrize(
    ("stage", "override", "words"),
    [
        ("dpo", "data.loss_on=everything", "would compare prompts too"),
        ("dpo", "data.format=alpaca", "trains on rows of format 'preference'"),
        ("dpo", "data.format=kto", "trains on rows of format 'preference'"),
        ("dpo", "data.format=preference", ""),
        ("kto", "data.format=kto", ""),
        ("kto", "data.format=preference", ""),  # a pair is two verdicts
        ("kto", "data.format=alpaca", "trains on rows of format 'kto' or 'preference'"),
        ("dpo", 'data.columns={margin = "score_chosen - score_rejected"}', ""),
        ("kto", 'data.columns={question = "prompt", answer = "completion"}', ""),
    ],
)
def test_rows_of_the_stage_are_asked_for(stage: str, override: str, words: str, tmp_path: Path) -> None:
    found = refusal(tmp_path, f'[run]\nstage = "{stage}"', override)
    assert (words in found) if words else (found == "")


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        *((name, "preference.beta") for name in ("dpo_beta", "pref_beta", "rl_beta", "orpo_alpha")),
        *((name, "preference.loss_type") for name in ("pref_loss", "dpo_loss", "dpo_loss_type")),
        *((name, 'loss_type = ["sigmoid", "sft"]') for name in ("rpo_alpha", "pref_ftx")),
        ("reference_free", 'run.stage = "cpo" and preference.cpo_alpha = 0'),
        *((name, "preference.desirable_weight") for name in ("kto_desirable_weight", "kto_chosen_weight")),
        *((name, "preference.undesirable_weight") for name in ("kto_undesirable_weight", "kto_rejected_weight")),
        ("dpo_label_smoothing", "preference.label_smoothing"),
        ("dpo_use_weighting", "preference.use_weighting"),
        ("max_prompt_length", "data.max_length"),
        ("precompute_ref_log_probs", "Leave it out: the reference is always measured once"),
        ("ref_model", "Leave it out: the reference is the model"),
        ("truncation_mode", "Leave it out: the end of a row is cut"),
    ],
)
def test_other_tools_names_of_its_keys_are_told(key: str, instead: str, tmp_path: Path) -> None:
    for table in ("preference", "train"):
        found = refusal(tmp_path, f'[run]\nstage = "dpo"\n[{table}]\n{key} = 1')
        assert "there is no such key" in found and instead in found, table


@pytest.mark.parametrize(
    ("stage", "rate", "is_usual"),
    [
        ("dpo", 5e-6, True),
        ("dpo", 5e-5, True),
        ("dpo", 2e-4, False),
        ("dpo", 1e-9, False),
        ("rm", 1e-4, True),
        ("rm", 1e-3, True),
        ("rm", 1e-7, False),
    ],
)
def test_rates_follow_the_stage(stage: str, rate: float, is_usual: bool, tmp_path: Path) -> None:
    """DPO's are lower than those of sft; a reward model has a new head, and learns with those of sft."""
    path = tmp_path / "p.toml"
    keys: dict[str, Any] = {"rate": rate, "stage": stage}
    path.write_text(
        '[run]\nstage = "{stage}"\n[model]\nname_or_path = "org/model"\n[data]\ntrain = "rows.jsonl"\n'
        "[train]\nlearning_rate = {rate}\n".format(**keys)
    )
    warned = [fault for fault in find_implausible(resolve(path).profile) if fault.key == ("train", "learning_rate")]
    assert bool(warned) != is_usual
