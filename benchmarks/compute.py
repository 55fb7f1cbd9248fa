"""Time of a training step (forward, backward, SGD with momentum): our engine against PyTorch and MNN.

    python -m benchmarks.compute --torch-python ~/torch/bin/python
    python -m benchmarks.compute --networks resnet50,mobilenet_v1 --batches 16 --rounds 5

The ten networks of Table I of the paper, at the batch sizes given there and at 16. PyTorch runs the same graph from the
same weights (torch_peer.py) in channels_last with its faster SGD, once with the default glibc allocator and once with
freed memory retained; the faster of the two counts. `im2col` is PyTorch without oneDNN and NNPACK, as Termux builds it
(there with OpenBLAS, here with MKL), in its faster layout. MNN, the only other packaged engine that trains on phones,
is compared on MobileNet-v1.

Every contestant is one process for all steps of a network. They take turns of a few steps, never concurrently. A
configuration of a rival that is a quarter slower than the fastest one in its first turn gets no further turns. If steps
are short, later turns have more of them. A ratio is the best step time of the rival over ours in the same turns; the
ratio of the medians is in the next column.
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
from benchmarks.peers import CLOCKS, RETAIN_FREED_MEMORY, Peer, PeerError, Times, run_in_turns, torch_python

notes = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Rival:
    """One configuration of a rival engine."""

    name: str
    module: str
    env: dict[str, str]
    open_arguments: dict[str, Any]
    only: tuple[str, ...] = ()  # networks; empty: all

    def plays(self, network: str) -> bool:
        return not self.only or network in self.only


RIVALS = {
    "tuned": Rival("torch, keeping freed memory", "benchmarks.torch_peer", RETAIN_FREED_MEMORY, {}),
    "default": Rival("torch, default malloc", "benchmarks.torch_peer", {}, {}),
    "nchw": Rival(
        "torch, NCHW, keeping freed memory", "benchmarks.torch_peer", RETAIN_FREED_MEMORY, {"layout": "nchw"}
    ),
    "im2col": Rival("torch without oneDNN", "benchmarks.torch_peer", RETAIN_FREED_MEMORY, {"onednn": False}),
    "im2col-nchw": Rival(
        "torch without oneDNN, NCHW", "benchmarks.torch_peer", RETAIN_FREED_MEMORY, {"onednn": False, "layout": "nchw"}
    ),
    "mnn": Rival("MNN", "benchmarks.mnn_peer", {}, {}, ("mobilenet_v1",)),
}
BEST = ("tuned", "default", "nchw")
WITHOUT = ("im2col", "im2col-nchw")
MAX_LAG = 1.25  # times the step time of the fastest rival
LATER_TURN_S = 1.0  # minimum for the fastest contestant
# Contestants that are in memory at the same time.
DUELS = (("tuned", "default", "nchw"), ("im2col", "im2col-nchw"), ("mnn",))


@dataclass
class Match:
    """One network at one batch size."""

    network: str
    batch: int
    ours: dict[str, Times] = field(default_factory=dict)  # by rival: our times in the turns shared with it
    rivals: dict[str, Times] = field(default_factory=dict)
    peak_rss_mb: dict[str, float] = field(default_factory=dict)
    profile: list[dict[str, Any]] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(times.best for times in self.ours.values())

    def opponent(self, names: tuple[str, ...] = BEST) -> str | None:
        """The fastest of these rivals."""
        played = [name for name in names if name in self.rivals]
        return min(played, key=lambda name: self.rivals[name].best, default=None)

    def ratio(self, names: tuple[str, ...] = BEST, *, by_median: bool = False) -> float | None:
        name = self.opponent(names)
        if name is None:
            return None
        theirs, ours = self.rivals[name], self.ours[name]
        return theirs.median / ours.median if by_median else theirs.best / ours.best


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
        # Profiled first: repeated steps on one batch produce denormals.
        match.profile = match.profile or ours.ask("profile")["shares"]
        peers = [ours]
        for name in names:
            rival = RIVALS[name]
            peer = stack.enter_context(Peer(name, rival.module, python, rival.env))
            try:
                peer.ask("open", **_common(match, options), **rival.open_arguments)
            except PeerError as error:
                notes.print(f"{match.network}: {error}", markup=False)
            else:
                peers.append(peer)
        times = run_in_turns(peers, 1, options.steps, options.clock)
        left = [peer for peer in reversed(peers) if peer.name in still_competitive(times)]
        steps = max(options.steps, ceil(LATER_TURN_S / min(measured.best for measured in times.values())))
        for name, more in run_in_turns(left, options.rounds - 1, steps, options.clock).items():
            times[name] += more
        own = times.pop("ours")
        match.ours.update(dict.fromkeys(times, own))
        match.rivals.update(times)
        match.peak_rss_mb.update({peer.name: peer.ask("steps", count=1)["peak_rss_mb"] for peer in peers})


def still_competitive(times: dict[str, Times]) -> set[str]:
    """Our engine, and the rivals that may still turn out to be the fastest."""
    least = min((measured.best for name, measured in times.items() if name != "ours"), default=0.0)
    return {name for name, measured in times.items() if name == "ours" or measured.best <= MAX_LAG * least}


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
    table = Table(*columns, title="time of a training step", box=style)
    for column in ("ratio", "(medians)", "without oneDNN"):
        table.add_column(column, justify="right")
    for match in matches:
        theirs = [f"{match.rivals[name].best * 1e3:.0f}" if name in match.rivals else "" for name in names]
        rate = match.batch / match.best
        ratios = (match.ratio(), match.ratio(by_median=True), match.ratio(WITHOUT))
        table.add_row(
            match.network,
            str(match.batch),
            f"{match.best * 1e3:.0f}",
            f"{rate:.1f}",
            *theirs,
            *map(_format_ratio, ratios),
        )
    return table


def _profiles(matches: list[Match], style: box.Box) -> Table:
    table = Table("network", "batch", "share of step time", title="profile of our engine", box=style)
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
    """Networks whose batch in Table I is 16 belong to both sets."""
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
            console.print(f"{title}: {mean:.2f}x {what} by geometric mean; lowest {ratios[worst]:.2f}x ({worst})")


def geometric_mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def missed_targets(matches: list[Match]) -> list[str]:
    """Targets for all ten networks that were missed or not measured, for each set of batch sizes."""
    return [f"{title}: {what}" for title, played in _sets(matches).items() for what in _missed(played)]


def _missed(matches: list[Match]) -> Iterator[str]:
    """Targets: 1x PyTorch on every network and 1.3x on average; without oneDNN 2x on average and 4x on MobileNets."""
    for what, names, mean in (("PyTorch", BEST, 1.3), ("PyTorch without oneDNN", WITHOUT, 2.0)):
        ratios = {match.network: ratio for match in matches if (ratio := match.ratio(names))}
        if missing := [network for network in TABLE_I if network not in ratios]:
            yield f"not compared with {what}: {', '.join(missing)}"
        elif (reached := geometric_mean(list(ratios.values()))) < mean:
            yield f"{reached:.2f}x {what} by geometric mean, less than {mean}x"
        for network, ratio in ratios.items():
            least = 1.0 if names is BEST else 4.0 if network.startswith("mobilenet") else 0.0
            if ratio < least:
                yield f"{network} {ratio:.2f}x {what}, less than {least}x"


def _format_ratio(ratio: float | None) -> str:
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
        "ratio_of_medians": match.ratio(by_median=True),
        "ratio_without_onednn": match.ratio(WITHOUT),
        "ratio_mnn": match.ratio(("mnn",)),
    }


def _pairs(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Each network with its batch sizes, without duplicates."""
    for network in options.networks.split(","):
        batches = (TABLE_I.get(network, 16) if each == "table" else int(each) for each in options.batches.split(","))
        for batch in dict.fromkeys(batches):
            yield network, batch


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(TABLE_I))
    parser.add_argument("--batches", default="table,16", help="batch sizes; 'table' means that of Table I")
    parser.add_argument("--rivals", default="tuned,default,im2col,im2col-nchw,mnn", help=", ".join(RIVALS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="turns per contestant")
    parser.add_argument("--steps", type=int, default=2, help="measured steps per turn, after one warm-up step")
    parser.add_argument("--torch-python", help="Python interpreter with PyTorch and MNN (default: this one)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="use cpu for one thread on a busy machine")
    parser.add_argument("--isa", help="avx512, avx2 or sse2 (default: the best available)")
    parser.add_argument("--engine", default="cpu", help="our backend")
    parser.add_argument("--no-winograd", dest="winograd", action="store_false")
    parser.add_argument(
        "--quick", action="store_true", help="two networks, one batch size, against one PyTorch configuration"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.networks, options.batches, options.rivals = "mobilenet_v1,squeezenet_v1_1", "8", "tuned"
    options.rivals = options.rivals.split(",")
    unknown = set(options.rivals) - set(RIVALS)
    if unknown:
        parser.error(f"unknown rival: {', '.join(sorted(unknown))}; choose from {', '.join(RIVALS)}")
    return options


if __name__ == "__main__":
    main()
