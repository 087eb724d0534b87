"""The command line of `tf-hps`.

Exit codes: 0 all is well; 1 `verify` found damage, or the command failed and says why on stderr;
2 the command line is wrong; 130 interrupted.
"""

import argparse
import contextlib
import json
import os
import sys

import tensorflow as tf

from tf_hps._bytes import parse_bytes
from tf_hps._version import __version__
from tf_hps.tools import compaction, exporting, importing, inspection, sources, verification

_PATH = "a store's directory, a checkpoint's prefix, or a SavedModel's directory"
_JSON = "print the result as JSON"
_EPILOG = """\
PATH is the directory of a store, the prefix of a checkpoint, or a SavedModel's directory.

examples:
  tf-hps inspect ctr_store
  tf-hps verify checkpoints/ckpt-7
  tf-hps export served out --table user
  tf-hps import ctr_store out/user.parquet

exit codes: 0 all is well; 1 damage was found, or the command failed; 2 wrong command line
"""


def main(argv=None):
    """Runs the command and returns its exit code."""
    arguments = _parser().parse_args(argv)
    arguments.json |= arguments.json_first
    with contextlib.suppress(RuntimeError):  # called from a program that uses TensorFlow already
        tf.config.set_visible_devices([], "GPU")  # a training process may have them
    try:
        report, code = arguments.run(arguments)
        output = json.dumps(report, indent=2) if arguments.json else arguments.show(report)
        if output:
            print(output, flush=True)
        return code
    except BrokenPipeError:  # as of `| head`; Python would complain again as it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("tf-hps: interrupted", file=sys.stderr)
        return 130
    except (sources.ToolError, ValueError, TypeError, OSError) as error:
        print(f"tf-hps: {error}", file=sys.stderr)
    except tf.errors.OpError as error:
        lossy = isinstance(error, tf.errors.DataLossError) and "tf-hps verify" not in error.message
        hint = f". `tf-hps verify {arguments.path}` lists all that is damaged" if lossy else ""
        print(f"tf-hps: {error.message}{hint}", file=sys.stderr)
    return 1


def _parser():
    parser = argparse.ArgumentParser(
        prog="tf-hps",
        description="Tables of tf_hps on disk: what is there, is it sound, out and in.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", dest="json_first", action="store_true", help=_JSON)
    parser.add_argument("--version", action="version", version=f"tf-hps {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_add_inspect, _add_verify, _add_export, _add_import, _add_compact):
        add(commands)
    return parser


def _add(commands, name, summary, details, examples, path_help=_PATH):
    command = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {details}",
        epilog="examples:\n" + "".join(f"  tf-hps {name} {example}\n" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("path", metavar="PATH", help=path_help)
    command.add_argument("--json", action="store_true", help=_JSON)
    return command


def _budget(text):
    try:
        return parse_bytes(text, "--dram-bytes")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text):
    number = int(text)
    if not 1 <= number < 2**31:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 2**31 - 1. Received: {text}")
    return number


def _add_commit(command, default):
    command.add_argument(
        "--commit",
        type=_count,
        metavar="N",
        help=f"of a store, the number of a commit (default: {default})",
    )


def _add_budget(command):
    command.add_argument(
        "--dram-bytes",
        type=_budget,
        default=parse_bytes("256MiB", ""),
        help="memory for rows while the store is open (default: 256MiB)",
    )


def _add_chunk(command):
    command.add_argument(
        "--chunk-rows", type=_count, default=65536, help="rows at a time (default: %(default)s)"
    )


def _add_inspect(commands):
    command = _add(
        commands,
        "inspect",
        "show the tables and their sizes",
        "Reads a commit's manifest only: the store may be in use.",
        ["ctr_store", "checkpoints/ckpt-7", "served --json"],
    )
    _add_commit(command, "the last one")
    command.set_defaults(
        show=inspection.show,
        run=lambda arguments: (inspection.inspect(arguments.path, arguments.commit), 0),
    )


def _add_verify(commands):
    command = _add(
        commands,
        "verify",
        "check every file and every row",
        "Of a store: of every commit that it\nkeeps. Changes nothing; the store may be in use.\n"
        "Prints nothing and exits with 0 if all is well; else prints what is damaged and exits "
        "with 1.\nNotes are harmless.",
        ["ctr_store", "checkpoints/ckpt-7 --json"],
    )

    def run(arguments):
        report = verification.verify(arguments.path, arguments.commit)
        return report, int(not report["ok"])

    _add_commit(command, "all, one after the other")
    command.set_defaults(show=verification.show, run=run)


def _add_export(commands):
    command = _add(
        commands,
        "export",
        "write tables to Parquet or NumPy files",
        "Rows come by ascending key, in chunks:\na table is never in memory as a whole.",
        ["ctr_store out", "checkpoints/ckpt-7 out --table user --state --format npz"],
    )
    command.add_argument("output", metavar="OUT", help="the folder for the files, made if need be")
    command.add_argument(
        "--table",
        action="append",
        default=[],
        help="a table's name; repeat it for more (default: all)",
    )
    command.add_argument(
        "--format",
        choices=("parquet", "npz", "npy"),
        default="parquet",
        help="a Parquet file (default; needs pyarrow), or a folder of NumPy files, for each table",
    )
    _add_commit(command, "the last one")
    command.add_argument("--state", action="store_true", help="the optimizer's state as well")
    command.add_argument("--overwrite", action="store_true", help="replace files that are there")
    _add_chunk(command)
    _add_budget(command)

    def run(arguments):
        options = ("path", "output", "table", "commit", "format", "state", "chunk_rows")
        values = [getattr(arguments, option) for option in (*options, "overwrite", "dram_bytes")]
        return exporting.export(*values), 0

    command.set_defaults(show=exporting.show, run=run)


def _add_import(commands):
    command = _add(
        commands,
        "import",
        "put rows from files into a store",
        "Rows whose keys are there are\nreplaced and keep their optimizer state; new ones start "
        "with fresh state.\nThere is one commit, at the end: when it fails, nothing has changed.",
        [
            "ctr_store out/user.parquet",
            "new_store out",
            "new_store rows.npz --name user --initializer zeros",
        ],
        "the directory of a store, made if it does not exist",
    )
    command.add_argument(
        "input",
        metavar="IN",
        nargs="+",
        help="what export wrote, or a .parquet file (key, weights) or .npz file (keys, weights)",
    )
    command.add_argument("--name", help="the table's name (default: the exported one's)")
    command.add_argument(
        "--initializer", help="of a new table (default: the exported one's, or uniform)"
    )
    command.add_argument(
        "--seed", type=int, help="of a new table (default: the exported one's, or 0)"
    )
    _add_chunk(command)
    _add_budget(command)

    def run(arguments):
        options = ("path", "input", "name", "initializer", "seed", "chunk_rows", "dram_bytes")
        return importing.import_tables(*(getattr(arguments, option) for option in options)), 0

    command.set_defaults(show=importing.show, run=run)


def _add_compact(commands):
    command = _add(
        commands,
        "compact",
        "rewrite a store's files without garbage",
        "Removes rows of dropped tables and what was\noverwritten, and commits. Needs room for "
        "the new files beside the old ones.",
        ["ctr_store"],
        "the directory of a store",
    )
    _add_budget(command)
    command.set_defaults(
        show=compaction.show,
        run=lambda arguments: (compaction.compact(arguments.path, arguments.dram_bytes), 0),
    )


if __name__ == "__main__":
    sys.exit(main())
