"""How fast bulk XML is read and how much memory that takes, on simulated case files.

`ingest`: the XML is written first, outside of the clock, with a logo of 16 x 16 pixels for every
serial number, since drawing them takes long and how they look does not matter here. Then one
process on one core runs all of `fairnepv uspto ingest`. Reading is the bytes of XML by the seconds
of checksums (the logos' too), parsing and writing parts; the peak is of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from sections import markdown, provenance, publish

N = 200_000
PER_FILE = 20_000
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}

_MEASURED = """
import json, re, sys, time
from pathlib import Path
import pyarrow
pyarrow.set_cpu_count(1); pyarrow.set_io_thread_count(1)
from fairnepv_studies.uspto.ingest import ingest
folder = Path(sys.argv[1])
began, cpu, ends, cpus = time.perf_counter(), time.process_time(), {}, {}
def listen(stage, done, of):
    ends[stage], cpus[stage] = time.perf_counter() - began, time.process_time() - cpu
files = sorted(folder.glob("*.xml"))
about = ingest(files, f"{folder}/images.zip", folder / "corpus", progress=listen)
# not ru_maxrss, which a process takes over from the one that started it
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
total = time.perf_counter() - began
print(json.dumps([ends["reading XML"], cpus["reading XML"], total, peak, about.funnel]))
"""


def write_files(n: int, folder: Path) -> int:
    """Simulated applications, noise and all, and small logos; returns the bytes of XML."""
    from fairnepv_studies.uspto.applications import case_xml, document
    from fairnepv_studies.uspto.simulate import simulated_record

    later: list[str] = []
    with zipfile.ZipFile(folder / "images.zip", "w") as logos:
        for start in range(0, n, PER_FILE):
            cases = []
            for item in range(start, min(start + PER_FILE, n)):
                _, record = simulated_record(0, item, lambda mark, item=item: logo(item))
                cases.append(case_xml(record.case))
                later += [case_xml(record.again)] if record.again else []
                for name, content in record.images:
                    logos.writestr(name, content)
            (folder / f"applications-{start:08}.xml").write_bytes(document(cases))
    (folder / "applications-later.xml").write_bytes(document(later))
    return sum(file.stat().st_size for file in folder.glob("*.xml"))


def logo(item: int) -> bytes:
    from fairnepv_studies.uspto.drawing import indexed_png

    bits = np.unpackbits(np.frombuffer(item.to_bytes(32, "little"), np.uint8))
    return indexed_png(bits.reshape(16, 16), [(255, 255, 255), (0, 0, 0)])


def ingest(n: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_files(n, folder)
        command = [sys.executable, "-c", _MEASURED, name]
        if hasattr(os, "sched_setaffinity"):
            command = ["taskset", "-c", "0", *command]
        environment = {**os.environ, **ONE_THREAD}
        ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    reading, processor, total, peak, funnel = json.loads(ran.stdout)
    headings = [
        *("case files", "items", "XML", "reading", "of processor time", "all of it", "peak memory")
    ]
    row = [
        f"{funnel[0][1]:,}",
        f"{funnel[-1][1]:,}",
        f"{size / 1e6:,.0f} MB",
        f"{reading:.1f} s, {size / 1e6 / reading:.0f} MB/s",
        f"{size / 1e6 / processor:.0f} MB/s",
        f"{total:.1f} s",
        f"{peak:.0f} MiB",
    ]
    return "Ingest of simulated case files with small logos on one core:\n\n" + markdown(
        headings, [row]
    )


PARTS = {"ingest": ingest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="these parts alone")
    parser.add_argument("--n", type=int, default=N, help="simulated applications")
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    options = parser.parse_args()
    bodies = [PARTS[name](options.n) for name in options.parts or PARTS]
    publish("uspto-ingest", "\n\n".join([provenance("lxml"), *bodies]), write=options.write)


if __name__ == "__main__":
    main()
