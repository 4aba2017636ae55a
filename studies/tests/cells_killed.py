"""Carries out the cells of a prepared study and kills itself at a given moment, as a power cut
would: python cells_killed.py MOMENT:COUNT FOLDER (`never` for no moment)."""

import sys
from pathlib import Path

from downstream_studies import StandIn
from killed import MOMENTS, die_at

from fairnepv.io.locks import locked
from fairnepv_studies.downstream.execution import Execution
from fairnepv_studies.downstream.folder import StudyFolder
from fairnepv_studies.downstream.report import write_report

MOMENTS["work"] = (StandIn, "train_and_write")


def main() -> None:
    moment, path = sys.argv[1], Path(sys.argv[2])
    if moment != "never":
        name, count = moment.split(":")
        die_at(name, int(count))
    folder = StudyFolder.open(path)
    worker = StandIn()
    Execution(folder, folder.study.model, worker).carry_out()
    with locked(path):
        write_report(folder)
    print(len(worker.calls))


if __name__ == "__main__":
    main()
