"""Text that would steer a terminal, and runs that are full of it: names, values, records, logs, checkpoints."""

import json
import os
import unicodedata
from pathlib import Path

from ftui.runs.events import (
    CheckpointRejected,
    ControlApplied,
    ControlRefused,
    MicroBatchChanged,
    Noted,
    PhaseChanged,
    RunFailed,
    RunStopped,
    Sampled,
    Warned,
)
from ftui.runs.records.signs_of_life import Gpu, Telemetry
from ftui.runs.records.supervisor_records import EngineEnded, Restarting
from ftui.runs.run_folder import Run
from ftui.system.process_id import Identity
from tests.support.events import make_evaluation, make_run_opened, make_run_started, make_step
from tests.support.shelf import folder_of, saved, tell

EVIL = {
    "colour": "\x1b[31mred\x1b[2J",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x1b\\",
    "dcs": "\x1bP1;2|17/ab\x1b\\ \x1b_apc\x1b\\",
    "c1": "\x9b31m \x90q\x9c \x9d0;owned\x9c \x85",
    "delete": "a\x7f\x08b\rc\x0bd\x0ee",
    "bidi": "abc\u202egpj.exe\u2066x\u2069\u200f",
    "unseen": "a\u200bb\u2060c\ufeffd\u00ade",
    "markup": "[/] [/red] a[/b]c [red]x[/red] [$x] [",
    "click": "[@click=app.quit]x[/] [link=file:///etc/passwd]y",
    "lines": "one\ntwo\ttab\r\nthree\x00nul\u2028four\n",
    "wide": "日本語の模型 🔥🔥 👩‍💻 ❤️ 👍🏽 e\u0301 ﷽ 한국어",
    "surrogate": "x\udcffy\ud800z",
    "long": "日x" + "long-line " * 800 + "y" * 2000,
    "braces": "{} {0} {name!r} %s %(x)s $HOME `id` ../../..",
}
TOGETHER = {
    "escapes": " ".join(EVIL[name] for name in ("colour", "title", "clipboard", "dcs")),
    "controls": " ".join(EVIL[name] for name in ("c1", "delete", "bidi", "unseen")),
    "marked-up": " ".join(EVIL[name] for name in ("markup", "click", "braces")),
    "lines": EVIL["lines"],
    "wide": EVIL["wide"] + EVIL["surrogate"],
    "long": EVIL["long"],
}
"""All of them, in fewer runs."""
GONE = Identity("", "", 1, "")
HARMLESS_ZERO_WIDTH = "\u200c\u200d"


def steers(text: str) -> list[str]:
    """What in a text that is on a screen could do more than stand there."""
    unseen = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [ascii(c) for c in text if unicodedata.category(c) in unseen and c not in HARMLESS_ZERO_WIDTH]


def evil_run(folder: Path, text: str, *, ended: str = "failed") -> Run:
    """A run with the text wherever a record, a file or a folder of it may hold text."""
    run = Run(folder)
    run.folder.mkdir(parents=True)
    text = text.encode(errors="replace").decode()  # what JSON can hold
    facts = {"run_id": "0011223344556677", "name": text, "created": 0.0, "profile_name": text, "parent_name": text}
    run.facts.write_text(json.dumps(facts | {"parent_checkpoint": text, "parent_run": text}))
    run.profile.write_text(evil_profile(text))
    _journal(run, text, ended)
    tell(run.metrics, *(make_step(n, loss=3.0 - n / 9, extras={text: 1.0}) for n in range(1, 9)))
    bad = make_step(9, loss=None, applied=False, non_finite=["loss", text])
    tell(run.metrics, bad)
    gpu = Gpu(name=f"NVIDIA {text}", memory_used=1 << 30, memory_total=1 << 33, utilization=0.5, temperature=50.0)
    tell(run.telemetry, *(Telemetry(gpus=[gpu]) for _ in range(3)))
    log = text.encode()
    run.engine_log.write_bytes(
        b"\xff\xfe\x9b31m raw \x1b[31m\n" + log + b"\n\x1b]0;owned\x07" + log + b"\nno end \x1b["
    )
    return run


def _journal(run: Run, text: str, ended: str) -> None:
    begin = make_run_opened(host=text, device=text, driver=text, versions={text: text}, identity=GONE)
    plan = make_run_started(
        max_steps=40, model=f"hub/{text}", method=text, precision=text, resumed_from=text, reproducibility="NOT EXACT",
        reproducibility_reasons=[text, text],
    )  # fmt: skip
    tell(run.journal, begin, PhaseChanged(phase="preparing", detail=text), plan, make_evaluation(0, 3.0))
    saved(run, 4, text, "periodic")
    folder_of(run, 3, target=run.superseded / "checkpoint-3-of-1")
    tell(
        run.journal,
        CheckpointRejected(path=text, moved_to=text, reason=text),
        Sampled(step=4, prompt=text, completion=text),
        ControlApplied(request=text, verb=text, step=4, detail=text, settings={text: 1.0}),
        ControlRefused(request=text, verb=text, step=4, reason=text),
        MicroBatchChanged(step=4, old=2, new=1, place=text),
        Warned(message=text),
        Noted(message=text),
        make_evaluation(4, 2.0, best=True),
        PhaseChanged(phase="held", detail=text),
    )
    if ended == "failed":
        tell(run.journal, RunFailed(message=text, hint=text, exit_code=70, error=text))
        tell(run.supervisor_log, EngineEnded(code=70, signal=text, oom_kills=None, last_lines=[text] * 3))
    if ended == "lost":
        tell(run.supervisor_log, Restarting(step=4, error=text, number=1, pause_seconds=1.0))
    if ended == "stopped":
        tell(run.journal, RunStopped(step=9, reason=text, exit_code=11, checkpoint=text))


def evil_profile(text: str) -> str:
    """A profile with the text in every value that may be any text."""
    value = json.dumps(text.encode(errors="replace").decode()).replace("\x7f", "\\u007f")
    lines = ['[run]\nstage = "sft"', f"[model]\nname_or_path = {value}", f"[data]\ntrain = [{value}]"]
    return "\n".join(lines) + "\n"


def evil_name(text: str, end: str = "") -> str:
    """The text as a file may be called."""
    raw = os.fsencode(text.replace("/", "\N{DIVISION SLASH}").replace("\0", "0").replace("\ud800", "\udc80"))
    return os.fsdecode(raw[:200].decode(errors="surrogateescape").encode(errors="surrogateescape")) + end
