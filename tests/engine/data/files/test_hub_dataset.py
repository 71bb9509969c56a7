"""Columns of pictures and sound of a data set from the hub."""

import datasets
import pytest

from ftui.engine.data.files.hub_dataset import _without_media
from ftui.errors import DataError


def table_of(**features: object) -> datasets.Dataset:
    kinds = datasets.Features(features)
    return datasets.Dataset.from_dict({name: [None, None] for name in features}, features=kinds)


def test_pictures_are_left_out_and_a_table_of_nothing_else_is_refused() -> None:
    """Without columns it would have no rows, and nobody would be told why."""
    table, media = _without_media("o/rows", table_of(image=datasets.Image(), text=datasets.Value("string")))
    assert (table.column_names, len(table), media) == (["text"], 2, ("image",))
    lists = {
        "pages": [datasets.Image()],
        "films": datasets.LargeList(datasets.Video()),
        "words": [datasets.Value("string")],
    }
    assert _without_media("o/rows", table_of(**lists))[1] == ("pages", "films")
    with pytest.raises(DataError, match=r"o/rows holds images.*\(image, sound\): only text"):
        _without_media("o/rows", table_of(image=datasets.Image(), sound=datasets.Audio()))
