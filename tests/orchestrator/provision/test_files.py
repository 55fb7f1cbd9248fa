from __future__ import annotations

from orchestrator.provision.files import ManagedFile, changed_files, outside_block, with_block
from orchestrator.provision.termux_facts import FileFact
from tests.orchestrator.provision.samples import facts

OWN = "ssh-ed25519 AAAAfriend friend\n# a remark\n"


def test_a_block_is_appended() -> None:
    text = with_block(OWN, ["ours"])
    assert text.startswith(OWN)
    assert "\nours\n" in text


def test_a_block_can_be_prepended() -> None:
    assert with_block(OWN, ["ours"], first=True).endswith(OWN)


def test_a_block_is_replaced_in_place() -> None:
    text = with_block(OWN, ["old one", "old two"]) + "after\n"
    renewed = with_block(text, ["new"])
    assert "old" not in renewed
    assert outside_block(renewed) == OWN + "after\n"
    assert renewed.index("new") < renewed.index("after")


def test_the_same_block_changes_nothing() -> None:
    once = with_block(OWN, ["ours"])
    assert with_block(once, ["ours"]) == once


def test_a_file_without_a_last_newline_keeps_its_last_line() -> None:
    assert "friend\n#" in with_block("ssh-ed25519 AAAAfriend friend", ["ours"])


def test_an_unterminated_block_keeps_the_lines_after_it() -> None:
    begun = with_block("", ["ours"]).splitlines()[0]
    assert "precious" in with_block(f"{begun}\nprecious\n", ["ours"])


def test_a_file_differs_by_content_by_mode_and_by_absence() -> None:
    file = ManagedFile("~/x", b"content", 0o600)
    assert changed_files([file], facts()) == (file,)
    assert changed_files([file], facts(files={"~/x": FileFact("644", file.sha256)})) == (file,)
    assert changed_files([file], facts(files={"~/x": FileFact("600", "0" * 64)})) == (file,)
    assert changed_files([file], facts(files={"~/x": FileFact("600", file.sha256)})) == ()
