"""Runs a step of the protocol and kills itself at a given moment, as a power cut would.

python killed.py MOMENT:COUNT simulate N OUT
python killed.py MOMENT:COUNT ingest RAW OUT
python killed.py MOMENT:COUNT folder FOLDER OUT      of its images/ and texts.csv

A moment is a call of a function (see `MOMENTS`); at its COUNT-th call the process ends by SIGKILL.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq

from fairnepv_studies import corpora, making
from fairnepv_studies.uspto import ingest, parts, simulate

MOMENTS = {  # what is called, before which the process ends
    "replace": (os, "replace"),
    "table": (pq.ParquetWriter, "write_table"),
    "bytes": (Path, "write_bytes"),
    "rmtree": (shutil, "rmtree"),
    "unlink": (os, "unlink"),  # in the middle of that
}


def die_at(moment: str, count: int) -> None:
    owner, name = MOMENTS[moment]
    call, left = getattr(owner, name), [count]

    def counted(*args, **options):
        left[0] -= 1
        if left[0] == 0:
            if moment == "bytes":  # half of a file is written
                call(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)

    setattr(owner, name, counted)


def main() -> None:
    moment, step, what, out = sys.argv[1:]
    simulate.CHUNK = 40  # many moments in a small run
    for module in (parts, making, corpora):
        setattr(module, "ROWS", 32)  # noqa: B010 (which they may have from elsewhere)
    if moment != "never":
        name, count = moment.split(":")
        die_at(name, int(count))
    if step == "simulate":
        simulate.simulate(int(what), 0, Path(out))
    elif step == "folder":
        corpora.ingest_folder(f"{what}/images", f"{what}/texts.csv", out)
    else:
        raw = Path(what)
        ingest.ingest(sorted(raw.glob("applications-*.xml")), f"{raw}/images.zip", Path(out))


if __name__ == "__main__":
    main()
