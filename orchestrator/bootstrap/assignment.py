"""Which phone of the inventory each phone on USB is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.inventory import fold
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.inventory.suggest import listing


@dataclass(frozen=True)
class UsbPhone:
    """A phone that adb lists."""

    name: str  # in `adb devices`
    serial: str  # its serial number if known, else the name


@dataclass(frozen=True)
class Assignment:
    usb_phone: UsbPhone
    phone: Phone


def select_usb_phones(usb_phones: Sequence[UsbPhone], serials: Sequence[str]) -> tuple[UsbPhone, ...]:
    """The phones given with --serial; without it, all."""
    names = {name for each in usb_phones for name in (each.name, each.serial)}
    if unknown := [serial for serial in serials if serial not in names]:
        attached = listing([each.serial for each in usb_phones]) or "none"
        raise UsageError(
            f"--serial {unknown[0]}: adb lists no such phone; attached: {attached}", remedy="adb devices -l"
        )
    if not usb_phones:
        raise UsageError(
            "adb lists no phone",
            remedy="plug in phones with USB debugging on (Settings, About phone: tap the build number seven times; "
            "then Developer options)",
        )
    return tuple(each for each in usb_phones if not serials or {each.name, each.serial} & set(serials))


def parse_assignments(pairs: Sequence[str], cluster: Cluster) -> dict[str, Phone]:
    """`--assign SERIAL=PHONE`, where PHONE is a name or a port."""
    phones = {key: phone for phone in cluster for key in (phone.name, phone.where)}
    found: dict[str, Phone] = {}
    for pair in pairs:
        serial, equals, name = pair.partition("=")
        if not equals or not serial or not name:
            raise UsageError(f"--assign {pair}: write SERIAL=PHONE, such as R58M123ABCD=sw1:7")
        if name not in phones:
            raise UsageError(
                f"--assign {pair}: the inventory has no phone '{name}'", remedy="clusterctl inventory show"
            )
        if serial in found:
            raise UsageError(f"--assign {pair}: {serial} is given twice")
        found[serial] = phones[name]
    return found


def assign(
    usb_phones: Sequence[UsbPhone],
    cluster: Cluster,
    selected: Sequence[Phone],
    pairs: Mapping[str, Phone],
    *,
    fill_free: bool,
) -> tuple[Assignment, ...]:
    """By --assign, else by the serial numbers in the inventory, else (`fill_free`) to free ports in order.

    `selected`: the phones of --limit; USB phones assigned to other phones are left out. Raises UsageError if a USB
    phone cannot be assigned, or two are assigned to the same phone.
    """
    known = {phone.serial: phone for phone in cluster if phone.serial}
    phones = {each: _lookup(each, pairs) or _lookup(each, known) for each in usb_phones}
    taken = {phone for phone in phones.values() if phone}
    free = iter([phone for phone in selected if phone not in taken and phone.serial is None])
    for each in sorted((each for each, phone in phones.items() if phone is None), key=lambda each: each.serial):
        phones[each] = next(free, None) if fill_free else None
    _refuse_unassigned([each for each, phone in phones.items() if phone is None], fill_free=fill_free)
    assignments = tuple(Assignment(each, phone) for each, phone in phones.items() if phone in selected and phone)
    _refuse_conflicts(assignments)
    if not assignments:
        raise UsageError(f"none of the attached phones is selected by --limit ({fold(selected)})")
    return assignments


def _lookup(usb_phone: UsbPhone, phones: Mapping[str, Phone]) -> Phone | None:
    return phones.get(usb_phone.serial) or phones.get(usb_phone.name)


def _refuse_unassigned(usb_phones: Iterable[UsbPhone], *, fill_free: bool) -> None:
    if not (serials := [each.serial for each in usb_phones]):
        return
    if fill_free:
        raise UsageError(
            f"no free port left for {listing(serials)}",
            remedy="add ports to the inventory, or select more phones with --limit",
        )
    raise UsageError(
        f"the inventory has no phone with these serial numbers: {listing(serials)}",
        remedy=f"--assign {serials[0]}=PORT, or --assign-free, or --serial to select other phones",
    )


def _refuse_conflicts(assignments: Sequence[Assignment]) -> None:
    owners: dict[Phone, UsbPhone] = {}
    for each in assignments:
        if each.phone in owners:
            first = owners[each.phone].serial
            raise UsageError(
                f"{each.phone.name} ({each.phone.where}) is assigned to both {first} and {each.usb_phone.serial}"
            )
        owners[each.phone] = each.usb_phone
        if each.phone.serial not in {None, each.usb_phone.serial, each.usb_phone.name}:
            raise UsageError(
                f"in the inventory {each.phone.name} ({each.phone.where}) has the serial number {each.phone.serial}, "
                f"not {each.usb_phone.serial}",
                remedy="correct its serial number in the inventory, if this phone replaces that one",
            )
