"""Steps alone against steps together: bytes, time on a slow link, and loss, after as many images.

    python -m benchmarks.local_sgd --phones 2 --rate 50mbit --steps 96

A lab of its own; the same seed and samples with 1, 4 and 16 steps between two exchanges. What counts is the loss on
held-out images, not on those a phone was just shown.
"""

from __future__ import annotations

import argparse
from statistics import fmean

from benchmarks.labs import Run, lab, launch

EVERY = (1, 4, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=2)
    parser.add_argument("--rate", default="50mbit", help="of each phone's link")
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--data", default="auto")
    parser.add_argument("--outer-momentum", default="0")
    given = parser.parse_args()
    print(f"{given.model}, {given.steps} steps, {given.phones} phones on {given.rate}")
    print(f"{'alone':>6} {'seconds':>8} {'ratio':>6} {'loss':>8} {'top-1':>7}")
    with lab(given.phones, rate=given.rate):
        first: float | None = None
        for every in EVERY:
            outer = ("--outer-momentum", given.outer_momentum) if every > 1 else ()
            run = launch(
                "--model", given.model, "--data", given.data, "--steps", str(given.steps), "--batch", "16",
                "--local-steps", str(every), *outer,
            )  # fmt: skip
            seconds = run.of("done")[-1]["seconds"]
            first = first or seconds
            print(f"{every:>6} {seconds:>8.1f} {first / seconds:>6.2f} {_judged(run)}", flush=True)


def _judged(run: Run) -> str:
    """By held-out images; where there are none, by the last steps' own."""
    if judged := run.of("evaluate"):
        return f"{judged[-1]['loss']:>8.3f} {judged[-1]['top1']:>7.1%}"
    return f"{fmean(step['loss'] for step in run.of('step')[-max(EVERY) :]):>8.3f} {'-':>7}"


if __name__ == "__main__":
    main()
