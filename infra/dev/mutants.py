#!/usr/bin/env python3
"""Shows which test program notices which change of engine, store and flow.

    infra/dev/mutants.py FOLDER [--sample N] [--seed N]

FOLDER gets a copy of the sources in which each change is behind a switch: a condition becomes its opposite, or a statement
that ends with `?;` is left out. The copy is built once. Each test program then runs once without a change, which shows the
places that it reaches, and once for each change of the sample that it reaches. FOLDER/results.jsonl keeps the results, so a
second call continues. The table on standard output counts, per crate, the changes that a program notices, and those that
no other program notices. After it come the changes that none notices.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATES = {"engine": "shared/engine/src", "store": "shared/store/src/dynamo", "flow": "shared/flow/src"}
PROGRAMS = {
    "engine": ["-p", "ebb-engine", "--lib"],
    "store": ["-p", "ebb-store", "--test", "it"],
    "flow": ["-p", "ebb-flow", "--lib"],
    "table": ["-p", "ebb-local", "--test", "table"],
    "simulation": ["-p", "ebb-tests", "--test", "simulation"],
    "functions": ["-p", "ebb-tests", "--test", "functions"],
}
SWITCH = """//! The switch of the changes.

use std::io::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static CHANGED: LazyLock<usize> =
    LazyLock::new(|| std::env::var("EBB_CHANGED").ok().and_then(|number| number.parse().ok()).unwrap_or(usize::MAX));
static REACHED: [AtomicBool; 10_000] = [const { AtomicBool::new(false) }; 10_000];

/// Returns true if the place `number` is changed.
pub fn at(number: usize) -> bool {
    if !REACHED[number].swap(true, Ordering::Relaxed)
        && let Ok(file) = std::env::var("EBB_REACHED")
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(file)
    {
        let _ = file.write_all(format!("{number}\\n").as_bytes());
    }
    *CHANGED == number
}
"""
CONDITION = re.compile(r"^(\s*(?:\} else )?if )(?!let )(.+)( \{)$")
GUARD = re.compile(r"^(\s*\S.* if )(?!let )(.+)( => .*)$")
STATEMENT = re.compile(r"^(\s+)((?!let |return |break |[}).?]).+\?;)$")


def is_whole(text):
    """Returns true if the brackets of a text are balanced and it has no binding or string that may have one."""
    depth = 0
    for character in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0 and "let " not in text and '"' not in text


def changed_line(line, before, number):
    """Returns a line with the switch of its change, and the kind of the change."""
    switch = f"crate::changed::at({number})"
    for pattern in (CONDITION, GUARD):
        found = pattern.match(line)
        if found and is_whole(found[2]) and (pattern is CONDITION or "=>" not in found[1]):
            return f"{found[1]}({found[2]}) != {switch}{found[3]}", "condition"
    found = STATEMENT.match(line)
    is_first = before.strip() == "" or before.rstrip().endswith((";", "{", "}")) or before.strip().startswith("//")
    if found and is_first and is_whole(found[2]) and " = " not in found[2]:
        return f"{found[1]}if !{switch} {{ {found[2]} }}", "statement"
    return None


def instrument(folder):
    """Copies the sources, and returns the places with their changes."""
    subprocess.run(["git", "checkout-index", "--all", f"--prefix={folder}/"], cwd=ROOT, check=True)
    # Tests read the files that git tracks.
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    places = []
    for crate, sources in CRATES.items():
        for path in sorted((folder / sources).rglob("*.rs")):
            if "test" in str(path.relative_to(folder)) or path.name == "stored.rs":
                continue
            lines, is_constant, before = path.read_text().splitlines(), False, ""
            for index, line in enumerate(lines):
                if "#[cfg(test)]" in line:
                    break
                if re.match(r"\s*(pub(\([a-z]+\))? )?(const |async )*fn ", line):
                    is_constant = "const fn" in line
                changed = None if is_constant else changed_line(line, before, len(places))
                before = line
                if changed:
                    place = {"crate": crate, "file": str(path.relative_to(folder)), "line": index + 1}
                    places.append(place | {"kind": changed[1], "text": line.strip()})
                    lines[index] = changed[0]
            path.write_text("\n".join(lines) + "\n")
        root = folder / "shared" / crate / "src"
        (root / "changed.rs").write_text(SWITCH)
        text = (root / "lib.rs").read_text()
        first = re.search(r"^(pub )?mod ", text, re.MULTILINE).start()
        (root / "lib.rs").write_text(text[:first] + "mod changed;\n" + text[first:])
    (folder / "places.json").write_text(json.dumps(places))
    return places


def executable(folder, arguments):
    build = ["cargo", "test", "--no-run", "--message-format=json", *arguments]
    output = subprocess.run(build, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
    messages = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    found = [message for message in messages if message.get("executable") and message["profile"]["test"]]
    return found[-1]["executable"], os.path.dirname(found[-1]["manifest_path"])


def run(program, variables, timeout):
    """Runs a test program until its first failure. Returns true if a test failed, and the seconds."""
    path, folder = program
    environment = os.environ | variables | {"CARGO_MANIFEST_DIR": folder}
    begun = time.monotonic()
    process = subprocess.Popen(
        [path], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
    signal.alarm(int(timeout))
    has_failed = any(re.search(r"\bFAILED\b", line) for line in process.stdout)
    if has_failed and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    signal.alarm(0)
    return has_failed or status != 0, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "places.json"
    places = json.loads(stored.read_text()) if stored.exists() else instrument(folder)
    programs = {name: executable(folder, selection) for name, selection in PROGRAMS.items()}
    reached, seconds = {}, {}
    for name, program in programs.items():
        file = folder / f"reached-{name}"
        if not file.exists():
            part = folder / "reached"
            part.unlink(missing_ok=True)
            has_failed, elapsed = run(program, {"EBB_REACHED": str(part)}, 1_800)
            if has_failed:
                sys.exit(f"error: {name} fails without a change")
            file.write_text(f"{elapsed}\n" + (part.read_text() if part.exists() else ""))
        first, *numbers = file.read_text().split()
        seconds[name], reached[name] = float(first), {int(number) for number in numbers}
        print(f"{name}: reaches {len(reached[name])} of {len(places)} places in {seconds[name]:.0f} s", file=sys.stderr)
    sample = sorted(set().union(*reached.values()))
    random.Random(arguments.seed).shuffle(sample)
    sample = sample[: arguments.sample]
    results = {}
    file = folder / "results.jsonl"
    for line in file.read_text().splitlines() if file.exists() else []:
        number, name, has_failed = json.loads(line)
        results[number, name] = has_failed
    for count, number in enumerate(sample, 1):
        for name, program in programs.items():
            if number in reached[name] and (number, name) not in results:
                has_failed, _ = run(program, {"EBB_CHANGED": str(number)}, 5 * seconds[name] + 60)
                results[number, name] = has_failed
                with file.open("a") as output:
                    output.write(json.dumps([number, name, has_failed]) + "\n")
        print(f"{count} of {len(sample)}", file=sys.stderr)
    print_table(places, sample, programs, results)


def print_table(places, sample, programs, results):
    noticed = collections.Counter()
    sizes, missed = collections.Counter(), []
    for number in sample:
        crate = places[number]["crate"]
        by = [name for name in programs if results.get((number, name))]
        sizes[crate] += 1
        noticed.update((crate, name) for name in by)
        if len(by) == 1:
            noticed[crate, by[0], "alone"] += 1
        if by:
            noticed[crate] += 1
        else:
            missed.append(number)
    print("| crate | changes | noticed |", " | ".join(programs), "|")
    print("|---" * (len(programs) + 3) + "|")
    for crate in CRATES:
        cells = [f"{noticed[crate, name]} ({noticed[crate, name, 'alone']})" for name in programs]
        print(f"| {crate} | {sizes[crate]} | {noticed[crate]} |", " | ".join(cells), "|")
    print()
    for number in missed:
        place = places[number]
        print(f"{place['file']}:{place['line']}: {place['kind']}: {place['text']}")


if __name__ == "__main__":
    main()
