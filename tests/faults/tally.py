"""Print how often each fault was made, from the file that `FAULTS_TALLY` named: python tests/faults/tally.py FILE."""

import json
import sys
from collections import Counter
from pathlib import Path


def main(place: Path) -> None:
    times, runs = Counter[str](), Counter[str]()
    for fault, count, _ in map(json.loads, place.read_text(encoding="utf-8").splitlines()):
        times[fault] += count
        runs[fault] += 1
    print("| fault | how often | runs |\n|---|---|---|")
    for fault in times:
        print(f"| {fault} | {times[fault]} | {runs[fault]} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
