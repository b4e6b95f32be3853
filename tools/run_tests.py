#!/usr/bin/env python3
"""Runs the whole test plan of `make test` (or the fast part) and ends with an honest summary.

Every step prints a header and streams its output. A failed step does not hide the later ones; the exit status
is 1 if any failed. Skipped tests are counted, ctest's own and those that a test program skips by itself
(GoogleTest, unittest): a run with skips says so in its last line.

    tools/run_tests.py [--fast] [--state FOLDER] [--jobs N]

Uses only the standard library: it runs before and without the Python environment of the model servers.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GTEST_SKIPS = re.compile(r"^\[  SKIPPED \] \d+ tests?, listed below", re.MULTILINE)
UNITTEST_SKIPS = re.compile(r"^(?:OK|FAILED) \(.*?skipped=(\d+)", re.MULTILINE)


@dataclass
class Step:
    """One preset: build it, and, if it has tests to run, run those with the label."""

    preset: str
    what: str
    tests: bool = True
    label: str = ""  # empty: all tests


@dataclass
class Outcome:
    step: Step
    line: str
    ok: bool
    seconds: float
    tests: int = 0
    failed: int = 0
    skipped: int = 0


FULL_PLAN = [
    Step("dev", "all tests, real model servers included"),
    Step("analyze", "clang's thread-safety analysis, compile only", tests=False),
    Step("asan", "unit tests under the address and undefined-behaviour sanitizers", label="unit"),
    Step("tsan", "unit tests under the thread sanitizer", label="unit"),
]
FAST_PLAN = [Step("dev", "unit tests only", label="unit")]


def count_program_skips(output):
    """Skips that a test program reports inside one ctest test, from its output."""
    gtest = sum(int(re.search(r"\d+", match).group()) for match in GTEST_SKIPS.findall(output))
    unittest = sum(int(number) for number in UNITTEST_SKIPS.findall(output))
    return gtest + unittest


def read_junit(path):
    """(tests, failed, skipped) of a ctest run, the programs' own skips included."""
    suite = ElementTree.parse(path).getroot()
    tests = int(suite.get("tests", 0))
    failed = int(suite.get("failures", 0))
    skipped = int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
    for output in suite.iter("system-out"):
        skipped += count_program_skips(output.text or "")
    return tests, failed, skipped


def run(command):
    print("$ " + " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT).returncode == 0


def build(step, state, jobs):
    configure = ["cmake", "--preset", step.preset, f"-DMOONPOOL_PYTHON={state}/venv/bin/python"]
    return run(configure) and run(["cmake", "--build", f"build/{step.preset}", "-j", str(jobs)])


def test(step, jobs):
    """Returns (ok, ctest's closing line, tests, failed, skipped)."""
    junit = os.path.join(ROOT, "build", step.preset, "ctest.xml")
    if os.path.exists(junit):
        os.remove(junit)
    command = ["ctest", "--test-dir", f"build/{step.preset}", "--output-on-failure", "-j", str(jobs),
               "--no-tests=error", "--output-junit", junit, "--test-output-size-passed", "1000000",
               "--test-output-size-failed", "1000000"]
    if step.label:
        command += ["-L", f"^{step.label}$"]
    ok = run(command)
    if not os.path.exists(junit):
        return False, "ctest ran no test", 0, 1, 0
    tests, failed, skipped = read_junit(junit)
    percent = 100 * (tests - failed) // tests if tests else 0
    return ok, f"{percent}% tests passed, {failed} tests failed out of {tests}", tests, failed, skipped


def take(step, state, jobs):
    print(f"\n==== {step.preset}: {step.what}", flush=True)
    begin = time.monotonic()
    if not build(step, state, jobs):
        return Outcome(step, "does not build", False, time.monotonic() - begin)
    if not step.tests:
        return Outcome(step, "compiled without a warning", True, time.monotonic() - begin)
    ok, line, tests, failed, skipped = test(step, jobs)
    return Outcome(step, line, ok, time.monotonic() - begin, tests, failed, skipped)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="the dev preset's unit tests only")
    parser.add_argument("--state", default=os.environ.get("MOONPOOL_STATE", os.path.join(ROOT, ".state")))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    state = os.path.abspath(args.state)
    os.environ["MOONPOOL_STATE"] = state

    outcomes = [take(step, state, args.jobs) for step in (FAST_PLAN if args.fast else FULL_PLAN)]

    print("\n==== summary")
    for outcome in outcomes:
        word = "ok    " if outcome.ok else "FAILED"
        skips = f", {outcome.skipped} skipped" if outcome.step.tests else ""
        print(f"{word} {outcome.step.preset:8} {outcome.line}{skips} ({outcome.seconds:.0f} s)")
    ok = all(outcome.ok for outcome in outcomes)
    print(f"{'PASSED' if ok else 'FAILED'}: {sum(o.tests for o in outcomes)} tests, "
          f"{sum(o.failed for o in outcomes)} failed, {sum(o.skipped for o in outcomes)} skipped, "
          f"{sum(o.seconds for o in outcomes) / 60:.1f} min", flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
