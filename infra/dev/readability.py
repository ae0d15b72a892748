#!/usr/bin/env python3
"""Prints figures of readability and size beside their goals. Exits with 1 if a goal is missed.

Production code is all Rust outside of test programs, without its inline test modules. A documentation block is a run of
lines that begin with `///` or `//!`.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST_FILE = re.compile(r"^tests/|/(tests|suite)/|(^|/)tests\.rs$")
TEST_MODULE = re.compile(r"^#\[cfg\(test\)\]\s*\n(?:\s*#\[[^\n]*\]\n)*\s*(?:pub(?:\([a-z]+\))? )?mod \w+ \{", re.M)
QUESTION_WORD = re.compile(r"\s*(What|Who|Whoever|Where|When|Which|Whether|Why|How)\b")
TYPE = re.compile(r"^\s*(?:pub(?:\([a-z: ]+\))? )?(?:struct|enum|trait) ([A-Z]\w*)", re.M)
DOC_BLOCK = re.compile(r"(?:^[ \t]*//[/!].*\n)+", re.M)


def tracked(pattern):
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]


def percent(part, whole):
    return 100 * part / whole


def words(path):
    return len((ROOT / path).read_text().split())


def main():
    sources = {path: (ROOT / path).read_text() for path in tracked("*.rs")}
    docs, types, production_lines = [], collections.Counter(), 0
    for path, text in sources.items():
        if TEST_FILE.search(path):
            continue
        inline = TEST_MODULE.search(text)
        production = text[: inline.start()] if inline else text
        docs += [re.sub(r"^\s*//[/!] ?", "", block, flags=re.M) for block in DOC_BLOCK.findall(production)]
        types.update(TYPE.findall(production))
        production_lines += production.count("\n")
    lines = sum(text.count("\n") for text in sources.values())
    one_word = sum(count for name, count in types.items() if len(re.findall(r"[A-Z][a-z0-9]*", name)) == 1)
    repeated = sum(count for count in types.values() if count > 1)
    rows = [
        ("documentation that opens with a question word", percent(sum(map(bool, map(QUESTION_WORD.match, docs))), len(docs)), 5, "%"),
        ("documentation of at most four words", percent(sum(len(doc.split()) <= 4 for doc in docs), len(docs)), 10, "%"),
        ("types with a name of one word", percent(one_word, types.total()), 40, "%"),
        ("types with a name that is declared twice", percent(repeated, types.total()), 15, "%"),
        ("words of README.md", words("README.md"), 650, ""),
        ("words of ARCHITECTURE.md", words("ARCHITECTURE.md"), 2_000, ""),
        ("lines of Rust", lines, 136_000, ""),
        ("lines of Rust, production code", production_lines, None, ""),
        ("lines of Rust, tests", lines - production_lines, None, ""),
    ]
    missed = False
    for name, found, goal, unit in rows:
        shown = f"{found:.1f}" if unit else f"{found:,}"
        is_missed = goal is not None and found > goal
        beside = "" if goal is None else f"goal {goal:>7,} {unit:<2}{'missed' if is_missed else ''}"
        print(f"{name:<46}{shown:>9} {unit:<2}{beside}".rstrip())
        missed |= is_missed
    return missed


if __name__ == "__main__":
    sys.exit(main())
