"""What every import must keep to, whatever is imported."""

from pathlib import Path

from ftui.importers import Imported
from ftui.importers.convert import read_document

FIXTURES = Path(__file__).parents[1] / "fixtures" / "importing"
FILES = sorted(path for path in FIXTURES.iterdir() if path.is_file())


def settled(done: Imported, path: Path) -> None:
    """Every value of the file is reported exactly once."""
    reported = [one.foreign for one in done.carried] + [one.foreign for one in done.dropped]
    for leaf in read_document(path).leaves:
        assert reported.count(leaf.name) == 1, leaf.name
    ours = {one.ours.split(".")[1] for one in done.carried}
    assert not [one for one in done.dropped if one.reason.endswith(": there is no such key")], ours
