"""Whether more budget ever hurts a strategy, on 4,000 problems: in pieces that resume.

    python -m tests.contract.growth [NODE …] [--problems 4000] [--jobs 2] [--json PATH]

What passes is written to `build/growth.json`, strategy by strategy. One that stands there with at
least as many problems, and with the sources of now, is not run again, so a run that was stopped
goes on from where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.contract.test_strategies import CASES, EXEMPT
from ttc.benchmarks.results import write_result
from ttc.testing import NotConforming, check_strategy

HERE = Path(__file__)
ROOT = HERE.parents[2]
RECORD = ROOT / "build" / "growth.json"
ROOMS = ("ttc/**", "strategies/**", "verifiers/**", "engine")
"""What a strategy on the simulator may be made of: no engine that runs a model."""


def sources() -> str:
    """The digest of whatever decides what comes out."""
    digest = sha256()
    files = [path for room in ROOMS for path in sorted(ROOT.glob(f"{room}/*.py"))]
    for path in (*files, HERE.with_name("test_strategies.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def grown(name: str, problems: int) -> dict[str, Any]:
    """What came of one strategy, and the processor time that it took."""
    began = time.process_time()
    try:
        report = check_strategy(
            CASES[name], only=["more_budget"], exempt=EXEMPT.get(name), problems=problems
        )
    except NotConforming as fault:
        report = fault.report
    (checked,) = report.checked
    seconds = round(time.process_time() - began, 1)
    return {"verdict": checked.verdict, "note": checked.note, "cpu_s": seconds}


def main() -> int:
    """Runs what has not passed yet; returns how many failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("nodes", nargs="*", default=list(CASES), metavar="NODE")
    parser.add_argument("--problems", type=int, default=4000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write what has passed")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.nodes) - set(CASES)):
        parser.error(f"{unknown[0]} is no strategy that is tested; there is {', '.join(CASES)}")
    now, problems = sources(), arguments.problems
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}

    def has_passed(name: str) -> bool:
        known = record.get(name, {})
        return bool(known.get("sources") == now and known.get("problems", 0) >= problems)

    failed = 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        running = {
            pool.submit(grown, name, problems): name
            for name in arguments.nodes
            if not has_passed(name)
        }
        for done in as_completed(running):
            name, result = running[done], done.result()
            sys.stdout.write(f"{name:<29} {result['verdict']} {result['note']}\n")
            sys.stdout.flush()
            failed += result["verdict"] == "failed"
            record.pop(name, None)
            if result["verdict"] != "failed":
                record[name] = {**result, "problems": problems, "sources": now}
            RECORD.parent.mkdir(exist_ok=True)
            RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    if arguments.json is not None:
        command = ["python", "-m", "tests.contract.growth", *sys.argv[1:]]
        rows = [{"name": name, **record[name]} for name in sorted(record) if has_passed(name)]
        write_result(arguments.json, command=command, rows=rows, seed=5)
    return failed


if __name__ == "__main__":
    sys.exit(main())
