"""The example of the README: its parts, and a small run of it in processes of its own."""

import importlib.util
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

import movielens  # noqa: E402
import report  # noqa: E402
from vocabulary import Vocabulary  # noqa: E402

needs_data = pytest.mark.skipif(
    importlib.util.find_spec("recbole") is None,
    reason="MovieLens-100K is not here: pip install --no-deps recbole",
)


@pytest.fixture(scope="module")
def data():
    return movielens.MovieLens()


def run(script, *arguments, folder=None):
    """Runs a program in a fresh process and returns what it printed."""
    command = [sys.executable, str(script), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder and the printed lines of a small training run."""
    folder = tmp_path_factory.mktemp("example")
    printed = run(
        EXAMPLES / "train_ctr.py",
        f"--output_dir={folder}",
        "--max_ratings=4000",
        "--epochs=1",
        "--seed=3",
    )
    return folder, printed


def test_auc_is_the_share_of_pairs_in_the_right_order():
    random = np.random.default_rng(5)
    clicks, scores = random.integers(0, 2, 60), random.integers(0, 9, 60) / 9
    pairs = list(itertools.product(scores[clicks == 1], scores[clicks == 0]))
    expected = np.mean([(a > b) + (a == b) / 2 for a, b in pairs])
    assert report.auc(clicks, scores) == pytest.approx(expected, abs=1e-12)


def test_failures_name_each_figure_beyond_its_limit():
    good = {
        "loss_difference": 1e-6,
        "auc_difference": 0.0,
        "ssd_bytes_read": 1,
        "ssd_bytes_written": 1,
    }
    assert report.failures(good) == []
    bad = [{"loss_difference": float("nan")}, {"auc_difference": 1e-3}, {"ssd_bytes_read": 0}]
    for change in bad:
        (message,) = report.failures(good | change)
        assert message.startswith(next(iter(change)))


def test_missing_data_set_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install --no-deps recbole"):
        movielens.load_or_exit(None)


def test_crosses_are_keys_of_their_own_and_keep_the_padding():
    left, right = np.repeat(np.arange(1, 301), 300), np.tile(np.arange(-150, 150), 300)
    crossed = movielens.cross(left, right)
    assert np.array_equal(crossed == 0, right == 0)
    assert len(np.unique(crossed[right != 0])) == 300 * 299


@needs_data
def test_splits_are_in_order_of_time(data):
    earlier, later = data.ratings.split_by_date()
    assert earlier.time.max() <= later.time.min()
    earlier, later = data.ratings.split_by_user()
    assert len(earlier) + len(later) == len(data.ratings) == 100_000
    for user in (1, 405, 943):
        assert earlier.time[earlier.user == user].max() <= later.time[later.user == user].min()


@needs_data
def test_vocabulary_numbers_every_key_with_padding_first(data):
    ratings = data.ratings[:500]
    features = data.features(ratings.user, ratings.item, ratings.hour)
    vocabulary = Vocabulary(features)
    for field, numbers in vocabulary.encode(features).items():
        assert np.array_equal(vocabulary.keys(field)[numbers], features[field])
        assert numbers.max() < vocabulary.size(field)
        if field in movielens.MULTI_VALUED:
            assert np.array_equal(numbers == 0, features[field] == 0)


@needs_data
def test_both_models_agree_while_rows_move_between_tiers(trained):
    folder, _ = trained
    figures = json.loads((folder / "figures.json").read_text())
    assert report.failures(figures) == []
    assert 0.5 < figures["tiered_auc"] < 1


@needs_data
def test_training_shows_progress_and_draws_curves(trained):
    folder, printed = trained
    assert "epoch 1/1" in printed and "rows found in DRAM" in printed
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")


@needs_data
def test_a_fresh_process_serves_the_same_bits(trained):
    folder, _ = trained
    printed = run(EXAMPLES / "serve.py", f"--output_dir={folder}", "--users=1,42", "--films=3")
    assert printed.count("bit for bit") == 2
    assert len(printed.splitlines()) == 2 * (1 + 3 + 1)


def test_code_in_the_readme_runs_as_it_stands(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(code) >= 5
    (tmp_path / "readme.py").write_text("\n".join(code), encoding="utf-8")
    run("readme.py", folder=tmp_path)
