"""Training files of other tools become profiles: `ftui import`."""

from ftui.importers.convert import import_file
from ftui.importers.draft import Carried, Dropped, Imported

__all__ = ["Carried", "Dropped", "Imported", "import_file"]
