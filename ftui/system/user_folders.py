"""Where ftui keeps its files outside of runs (cache, state, configuration), and where Hugging Face keeps models.

The folders of the XDG specification on every system, macOS too, so that what earlier releases stored is still found. As
the specification says, a relative XDG_* is ignored.
"""

import os
from pathlib import Path

from ftui.system.files import make_private_folder, replace_file, wait_lock


def _folder(variable: str, usual: str) -> Path:
    """ftui's folder in the one that the variable names, otherwise in `usual` of the user's home."""
    named = os.environ.get(variable, "").strip()
    return Path(named if os.path.isabs(named) else os.path.expanduser(f"~/{usual}"), "ftui")


def cache_folder(fallback: Path | None = None) -> Path:
    """$FTUI_CACHE, else $XDG_CACHE_HOME/ftui or ~/.cache/ftui; `fallback` where that cannot be written."""
    setting = os.environ.get("FTUI_CACHE")
    folder = Path(setting) if setting else _folder("XDG_CACHE_HOME", ".cache")
    if fallback is None:
        return folder
    try:
        make_private_folder(folder)
    except OSError:
        return make_private_folder(fallback)
    return folder if os.access(folder, os.W_OK) else make_private_folder(fallback)


def state_folder() -> Path:
    """The folder of what ftui remembers between starts: $XDG_STATE_HOME/ftui, else ~/.local/state/ftui."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _roots_file() -> Path:
    return state_folder() / "roots"


def note_root(root: Path) -> None:
    """Remember a root, so that `ftui runs` finds its runs from any folder. A read-only home is no reason to fail."""
    path = _roots_file()
    try:
        make_private_folder(path.parent)
        with wait_lock(path.with_suffix(".lock")):
            roots = known_roots()
            if root not in roots:
                replace_file(path, b"".join(os.fsencode(p) + b"\n" for p in [*roots, root]))
    except OSError:
        return


def known_roots() -> list[Path]:
    """Every noted root of runs that still exists, oldest first."""
    try:
        lines = _roots_file().read_bytes().split(b"\n")
    except OSError:
        return []
    return [path for line in lines if line and (path := Path(os.fsdecode(line))).is_dir()]


def prices_file() -> Path:
    """The user's own prices of cards: $XDG_CONFIG_HOME/ftui/prices.toml, else ~/.config/ftui/prices.toml."""
    return _folder("XDG_CONFIG_HOME", ".config") / "prices.toml"


def hub_cache() -> Path:
    """Where huggingface_hub keeps models: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub.

    By hand: huggingface_hub.constants takes 20 ms, and reads the environment only when it is imported.
    """
    if setting := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return expand_user(setting)
    home = os.environ.get("HF_HOME")
    if home is None:
        home = str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return expand_user(home) / "hub"


def expand_user(name: str) -> Path:
    """The path with `~` resolved, or as it stands where there is no such home, like in a shell."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~name of a user without an account here
        return Path(name)
