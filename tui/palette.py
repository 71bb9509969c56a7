"""The palette: every key of the screen, every run, its checkpoints, and every profile, found by name."""

from collections.abc import Callable, Iterator
from typing import Any

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from ftui.profile.presets import shipped_presets
from ftui.runs.checkpoint_folders import checkpoints_in
from ftui.runs.run_folder import Run, all_runs

from .drawing.wording import place
from .key_table import bindings_of, write_keys
from .render.spans import harmless
from .stage import stage

Entry = tuple[str, str, Callable[[], Any]]
"""What it is called, what it does, and the doing."""


class Commands(Provider):
    """One source for all of it."""

    async def discover(self) -> Hits:
        for name, explanation, act in self._entries():
            text, help = Content(harmless(name)), Content(harmless(explanation))
            yield DiscoveryHit(text, act, text=harmless(name), help=help)  # type: ignore[arg-type]

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, explanation, act in self._entries():
            if (score := matcher.match(harmless(name))) > 0:
                text, help = Content(harmless(name)), Content(harmless(explanation))
                yield Hit(score, text, act, text=harmless(name), help=help)  # type: ignore[arg-type]

    def _entries(self) -> Iterator[Entry]:
        yield from [*self._keys(), *self._runs(), *self._profiles()]

    def _keys(self) -> Iterator[Entry]:
        hidden = getattr(self.screen, "hidden_keys", ())
        for binding in bindings_of(self.screen):
            if binding.id in hidden:
                continue
            yield f"{binding.description} ({write_keys(binding)})", binding.tooltip, self._doing(binding)

    def _doing(self, binding: Binding) -> Callable[[], Any]:
        return lambda: self.app.run_action(binding.action, default_namespace=self.screen)

    def _runs(self) -> Iterator[Entry]:
        for run in all_runs():
            yield f"run {run.name}", f"watch it ({place(run.folder)})", self._opening(run)
            if found := checkpoints_in(run.checkpoints):
                words = f"{len(found)} checkpoints, the newest at step {found[0].step}"
                yield f"checkpoints of {run.name}", words, self._browsing(run)

    def _opening(self, run: Run) -> Callable[[], Any]:
        return lambda: stage(self.screen).open_run(run)

    def _browsing(self, run: Run) -> Callable[[], Any]:
        from .screens.checkpoints import CheckpointsScreen

        return lambda: self.app.push_screen(CheckpointsScreen(run))

    def _starting(self, name: str) -> Callable[[], Any]:
        from .screens.start import StartScreen

        return lambda: self.app.push_screen(StartScreen(name))

    def _profiles(self) -> Iterator[Entry]:
        for preset in shipped_presets():
            yield f"start {preset.name}", preset.description, self._starting(preset.name)
