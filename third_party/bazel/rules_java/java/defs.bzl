"""Bazel's native Java rules under the names that @rules_java gives them: a stand-in for building offline.

Nothing here is written in Java, but Bazel's own tools are described in these words.
"""

java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_proto_library = native.java_proto_library
java_runtime = native.java_runtime
java_test = native.java_test
java_toolchain = native.java_toolchain
