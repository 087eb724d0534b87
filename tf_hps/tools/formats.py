"""Files that tables go out to and come in from: Parquet, and NumPy's .npz and .npy.

<table>.parquet              columns key int64, weights fixed_size_list<float>[dim], and the
                             optimizer's slots likewise; the table's description, JSON, is the
                             schema's metadata "tf_hps"
<table>/table.json           the description
<table>/part-00000.npz       arrays keys int64 [n], weights float32 [n, dim], and the slots
<table>/part-00000.keys.npy  the same arrays, a file each
"""

import contextlib
import glob
import json
import os
import shutil

import numpy as np

from tf_hps.tools.sources import ToolError

_METADATA = b"tf_hps"


def _pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ToolError(
            "Parquet needs pyarrow, which is not installed: pip install 'tf-hps[parquet]', or use "
            "--format npz"
        ) from None
    return pyarrow


def check_available(format):
    """Raises ToolError if a format cannot be used here."""
    if format == "parquet":
        _pyarrow()


def output_path(folder, name, format):
    """Returns where a table goes, `name` being safe as a file's name."""
    return os.path.join(folder, name + (".parquet" if format == "parquet" else ""))


@contextlib.contextmanager
def writer(path, format, description):
    """Yields a function that writes chunks; the file or folder is there at the end, or not at all.

    Args:
      path: what `output_path` returned.
      format: "parquet", "npz" or "npy".
      description: dict for JSON, about the table.

    Yields:
      write(arrays): of a dict of name -> array: keys int64 [n], others float32 [n, dim].
    """
    unfinished = path + ".tmp"
    remove(unfinished)
    try:
        make = _parquet_writer if format == "parquet" else _numpy_writer
        with make(unfinished, format, description) as write:
            yield write
        remove(path)
        os.rename(unfinished, path)
    except OSError as error:
        remove(unfinished)
        reason = error.strerror or f"not all could be written, is the disk full? ({error})"
        raise ToolError(f"cannot write {path}: {reason}") from error
    except BaseException:
        remove(unfinished)
        raise


def remove(path):
    """Removes a file or a folder, if there is one."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


@contextlib.contextmanager
def _parquet_writer(path, format, description):
    pa = _pyarrow()
    dim = description["dim"]
    slots = description["slots"]
    vector = pa.list_(pa.field("element", pa.float32(), nullable=False), dim)
    fields = [pa.field("key", pa.int64(), nullable=False)]
    fields += [pa.field(name, vector, nullable=False) for name in ("weights", *slots)]
    schema = pa.schema(fields, {_METADATA: json.dumps(description).encode()})

    def write(arrays):
        columns = [pa.array(arrays["keys"])]
        for name in ("weights", *slots):
            values = pa.array(np.ascontiguousarray(arrays[name]).reshape(-1))
            columns.append(pa.FixedSizeListArray.from_arrays(values, type=vector))
        file.write_batch(pa.record_batch(columns, schema=schema))

    with pa.parquet.ParquetWriter(path, schema, write_page_checksum=True) as file:
        yield write


@contextlib.contextmanager
def _numpy_writer(path, format, description):
    os.makedirs(path)
    with open(os.path.join(path, "table.json"), "w", encoding="utf-8") as file:
        json.dump(description, file, indent=2)
    parts = iter(range(10**5))

    def write(arrays):
        part = os.path.join(path, f"part-{next(parts):05}")
        if format == "npz":
            np.savez(f"{part}.npz", **arrays)
        else:
            for name, array in arrays.items():
                np.save(f"{part}.{name}.npy", array)

    yield write


class Input:
    """A table to be read: a Parquet file, a folder of parts, or one part.

    Args:
      path: of it.

    Attributes:
      description: dict that its export left, or {}.
      rows: how many there are, or None if that is not known before they are read.
    """

    def __init__(self, path):
        self.path = path
        self.description = {}
        self.rows = None
        if path.endswith(".parquet"):
            self._file = self._open_parquet()
        elif not os.path.exists(path):
            raise ToolError(f"{path}: there is no such file or folder")
        else:
            self._parts = self._list_parts()
            for part in self._parts[:1]:
                self._checked(part, *_load_part(part))

    def _open_parquet(self):
        pa = _pyarrow()
        with self._readable():
            file = pa.parquet.ParquetFile(self.path, page_checksum_verification=True)
        metadata = (file.schema_arrow.metadata or {}).get(_METADATA)
        if metadata:
            self.description = json.loads(metadata)
        self.rows = file.metadata.num_rows
        missing = {"key", "weights"} - set(file.schema_arrow.names)
        if missing:
            raise ToolError(
                f"{self.path} has no column {' and '.join(sorted(missing))}: expected key (int64) "
                f"and weights (lists of float). It has {', '.join(file.schema_arrow.names)}"
            )
        return file

    @contextlib.contextmanager
    def _readable(self):
        """Within it, pyarrow's errors name the file."""
        try:
            yield
        except (_pyarrow().ArrowException, OSError) as error:
            raise ToolError(f"{self.path} cannot be read as Parquet: {error}") from None

    def _list_parts(self):
        if not os.path.isdir(self.path):
            return [self.path]
        about = os.path.join(self.path, "table.json")
        if os.path.exists(about):
            with open(about, encoding="utf-8") as file:
                self.description = json.load(file)
            self.rows = self.description.get("rows")
        parts = sorted(
            glob.glob(os.path.join(glob.escape(self.path), "*.npz"))
            + glob.glob(os.path.join(glob.escape(self.path), "*.keys.npy"))
        )
        if not parts and not self.description:
            raise ToolError(f"{self.path} holds no .npz and no .keys.npy files")
        return parts

    def chunks(self, chunk_rows):
        """Yields (keys int64 [n], weights float32 [n, dim]), n up to `chunk_rows`."""
        if self.path.endswith(".parquet"):
            with self._readable():
                for batch in self._file.iter_batches(chunk_rows, columns=["key", "weights"]):
                    yield self._checked(self.path, *self._from_arrow(batch))
            return
        for part in self._parts:
            keys, weights = self._checked(part, *_load_part(part))
            for i in range(0, len(keys), chunk_rows):
                yield keys[i : i + chunk_rows], weights[i : i + chunk_rows]

    def _from_arrow(self, batch):
        keys, weights = batch.column("key"), batch.column("weights")
        if keys.null_count or weights.null_count or not hasattr(weights, "flatten"):
            raise ToolError(
                f"{self.path}: key and weights must have no nulls, and weights be lists"
            )
        flat = weights.flatten().to_numpy(zero_copy_only=False)
        lengths = np.unique(weights.value_lengths().to_numpy(zero_copy_only=False))
        if len(lengths) > 1:
            raise ToolError(f"{self.path}: weights have several lengths, {lengths.tolist()[:5]}")
        return keys.to_numpy(zero_copy_only=False), flat.reshape(len(keys), -1)

    def _checked(self, part, keys, weights):
        fits = keys.ndim == 1 and weights.ndim == 2 and len(keys) == len(weights)
        if not fits or keys.dtype.kind != "i" or weights.dtype.kind != "f":
            raise ToolError(
                f"{part}: expected int keys [n] and float weights [n, dim]. Received: "
                f"{keys.dtype} {list(keys.shape)} and {weights.dtype} {list(weights.shape)}"
            )
        return keys.astype(np.int64, copy=False), weights.astype(np.float32, copy=False)


def _load_part(path):
    try:
        if path.endswith(".npz"):
            with np.load(path) as arrays:
                missing = {"keys", "weights"} - set(arrays.files)
                if missing:
                    raise ToolError(
                        f"{path} has no array {' and '.join(sorted(missing))}: expected keys "
                        f"(int64 [n]) and weights (float [n, dim]). It has {arrays.files}"
                    )
                return arrays["keys"], arrays["weights"]
        if path.endswith(".keys.npy"):
            weights = path.removesuffix(".keys.npy") + ".weights.npy"
            return np.load(path, mmap_mode="r"), np.load(weights, mmap_mode="r")
    except (KeyError, ValueError, OSError, EOFError) as error:
        raise ToolError(f"{path} cannot be read: {error}") from None
    raise ToolError(f"{path}: expected a .parquet, .npz or .keys.npy file, or a folder of these")
