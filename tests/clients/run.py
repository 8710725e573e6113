"""The clients of others against a server on SmolLM2, each in an environment of its own.

Run as `make test-clients`, or `python tests/clients/run.py [NAME ...] [--environments FOLDER]`.
Each client does ten items by a strategy that is named in the model's name, and says in one line of
JSON what came of it. Exits with 1 where one of them failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ttc import Problem
from ttc.engine.local import load
from ttc.ports import Engine
from ttc.serve import App, Service, Settings, background

CLIENTS = {
    "litellm": ("litellm",),
    "lm_eval": ("lm-eval[api]",),
    "inspect_ai": ("inspect-ai", "openai"),
}
"""What each environment holds."""
MODEL, NAMED = "smollm2", {"careful": "self_consistency(n=4, max_tokens=48)"}
HERE = Path(__file__).parent
LIKELIHOODS = (
    ("The capital of France is", " Paris", " made of cheese"),
    ("The sky on a clear day is", " blue", " a spoon"),
    ("Two plus two is", " four", " elephant"),
    ("Water freezes when it is very", " cold", " green"),
    ("The opposite of hot is", " cold", " Tuesday"),
    ("Dogs like to chase", " cats", " algebra"),
    ("The sun rises in the", " east", " drawer"),
    ("A week has seven", " days", " oceans"),
    ("Bees make", " honey", " trains"),
    ("We read books with our", " eyes", " shoes"),
)
"""Texts, how they go on, and how they do not."""


def environment(folder: Path, name: str) -> Path:
    """The Python of a client's environment, which is made where it is missing, or not whole."""
    python, is_whole = folder / name / "bin" / "python", folder / name / "is_whole"
    if not is_whole.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *CLIENTS[name]]
        subprocess.run(install, check=True)
        is_whole.touch()
    return python


def write_likelihoods(engine: Engine, path: Path) -> None:
    """Writes items whose endings are to be weighed, with the tokens of all their texts."""
    items = [{"text": text, "choices": list(ends)} for text, *ends in LIKELIHOODS]
    texts = [text + end for text, *ends in LIKELIHOODS for end in ("", *ends)]
    tokens = {text: engine.root(Problem(prompt=text), "policy").token_ids for text in texts}
    path.write_text(json.dumps({"items": items, "tokens": tokens}), encoding="utf-8")


def run(name: str, python: Path, url: str, likelihoods: Path) -> bool:
    """Whether a client has done its items; what it says is printed."""
    command = [str(python), str(HERE / f"{name}_client.py"), url, f"{MODEL}@careful"]
    hidden = {"PYTHONPATH": "", "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1"}
    hidden["TTC_LIKELIHOODS"] = str(likelihoods)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env={**os.environ, **hidden}
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        print(f"{name} failed:\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}")
        return False
    told = json.loads(lines[-1])
    print(json.dumps({"client": name, **told}))
    return bool(told["items"] >= 10 and not told["errors"])


def main() -> int:
    """Runs all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help=", ".join(CLIENTS))
    parser.add_argument("--environments", type=Path, default=Path(".venv-clients"))
    arguments = parser.parse_args()
    names = arguments.names or list(CLIENTS)
    pythons = {name: environment(arguments.environments, name) for name in names}
    # lm-evaluation-harness always sends a temperature of 0, and its strategy has another one.
    settings = Settings(named=NAMED, sampling="strategy")
    engine = load("smollm2-135m")
    service = Service({MODEL: engine}, settings=settings)
    with tempfile.TemporaryDirectory() as folder, background(App(service)) as url:
        likelihoods = Path(folder) / "likelihoods.json"
        write_likelihoods(engine, likelihoods)
        results = [run(name, python, url, likelihoods) for name, python in pythons.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
