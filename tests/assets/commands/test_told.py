"""What the terminal says of an artifact: drops that add up, failed checks, names from outside on one line."""

from assets.commands.told import failed_lines, on_one_line, rows_line


def test_the_rows_add_up_on_one_line() -> None:
    counts = {"read": 1352, "kept": 1337, "dropped": {"broken_line": 1, "no_id": 14, "empty": 0}, "files": 2}
    assert rows_line(counts) == "1,352 read = 1,337 kept + 15 dropped: broken_line 1, no_id 14"
    assert rows_line({"read": 3, "kept": 3, "dropped": {}}) == "3 read = 3 kept + 0 dropped"
    assert rows_line({"files": 2}) == ""


def test_only_checks_that_did_not_pass_are_told() -> None:
    passed = {"name": "has_files", "passed": True, "observed": "1", "expected": "≥ 1"}
    failed = {"name": "drops", "passed": False, "observed": "0.2 (why x)", "expected": "≤ 0.1"}
    assert failed_lines([passed, failed]) == ["drops: 0.2 (why x) (expected ≤ 0.1)"]


def test_a_name_from_outside_can_neither_begin_a_line_nor_steer_the_terminal() -> None:
    assert on_one_line("sub/tyhjä nimi.txt") == "sub/tyhjä nimi.txt"
    forged = "a.txt\n    checks   14 of 14 passed\x1b[2J\u202e"
    assert on_one_line(forged) == "a.txt\\n    checks   14 of 14 passed\\x1b[2J\\u202e"
