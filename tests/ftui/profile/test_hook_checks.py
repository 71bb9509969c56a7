"""What is wrong with [hooks] and [notify] is told before anything starts, with the key and what to write instead."""

from pathlib import Path

import pytest

from ftui.errors import ProfileError
from ftui.launch.check_start import check_environment, check_may_start
from ftui.profile.consent import keep_consents
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile

BASE = '[run]\nstage = "sft"\n[model]\nname_or_path = "a/b"\n[data]\ntrain = "rows.jsonl"\n'


def profile(folder: Path, text: str) -> Profile:
    path = folder / "p.toml"
    path.write_text(BASE + text)
    return resolve(path).profile


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[hooks]\nended = "rm -rf x"\n', 'a command is a list of its words: ["rm", "-rf", "x"]'),
        ('[hooks]\nended = ["x", ""]\n', "is not empty"),
        ('[hooks]\nended = ["x", "$HF_TOKEN"]\n', "let the command read HF_TOKEN"),
        ('[hooks]\nthen_stop = "x"\nthen_stop_requires = "pushed"\n', "Set push.to"),
        ('[hooks]\nthen_stop = "x"\nthen_stop_requires = "hooks"\n', "hooks.ended"),
        ('[hooks]\nthen_stop_requires = "hooks"\nended = "x"\n', "hooks.then_stop"),
        ('[push]\nto = "command:x {folder}"\n[hooks]\nthen_stop = "x"\nthen_stop_requires = "verified"\n', "verify"),
        ('[hooks]\nthen_stop = "x"\nthen_stop_seconds = 1\n', "10"),
        ('[notify]\nurls = "ntfys://ntfy.sh/secret"\n', "an address is a secret"),
        ('[notify]\nurls = "env:A"\nevents = "evaluation_bst"\n', "Did you mean 'evaluation_best'?"),
    ],
)
def test_what_is_wrong(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        profile(tmp_path, text)
    assert words in f"{caught.value.message}\n{caught.value.hint}" and "p.toml" in caught.value.message


def test_variables_must_be_set(tmp_path: Path) -> None:
    hooked = profile(
        tmp_path, '[hooks]\nthen_stop = ["runpodctl", "stop", "pod", "$RUNPOD_POD_ID"]\nended = "$FTUI_RUN"\n'
    )
    with pytest.raises(ProfileError, match=r"hooks.then_stop names \$RUNPOD_POD_ID"):
        check_environment(hooked, {})
    check_environment(hooked, {"RUNPOD_POD_ID": "x"})
    notified = profile(tmp_path, '[notify]\nurls = "env:NTFY_URL"\n')
    with pytest.raises(ProfileError, match=r"notify\.urls names NTFY_URL"):
        check_environment(notified, {})
    check_environment(notified, {"NTFY_URL": "x"})


def test_commands_run_with_consent_to_these_very_words(tmp_path: Path) -> None:
    first = profile(tmp_path, '[hooks]\nended = ["echo", "a b"]\n')
    with pytest.raises(ProfileError) as caught:
        check_may_start(first, ())
    assert "echo 'a b'" in caught.value.message and "--allow hooks" in caught.value.hint
    check_may_start(first, {"hooks"})
    keep_consents(first, "a-run")
    check_may_start(first, (), parent_id="a-run")
    for changed in ('ended = ["echo", "a", "b"]', 'failed = ["echo", "a b"]'):
        with pytest.raises(ProfileError):
            check_may_start(profile(tmp_path, f"[hooks]\n{changed}\n"), (), parent_id="a-run")
