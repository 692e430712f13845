"""Encodings are found and mojibake is repaired; sound text of any language comes back as it was."""

import bz2

import pytest

from pipeline.prose.encodings import Decoded, decode, repair
from tests.conftest import shared

POLISH = "Zażółć gęślą jaźń. Wszystkie szczęśliwe rodziny są do siebie podobne, każda nieszczęśliwa na swój sposób. "
RUSSIAN = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему. "
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"
FRENCH = "Longtemps, je me suis couché de bonne heure. Je n’avais pas le temps de me dire : « Je m’endors. » "


PORTUGUESE = "A mãe não sabia onde estava o coração do irmão; três pássaros voavam à noite sobre o telhado.\n"
SWEDISH = "Flickan gick över ån och såg på de små fåglarna i trädet. Hon längtade hem, där det också växte äpplen.\n"
GERMAN = "Der Müller ging früh über die Straße nach Köln, weil er ein großes Stück Käse für die Bäuerin wollte.\n"
LES_FORETS = """« Où êtes-vous né ? » demanda l'élève à son père. C'était déjà l'été. Le garçon répondit qu'il n'en savait rien.
La vieille dame, assise près de la fenêtre, regardait les bateaux passer sur le fleuve gelé.
On eût dit qu'elle n'avait jamais aimé personne, sauf peut-être son frère aîné, mort à la guerre.
Les forêts, là-bas, étaient noires; un brouillard épais montait de la vallée où coulait la rivière.
"""
"""charset-normalizer alone takes this for Baltic letters (cp1257): "Oł źtes-vous"."""
TURKISH = "Yaşlı adam ırmağın kıyısında oturmuş, suyun yavaşça akışını seyrediyordu. Çocuklar çayırda bağırıyordu.\n"
LITHUANIAN = "Senas žmogus sėdėjo prie upės ir žiūrėjo, kaip vanduo lėtai teka pro šalį. Vaikai šaukė iš džiaugsmo.\n"


@pytest.mark.parametrize(
    ("text", "encoding", "said"),
    [
        ("Grüße “x”\n", "utf-8", "utf-8"),
        ("Grüße “x”\n", "utf-8-sig", "utf-8"),
        ("Grüße “x”\n", "utf-16", "utf-16"),
        ("Grüße “x”\n", "utf-16-le", "utf-16"),
        ("Grüße “x”\n", "utf-16-be", "utf-16"),
        ("Grüße “x”\n", "utf-32", "utf-32"),
        (RUSSIAN + "\n", "utf-16-le", "utf-16"),
        ("café “x”", "cp1252", "cp1252"),
        ("café", "latin-1", "cp1252"),  # the same bytes
        (FRENCH * 20, "cp1252", "cp1252"),
        (PORTUGUESE * 6, "latin-1", "cp1252"),
        (SWEDISH * 20, "cp1252", "cp1252"),
        (SWEDISH * 20, "cp850", "cp850"),
        (GERMAN * 20, "cp850", "cp850"),
        (LES_FORETS, "latin-1", "cp1252"),
        (LES_FORETS, "mac_roman", "mac_roman"),
        (TURKISH * 6, "cp1254", "cp1254"),
        (LITHUANIAN * 6, "cp1257", "cp1257"),
        (POLISH * 20, "iso8859_2", "iso8859_2"),
        ("The café was closed, and nobody came to see it. " * 200, "cp1252", "cp1252"),
        (POLISH * 20, "cp1250", "cp1250"),
        (RUSSIAN * 20, "cp1251", "cp1251"),
        (RUSSIAN * 20, "koi8-r", "koi8_r"),
        ("Όλες οι ευτυχισμένες οικογένειες μοιάζουν μεταξύ τους. " * 20, "cp1253", "cp1253"),
        (JAPANESE * 20, "shift_jis", "shift_jis"),
        ("道可道，非常道。名可名，非常名。无名天地之始；有名万物之母。" * 20, "gb18030", "gb18030"),
        ("道可道，非常道。名可名，非常名。無名天地之始；有名萬物之母。" * 20, "big5", "big5"),
    ],
)
def test_encodings(text: str, encoding: str, said: str) -> None:
    assert decode(text.encode(encoding)) == Decoded(text, said, False)


def test_byte_order_mark_big_endian() -> None:
    assert decode(b"\xfe\xff" + "Grüße".encode("utf-16-be")) == Decoded("Grüße", "utf-16")


def test_bytes_that_cp1252_does_not_define() -> None:
    assert decode(b"caf\xe9 \x93x\x94 \x81") == Decoded("café “x” \x81", "latin-1")


def test_a_few_stray_bytes_in_utf8() -> None:
    """One author's quotation mark must not turn the whole book into mojibake."""
    data = "Größe, Straße, Füße, Äpfel und Öl. ".encode() + b"\x93So\x94"
    assert decode(data) == Decoded("Größe, Straße, Füße, Äpfel und Öl. “So”", "utf-8 with cp1252")


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04\x00", b"\x00\x01binary", bytes(range(256)) * 20, b"%PDF-1.4\x01\x02\x03", b"\xff\xfe\x00"]
)
def test_bytes_that_are_no_text(data: bytes) -> None:
    assert decode(data) == Decoded(None, "")


def test_newlines_and_the_end_of_a_dos_file() -> None:
    assert decode(b"a\r\nb\rc\n\x1a").text == "a\nb\nc\n"
    assert decode(b"").text == ""


@pytest.mark.parametrize("wrong", ["cp1252", "latin-1", "cp437", "mac_roman"])
def test_mojibake_is_repaired_line_by_line(wrong: str) -> None:
    good = "She said: naïve café — “Größe”, piñata."
    bad = good.encode("utf-8").decode(wrong, "ignore" if wrong == "cp1252" else "strict")
    if wrong == "cp1252":
        good, bad = "naïve café — “Größe", "naÃ¯ve cafÃ© â€” â€œGrÃ¶ÃŸe"
    sound = "NÃO É MANHÃ, IRMÃ E MAÇÃ; « là »."
    decoded = decode(f"{sound}\n{bad}\nPlain.\n".encode())
    assert decoded == Decoded(f"{sound}\n{good}\nPlain.\n", "utf-8", True)


@pytest.mark.parametrize(
    "text",
    [
        *(POLISH, RUSSIAN, JAPANESE, FRENCH),
        "“Curly” ‘quotes’, ﬁ ligatures, ｆｕｌｌ width, &amp; entities, a\u00adb, e\u0301, …",
        "NÃO, IRMÃ, SÃO; Ørsted, Þórr, Łódź, Ž, ±3 µm, ½, £5, §4, «x», ‚x‘, 5′ 3″",
        "PARÍS, À LA CARTE, DÉJÀ VU, «ÊTRE», LE CAFÉ®, ¡OLÉ!, ¿QUÉ?, 20 °C, naïve—café",
    ],
)
def test_sound_text_stays_as_it_is(text: str) -> None:
    assert repair(text) == text
    assert decode(text.encode()) == Decoded(text, "utf-8", False)


@pytest.mark.parametrize("wiki", ["de", "fr", "ar", "zh", "ru", "ko", "he", "fa"])
def test_real_text_of_other_languages_stays_as_it_is(wiki: str) -> None:
    text = bz2.decompress(shared(f"data/wikipedia/minidumps/{wiki}_wiki.xml.bz2").read_bytes()).decode()
    assert repair(text) == text


def test_real_novels_are_utf8() -> None:
    for path in sorted(shared("data/books/novels").glob("*.txt")):
        data = path.read_bytes()
        decoded = decode(data)
        assert decoded == Decoded(data.decode("utf-8-sig").replace("\r\n", "\n"), "utf-8", False), path.name
