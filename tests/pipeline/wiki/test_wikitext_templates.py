"""Rules for templates: the pattern language, the tables, the dump's own templates, and what has no rule."""

import bz2
import html
import re
import time
import tomllib

import pytest

from pipeline.errors import RecipeError
from pipeline.recipe import load_recipes
from pipeline.wiki.wikitext_functions import Arguments
from pipeline.wiki.wikitext_rules import RuleError, compile_rule
from pipeline.wiki.wikitext_tables import FOLDER, read_rules
from pipeline.wiki.wikitext_templates import DumpTemplates, read_templates, rules_for, unhandled
from pipeline.wikitext import Site, to_text
from tests.conftest import shared

# ── the pattern language ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "arguments", "expected"),
    [
        ("{2}", "a|b", "b"),
        ("{Alt|1}", "a|alt=b", "b"),
        ("{alt|1}", "a|alt=", "a"),
        ("{-1}", "a|b|", "b"),
        ("{0} {1}", "x", "Name x"),
        ("{*, }", "a||b", "a, b"),
        ("{2*、}", "a|b|c", "b、c"),
        ("{*}", "H|2|O", "H2O"),
        ("{1}[ ({2|kanji}[, {3}])]", "a|kanji=b|3=c", "a (b, c)"),
        ("{1}[ ({2|kanji}[, {3}])]", "a", "a"),
        ("{1!}{2|'e'} siècle", "XX", "XXe siècle"),
        ("{1!}{2|'e'} siècle", "|er", ""),
        ("[{1!}: {2}; ]{3}", "|b|c", "c"),
        ("c. {1}", "", ""),
        ("{'Mme'}[ {1}]", "", "Mme"),
        (" – ", "a", " – "),
        ("{1}", "1=a=b", "a=b"),
        ("{1}", "2=x|1=a", "a"),
        ("{100}", "100=a", "a"),
        ("{01}", "a", "a"),
        ("{Nom de l’œuvre (fr)}", "nom de l’œuvre (fr)=a", "a"),
        ("{1a|n°|名_前}", "名_前=a", "a"),
    ],
)
def test_what_a_rule_gives(rule, arguments, expected):
    assert compile_rule(rule)(Arguments("Name", arguments.split("|"))) == expected


def test_an_escaped_character_is_read_neither_by_the_rule_nor_as_markup():
    rules = rules_for("xx", {r"\[\[{1}\]\]": ["brackets"], r"{1}\|{2}": ["bars"]})
    assert to_text("A {{brackets|x}} and {{nowrap|{{bars|a|b}}}}.", None, rules) == "A [[x]] and a|b."


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("", "the rule is empty"),
        ("{1", "the { at character 1 is never closed"),
        ("a }", "the } at character 3 closes no {"),
        ("[ {1}", "the [ at character 1 is never closed"),
        ("{1}]", "the ] at character 4 closes no ["),
        ("a[b]", "refers to no argument"),
        ("{}", "{} is no reference"),
        ("{a||b}", "{a||b} is no reference"),
        ("{'a}", "is no reference"),
        ("a\\", "the rule ends with \\"),
        ("@converd", "did you mean @convert?"),
        ("@zzz", "there are as_of"),
        ("[" * 30 + "{1}" + "]" * 30, "groups inside each other"),
        ("{-5}", "{-5}: there is no argument -5; write {-1} for the last one, {1} for the first"),
        ("{00}", "{00}: there is no argument 00; write {1} for the first, or {0} for the template's own name"),
        ("{a|0*}", "{a|0*} is no reference"),
        ("{0*, }", "{0*, }: there is no argument 0; write {1*, }, from the first one on"),
        ("{101}", "{101}: arguments by position are 1 to 100"),
        (f"{{{'9' * 5000}}}", "arguments by position are 1 to 100"),
        ("{101*, }", "{101*, }: arguments by position are 1 to 100"),
        ("{2|1.5}", "{2|1.5}: 1.5 can't be the name of an argument, which has a letter"),
        ("{+1}", "+1 can't be the name of an argument"),
        ("{1?}", "1? can't be the name of an argument"),
        ("{$name}", "$name can't be the name of an argument, which has a letter and none of"),
        ("{@convert}", "@convert can't be the name of an argument"),
        ("{{name}", "{name can't be the name of an argument"),
        ("{name=x}", "name=x can't be the name of an argument"),
    ],
)
def test_a_rule_that_can_not_be_read_says_why(rule, message):
    with pytest.raises(RuleError) as raised:
        compile_rule(rule)
    assert message in str(raised.value)


# ── the tables ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.toml")), ids=lambda file: file.stem)
def test_the_tables_are_well_formed(file):
    """Every rule can be read, every name is as it is looked up, and none has two rules in one section."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    assert set(data) <= {"templates", "only", "furniture"} and not (file.stem == "core" and "only" in data)
    for section in ("templates", "only"):
        names = []
        for rule, listed in data.get(section, {}).items():
            compile_rule(rule)
            names += listed
        assert [name for name in names if name != name.lower() or "_" in name] == []
        assert sorted({name for name in names if names.count(name) > 1}) == []
    furniture = data["furniture"]["names"]
    assert [name for name in furniture if name != name.lower() or furniture.count(name) > 1] == []


@pytest.mark.parametrize(
    ("language", "wikitext", "expected"),
    [
        # English
        ("en", "A {{sclass|Essex|aircraft carrier}}, {{USS|Wasp|CV-7|6}} and {{HMNZS|Otago}}.", "A Essex-class aircraft carrier, USS Wasp and HMNZS Otago."),
        ("en", "As {{harvtxt|Boolos|Jeffrey|1974}} and {{Harvtxt|Tarski|1944}} show.", "As Boolos & Jeffrey (1974) and Tarski (1944) show."),
        ("en", "See {{usc|17|302}}, {{CFR|21|73}}, {{IETF RFC|2822}}.", "See 17 U.S.C. § 302, 21 C.F.R. 73, RFC 2822."),
        ("en", "It had {{hlist|tea|[[milk]]|sugar}}; HA {{eqm}} H.", "It had tea, milk, sugar; HA ⇌ H."),
        ("en", "About {{convert|5|and|6|miles|km|abbr=on}}, {{val|5|u=m/s}}, {{solar mass|2}}.", "About 5 and 6 miles, 5 m/s, 2 M☉."),
        ("en", "It paid {{INRConvert|5|c}} ({{NYSE|IBM}}), SO{{su|b=4|p=2−}}.", "It paid ₹5 crore (NYSE: IBM), SO42−."),
        ("en", "From {{circa}} 300 BC, {{c.|1500|1510}}, {{circa|1600}}; {{fl.}} 1200, {{floruit|1300|1310}}.", "From c. 300 BC, c. 1500 – c. 1510, c. 1600; fl. 1200, fl. 1300–1310."),
        ("en", "Jane Doe ({{nee}} Smith; {{née|Jones}}), {{reign}} 900.", "Jane Doe (née Smith; née Jones), r. 900."),
        ("en", "It has 2 {{Jupiter mass}}, {{Earth radius|3}} and {{solar luminosity}}.", "It has 2 MJ, 3 R🜨 and L☉."),
        ("en", "In {{vr|ai}}, {{Carbon}}<sub>2</sub>{{Hydrogen}}<sub>6</sub>{{Oxygen}} or {{nitrogen}}.", "In ⟨ai⟩, C2H6O or N."),
        ("en", "A{{gap}}B{{gap|2em}}C, from A to {{nowrap begin}}AA-.{{nowrap end}} Then.", "A B C, from A to AA-. Then."),
        # German
        ("de", "Etwa {{FormatNum|1234567}} ({{Formnum|5}}), {{B|Mt|5|3}}.", "Etwa 1234567 (5), Mt 5,3."),
        ("de", "Er sagte {{\"|Guten Tag|lang=de}} ({{enS|good day}}, {{laS}}).", "Er sagte „Guten Tag“ (englisch good day, lateinisch)."),
        ("de", "Am {{Datum|2001-03-07}} nach {{§|823|bgb|juris}} BGB auf {{Höhe|115|DE-NHN}}.", "Am 7. März 2001 nach § 823 BGB auf 115 m."),
        # French
        ("fr", "Au {{s-|XIX|e}}, du {{s2-|XVI|e|XVII|e}}, {{-s|V|e}} : {{citation|mot}}.", "Au XIXe siècle, du XVIe et XVIIe siècles, Ve siècle av. J.-C. : « mot »."),
        ("fr", "{{Unité|3|à=4|km||h|-1}} {{incise|dit-il}} {{date-|4/12/2001}}, {{n°|5}}.", "3 à 4 km⋅h-1 – dit-il – 4 décembre 2001, no 5."),
        ("fr", "{{date|1|mars|1900|en sport}} à {{heure|12|30}}, {{Mme|Curie}}, {{IIe millénaire}}.", "1 mars 1900 à 12 h 30, Mme Curie, IIe millénaire."),
        ("fr", "Vers 52 {{av JC}}, 30 {{-C}} et {{av JC|27}} ; la {{2de}}, le {{2d}}, {{Mmes}} A, {{vol.|2}}, {{chap.|3}}, {{St}} Jean et {{Cie}}.", "Vers 52 av. J.-C., 30 av. J.-C. et 27 av. J.-C. ; la 2de, le 2d, Mmes A, vol. 2, chap. 3, St Jean et Cie."),
        # Arabic
        ("ar", "'''برلين''' {{لغة-أل|Berlin}} هي.", "برلين (بالألمانية: Berlin) هي."),
        # Spanish
        ("es", "En el {{siglo|V|a}} y el {{siglo|XIX}}, {{fecha|1|3|1900}}: {{lang-en|word}}.", "En el siglo V a. C. y el siglo XIX, 1 de marzo de 1900: word."),
        # Italian
        ("it", "Lungo {{M|100|ul=km}}, {{formatnum:5000}} {{maiuscoletto|abc}}{{cita|Rossi|p. 3}}.", "Lungo 100 km, 5000 abc."),
        # Russian
        ("ru", "Это {{нп5|Цель||en|Target}} и {{не переведено|Цель|текст}}, {{num|1000|км}}, {{s|1 м}}.", "Это Цель и текст, 1000 км, 1 м."),
        ("ru", "{{OldStyleDate|7 ноября|1917|25 октября}} в {{СССР}}.", "25 октября (7 ноября) 1917 в СССР."),
        ("ru", "Слово {{langi|de|Wort}} значит {{lang-de2|Wort}}.", "Слово Wort значит Wort."),
        # Chinese
        ("zh", "他{{bd|1879年|3月14日|1955年|4月18日}}是{{le|物理|Physics|物理学家}}、{{tsl|en|X|本地|显示}}。", "他（1879年3月14日－1955年4月18日）是物理学家、显示。"),
        # Japanese
        ("ja", "{{fr|mot}}と{{ルビ|字|じ}}、{{JIS2004フォント|葛}}、{{by|1990}}、{{要出典範囲|文|date=x}}。", "motと字（じ）、葛、1990年、文。"),
        ("ja", "多数（{{要出典|範囲=五十以上|date=2021年3月}}）と{{要出典|date=2022-05|文がある。}}{{要出典|date=2020年}}", "多数（五十以上）と文がある。"),
        ("zh", "{{来源请求|一句话|time=2013-02-05}}，{{fact|time=2013}}完。", "一句话，完。"),
        # Persian, Hebrew, Korean
        ("fa", "پایتخت است.{{سخ}}ادامه ({{آلمانی|Berlin}}، {{به انگلیسی|City}}).", "پایتخت است. ادامه (Berlin، City)."),
        ("he", "עיר.{{ש}}המשך {{מונחון|מילה|הסבר}}:\n{{ציטוט|תוכן=דברים.}}", "עיר. המשך מילה:\n\nדברים."),
        ("ko", "수도는 {{국기나라|대한민국}}이다.\n{{인용문|말.}}", "수도는 대한민국이다.\n\n말."),
        # no language is known, or the dump says a wrong one
        ("", "{{s|XX|e}} {{нп5|Цель||en}} {{enS|word}}.", "XXe siècle Цель englisch word."),
        ("en", "{{s-|XX|e}} {{нп5|Цель||en}} {{enS|word}}.", "XXe siècle Цель englisch word."),
        # short names count only at home
        ("de", "A {{rus|x}}, {{css|y}}.", "A russisch x, tschechisch y."),
        ("en", "A {{rus|x}}, {{css|Virginia}}.", "A x, CSS Virginia."),
        ("de", "A {{m|5|km}}{{by|1990}}{{fr|mot}} b.", "A b."),
        ("it", "A{{cita|Rossi|p. 3}}.", "A."),
        ("es", "A\n{{cita|Dijo.}}\nB.", "A\n\nDijo.\n\nB."),
    ],
)  # fmt: skip
def test_templates_of_the_languages(language, wikitext, expected):
    assert to_text(wikitext, Site(language=language)) == expected


def test_variants_of_a_language_are_that_language():
    assert rules_for("fr-ca").expand("s|XX|e") == "XXe siècle"


def test_a_users_rules_come_first_and_change_nothing_for_others():
    rules = rules_for("en", {"<{1}>": ["convert", "my *"], "{2}": ["lang-de"]})
    assert [rules.expand(each) for each in ("convert|5|km", "my box|x", "My_box|y", "Lang-de|a|b", "lang-fr|a|b")] == [
        "<5>", "<x>", "<y>", "b", "a",
    ]  # fmt: skip
    assert rules_for("en").expand("convert|5|km") == "5 km"


# ── a user's file ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_users_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[templates]\n"{1}" = ["My_Box", "vorlage:my box", "b"]\n"\\n{2}" = ["c"]\n', encoding="utf-8")
    assert read_rules(file) == {"{1}": ("b", "my box"), "\n{2}": ("c",)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[templates]\n"{1}" = ["a"', "mine.toml:2: not TOML"),
        ('[templates]\n"{1}" = ["a"]\n\n"{2" = ["b"]', "mine.toml:4: rule '{2': the { at character 1 is never closed"),
        (
            '[templates]\n"@converd" = ["a"]',
            "mine.toml:2: rule '@converd': there is no function @converd, did you mean",
        ),
        ('[templates]\n\'\\[{1}\' = ["a"]\n"\\\\[[{1}" = ["b"]', "mine.toml:3: rule"),
        ('[templates]\n"{1}" = ["b"]\n"{-5} km" = ["a"]', "mine.toml:3: rule '{-5} km': {-5}: there is no argument -5"),
        ('[templates]\n"{1}" = "a"', "mine.toml:2: rule '{1}' wants a list of template names"),
        ('[templates]\n"{1}" = []', "wants a list of template names"),
        ('[templates]\n"{1}" = ["a"]\n"{2}" = ["A"]', "mine.toml:3: template 'a' has two rules, '{1}' and '{2}'"),
        ('x = 1\n[templates]\n"{1}" = ["a"]', "mine.toml:1: there is no section x"),
        ('[only]\n"{1}" = ["a"]', "mine.toml:1: there is no section only"),
    ],
)
def test_a_file_that_can_not_be_used(tmp_path, content, message):
    file = tmp_path / "mine.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RecipeError) as raised:
        read_rules(file, "mine.toml")
    assert raised.value.what.startswith(message) or message in raised.value.what
    assert raised.value.todo


RECIPE = """\
name: wiki
corpus:
  sources:
    w: {kind: KIND, from: {path: dump.xml}, templates: rules/mine.toml}
pretraining:
  warmup_steps: 10
  phases:
    - {sequence_length: 128, steps: 100}
"""


def recipes(folder, rules, kind="wikipedia", name="rules/mine.toml"):
    (folder / "wiki.yaml").write_text(RECIPE.replace("KIND", kind), encoding="utf-8")
    if rules is not None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(rules, encoding="utf-8")
    return load_recipes(folder)


def test_rules_enter_the_recipe_by_content(tmp_path):
    loaded = recipes(tmp_path, '[templates]\n"{1}" = ["b", "a"]\n')
    config = loaded.recipes["wiki"].config_for("w_text")
    assert config.asked()["templates"] == {"{1}": ["a", "b"]}
    digest = loaded.recipes["wiki"].digest_for("w_text")
    same = recipes(tmp_path, '# mine\n[templates]\n"{1}" = ["a", "B"]\n').recipes["wiki"]
    assert same.digest_for("w_text") == digest
    other = recipes(tmp_path, '[templates]\n"{2}" = ["a", "b"]\n').recipes["wiki"]
    assert other.digest_for("w_text") != digest
    assert other.digest_for("w_dump") == same.digest_for("w_dump")


@pytest.mark.parametrize(
    ("rule", "name", "said"),
    [("{1}", "*a*b*c", "more than 2 stars"), ("a\\u0002b", "x", "control character")],
)
def test_a_users_file_that_would_do_harm_is_refused(tmp_path, rule, name, said):
    (tmp_path / "mine.toml").write_text(f'[templates]\n"{rule}" = ["{name}"]\n', encoding="utf-8")
    with pytest.raises(RecipeError, match=rf"mine\.toml:2: .*{said}"):
        read_rules(tmp_path / "mine.toml")


def test_a_recipe_with_a_bad_file_of_rules_says_where(tmp_path):
    missing = recipes(tmp_path, None).errors["wiki"].what
    assert "wiki.yaml:4: corpus.sources.w.templates: there is no such file" in missing
    bad = recipes(tmp_path, '[templates]\n"{1" = ["a"]\n').errors["wiki"].what
    assert "mine.toml:2: rule '{1': the { at character 1 is never closed" in bad
    books = recipes(tmp_path, '[templates]\n"{1}" = ["a"]\n', kind="books").errors["wiki"].what
    assert "wiki.yaml:4: corpus.sources.w.templates: a source of kind books has no templates" in books


# ── the templates of a dump ──────────────────────────────────────────────────────────────────────────────────────────

GERMAN = Site(language="de", namespaces=((0, ""), (10, "Vorlage"), (14, "Kategorie")))


def test_redirects_of_the_dump():
    pages = [
        ("Vorlage:Cv", "#WEITERLEITUNG [[Vorlage:Cv2]]\n[[Kategorie:X]]"),
        ("Vorlage:Cv2", "#redirect [[Template:Convert]]"),
        ("Vorlage:Beleg da", "#WEITERLEITUNG [[Vorlage:Belege fehlen]]"),
        ("Vorlage:Nichts", "#WEITERLEITUNG [[Vorlage:Kasten]]"),
        ("Vorlage:Kreis", "#WEITERLEITUNG [[Vorlage:Kreis2]]"),
        ("Vorlage:Kreis2", "#WEITERLEITUNG [[Vorlage:Kreis]]"),
        ("Vorlage:Selbst", "#WEITERLEITUNG [[Vorlage:selbst]]"),
        ("Vorlage:Mein", "#WEITERLEITUNG [[Vorlage:Meine Box]]"),
    ]
    added = {"{1}": ["meine box"]}
    dump = read_templates(pages, GERMAN, added)
    assert dict(dump.redirects) == {
        "cv": "convert", "cv2": "convert", "beleg da": "belege fehlen", "mein": "meine box",
    }  # fmt: skip
    rules = rules_for("de", added, dump)
    assert (rules.expand("Cv|5|km|mi"), rules.expand("vorlage:mein|x")) == ("5 km", "x")


@pytest.mark.parametrize(
    ("body", "call", "expected"),
    [
        ('<span style="white-space:nowrap">{{{1}}}</span><noinclude>{{Doc}}</noinclude>', "t|a b", "a b"),
        ("<includeonly>'''{{{1|}}}'''</includeonly><noinclude>doc</noinclude>[[Kategorie:X]]", "t|a", "'''a'''"),
        ("Doc {{Documentation}} <onlyinclude>{{{1}}} km</onlyinclude> more", "t|5", "5 km"),
        ("{{{name|{{{1|nobody}}}}}}", "t", "nobody"),
        ("{{{name|{{{1|nobody}}}}}}", "t|x", "x"),
        ("{{{name|{{{1|nobody}}}}}}", "t|x|name=y", "y"),
        ("[[{{{1}}}|{{{2|{{{1}}}}}}]]", "t|a|b", "b"),
        ("[[{{{1}}}|{{{2|{{{1}}}}}}]]", "t|a", "a"),
        ("{{convert|{{{1}}}|km|mi}}", "t|7", "7 km"),
        ("{{ #if: {{{2|}}} | {{{1}}} ({{{2}}}) | {{{1}}} }}", "t|a|b", "a (b)"),
        ("{{ #if: {{{2|}}} | {{{1}}} ({{{2}}}) | {{{1}}} }}", "t|a", "a"),
        ("{{uc:{{{1}}}}}<!-- loud -->", "t|ab", "AB"),
        ("{{lang|en|{{nowrap|{{{1}}}}}}}", "t|x=y", None),  # an argument with a name
        ("{{lang|en|{{nowrap|{{{1}}}}}}}", "t|1=x=y", "x=y"),
        ("km²", "t", "km²"),
        ("&nbsp;–&#32;", "t", "&nbsp;–&#32;"),
    ],
)
def test_simple_wrappers_are_taken(body, call, expected):
    dump = read_templates([("Vorlage:T", body)], GERMAN)
    assert set(dump.wrappers) == {"t"}
    assert rules_for("de", {}, dump).expand(call) == expected


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<noinclude>Only documentation</noinclude>",
        "<sup>[[Wikipedia:Belege|Beleg?]]</sup>",  # mark of doubt
        "<sup>[''[[Hilfe:Belege|Beleg fehlt]] {{{datum|}}}'']</sup>",
        "<small>veraltet {{{date|}}}</small>",  # shows its date only
        "{| class='box'\n| {{{1}}}\n|}",
        "<div>{{{1}}}</div>",
        "<table><tr><td>{{{1}}}</td></tr></table>",
        ":''Siehe auch: [[{{{1}}}]]''",
        "Dieser Artikel über {{{1}}} ist ein Stub. Hilf mit!",  # a sentence of its own
        "[[Datei:Flag.svg|20px]] {{{1}}}",  # icon
        "{{{1}}}<ref>{{{2}}}</ref>",
        "[http://example.org/{{{1}}} {{{2}}}]",
        "{{#invoke:Convert|convert|{{{1}}}}}",
        "{{#switch:{{{1}}}|a=b}}",
        "{{{{{1}}}|x}}",
        "{{Unbekannt|{{{1}}}}}",
        "{{T|{{{1}}}}}",  # calls itself
        "* {{{1}}}",
        "{{{1}}}\n\n{{{2}}}",
        "[[#CITEREF{{{1}}}|{{{1}}} {{{2}}}]]",
        '<span class="IPA">[{{{1}}}]</span>',
        '<span style="display:none">{{{1}}}</span>',
        "[[Hilfe]]",  # a constant with a link
        "Ein Text von mehr als zwanzig Zeichen",
        "{{{1}}} " + "x" * 2_000,
        "{{{1",
        "[[{{{1}}}",
    ],
)
def test_other_templates_are_not(body):
    assert read_templates([("Vorlage:T", body)], GERMAN) == DumpTemplates({}, {})


def test_furniture_is_never_a_wrapper():
    assert read_templates([("Template:IPA-xx", "{{{1}}}"), ("Template:Citation needed", "why")], None).wrappers == {}


def test_wrappers_that_call_wrappers_and_those_that_differ_in_case():
    pages = [
        ("Vorlage:AAA", "{{BBB|{{{1}}}}}!"),
        ("Vorlage:BBB", "{{Weiter|{{{1}}}}}"),
        ("Vorlage:Weiter", "#REDIRECT [[Vorlage:CCC]]"),
        ("Vorlage:CCC", "({{{1}}})"),
        ("Vorlage:DDD", "{{EEE|{{{1}}}}}"),
        ("Vorlage:EEE", "{{DDD|{{{1}}}}}"),
        ("Vorlage:Xy", "{{{1}}}"),
        ("Vorlage:XY", "{{{2}}}"),
    ]
    dump = read_templates(pages, GERMAN)
    assert set(dump.wrappers) == {"aaa", "bbb", "ccc"} and dump.redirects == {"weiter": "ccc"}
    rules = rules_for("de", {}, dump)
    assert to_text("Ein {{aaa|Wort}} und {{ddd|nichts}}.", GERMAN, rules) == "Ein (Wort)! und."


def test_a_rule_comes_before_the_dumps_own_template():
    dump = DumpTemplates({}, {"convert": "{{{1}}} leagues", "new": "{{{1}}} leagues"})
    rules = rules_for("en", {}, dump)
    assert (rules.expand("convert|5|km"), rules.expand("new|5")) == ("5 km", "5 leagues")


@pytest.mark.parametrize(
    "wrappers",
    [
        {"a": "{{a|{{{1}}}}}x"},
        {"a": "{{b|{{{1}}}}}x", "b": "{{a|{{{1}}}}}x"},
        {"a": "{{b}}" * 200, "b": "{{c}}" * 200, "c": "{{d}}" * 200, "d": "{{{1|x}}}" * 200},
        {"a": "{{{1}}}" * 200},
        {"a": "{{lang|x|{{{1}}}}}" * 100},
        {"a": "{{{1|" * 300 + "}}}" * 300},
        {"a": "{{#if:" * 300 + "}}" * 300},
    ],
)
def test_hostile_wrappers_stay_bounded(wrappers):
    rules = rules_for("en", {}, DumpTemplates({}, wrappers))
    started = time.process_time()
    for page in ("{{a|" * 90 + "y" + "}}" * 90, "{{a|y}}" * 500, "{{a|" + "y" * 200_000 + "}}"):
        assert len(to_text(f"Start. {page}", None, rules)) < 2 * len(page) + 200_000
    assert time.process_time() - started < 30


def test_hostile_template_pages_stay_linear():
    started = time.process_time()
    for piece in (
        "{{{1|",
        "{{#if:",
        "[[",
        "<noinclude>",
        "<!--",
        "<onlyinclude>",
        "<nowiki>",
        "}}",
        "<span ",
        "'''",
        "{{",
    ):
        assert read_templates([("Template:X", piece * 20_000)], None).wrappers == {}
        assert read_templates([("Template:X", piece * 300)], None).wrappers == {}
    assert time.process_time() - started < 30


def test_real_template_pages():
    """aawiki's 24 template pages are stubs, boxes and notices but for two."""
    dump = bz2.decompress(shared("data/wikipedia/aawiki-20260101-pages-meta-current.xml.bz2").read_bytes()).decode()
    pages = re.findall(r"<title>(Template:[^<]*)</title>.*?<text[^>]*>(.*?)</text>", dump, re.S)
    taken = read_templates([(html.unescape(title), html.unescape(text)) for title, text in pages], Site(language="aa"))
    assert len(pages) >= 20 and set(taken.wrappers) == {"style/ipa", "style/yid"}


# ── templates without a rule ─────────────────────────────────────────────────────────────────────────────────────────


def names(wikitext, language="en"):
    return [name for name, _ in unhandled(wikitext, rules_for(language))]


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("A {{foo|x}} b and {{Bar_baz}}.", ["foo", "bar baz"]),
        ("A {{convert|5|km}} b{{citation needed}} {{IPA-de|x}} {{Sfn|a}} {{#if:x|y}} {{PAGENAME}} {{DEFAULTSORT:x}}.", []),
        ("A {{nowrap|{{foo|x}}}} b.", ["foo"]),
        ("A {{foo|{{bar}}}} b.", ["foo"]),
        ("{{foo}}\n\n{{foo|\n| a = {{bar}}\n}}\nProse.", []),
        ("{{foo}} {{bar}}\nProse {{baz}}.", ["baz"]),
        ("* A {{foo}}\n: b {{foo}}\n== c {{foo}} ==\n{|\n| d {{foo}}\n|}\nProse.", []),
        ("A<ref>b {{foo}}</ref> c<!-- {{foo}} --> <nowiki>{{foo}}</nowiki> <ref name='{{x}}'/>.", []),
        ("A [[File:x.jpg|thumb|b {{foo}}]] c [[link|{{bar}}]].", ["bar"]),
        ("A {{foo}}.\n== References ==\nB {{bar}}.\n=== Sub ===\nC {{bar}}.\n== Later ==\nD {{baz}}.", ["foo", "baz"]),
        ("A {{foo\n|x}} b\n{{bar}} c.", ["foo", "bar"]),
        ("A {{ {{x}} }} b {{{1}}} {{}} {{|}}.", []),
    ],
)  # fmt: skip
def test_unhandled(wikitext, expected):
    assert names(wikitext) == expected


def test_examples_are_the_source_around_the_template():
    long = "{{foo|" + "y" * 300 + "}}"
    found = list(unhandled(f"x\n{'a' * 99} b {{{{bar}}}} c\nz {long}.", rules_for("en")))
    assert found[0] == ("bar", "a" * 37 + " b {{bar}} c")
    assert found[1][0] == "foo" and found[1][1].startswith("{{foo|yyy") and len(found[1][1]) == 120


def test_a_rule_a_redirect_or_a_wrapper_ends_the_report():
    page = "A {{foo|x}} {{bar|x}} {{baz|x}} {{qux|x}}."
    dump = DumpTemplates({"bar": "lang"}, {"baz": "{{{1}}}"})
    assert [name for name, _ in unhandled(page, rules_for("en", {"{1}": ["foo"]}, dump))] == ["qux"]


@pytest.mark.parametrize(
    "piece", ["{{a|", "{{a}}", "[[", "[[File:", "<ref>", "<!--", "{{", "}}", "x {{a\n", "<ref ", "{|\n", "=\n", "{{{"]
)
def test_unhandled_is_linear(piece):
    rules = rules_for("en")
    started = time.process_time()
    list(unhandled("A word " + piece * 50_000, rules))
    assert time.process_time() - started < 30


@pytest.mark.parametrize(("dump", "language"), [("enwiki-20220720-head", "en"), ("jawiki-20220720-head", "ja")])
def test_few_templates_of_real_articles_have_no_rule(dump, language):
    """English: 8 among some 5,000 templates in prose lines, Japanese: 20 among 2,000 (the dump has talk pages too)."""
    data = bz2.decompress(shared(f"data/wikipedia/{dump}.xml.bz2").read_bytes()).decode()
    pages = [html.unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", data, re.S)]
    rules = rules_for(language)
    left = sum(1 for page in pages for _ in unhandled(page, rules))
    assert len(pages) > 100 and left <= 25
