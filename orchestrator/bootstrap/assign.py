"""Which phone of the inventory is the one on this cable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.inventory import fold
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.inventory.suggest import listing


@dataclass(frozen=True)
class Handset:
    """A phone that adb lists."""

    name: str  # adb's
    serial: str  # its own; as far as that is known, else adb's name


@dataclass(frozen=True)
class Assigned:
    handset: Handset
    phone: Phone


def chosen(handsets: Sequence[Handset], serials: Sequence[str]) -> tuple[Handset, ...]:
    """Those that --serial names; all of them without it."""
    names = {name for handset in handsets for name in (handset.name, handset.serial)}
    if strangers := [serial for serial in serials if serial not in names]:
        there = listing([handset.serial for handset in handsets]) or "none"
        raise UsageError(
            f"--serial {strangers[0]}: adb lists no such phone; attached: {there}", remedy="adb devices -l"
        )
    if not handsets:
        raise UsageError(
            "adb lists no phone",
            remedy="plug phones in, with USB debugging on (Settings, About phone, tap the build number seven times; "
            "then Developer options)",
        )
    return tuple(one for one in handsets if not serials or {one.name, one.serial} & set(serials))


def parse_pairs(pairs: Sequence[str], cluster: Cluster) -> dict[str, Phone]:
    """`--assign SERIAL=PHONE`, where PHONE is a name or a port."""
    by_place = {place: phone for phone in cluster for place in (phone.name, phone.where)}
    found: dict[str, Phone] = {}
    for pair in pairs:
        serial, equals, place = pair.partition("=")
        if not equals or not serial or not place:
            raise UsageError(f"--assign {pair}: write SERIAL=PHONE, such as R58M123ABCD=sw1:7")
        if place not in by_place:
            raise UsageError(
                f"--assign {pair}: the inventory has no phone '{place}'", remedy="clusterctl inventory show"
            )
        if serial in found:
            raise UsageError(f"--assign {pair}: {serial} is given twice")
        found[serial] = by_place[place]
    return found


def assign(
    handsets: Sequence[Handset],
    cluster: Cluster,
    among: Sequence[Phone],
    pairs: Mapping[str, Phone],
    *,
    fill_free: bool,
) -> tuple[Assigned, ...]:
    """By --assign, else by the inventory's serial numbers, else, if asked for, the free ports of --limit in order.

    Handsets whose phone is not among those of --limit are left out. Raises UsageError when one has no phone, or two
    have the same.
    """
    known = {phone.serial: phone for phone in cluster if phone.serial}
    places = {one: _of(one, pairs) or _of(one, known) for one in handsets}
    taken = {phone for phone in places.values() if phone}
    free = iter([phone for phone in among if phone not in taken and phone.serial is None])
    for handset in sorted((one for one, phone in places.items() if phone is None), key=lambda one: one.serial):
        places[handset] = next(free, None) if fill_free else None
    _refuse_strangers([one for one, phone in places.items() if phone is None], fill_free=fill_free)
    assigned = tuple(Assigned(one, phone) for one, phone in places.items() if phone in among and phone)
    _refuse_conflicts(assigned)
    if not assigned:
        raise UsageError(f"none of the attached phones is among those of --limit ({fold(among)})")
    return assigned


def _of(handset: Handset, phones: Mapping[str, Phone]) -> Phone | None:
    return phones.get(handset.serial) or phones.get(handset.name)


def _refuse_strangers(strangers: Iterable[Handset], *, fill_free: bool) -> None:
    if not (serials := [one.serial for one in strangers]):
        return
    if fill_free:
        raise UsageError(
            f"no free port is left for {listing(serials)}", remedy="add ports to the inventory, or --limit more"
        )
    raise UsageError(
        f"the inventory does not say which phones these are: {listing(serials)}",
        remedy=f"--assign {serials[0]}=PORT, or --assign-free, or --serial for the others only",
    )


def _refuse_conflicts(assigned: Sequence[Assigned]) -> None:
    owners: dict[Phone, Handset] = {}
    for each in assigned:
        if each.phone in owners:
            first = owners[each.phone].serial
            raise UsageError(f"{each.phone.name} ({each.phone.where}) cannot be both {first} and {each.handset.serial}")
        owners[each.phone] = each.handset
        if each.phone.serial not in {None, each.handset.serial, each.handset.name}:
            raise UsageError(
                f"the inventory says that {each.phone.name} ({each.phone.where}) is {each.phone.serial}, "
                f"not {each.handset.serial}",
                remedy="correct its serial number in the inventory, if this phone replaces that one",
            )
