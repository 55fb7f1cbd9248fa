"""Local SGD: training time on a slow link and loss, by the number of local steps between two synchronizations.

    python -m benchmarks.local_sgd --phones 2 --rate 50mbit --steps 96

Starts its own lab and trains with the same seed and samples with 1, 4 and 16 local steps. The loss is measured on
held-out images, not on those a phone has just trained on.
"""

from __future__ import annotations

import argparse
from statistics import fmean

from benchmarks.labs import Run, lab, launch

LOCAL_STEPS = (1, 4, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=2)
    parser.add_argument("--rate", default="50mbit", help="link speed of each phone")
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--data", default="auto")
    parser.add_argument("--outer-momentum", default="0")
    options = parser.parse_args()
    print(f"{options.model}, {options.steps} steps, {options.phones} phones on {options.rate}")
    print(f"{'local':>6} {'seconds':>8} {'ratio':>6} {'loss':>8} {'top-1':>7}")
    with lab(options.phones, rate=options.rate):
        first: float | None = None
        for local_steps in LOCAL_STEPS:
            outer = ("--outer-momentum", options.outer_momentum) if local_steps > 1 else ()
            run = launch(
                "--model", options.model, "--data", options.data, "--steps", str(options.steps), "--batch", "16",
                "--local-steps", str(local_steps), *outer,
            )  # fmt: skip
            seconds = run.of("done")[-1]["seconds"]
            first = first or seconds
            print(f"{local_steps:>6} {seconds:>8.1f} {first / seconds:>6.2f} {_evaluation(run)}", flush=True)


def _evaluation(run: Run) -> str:
    """Loss and accuracy on held-out images, or the training loss of the last steps if there are none."""
    if evaluations := run.of("evaluate"):
        return f"{evaluations[-1]['loss']:>8.3f} {evaluations[-1]['top1']:>7.1%}"
    return f"{fmean(step['loss'] for step in run.of('step')[-max(LOCAL_STEPS) :]):>8.3f} {'-':>7}"


if __name__ == "__main__":
    main()
