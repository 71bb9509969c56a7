"""Which encoding bytes may be in: each is weighed by whether its letters are those that some language writes.

charset-normalizer alone takes rarities for likelier on a few lines (Nordic for Polish, Celtic for the French "n° 3").
It is asked only where no language of the table fits, and of its answers only those count that people use.
"""

import importlib
import re
from codecs import lookup
from collections.abc import Iterator
from itertools import pairwise
from unicodedata import normalize

SAMPLE = 1 << 15  # bytes a guess looks at: charset-normalizer takes a second for 1 MiB
_LATIN_2, _BALTIC = ("cp1250", "iso8859_2"), ("cp1257", "iso8859_13", "iso8859_4")
_WESTERN = ("cp1252", "iso8859_15", "cp850", "mac_roman")
_CYRILLIC = ("cp1251", "koi8_u", "cp866", "iso8859_5", "mac_cyrillic")
LANGUAGES = (  # letters beyond ASCII, the most frequent first
    ("éàèêçôîùûâœëïæüÿ", _WESTERN),  # French
    ("üäößé", _WESTERN),
    ("óíáéñúüªº", _WESTERN),  # Spanish
    ("ãçáéóíõêâàúôüªº", _WESTERN),  # Portuguese
    ("èàùòìéóîí", _WESTERN),  # Italian
    ("ëéïöüóèê", _WESTERN),  # Dutch
    ("äöåéüà", _WESTERN),  # Finnish, Swedish
    ("øåæéöäüòóôê", _WESTERN),  # Danish, Norwegian
    ("íáðéóöúþæýø", _WESTERN),  # Icelandic, Faroese
    ("éàèêçôîùûâœëïæüÿäößóíáñúãõåøìòðþýªº", _WESTERN),  # several of them
    ("łęąóżśćńźé", (*_LATIN_2, "cp1257")),
    ("íáéěýžřčšůúťňďóäöü", _LATIN_2),  # Czech
    ("áíýéčžšúľťňäôďóĺŕ", _LATIN_2),  # Slovak
    ("áéöóőíüúűä", _LATIN_2),  # Hungarian
    ("čšžćđ", _LATIN_2),  # Croatian, Slovenian, Bosnian
    ("ăîâşţșț", ("cp1250", "iso8859_2", "iso8859_16")),
    ("ıüşğçöâîû", ("cp1254", "iso8859_9")),
    ("àáđôảạưếấêìâộớănícóốờợữầểềệịịụùúủừứựởổồơăắằặẩậẫãẽèéẻẹễỉĩòỏọõỗỡũửỳýỷỹỵ", ("cp1258",)),  # Vietnamese
    ("ėšųįžūčąę", _BALTIC),
    ("āīšēūņžļģčķ", _BALTIC),
    ("äõüöšž", _BALTIC),
    ("оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё", _CYRILLIC),
    ("оанівитерсклдумпязьбгйчхжцшюїєщґф", _CYRILLIC),
    ("аиоетнрсвлкдпмзгъубчящцжшйхюфьўі", _CYRILLIC),  # Bulgarian, Belarusian
    ("аиоенрстјвдлкмпузгбчцшћжхђљфњџѓќѕ", _CYRILLIC),  # Serbian, Macedonian
    ("αοιετσνηυρπκμλςωίόάγέθδήφχύβώξζψϊϋΐΰ", ("cp1253", "iso8859_7")),
    ("יוהלארתמבשנעכדחפקגצזטסםןץףך", ("cp1255", "iso8859_8")),
    ("المنيتورهبعدسفكحقجشصةذضخغثطظزءىأإآؤئ", ("cp1256", "iso8859_6")),
)
_BY_OTHERS = (  # of charset-normalizer's answers
    "cp932", "shift_jis", "euc_jp", "iso2022_jp", "gb18030", "gbk", "gb2312", "big5", "big5hkscs", "cp949", "euc_kr",
    "cp874", "tis_620", "iso8859_11",
)  # fmt: skip
_ODD = re.compile(  # signs that no text of these languages has, and signs inside a word
    "[\x80-\x9f¤¬¯³¹\u2500-\u259f]|[^\\W\\d_]€|[^\\W\\d_][^\\x00-\\x7f\\w\u2018\u2019\u2013\u2014\u2026·\xa0\xad'][^\\W\\d_]"
)
_RUN = re.compile(r"[^\x00-\x7f\W\d_]{7,}")  # as many letters beyond ASCII no word of a Latin alphabet has in a row
_MIXED = re.compile(r"[A-Za-z][^\x00-\x7f\W\d_]|[^\x00-\x7f\W\d_][A-Za-z]")  # two alphabets in a word
_HIRAGANA = re.compile(r"[\u3040-\u309f]")
_LEAST = 0.93  # of the letters beyond ASCII that are the language's, without odd signs
_EXCERPT = re.compile(r"[^\s\"]{0,20}[^\x00-\x7f][^\n\r\"]{0,30}")


def guess_encodings(sample: bytes) -> list[tuple[str, str]]:
    """At most two encodings that fit, the likelier first, each with an excerpt of the text as it reads in it.

    A guess: many fit any bytes. The Windows name stands for what reads the same.
    """
    telling = _telling_lines(sample[: 2 * SAMPLE])
    fits = sorted(_fits(telling), reverse=True, key=lambda fit: fit[0])
    texts: dict[str, str] = {}
    for _, name, text in fits:
        texts.setdefault(text, name)
    return [(name, _excerpt(text)) for text, name in texts.items()][:2] or _ask_normalizer(telling)


def misread_note(sample: bytes, encoding: str) -> str:
    """In words, that the bytes make no language in this encoding, and in which they do; empty where nothing is odd."""
    telling = _telling_lines(sample)
    try:
        text = telling.decode(encoding, "ignore")
        is_table = hasattr(
            importlib.import_module(f"encodings.{lookup(encoding).name.replace('-', '_')}"), "decoding_table"
        )
    except (ImportError, LookupError):
        return ""
    if not is_table or text.isascii() or plausibility(text) or not (guesses := guess_encodings(telling)):
        return ""
    name, excerpt = guesses[0]
    if telling.decode(name, "ignore") == text:
        return ""
    return f'as {encoding} it reads "{_excerpt(text)}", as {name} "{excerpt}": is data.encoding = "{name}" meant?'


def _telling_lines(sample: bytes) -> bytes:
    return b"\n".join(line for line in sample.split(b"\n") if not is_utf8(line))[:SAMPLE]


def plausibility(text: str) -> float:
    """How well the letters beyond ASCII are those of the language they fit best; 0 where they are of none."""
    return max((_score(text, letters) for letters, _ in LANGUAGES), default=0.0)


def _fits(data: bytes) -> Iterator[tuple[float, str, str]]:
    """Score, encoding and text for every language and encoding that may be meant; earlier ones come first."""
    for letters, encodings in LANGUAGES:
        for name in encodings:
            try:
                text = normalize("NFC", data.decode(name))  # cp1258 writes accents beside their letters
            except UnicodeDecodeError:
                continue
            if score := _score(text, letters):
                yield score, name, text


def _score(text: str, letters: str) -> float:
    """0 where the text is not of these letters; else more, the more of them and of the frequent ones it has."""
    beyond = [letter for letter in text.lower() if letter > "\x7f" and letter.isalpha()]
    if not beyond:
        return 0.0
    ranks = {letter: rank / len(letters) for rank, letter in enumerate(letters)}
    odd = len(_ODD.findall(text)) + sum(a.islower() and b.isupper() and max(a, b) > "\x7f" for a, b in pairwise(text))
    is_latin = letters[0] < "\u0370"
    odd += sum(map(len, _RUN.findall(text))) if is_latin else len(_MIXED.findall(text))
    inside = [1 - ranks[letter] for letter in beyond if letter in ranks]
    share = (len(inside) - odd) / len(beyond)
    return share + sum(inside) / len(beyond) + len(set(beyond) & set(ranks)) / len(ranks) if share >= _LEAST else 0.0


def _ask_normalizer(data: bytes) -> list[tuple[str, str]]:
    for name in ("cp932", "euc_jp"):  # a few lines of Japanese are taken for Korean
        text = data.decode(name, "replace")
        if 4 * len(_HIRAGANA.findall(text)) > len(text) - sum(map(str.isascii, text)):
            return [(name, _excerpt(text))]
    from charset_normalizer import from_bytes  # 30 ms, and few need it

    best = from_bytes(data).best()
    return [(best.encoding, _excerpt(str(best)))] if best is not None and best.encoding in _BY_OTHERS else []


def _excerpt(text: str) -> str:
    match = _EXCERPT.search(text)
    return " ".join(match.group().split()) if match else ""


def is_utf8(line: bytes) -> bool:
    """Whether the bytes are whole characters of UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
