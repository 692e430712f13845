"""A stage's code can't change without a thought for its version.

tests/stage_sources.json holds, for every stage, its version and a digest of the source and data files that make its
output. When this test fails: if the stage's OUTPUT changes, raise `version` in its STAGE; then, in either case, renew the
digests with `python -m tests.test_stages`.
"""

import hashlib
import json

import pytest

from assets.graph import STAGES
from pipeline.stage import ROOT, Stage

HELD = ROOT / "tests" / "stage_sources.json"


def digest(stage: Stage) -> str:
    names = sorted({p.relative_to(ROOT).as_posix() for glob in stage.sources for p in ROOT.glob(glob) if p.is_file()})
    assert names, f"{stage.name} names no source file that exists: {stage.sources}"
    whole = hashlib.sha256()
    for name in names:
        content = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        whole.update(f"{name}\0{content}\n".encode())
    return whole.hexdigest()


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_an_edited_stage_got_a_thought_for_its_version(stage: Stage) -> None:
    held = json.loads(HELD.read_text(encoding="utf-8"))
    assert held.get(stage.name) == {"version": stage.version, "sources": digest(stage)}, __doc__


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_every_glob_finds_a_file_and_the_stage_itself_is_among_them(stage: Stage) -> None:
    for glob in stage.sources:
        assert list(ROOT.glob(glob)), f"{stage.name}: {glob} finds nothing"
    own = stage.function.partition(":")[0].replace(".", "/") + ".py"
    assert any((ROOT / own).match(glob) for glob in stage.sources), f"{stage.name} does not name {own}"


def test_names_are_unique_and_functions_load() -> None:
    assert len({stage.name for stage in STAGES}) == len(STAGES)
    for stage in STAGES:
        assert callable(stage.load())


if __name__ == "__main__":
    held = {stage.name: {"version": stage.version, "sources": digest(stage)} for stage in STAGES}
    HELD.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
