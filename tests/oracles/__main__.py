"""Compares what the program does now with what was recorded: `python -m tests.oracles VERB`.

check [FIRST..LAST]    stories against their recorded hashes
renew                  records the hashes of the stories anew
against COMMIT [A..B]  stories against the core of another commit, byte by byte
seeds FILE             hashes that `rota verify --hashes` printed against the recorded ones
renew-seeds FILE       records the hashes that it printed
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.oracles import goldens, recorded, seeds
from tests.oracles.against import against


def _range(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def main(words: list[str]) -> int:
    match words:
        case ["check", *which]:
            wrong = recorded.differences(_range(which[0]) if which else recorded.SEEDS)
        case ["renew"]:
            recorded.renew()
            wrong = []
        case ["renew-goldens", *names]:
            goldens.renew(*names)
            wrong = []
        case ["against", commit, *which]:
            wrong = against(commit, _range(which[0]) if which else recorded.SEEDS)
        case ["seeds", printed]:
            wrong = seeds.differences(Path(printed))
        case ["renew-seeds", printed]:
            seeds.renew(Path(printed))
            wrong = []
        case _:
            wrong = [__doc__ or ""]
    sys.stdout.write("\n".join(wrong or ["The same."]) + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
