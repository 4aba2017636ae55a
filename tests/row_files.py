"""The same rows in every format that is read, written by hand where no library is at hand."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GROUP = 4  # rows of a row group or a record batch
SAFETENSORS = {"float16": "F16", "float32": "F32", "float64": "F64", "int64": "I64"}


def fixed_lists(rows: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def lists(rows: np.ndarray) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.ravel()))


def large_lists(rows: np.ndarray) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(rows.ravel()))


def sliced(rows: np.ndarray) -> pa.Array:
    """The rows as a slice of a longer array, whose buffers begin elsewhere."""
    return lists(np.concatenate([rows[:3] + 100, rows, rows[:2] - 100])).slice(3, len(rows))


def binary(rows: np.ndarray) -> pa.Array:
    return pa.array([row.tobytes() for row in rows], pa.binary(rows[0].nbytes))


def table(column: pa.Array, name: str = "rows") -> pa.Table:
    return pa.table({"id": [f"i{i}" for i in range(len(column))], name: column})


def write_parquet(path: str, content: pa.Table, group: int | None = None) -> None:
    pq.write_table(content, path, row_group_size=group or GROUP)


def write_arrow(
    path: str,
    content: pa.Table,
    *,
    stream: bool = False,
    batch: int | None = None,
    compressed: bool = False,
) -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compressed else None)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, content.schema, options=options) as writer:
        writer.write_table(content, max_chunksize=batch or GROUP)


def write_safetensors(path: str, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Tensors as (type, shape, bytes), as the format has them."""
    header, content = {"__metadata__": {"format": "np"}}, b""
    for name, (kind, shape, values) in tensors.items():
        begin = len(content)
        content += values
        offsets = [begin, len(content)]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + content)


def write_shards(
    folder: str, rows: np.ndarray, prefix: str = "img_emb", size: int | None = None
) -> None:
    size = size or GROUP - 1
    Path(folder).mkdir(exist_ok=True)
    for s, start in enumerate(range(0, len(rows), size)):
        np.save(f"{folder}/{prefix}_{s}.npy", rows[start : start + size])


def write_data_set(folder: str, content: pa.Table, indices=None) -> None:
    """A Hugging Face data set as `save_to_disk` leaves it, older versions with an indices file."""
    Path(folder).mkdir()
    size = GROUP + 1
    starts = range(0, len(content), size)
    names = [f"data-{s:05d}-of-{len(starts):05d}.arrow" for s in range(len(starts))]
    for name, start in zip(names, starts, strict=True):
        write_arrow(f"{folder}/{name}", content.slice(start, size), stream=True, batch=GROUP // 2)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "x"}
    if indices is not None:
        taken = pa.table({"indices": pa.array(indices, pa.uint64())})
        write_arrow(f"{folder}/indices.arrow", taken, stream=True)
        state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    Path(folder, "state.json").write_text(json.dumps(state))
    Path(folder, "dataset_info.json").write_text("{}")


def _npy(rows):
    np.save("a.npy", rows)
    return "a.npy"


def _fortran(rows):
    np.save("f.npy", np.asfortranarray(rows))
    return "f.npy"


def _npz(rows):
    np.savez("a.npz", other=rows[:1], rows=rows)
    return "a.npz:rows"


def _compressed_npz(rows):
    np.savez_compressed("c.npz", rows=rows)
    return "c.npz"


def _shards(rows):
    write_shards("shards", rows)
    return "shards"


def _clip_retrieval(rows):
    Path("clip").mkdir()
    write_shards("clip/img_emb", rows)
    write_shards("clip/text_emb", -rows, "text_emb")
    return "clip:img_emb"


def _tables(make):
    def write(rows):
        write_parquet("t.parquet", table(make(rows)))
        return "t.parquet:rows"

    return write


def _binary(rows):
    write_parquet("b.parquet", table(binary(rows)))
    return f"b.parquet:rows@{rows.dtype}"


def _loose_binary(rows):
    column = pa.array([b"?", *(row.tobytes() for row in rows)], pa.binary()).slice(1)
    write_arrow("l.arrow", table(column))
    return f"l.arrow:rows@{rows.dtype}"


def _parquet_folder(rows):
    Path("tables").mkdir()
    for s, start in enumerate(range(0, len(rows), 2)):
        write_parquet(f"tables/{s}.parquet", table(fixed_lists(rows[start : start + 2])), 1)
    return "tables:rows"


def _arrow(make, **options):
    def write(rows):
        write_arrow("t.arrow", table(make(rows)), **options)
        return "t.arrow:rows"

    return write


def _data_set(rows):
    write_data_set("data_set", table(lists(rows)))
    return "data_set:rows"


def _safetensors(rows):
    kind = SAFETENSORS[str(rows.dtype)]
    other = ("U8", (3,), b"abc")
    write_safetensors("t.safetensors", {"o": other, "rows": (kind, rows.shape, rows.tobytes())})
    return "t.safetensors:rows"


FORMATS = {
    "npy": _npy,
    "npy, Fortran order": _fortran,
    "npz": _npz,
    "npz, compressed": _compressed_npz,
    "shards": _shards,
    "clip-retrieval": _clip_retrieval,
    "parquet, fixed lists": _tables(fixed_lists),
    "parquet, lists": _tables(lists),
    "parquet, large lists": _tables(large_lists),
    "parquet, slices": _tables(sliced),
    "parquet, binary": _binary,
    "parquet folder": _parquet_folder,
    "arrow, fixed lists": _arrow(fixed_lists),
    "arrow, lists": _arrow(lists),
    "arrow, slices": _arrow(sliced),
    "arrow, binary": _loose_binary,
    "arrow, compressed": _arrow(fixed_lists, compressed=True),
    "arrow stream": _arrow(lists, stream=True),
    "arrow stream, compressed": _arrow(lists, stream=True, compressed=True),
    "data set": _data_set,
    "safetensors": _safetensors,
}
