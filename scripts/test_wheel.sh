#!/usr/bin/env bash
# Installs a wheel into a fresh virtual environment, hides the system's LevelDB and Snappy as far as this user may,
# trains one step and looks for the libraries' notices. TensorFlow is taken from the environment this runs in, to save the minutes of another install.
#   test_wheel.sh dist/tf_hps-*.whl
set -euo pipefail
unset PYTHONPATH # the checkout must not stand in for the wheel

wheel=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python -m venv "$work/venv"
packages=("$work"/venv/lib/python3*/site-packages)
python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "${packages[0]}/outer.pth"
"$work/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps "$wheel"

cat > "$work/use.py" <<'EOF'
import pathlib

import tf_hps

store = tf_hps.Store()
table = tf_hps.Table("wheel", 4, store=store)
table.upsert([1, 2], [[1.0] * 4, [2.0] * 4])
store.commit()
assert table.lookup([2]).numpy().tolist() == [[2.0] * 4]

loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/lib" in line}
ours = sorted(path for path in loaded if "leveldb" in path or "snappy" in path)
assert ours and all("/tf_hps.libs/" in path or "/tf_hps.libs-" in path for path in ours), ours
assert "/site-packages/tf_hps/" in tf_hps.__file__, tf_hps.__file__

notices = pathlib.Path(tf_hps.__file__).with_name("THIRD_PARTY_NOTICES").read_text()
for package in "leveldb", "snappy":
    assert f"github.com/google/{package}" in notices, notices
    for notice in pathlib.Path("/usr/share/doc").glob(f"lib{package}[0-9]*/copyright"):
        assert notice.read_text() in notices, notice

print("uses", *(path.rsplit("/", 1)[-1] for path in ours))
EOF

# In a mount namespace of its own, empty files lie over the system's libraries: loading one would fail.
hide='for library in $(ldconfig -p | sed -n "s/.*=> \(.*lib\(leveldb\|snappy\)\.so.*\)/\1/p"); do
  mount --bind /dev/null "$library"
done'
cd "$work"
if unshare --mount true 2>/dev/null; then
  unshare --mount bash -c "$hide; exec venv/bin/python use.py"
else
  echo "The system's LevelDB could not be hidden; which library is loaded is checked all the same."
  venv/bin/python use.py
fi
echo "test_wheel.sh: $(basename "$wheel") needs no LevelDB on the system"
