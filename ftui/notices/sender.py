"""Sends notices by apprise, which knows some hundred services by their addresses. Nothing is logged meanwhile: apprise
and the libraries below it log addresses, and at their lowest level tokens."""

import contextlib
import logging
from collections.abc import Iterator, Mapping

from ftui.errors import ProfileError
from ftui.notices.notice_text import Notice


class Sender:
    """`addresses`: by the names of the environment variables that hold them."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        """Raises `ProfileError` for one that is no address, without telling it."""
        import apprise

        self._services: dict[str, apprise.Apprise] = {}
        for name, address in addresses.items():
            service = apprise.Apprise()
            with _without_logs():
                is_known = service.add(address)
            if not is_known:
                raise ProfileError(
                    f"notify.urls: {name} holds no address that apprise knows.",
                    hint=f"export {name}=ntfys://ntfy.sh/TOPIC, for one; https://appriseit.com lists the services.",
                )
            self._services[name] = service

    def send(self, name: str, notice: Notice) -> bool:
        """Whether the service behind that variable has taken it; a few seconds at most, once."""
        import apprise

        kinds = {kind.value: kind for kind in apprise.NotifyType}
        with _without_logs():
            return bool(
                self._services[name].notify(
                    title=notice.title, body=notice.body, notify_type=kinds[notice.level],
                    body_format=apprise.NotifyFormat.TEXT,
                )
            )  # fmt: skip


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
