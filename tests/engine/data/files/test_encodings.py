"""Which encoding is offered for text that is not UTF-8."""

from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.engine.data.files.blocks import read_blocks
from ftui.errors import DataError

WRITTEN = (
    ("Dans la forêt, n° 3, d'où l'été dernier le garçon naïf mangeait à Noël.", "cp1252", "cp1252"),
    ("L\u2019œuvre a coûté 5 €, c\u2019est sûr.", "cp1252", "cp1252"),
    ("L'œuvre a coûté 5 €, c'est sûr.", "iso8859-15", "iso8859_15"),
    ("Tämä on hyvä päivä mennä metsään.", "latin-1", "cp1252"),
    ("As lições são fáceis, e não há coração que as não lembre.", "cp1252", "cp1252"),
    ("Blåbærgrød på bordet, så køber vi æbler.", "latin-1", "cp1252"),
    ("Příliš žluťoučký kůň úpěl ďábelské ódy.", "cp1250", "cp1250"),
    ("Zażółć gęślą jaźń. Część książek.", "cp1250", "cp1250"),
    ("Egy árvíz, öt, fűzfa, őr, szép az élet.", "cp1250", "cp1250"),
)


@pytest.mark.parametrize(("text", "written", "guessed"), WRITTEN)
def test_what_western_europe_writes_is_guessed_before_rarities(
    text: str, written: str, guessed: str, tmp_path: Path
) -> None:
    rows = "".join(f'{{"text": "{text} {number}"}}\n' for number in range(6))
    path = tmp_path / "rows.jsonl"
    path.write_bytes(rows.encode(written))
    with pytest.raises(DataError) as refused:
        list(read_blocks([path]))
    message, hint = refused.value.message, refused.value.hint
    assert f"it may be {guessed}, which is a guess" in message and f'data.encoding = "{guessed}"' in hint


def test_split_offers_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes("".join(f'{{"text": "{WRITTEN[0][0]} {number}"}}\n' for number in range(6)).encode("cp1252"))
    assert main(["split", str(path), "--eval", "2"]) == 31
    assert "--encoding cp1252" in capsys.readouterr().err


def test_a_rarity_that_reads_nearly_the_same_is_not_offered(tmp_path: Path) -> None:
    """Words of several languages beside each other are of no single one: then it is charset-normalizer that guesses."""
    text = "Français à Orléans, n° 3, forêt; São João, lições; Müller, Straße; español, mañana; Ångström, Malmö. "
    path = tmp_path / "rows.txt"
    path.write_bytes((text * 3).encode("cp1252"))
    with pytest.raises(DataError, match="it may be cp1252"):
        list(read_blocks([path]))
