#!/usr/bin/env bash
# Installs the Debian packages that a build needs, where they are missing and where it may; else says what to install.
#   install_system_packages.sh [gtest] [bazel] [clang] [fuzz]     what to look for beside compiler, venv and LevelDB
set -euo pipefail

has_header() { printf '#include <%s>\n' "$1" | g++ -x c++ -E - >/dev/null 2>&1; }

missing=()
command -v g++ >/dev/null || missing+=(g++)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
has_header leveldb/db.h || missing+=(libleveldb-dev)
for extra in "$@"; do
  case $extra in
    gtest) has_header gtest/gtest.h || missing+=(libgtest-dev) ;;
    bazel) command -v bazel >/dev/null || missing+=(bazel-bootstrap) ;;
    clang) command -v clang++ >/dev/null || missing+=(clang) ;;
    fuzz)
      command -v clang++ >/dev/null || missing+=(clang)
      compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null || missing+=(libclang-rt-14-dev)
      ;;
    *) echo "install_system_packages.sh: got '$extra', knows gtest, bazel, clang and fuzz" >&2; exit 2 ;;
  esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo)
fi
if [ -z "${as_root+set}" ] || ! command -v apt-get >/dev/null; then
  cat >&2 <<EOF
These packages are missing, and this user may not install them: ${missing[*]}
  Debian, Ubuntu:  sudo apt-get install ${missing[*]}
  Fedora:          LevelDB is leveldb-devel, GoogleTest gtest-devel, the compiler gcc-c++
  conda:           LevelDB is leveldb, GoogleTest gtest, the compiler gxx
EOF
  exit 1
fi

echo "Installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
