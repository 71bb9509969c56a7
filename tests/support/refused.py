"""What sections of a profile contradict, in words."""

from pydantic import BaseModel

from ftui.profile.checks import contradictions
from ftui.profile.checks.known_values import KnownValues


def refused(**sections: BaseModel) -> str:
    """A line for each contradiction in these sections, and between them; nothing where they agree."""
    return "\n".join(found.message for found in contradictions(KnownValues(sections)))
