"""Builds the package; everything that is not the C++ library stands in pyproject.toml.

The C++ library must be compiled against TensorFlow's headers. An ordinary `pip install .` builds in
an isolated environment that does not see the TensorFlow already installed, and fetching it again
would cost 600 MB; so we look for it in the environment around the isolated one first, and make
TensorFlow a build requirement only where it is not there. Which of the two is used does not matter:
both are of the one minor version that this release is for.
"""

import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent
FIND_TENSORFLOW = ROOT / "scripts/find_tensorflow.py"
BUNDLED = {  # the libraries that `make wheel` puts into the wheel: project, home and Debian package
    "LevelDB": ("https://github.com/google/leveldb", "libleveldb"),
    "Snappy": ("https://github.com/google/snappy", "libsnappy"),
}


def tensorflow_folder():
    """Returns the folder of a TensorFlow 2.21 in this environment or the one around it, or None."""
    for flags in ([], ["-I"]):  # -I ignores PYTHONPATH, which is how pip hides the outer packages
        command = [sys.executable, *flags, str(FIND_TENSORFLOW)]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode == 0:
            folder, version = found.stdout.split("\n")[:2]
            if version.startswith("2.21."):
                return folder
    return None


def third_party_notices():
    """Returns the notices of the bundled libraries, as the system they are taken from has them."""
    notices = ["Wheels of tf_hps may hold these libraries, in tf_hps.libs:\n"]
    for project, (home, package) in BUNDLED.items():
        notices.append(f"{'-' * 80}\n{project}, {home}, BSD-3-Clause\n")
        found = sorted(pathlib.Path("/usr/share/doc").glob(f"{package}[0-9]*/copyright"))
        text = found[0].read_text() if found else f"The license is at {home}/tree/main\n"
        notices.append(text)
    return "\n".join(notices)


class BuildWithNotices(build_py):
    """Adds `tf_hps/THIRD_PARTY_NOTICES`."""

    def run(self):
        super().run()
        if not self.editable_mode:
            notices = pathlib.Path(self.build_lib, "tf_hps/THIRD_PARTY_NOTICES")
            notices.write_text(third_party_notices())


class CMakeBuild(build_ext):
    """Builds the extension with CMake, as `_tf_hps_ops.so`: it is no Python module."""

    def get_ext_filename(self, fullname):
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext):
        folder = tensorflow_folder()
        if folder is None:
            raise SystemExit(
                "tf_hps builds against TensorFlow 2.21: pip install 'tensorflow==2.21.*'"
            )
        build = pathlib.Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        # The cache names tools of an isolated environment that is gone by the next build.
        (build / "CMakeCache.txt").unlink(missing_ok=True)
        configure = ["-S", str(ROOT), "-B", str(build), f"-DTF_HPS_TENSORFLOW_DIR={folder}"]
        if ninja := shutil.which("ninja"):
            configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        output = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve().parent
        subprocess.run(["cmake", *configure], check=True)
        subprocess.run(["cmake", "--build", str(build)], check=True)
        install = ["--install", str(build), "--prefix", str(output), "--strip"]
        subprocess.run(["cmake", *install], check=True)


setup(
    ext_modules=[Extension("tf_hps._tf_hps_ops", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "build_py": BuildWithNotices},
    setup_requires=[] if tensorflow_folder() else ["tensorflow==2.21.*"],
)
