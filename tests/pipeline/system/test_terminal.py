"""What no terminal obeys."""

from pipeline.system.terminal import steady


def test_control_characters_are_written_out_and_all_else_stays() -> None:
    assert steady("red \x1b[31m\x9b2J\r\x07\x00\x7f") == "red \\x1b[31m\\x9b2J\\r\\x07\\x00\\x7f"
    text = "tyhjä 空 \u2068ويكيبيديا\u2069\n\ta second line 🙂"
    assert steady(text) == text
