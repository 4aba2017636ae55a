"""Rows that lack a view, ids that one view has not, and near-duplicates, on the command line."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairnepv

N, K = 40, 4
RNG = np.random.default_rng(5)
TEXT, VISION = RNG.standard_normal((N, 8)), RNG.standard_normal((N, 6))
VIEWS = "--view text=t.parquet:emb --view vision=v.npy"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Text without a value in rows 3 and 7, vision whose rows 30 to 34 repeat the first."""
    monkeypatch.chdir(tmp_path)
    vision, text = VISION.copy(), TEXT.copy()
    vision[30:35], text[30:35] = vision[:5], text[:5]
    lists = [None if row in (3, 7) else values.tolist() for row, values in enumerate(text)]
    pq.write_table(pa.table({"emb": lists}), "t.parquet")
    np.save("v.npy", vision)
    text[[3, 7]] = np.nan
    return {"text": text, "vision": vision}


def test_rows_that_lack_a_view(command, files):
    refused = command(f"select {VIEWS} -k {K}")
    assert refused.code == 2
    assert "no value in row 3" in refused.err
    for missing in ("drop", "neutral"):
        found = command(f"select {VIEWS} -k {K} --missing {missing} --deduplicate 0.99 --json")
        options = {"missing": missing, "deduplicate": 0.99}
        expected = fairnepv.select(files, K, **options)
        assert [pick["row"] for pick in found.document["picks"]] == expected.indices.tolist()
        line = f"certify {VIEWS} -k {K} --missing {missing} --deduplicate 0.99 --out b.npz --force"
        assert command(line).code == 0
        verified = command(f"verify-bound b.npz {VIEWS} --missing {missing} --json")
        assert verified.document["holds"]


def test_ids_that_one_view_has_not(command, files):
    np.save("w.npy", VISION[5:])
    np.savetxt("a.txt", np.arange(N), fmt="%d")
    np.savetxt("b.txt", np.arange(5, N), fmt="%d")
    np.save("t.npy", TEXT)
    line = (
        f"select --view text=t.npy --view vision=w.npy --ids text=a.txt --ids vision=b.txt -k {K}"
    )
    assert "--align inner" in command(line).err
    found = command(f"{line} --align inner --json").document
    assert all(int(pick["id"]) >= 5 for pick in found["picks"])
