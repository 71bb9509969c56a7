"""`[notify]`: who is told, and of what."""

import re
from typing import Any, Literal

from pydantic import field_validator

from ftui.profile.sections.fields import Section, conduct, one_or_list

ENV = "env:"
_ADDRESS = re.compile(r"env:[A-Za-z_]\w*", re.ASCII)

NoticeEvent = Literal[
    "started", "checkpoint", "evaluation_best", "paused", "ended", "failed", "restarted", "red_alarm", "alarm",
    "budget", "pushed", "push_failed", "hook_failed", "then_stop",
]  # fmt: skip
USUAL: tuple[NoticeEvent, ...] = (
    "paused", "ended", "failed", "red_alarm", "budget", "push_failed", "hook_failed", "then_stop",
)  # fmt: skip


class NotifySection(Section):
    """`[notify]`: messages to ntfy, Slack, Discord, Telegram, e-mail or a webhook, by apprise (`pip install
    'ftui[notify]'`). A process of its own sends them, for which the run never waits: docs/notices.md."""

    urls: tuple[str, ...] = conduct(())
    """Environment variables that hold the addresses, as `env:NTFY_URL`, or a list of them. What an address looks like:
    `ntfys://ntfy.sh/TOPIC`, `slack://...`, `discord://...`, `tgram://...`, `mailto://...`, `jsons://HOST/PATH`."""

    events: tuple[NoticeEvent, ...] = conduct(USUAL)
    """What is told: `started`, `checkpoint`, `evaluation_best`, `paused` (also by a full disk), `ended`, `failed`,
    `restarted` (after a crash), `red_alarm`, `alarm` (amber), `budget` (80 % of it, and its end), `pushed`,
    `push_failed`, `hook_failed`, `then_stop`."""

    @field_validator("urls", "events", mode="before")
    @classmethod
    def _one_or_none(cls, given: Any) -> Any:
        return one_or_list(given)

    @field_validator("urls")
    @classmethod
    def _is_no_address(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not _ADDRESS.fullmatch(url):
                raise ValueError(
                    "an address is a secret, and a profile is copied into its run: put it into an environment"
                    ' variable, and write its name, as "env:NTFY_URL"'
                )
        return urls

    @property
    def variables(self) -> list[str]:
        """The names of the environment variables."""
        return [url.removeprefix(ENV) for url in self.urls]
