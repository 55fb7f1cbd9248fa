from __future__ import annotations

import pytest

from orchestrator.provision.termux.index import (
    Index,
    MalformedIndexError,
    MissingPackageError,
    Package,
    closure,
    parse_packages,
    relations,
)


def package(name: str, version: str = "1.0", **fields: str) -> Package:
    return Package(
        {"Package": name, "Version": version, **{key.replace("_", "-"): value for key, value in fields.items()}}
    )


def names(index: Index) -> list[str]:
    return [each.name for each in index]


def test_the_closure_follows_only_depends_and_pre_depends() -> None:
    index = Index(
        [package("python", Depends="libffi, openssl (>= 3)"), package("libffi"), package("openssl", "3.2"),
         package("openmpi", Pre_Depends="libevent", Recommends="huge"), package("libevent"), package("huge")]
    )  # fmt: skip
    assert names(closure(index, ["python", "openmpi"])) == ["libevent", "libffi", "openmpi", "openssl", "python"]


def test_circular_dependencies_terminate() -> None:
    index = Index([package("a", Depends="b"), package("b", Depends="a")])
    assert names(closure(index, ["a"])) == ["a", "b"]


def test_an_alternative_already_selected_is_preferred_to_the_first() -> None:
    index = Index([package("rsync", Depends="dropbear | openssh"), package("dropbear"), package("openssh")])
    assert names(closure(index, ["openssh", "rsync"])) == ["openssh", "rsync"]
    assert names(closure(index, ["rsync"])) == ["dropbear", "rsync"]


def test_an_alternative_of_the_wrong_version_is_skipped() -> None:
    index = Index([package("tool", Depends="libx (>= 2) | liby"), package("libx", "1.9"), package("liby")])
    assert names(closure(index, ["tool"])) == ["liby", "tool"]


def test_a_provided_name_satisfies_a_dependency() -> None:
    index = Index([package("app", Depends="mail-agent, libz (>= 2)"), package("postbox", Provides="mail-agent"),
                   package("zlib-ng", Provides="libz (= 2.1)")])  # fmt: skip
    assert names(closure(index, ["app"])) == ["app", "postbox", "zlib-ng"]


def test_an_unversioned_provide_does_not_satisfy_a_version() -> None:
    index = Index([package("app", Depends="libz (>= 2)"), package("zlib-ng", Provides="libz")])
    with pytest.raises(MissingPackageError):
        closure(index, ["app"])


def test_a_missing_dependency_is_reported_with_the_dependent_package() -> None:
    index = Index(
        [package("openmpi", "4.1.5-1", Depends="libandroid-shmem (>= 0.7)"), package("libandroid-shmem", "0.5")]
    )
    with pytest.raises(MissingPackageError, match=r"no libandroid-shmem \(>= 0.7\), which openmpi 4.1.5-1 needs"):
        closure(index, ["openmpi"])


def test_a_missing_root_is_reported() -> None:
    with pytest.raises(MissingPackageError, match=r"no pyton, which provisioning/packages\.yaml needs"):
        closure(Index([package("python")]), ["pyton"])


def test_the_newest_version_of_a_package_is_used() -> None:
    assert Index([package("a", "1.10"), package("a", "1.9")])["a"].version == "1.10"


def test_relations_with_architectures_and_spaces() -> None:
    (first, second), (third,) = relations("a:any (>=1) | b , c")
    assert (str(first), str(second), str(third)) == ("a (>= 1)", "b", "c")


def test_continuation_lines_of_an_index_are_parsed() -> None:
    sha = "0" * 64
    text = f"Package: a\nVersion: 1\nFilename: pool/a.deb\nSize: 3\nSHA256: {sha}\nDescription: one\n two\n\n"
    read = parse_packages(text)["a"]
    assert read.fields["Description"] == "one\n two"
    assert read.stanza() == text.strip() + "\n"


@pytest.mark.parametrize("broken", ["Package: ../../etc\n", "Version: 2\n", "SHA256: zz\n", "Size: -3\n"])
def test_a_malformed_stanza_is_refused(broken: str) -> None:
    good = {"Package": "a", "Version": "1", "Filename": "p", "Size": "3", "SHA256": "0" * 64}
    key, _, value = broken.strip().partition(": ")
    fields = {**good, key: value} if key != "Version" else {key: value}
    with pytest.raises(MalformedIndexError):
        parse_packages("".join(f"{name}: {text}\n" for name, text in fields.items()))
