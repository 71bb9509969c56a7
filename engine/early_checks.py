"""What is wrong with a profile's files, as far as it shows without the training libraries: those take seconds to load.

The functions are those that refuse the same files later, so the words are the same.
"""

from pathlib import Path

from ftui.profile.schema import Profile
from ftui.profile.sections.data import sources

from .data.sources import find_sources
from .data.stores.cache import check_first_rows
from .data.tokens.named_templates import read_template
from .models.files.hub import check_folder


def check_inputs(profile: Profile) -> None:
    """Refuse what on this disk cannot be used: a model's folder, a chat template, files of rows by their first rows.

    What is on the hub is left to those who fetch it.

    Raises:
        ModelError, DataError: what a run of the profile would fail with.
    """
    name = profile.model.name_or_path
    if name is not None and Path(name).is_absolute() and Path(name).is_dir():
        check_folder(Path(name), name)
    if profile.data.chat_template is not None:
        read_template(profile.data.chat_template)
    for evaluation in (False, True):
        section = profile.data.eval if evaluation else profile.data.train
        if all(Path(source.path).is_absolute() for source in sources(section)):
            for source in find_sources(profile.data, _ignore, stage=profile.run.stage, evaluation=evaluation):
                check_first_rows(source, skips=profile.data.on_bad_row == "skip")


def _ignore(detail: str) -> None:
    """There is no progress to tell of."""
