"""A training step (forward, backward, SGD with momentum): ours against PyTorch's.

    python -m benchmarks.compute --torch-python ~/torch/bin/python
    python -m benchmarks.compute --networks resnet50,mobilenet_v1 --batches 16 --rounds 5

The ten networks of the paper's Table I at its batches and at 16. PyTorch runs the same graph from the same weights
(torch_peer.py): channels_last, its faster SGD, once with glibc's default allocator and once told to keep freed memory;
the better of the two is the opponent. `im2col` is the same PyTorch with oneDNN and NNPACK off, which is how Termux
builds it (there with OpenBLAS, here with MKL), in its better layout. MNN, the one other engine that trains on phones
and comes as a package, takes part on MobileNet-v1.

Every contestant is a process that lives through the network; they take turns of a few steps, never two at once. Of
several ways to run an opponent, one that is a quarter behind the fastest after its first turn has no other. Where steps
are short, later turns have more of them. A ratio is their best step over ours in the same turns; the one of the
medians stands beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import ceil, exp, log
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.networks import TABLE_I
from benchmarks.peers import CLOCKS, KEEP_MEMORY, Peer, PeerError, Times, take_turns, torch_python

notes = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Rival:
    """One way to run the opponent."""

    name: str
    module: str
    env: dict[str, str]
    asked: dict[str, Any]
    only: tuple[str, ...] = ()  # networks; all unless named

    def plays(self, network: str) -> bool:
        return not self.only or network in self.only


RIVALS = {
    "tuned": Rival("torch, memory kept", "benchmarks.torch_peer", KEEP_MEMORY, {}),
    "default": Rival("torch, default malloc", "benchmarks.torch_peer", {}, {}),
    "nchw": Rival("torch, NCHW, memory kept", "benchmarks.torch_peer", KEEP_MEMORY, {"layout": "nchw"}),
    "im2col": Rival("torch without oneDNN", "benchmarks.torch_peer", KEEP_MEMORY, {"onednn": False}),
    "im2col-nchw": Rival(
        "torch without oneDNN, NCHW", "benchmarks.torch_peer", KEEP_MEMORY, {"onednn": False, "layout": "nchw"}
    ),
    "mnn": Rival("MNN", "benchmarks.mnn_peer", {}, {}, ("mobilenet_v1",)),
}
BEST = ("tuned", "default", "nchw")
WITHOUT = ("im2col", "im2col-nchw")
BEHIND = 1.25  # times the fastest rival's step
LATER_TURN_S = 1.0  # of the fastest contestant, at least
DUELS = (("tuned", "default", "nchw"), ("im2col", "im2col-nchw"), ("mnn",))  # who is in memory at the same time


@dataclass
class Match:
    """One network at one batch."""

    network: str
    batch: int
    ours: dict[str, Times] = field(default_factory=dict)  # by rival: while that one took turns with us
    rivals: dict[str, Times] = field(default_factory=dict)
    peak_rss_mb: dict[str, float] = field(default_factory=dict)
    profile: list[dict[str, Any]] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(times.best for times in self.ours.values())

    def opponent(self, names: tuple[str, ...] = BEST) -> str | None:
        """The fastest of them."""
        played = [name for name in names if name in self.rivals]
        return min(played, key=lambda name: self.rivals[name].best, default=None)

    def ratio(self, names: tuple[str, ...] = BEST, *, middle: bool = False) -> float | None:
        name = self.opponent(names)
        if name is None:
            return None
        theirs, ours = self.rivals[name], self.ours[name]
        return theirs.middle / ours.middle if middle else theirs.best / ours.best


def main() -> None:
    options = _options()
    python = torch_python(options.torch_python)
    matches = []
    for network, batch in _pairs(options):
        matches.append(play(network, batch, options, python))
        notes.print(_line(matches[-1]), markup=False)
    if options.json:
        print(json.dumps([_document(match) for match in matches], indent=2))
    else:
        report(matches, box.MARKDOWN if options.markdown else box.HEAVY_HEAD)
    if options.check and (missed := missed_targets(matches)):
        notes.print("\n".join(missed), markup=False)
        sys.exit(1)


def play(network: str, batch: int, options: argparse.Namespace, python: str) -> Match:
    match = Match(network, batch)
    for duel in DUELS:
        rivals = [name for name in duel if name in options.rivals and RIVALS[name].plays(network)]
        if rivals:
            _duel(match, rivals, options, python)
    return match


def _duel(match: Match, names: list[str], options: argparse.Namespace, python: str) -> None:
    with ExitStack() as stack:
        ours = stack.enter_context(Peer("ours", "benchmarks.our_peer"))
        ours.ask("open", **_common(match, options), isa=options.isa, engine=options.engine, winograd=options.winograd)
        match.profile = match.profile or ours.ask("profile")["shares"]  # before steps on one batch make denormals
        peers = [ours]
        for name in names:
            rival = RIVALS[name]
            peer = stack.enter_context(Peer(name, rival.module, python, rival.env))
            try:
                peer.ask("open", **_common(match, options), **rival.asked)
            except PeerError as error:
                notes.print(f"{match.network}: {error}", markup=False)
            else:
                peers.append(peer)
        times = take_turns(peers, 1, options.steps, options.clock)
        left = [peer for peer in reversed(peers) if peer.name in hopeful(times)]
        steps = max(options.steps, ceil(LATER_TURN_S / min(taken.best for taken in times.values())))
        for name, more in take_turns(left, options.rounds - 1, steps, options.clock).items():
            times[name] += more
        own = times.pop("ours")
        match.ours.update(dict.fromkeys(times, own))
        match.rivals.update(times)
        match.peak_rss_mb.update({peer.name: peer.ask("steps", count=1)["peak_rss_mb"] for peer in peers})


def hopeful(times: dict[str, Times]) -> set[str]:
    """We, and those who may turn out to be the fastest rival."""
    least = min((taken.best for name, taken in times.items() if name != "ours"), default=0.0)
    return {name for name, taken in times.items() if name == "ours" or taken.best <= BEHIND * least}


def _common(match: Match, options: argparse.Namespace) -> dict[str, Any]:
    return {"model": match.network, "batch": match.batch, "threads": options.threads}


def report(matches: list[Match], style: box.Box) -> None:
    console = Console(width=500 if style is box.MARKDOWN else 150, highlight=False)
    console.print(_speeds(matches, style))
    for title, played in _sets(matches).items():
        _verdict(console, title, played)
    console.print(_profiles(matches, style))


def _speeds(matches: list[Match], style: box.Box) -> Table:
    names = [name for name in RIVALS if any(name in match.rivals for match in matches)]
    columns = ("network", "batch", "ours ms", "images/s", *(f"{name} ms" for name in names))
    table = Table(*columns, title="a training step", box=style)
    for column in ("ratio", "(medians)", "without oneDNN"):
        table.add_column(column, justify="right")
    for match in matches:
        theirs = [f"{match.rivals[name].best * 1e3:.0f}" if name in match.rivals else "" for name in names]
        rate = match.batch / match.best
        ratios = (match.ratio(), match.ratio(middle=True), match.ratio(WITHOUT))
        table.add_row(
            match.network,
            str(match.batch),
            f"{match.best * 1e3:.0f}",
            f"{rate:.1f}",
            *theirs,
            *map(_times, ratios),
        )
    return table


def _profiles(matches: list[Match], style: box.Box) -> Table:
    table = Table("network", "batch", "where our time goes", title="ours", box=style)
    for match in matches:
        parts = [
            f"{share['kind']} {share['direction']} {share['share']:.0%}"
            + (f" ({share['gflops']:.0f} GFLOP/s)" if share["gflops"] else "")
            for share in match.profile
            if share["share"] >= 0.02
        ]
        table.add_row(match.network, str(match.batch), ", ".join(parts))
    return table


def _sets(matches: list[Match]) -> dict[str, list[Match]]:
    """Some networks have a batch of 16 in Table I as well, and count in both."""
    return {
        "batches of Table I": [match for match in matches if match.batch == TABLE_I.get(match.network)],
        "batch 16": [match for match in matches if match.batch == 16],
    }


def _verdict(console: Console, title: str, matches: list[Match]) -> None:
    for what, names in (("PyTorch", BEST), ("PyTorch without oneDNN", WITHOUT), ("MNN", ("mnn",))):
        ratios = {match.network: ratio for match in matches if (ratio := match.ratio(names))}
        if ratios:
            worst = min(ratios, key=lambda name: ratios[name])
            mean = geometric_mean(list(ratios.values()))
            console.print(f"{title}: {mean:.2f}x {what} by geometric mean; least {ratios[worst]:.2f}x ({worst})")


def geometric_mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def missed_targets(matches: list[Match]) -> list[str]:
    """Of each set of batches: what was promised of all ten networks, and did not come true or was not played."""
    return [f"{title}: {what}" for title, played in _sets(matches).items() for what in _missed(played)]


def _missed(matches: list[Match]) -> Iterator[str]:
    """At least as fast on every network, 1.3x by geometric mean; twice as fast as without oneDNN, 4x on MobileNets."""
    for what, names, mean in (("PyTorch", BEST, 1.3), ("PyTorch without oneDNN", WITHOUT, 2.0)):
        ratios = {match.network: ratio for match in matches if (ratio := match.ratio(names))}
        if missing := [network for network in TABLE_I if network not in ratios]:
            yield f"not played against {what}: {', '.join(missing)}"
        elif (reached := geometric_mean(list(ratios.values()))) < mean:
            yield f"{reached:.2f}x {what} by geometric mean, less than {mean}x"
        for network, ratio in ratios.items():
            least = 1.0 if names is BEST else 4.0 if network.startswith("mobilenet") else 0.0
            if ratio < least:
                yield f"{network} {ratio:.2f}x {what}, less than {least}x"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"[{'green' if ratio >= 1 else 'red'}]{ratio:.2f}x[/]"


def _line(match: Match) -> str:
    theirs = ", ".join(f"{name} {times.best * 1e3:.0f} ms" for name, times in match.rivals.items())
    return f"{match.network} batch {match.batch}: ours {match.best * 1e3:.0f} ms, {theirs}"


def _document(match: Match) -> dict[str, Any]:
    return {
        **asdict(match),
        "opponent": match.opponent(),
        "ratio": match.ratio(),
        "ratio_of_medians": match.ratio(middle=True),
        "ratio_without_onednn": match.ratio(WITHOUT),
        "ratio_mnn": match.ratio(("mnn",)),
    }


def _pairs(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Each network at its batches, none twice."""
    for network in options.networks.split(","):
        wanted = (TABLE_I.get(network, 16) if each == "table" else int(each) for each in options.batches.split(","))
        for batch in dict.fromkeys(wanted):
            yield network, batch


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(TABLE_I))
    parser.add_argument("--batches", default="table,16", help="numbers, or 'table' for the paper's")
    parser.add_argument("--rivals", default="tuned,default,im2col,im2col-nchw,mnn", help=", ".join(RIVALS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="turns each contestant gets")
    parser.add_argument("--steps", type=int, default=2, help="steps that count in a turn, after one that does not")
    parser.add_argument("--torch-python", help="an interpreter that has PyTorch (and MNN)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for one thread on a busy machine")
    parser.add_argument("--isa", help="avx512, avx2 or sse2; the best unless given")
    parser.add_argument("--engine", default="cpu", help="our backend")
    parser.add_argument("--no-winograd", dest="winograd", action="store_false")
    parser.add_argument("--quick", action="store_true", help="two networks, one batch, against PyTorch at its best")
    parser.add_argument("--check", action="store_true", help="exit code 1 unless we are as fast as promised")
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.networks, options.batches, options.rivals = "mobilenet_v1,squeezenet_v1_1", "8", "tuned"
    options.rivals = options.rivals.split(",")
    unknown = set(options.rivals) - set(RIVALS)
    if unknown:
        parser.error(f"no such rival: {', '.join(sorted(unknown))}; there are {', '.join(RIVALS)}")
    return options


if __name__ == "__main__":
    main()
