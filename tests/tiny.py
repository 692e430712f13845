"""A recipe that runs in seconds, on text made here: a dump of 40 articles, 8 books, one task with files and one without."""

import bz2
import random
from collections.abc import Callable
from pathlib import Path

ADJECTIVES = [
    "old",
    "small",
    "bright",
    "quiet",
    "heavy",
    "broken",
    "golden",
    "hidden",
    "early",
    "narrow",
    "distant",
    "gentle",
]
NOUNS = [
    "river",
    "mountain",
    "engine",
    "garden",
    "castle",
    "harbour",
    "teacher",
    "painter",
    "valley",
    "village",
    "bridge",
    "library",
    "window",
    "forest",
]
VERBS = [
    "crosses",
    "follows",
    "remembers",
    "repairs",
    "watches",
    "describes",
    "builds",
    "guards",
    "reaches",
    "supports",
]
PLACES = ["north", "south", "coast", "market", "station", "border", "capital", "island", "meadow", "temple"]


def sentence(random_: random.Random) -> str:
    """One English sentence of simple grammar."""
    first, second = random_.sample(NOUNS, 2)
    return (
        f"The {random_.choice(ADJECTIVES)} {first} {random_.choice(VERBS)} the {random_.choice(ADJECTIVES)} {second} "
        f"near the {random_.choice(PLACES)}, {random_.choice(['but', 'and', 'while', 'because'])} the {random_.choice(NOUNS)} "
        f"{random_.choice(VERBS)} it in {random_.randint(1700, 1999)}."
    )


def paragraphs(seed: int, count: int) -> list[str]:
    """`count` paragraphs of four to eight sentences."""
    random_ = random.Random(seed)
    return [" ".join(sentence(random_) for _ in range(random_.randint(4, 8))) for _ in range(count)]


def dump(pages: int = 40, length: Callable[[int], int] = lambda n: 5) -> str:
    """An XML dump in export format 0.11 with one redirect and one talk page beside the articles; `length`: paragraphs of each."""

    def page(number: int, title: str, text: str, namespace: int = 0, extra: str = "") -> str:
        return (
            f"<page><title>{title}</title><ns>{namespace}</ns><id>{number}</id>{extra}<revision><id>{1000 + number}</id>"
            f"<timestamp>2026-01-02T03:04:05Z</timestamp><model>wikitext</model><format>text/x-wiki</format>"
            f'<text bytes="{len(text)}" xml:space="preserve">{text}</text></revision></page>\n'
        )

    body = "".join(
        page(
            n,
            f"Article {n}",
            f"'''Article {n}''' is [[Article 1|one]] of many.\n\n"
            + "\n\n".join(paragraphs(n, length(n)))
            + "\n\n* a list\n",
        )
        for n in range(1, pages + 1)
    )
    body += page(900, "Old name", "#REDIRECT [[Article 1]]", extra='<redirect title="Article 1" />')
    body += page(901, "Talk:Article 1", "Some talk.", namespace=1)
    return (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n'
        "<siteinfo><sitename>Tiny</sitename><dbname>tinywiki</dbname><base>https://en.tiny.test/wiki/Main_Page</base>"
        '<namespaces><namespace key="0" case="first-letter" /><namespace key="1" case="first-letter">Talk</namespace></namespaces>'
        f"</siteinfo>\n{body}</mediawiki>\n"
    )


def write(folder: Path) -> Path:
    """Lay out text, recipes and settings under `folder`; returns settings.yaml. The store is `folder/home`."""
    text = folder / "text"
    (text / "books").mkdir(parents=True)
    (text / "tinywiki.xml.bz2").write_bytes(bz2.compress(dump().encode()))
    for n in range(8):
        (text / "books" / f"book{n}.txt").write_text("\n\n".join(paragraphs(100 + n, 8)), encoding="utf-8")
    random_ = random.Random(7)
    lines = ["text,label"]
    for _ in range(160):
        noun = random_.choice(NOUNS)
        lines.append(
            f'"{sentence(random_)} The {noun} waits.",{"water" if noun in ("river", "harbour", "bridge") else "land"}'
        )
    (text / "places.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipes = folder / "recipes"
    recipes.mkdir()
    (recipes / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    (recipes / "tiny_child.yaml").write_text(
        "name: tiny_child\nextends: tiny\nshards: {sentence_task: none}\n", encoding="utf-8"
    )
    settings = folder / "settings.yaml"
    settings.write_text(
        f"recipes: {recipes}\nhome: {folder / 'home'}\nlease_seconds: 2\nbeam: {{workers: 1}}\n"
        "training: {device: cpu, threads: 1, checkpoint_seconds: 0.2}\n",
        encoding="utf-8",
    )
    return settings


RECIPE = """\
name: tiny
description: A model of seconds.
corpus:
  sources:
    wikipedia: {kind: wikipedia, from: {path: ../text/tinywiki.xml.bz2}}
    books: {kind: books, from: {path: ../text/books}, licence: public domain}
  held_out: 0.2
vocabulary: {size: 260}
shards: {dupe_factor: 2, files: 2}
architecture: {layers: 1, hidden: 32, heads: 2, dropout: 0}
pretraining:
  phases: [{sequence_length: 32, steps: 30}, {sequence_length: 64, steps: 10}]
  batch_size: 8
  learning_rate: 1e-3
  warmup_steps: 4
  log_every: 5
  evaluate_every: 20
  evaluate_sequences: 64
finetuning:
  tasks: [places, cola]
  define:
    places: {title: Places, files: {train: {path: ../text/places.csv}}, test_share: 0.2}
  seeds: 1
  learning_rate: 1e-3
  epochs: 1
  batch_size: 16
  max_length: 32
  dropout: 0
  pooling: mean
  baselines: [untrained, tfidf]
"""
