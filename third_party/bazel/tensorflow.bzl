"""A repository with the headers and the framework library of the TensorFlow that a Python would import."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "framework",
    srcs = ["libtensorflow_framework.so.2"],
    hdrs = glob(["include/**"]),
    defines = ["EIGEN_MAX_ALIGN_BYTES=64"],
    includes = ["include"],
)
"""

def _tensorflow_repository_impl(ctx):
    python = ctx.os.environ.get("TF_HPS_PYTHON")
    if not python:
        own = ctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv").get_child("bin").get_child("python")
        python = str(own) if own.exists else "python3"
    found = ctx.execute([python, ctx.path(Label("//:scripts/find_tensorflow.py"))])
    if found.return_code:
        fail(found.stderr + " or name another Python: TF_HPS_PYTHON=/path/to/python3")
    folder = ctx.path(found.stdout.split("\n")[0])
    ctx.symlink(folder.get_child("include"), "include")
    ctx.symlink(folder.get_child("libtensorflow_framework.so.2"), "libtensorflow_framework.so.2")
    ctx.file("BUILD", _BUILD)

tensorflow_repository = repository_rule(
    implementation = _tensorflow_repository_impl,
    environ = ["TF_HPS_PYTHON"],
    local = True,
)
