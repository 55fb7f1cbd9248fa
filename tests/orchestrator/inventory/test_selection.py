"""`--limit` is set algebra: compared with plain Python sets, and with its inverse, fold."""

from __future__ import annotations

import contextlib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.inventory import Cluster, fold, load, remember_failed, select
from orchestrator.paths import ClusterState
from tests.orchestrator.inventory.strategies import clusters

RACK = load(Path(__file__).parents[3] / "inventory.yaml")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterState:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    return ClusterState("test")


def chosen(limit: str, state: ClusterState) -> str:
    return fold(select(RACK, limit, state))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("p2-07", "sw2:7"),
        ("sw2", "sw2:1-46"),
        ("sw1:1-8", "sw1:1-8"),
        ("sw1:1-8,12,sw3:4", "sw1:1-8,12,sw3:4"),
        ("sw1:40-48", "sw1:40-46"),
        ("p?-01", "sw1:1,sw2:1,sw3:1"),
        ("p1-0[1-3]", "sw1:1-3"),
        ("sw[13]", "sw1:1-46,sw3:1-46"),
        ("sw1,!p1-03", "sw1:1-2,4-46"),
        ("!p1-03,sw1", "sw1:1-2,4-46"),
        ("!sw1:1-3,5", "sw1:4,6-46,sw2:1-46,sw3:1-46"),
        ("!sw2", "sw1:1-46,sw3:1-46"),
        ("sw1&p?-1*", "sw1:10-19"),
        ("sw1&!sw1:1-45,sw2:3", "sw1:46,sw2:3"),
        ("!sw1&!sw2", "sw3:1-46"),
        ("@all&*-01", "sw1:1,sw2:1,sw3:1"),
        (" sw1:1 , ! p1-02 , sw1:2-3 ", "sw1:1,3"),
        ("sw3:2,sw1:1", "sw1:1,sw3:2"),
    ],
)
def test_selectors(limit: str, expected: str, state: ClusterState) -> None:
    assert chosen(limit, state) == expected


def test_no_limit_is_every_phone_in_ring_order(state: ClusterState) -> None:
    assert select(RACK, None, state) == RACK.phones


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("p1-7", "--limit: no phone or switch is named 'p1-7'; did you mean 'p1-07'?"),
        ("sw9", "--limit: no phone or switch is named 'sw9'; there are sw1, sw2, sw3, with phones such as p1-01"),
        ("P1_07", "--limit: no phone or switch is named 'P1_07'; did you mean 'p1-07'?"),
        ("SW1", "--limit: no phone or switch is named 'SW1'; did you mean 'sw1'?"),
        (
            "rack",
            "--limit: no phone or switch is named 'rack'; there are sw1, sw2, sw3, with phones such as p1-01",
        ),
        (
            "sw1,!p1-99",
            "--limit: no phone or switch is named 'p1-99'; there are sw1, sw2, sw3, with phones such as p1-01",
        ),
        ("sw1:47", "--limit sw1:47: no phone there; switch sw1 has phones on ports 1-46"),
        ("sw1:49", "--limit sw1:49: port 49 is beyond the switch's last port, 48"),
        ("sw1:8-1", "--limit sw1:8-1: port range 8-1 runs backwards; write 1-8"),
        ("q*", "--limit: no phone or switch matches 'q*'"),
        ("sw1&sw2", "--limit 'sw1&sw2' selects no phone"),
        ("!@all", "--limit '!@all' selects no phone"),
        ("@failed", "--limit @failed: no phone failed last time"),
        ("@faild", "--limit: unknown keyword '@faild'; use @all or @failed"),
    ],
)
def test_selectors_that_mean_nothing(limit: str, message: str, state: ClusterState) -> None:
    with pytest.raises(UsageError) as caught:
        select(RACK, limit, state)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "limit", ["", "  ", ",", "sw1,", "sw1,,sw2", "!", "!!sw1", "&sw1", "sw1:", "sw1:x", "a b", ":3"]
)
def test_selectors_that_cannot_be_read(limit: str, state: ClusterState) -> None:
    with pytest.raises(UsageError, match=r"write phones \(p1-07, p1-\*\), switches"):
        select(RACK, limit, state)


def test_failed_phones_are_remembered_and_replaced(state: ClusterState) -> None:
    remember_failed(state, [RACK.phone("p2-07"), RACK.phone("p1-03")])
    assert chosen("@failed", state) == "sw1:3,sw2:7"
    assert chosen("@failed&sw2", state) == "sw2:7"
    remember_failed(state, [])
    assert chosen("!@failed", state) == fold(RACK)
    with pytest.raises(UsageError, match="no phone failed last time"):
        select(RACK, "@failed", state)


def test_failed_phones_that_left_the_rack_are_forgotten(state: ClusterState) -> None:
    state.root.mkdir(parents=True)
    state.failed.write_text('["gone", "p1-01"]', encoding="utf-8")
    assert chosen("@failed", state) == "sw1:1"


@pytest.mark.parametrize("damage", ["", "{", "[1]", '"p1-01"', "\xff"])
def test_damaged_record_of_failures(damage: str, state: ClusterState) -> None:
    state.root.mkdir(parents=True)
    state.failed.write_text(damage, encoding="latin-1")
    with pytest.raises(UsageError, match=r"failed\.json cannot be read"):
        select(RACK, "@failed", state)


Term = tuple[str, frozenset[str]]  # a term as written, and the phones it means
Item = tuple[bool, Term]


@st.composite
def terms(draw: st.DrawFn, cluster: Cluster) -> Term:
    phone = draw(st.sampled_from(cluster.phones))
    mates = [other for other in cluster if other.switch == phone.switch]
    some = draw(st.lists(st.sampled_from(mates), min_size=1))
    glob = draw(st.sampled_from(["p*", "p?-0*", "*-01", "sw*", f"*{phone.name[-1]}"]))
    globbed = {other.name for other in cluster if fnmatchcase(other.name, glob) or fnmatchcase(other.switch, glob)}
    choices: list[Term] = [
        (phone.name, frozenset({phone.name})),
        (phone.switch, frozenset(mate.name for mate in mates)),
        (fold(some), frozenset(one.name for one in some)),
        ("@all", frozenset(one.name for one in cluster)),
    ]
    return draw(st.sampled_from(choices + ([(glob, frozenset(globbed))] if globbed else [])))


@given(st.data())
def test_selection_is_set_algebra(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    items = st.tuples(st.booleans(), terms(cluster))
    groups: list[list[Item]] = data.draw(st.lists(st.lists(items, min_size=1, max_size=3), min_size=1, max_size=4))
    written = ",".join("&".join("!" * negated + term for negated, (term, _) in group) for group in groups)
    wanted = meaning(groups, {phone.name for phone in cluster})
    state = ClusterState("no-failures")
    if wanted:
        assert select(cluster, written, state) == tuple(phone for phone in cluster if phone.name in wanted)
    else:
        with pytest.raises(UsageError, match="selects no phone"):
            select(cluster, written, state)


def meaning(groups: list[list[Item]], everything: set[str]) -> set[str]:
    removed = set().union(*(group[0][1][1] for group in groups if len(group) == 1 and group[0][0]))
    added = [
        everything.intersection(*(everything - names if negated else names for negated, (_, names) in group))
        for group in groups
        if len(group) > 1 or not group[0][0]
    ]
    return (set().union(*added) if added else everything) - removed


@given(st.data())
def test_fold_is_the_inverse_of_select(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    phones = data.draw(st.sets(st.sampled_from(cluster.phones), min_size=1))
    assert set(select(cluster, fold(phones), ClusterState("any"))) == phones


def test_fold_of_nothing() -> None:
    assert fold([]) == ""


@given(limit=st.text("sw1p-0:,&!@*?[] faild", max_size=20))
def test_any_text_selects_or_is_a_usage_error(limit: str) -> None:
    with contextlib.suppress(UsageError):
        assert select(RACK, limit, ClusterState("no-failures"))
