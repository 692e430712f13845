"""All cells: `python -m tests.crash [--only TEXT …] [--markdown FILE]`; prints each with its outcome; exit code 1 where one is not as
promised."""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.bertrun import BERT_CELLS, MORE_CELLS, BertCell, run_cell
from tests.crash.cells import Cell, cells
from tests.crash.driver import run
from tests.crash.table import Row, markdown, summary
from tests.crash.world import made


def main() -> int:
    """Run the cells whose name holds one of the texts."""
    options = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    options.add_argument("--only", nargs="*", default=[""], metavar="TEXT")
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    wanted: list[Cell | BertCell] = [*cells(), *BERT_CELLS, *MORE_CELLS]
    wanted = [cell for cell in wanted if any(text in cell.name for text in chosen.only)]
    rows = []
    with tempfile.TemporaryDirectory(prefix="crash-") as name, made(Path(name)) as world:
        for number, cell in enumerate(wanted):
            folder, began = Path(name) / f"cell-{number}", time.monotonic()
            try:
                outcome = run(cell, world, folder) if isinstance(cell, Cell) else run_cell(cell, world, folder)
                row = Row(cell, outcome.what, outcome.said.replace(str(folder), "…"), time.monotonic() - began)
            except AssertionError as error:
                row = Row(cell, "FAILED", str(error).replace(str(folder), "…"), time.monotonic() - began)
            rows.append(row)
            said = f"\n{row.said}" if row.failed else f"  {row.said[:110]}"
            print(f"{row.seconds:5.1f} s  {row.what:9} {cell.name}{said}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{summary(rows)}")
    if chosen.markdown:
        chosen.markdown.write_text(markdown(rows), encoding="utf-8")
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
