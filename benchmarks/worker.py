"""Each system runs in a process of its own, which obeys lines of JSON.

The parent writes {"call": "measure", "arguments": {...}} to the process's stdin and reads
{"result": ...} or {"error": "traceback"} from its stdout.
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"


class WorkerError(RuntimeError):
    """A system could not do what it was told."""


class Worker:
    """The parent's end.

    Args:
      system: a module of `benchmarks.systems`.
      python: the interpreter that has what the system needs.
      log: an open file for what the process prints.
    """

    def __init__(self, system, python, log):
        self.system = system
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.worker", system],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
        )

    def call(self, name, **arguments):
        """Calls a method of the system and returns its result."""
        try:
            print(
                json.dumps({"call": name, "arguments": arguments}),
                file=self._process.stdin,
                flush=True,
            )
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise WorkerError(f"{self.system}: died in {name}, exit status {self._process.wait()}")
        answer = json.loads(answer)
        if "error" in answer:
            raise WorkerError(f"{self.system}: {name}({arguments}) failed\n{answer['error']}")
        return answer["result"]

    def close(self):
        """Ends the process."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def serve(system):
    """The child's end: obeys until stdin ends. What the system prints goes to stderr.

    Args:
      system: a module of `benchmarks.systems`, whose `SYSTEM` is a class without arguments.
    """
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # before the import: some print
    system = importlib.import_module(f"benchmarks.systems.{system}").SYSTEM()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": getattr(system, request["call"])(**request["arguments"])}
        except Exception:  # the parent decides
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=channel, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
