// A store whose files were damaged while it was closed: it says so and names the file, or it is not
// affected; it never gives wrong rows, and it opens again once the file is mended.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "absl/strings/str_format.h"
#include "cc_ops/engine/file_util.h"
#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;

class StoreDamageTest : public StoreFixture {
 protected:
  static constexpr int kDim = 6;

  // Two commits, so that LevelDB's manifests have several records.
  void SetUp() override {
    Open();
    TablePtr table = Attach("t", kDim, kUniform);
    const TablePtr small = Attach("small", 1);
    TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 3000), 1));
    TF_HPS_ASSERT_OK(Put(small.get(), KeyRange(0, 10), 1));
    Commit();
    TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(1000, 1500), 2));
    TF_HPS_ASSERT_OK(table->Remove(KeyRange(2900, 3000), SerialFor));
    Commit();
    expected_ = ExportAll(store_.get(), table.get());
    ASSERT_EQ(expected_.size(), 2900);
    commit_ = path() + "/commits/000002";
    TF_HPS_ASSERT_OK(store_->Close(false));
    store_.reset();
  }

  // Paths of the commit's files that contain `part` in their name.
  std::vector<std::string> Files(const std::string& part) {
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(commit_)) {
      if (entry.is_regular_file() && absl::StrContains(entry.path().filename().string(), part)) {
        paths.push_back(entry.path());
      }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  static void Write(const std::string& file, const std::string& data) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << data;
  }

  // Opens the store and reads every row in two ways; the first error.
  absl::Status OpenAndReadAll() {
    auto store = Store::Open(Options());
    if (!store.ok()) return store.status();
    auto table = (*store)->Attach({"t", kDim, kUniform, 0, ""});
    if (!table.ok()) return table.status();
    std::vector<float> rows(3000 * kDim);
    const std::vector<int64_t> keys = KeyRange(0, 3000);
    if (absl::Status status = (*table)->Lookup(keys, rows.data(), SerialFor); !status.ok()) {
      return status;
    }
    auto rows_export = (*store)->Export(table->get());
    if (!rows_export.ok()) return rows_export.status();
    TableExport::Rows exported;
    if (absl::Status s = (*rows_export)->Next(INT64_MAX, &exported); !s.ok()) return s;
    EXPECT_EQ(exported.keys.size(), expected_.size());
    for (size_t i = 0; i < exported.keys.size(); ++i) {
      const int64_t key = exported.keys[i];
      EXPECT_EQ(expected_.count(key), 1) << key;
      EXPECT_EQ(exported.weights[i * kDim], expected_[key].weights[0]) << key;
      EXPECT_EQ(rows[static_cast<size_t>(key) * kDim + kDim - 1], expected_[key].weights[kDim - 1]);
    }
    return absl::OkStatus();
  }

  // `file` with other contents must be an error that names what `named` says, or no matter; mended,
  // the store opens.
  void ExpectErrorOrNoEffect(const std::string& file, const std::string& data,
                             const std::string& named) {
    const std::string sound = *ReadFile(file);
    Write(file, data);
    const absl::Status status = OpenAndReadAll();
    errors_ += !status.ok();
    if (!status.ok()) {
      EXPECT_TRUE(absl::StrContains(status.message(), named)) << status << "\nexpected: " << named;
    }
    Write(file, sound);
  }

  void ExpectDamageFound(const std::string& file, const std::string& data, StatusCode code) {
    const std::string sound = *ReadFile(file);
    Write(file, data);
    ExpectError(OpenAndReadAll(), code, file);
    Write(file, sound);
    TF_HPS_ASSERT_OK(OpenAndReadAll());
  }

  static std::string Flipped(std::string data, size_t bit) {
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
    return data;
  }

  std::map<int64_t, ExportedRow> expected_;
  std::string commit_;
  int errors_ = 0;
  std::mt19937_64 rng_{11};
};

TEST_F(StoreDamageTest, AnUndamagedStoreIsFine) { TF_HPS_ASSERT_OK(OpenAndReadAll()); }

TEST_F(StoreDamageTest, EveryFlippedBitOfFormatIsFound) {
  const std::string file = path() + "/FORMAT";
  const std::string sound = *ReadFile(file);
  for (size_t bit = 0; bit < 8 * sound.size(); ++bit) {
    Write(file, Flipped(sound, bit));
    ExpectError(Store::Open(Options()).status(), StatusCode::kFailedPrecondition, file);
  }
  Write(file, sound);
  TF_HPS_ASSERT_OK(OpenAndReadAll());
}

// What is damaged is not the end of what is sound.
TEST_F(StoreDamageTest, AnOlderCommitOpensBesideADamagedOne) {
  StoreOptions options = Options();
  options.keep_commits = 3;
  OpenWith(options);
  TF_HPS_ASSERT_OK(Put(Attach("t", kDim, kUniform).get(), {1}, 5));
  const int64_t sound = store_->Commits().back();
  const int64_t last = *store_->Commit();
  store_.reset();
  const std::string commit = absl::StrFormat("%s/commits/%06d", path(), last);
  const std::string current = path() + "/CURRENT";
  for (const std::string& file : {commit + "/MANIFEST", current}) {
    const std::string data = *ReadFile(file);
    Write(file, data.substr(1));
    const absl::Status status = Store::Open(Options()).status();
    ExpectError(status, StatusCode::kDataLoss, file);
    for (const std::string& part : {absl::StrCat("tf-hps verify ", path()), std::string("commit"),
                                    absl::StrCat(sound), std::string("commit=<number> opens")}) {
      EXPECT_TRUE(absl::StrContains(status.message(), part)) << status << "\nexpected: " << part;
    }
    options.commit = sound;
    OpenWith(options);
    store_.reset();
    Write(file, data);
  }
  Write(current, "damaged");
  OpenWith(options);
  EXPECT_EQ(*store_->Commit(), last + 1);  // which mends CURRENT
  Reopen();
  EXPECT_EQ(store_->Commits().back(), last + 1);
}

// A "2" with one bit flipped is a "0", which would open as an empty store.
TEST_F(StoreDamageTest, EveryFlippedBitOfCurrentIsFound) {
  const std::string file = path() + "/CURRENT";
  const std::string sound = *ReadFile(file);
  for (size_t bit = 0; bit < 8 * sound.size(); ++bit) {
    Write(file, Flipped(sound, bit));
    ExpectError(Store::Open(Options()).status(), StatusCode::kDataLoss, file);
  }
  Write(file, sound);
  TF_HPS_ASSERT_OK(OpenAndReadAll());
}

TEST_F(StoreDamageTest, EmptyAndMissingFilesAreFound) {
  ExpectDamageFound(path() + "/CURRENT", "", StatusCode::kDataLoss);
  ExpectDamageFound(path() + "/FORMAT", "", StatusCode::kFailedPrecondition);
  ExpectDamageFound(commit_ + "/MANIFEST", "", StatusCode::kDataLoss);
  for (const std::string& file : {path() + "/CURRENT", path() + "/FORMAT", commit_ + "/MANIFEST"}) {
    const std::string sound = *ReadFile(file);
    TF_HPS_ASSERT_OK(RemoveTree(file));
    const absl::Status status = Store::Open(Options()).status();
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(absl::StrContains(status.message(), path())) << status;
    Write(file, sound);
    TF_HPS_ASSERT_OK(OpenAndReadAll());
  }
}

TEST_F(StoreDamageTest, FlippedBitsOfTheManifestAreFound) {
  const std::string file = commit_ + "/MANIFEST";
  const std::string sound = *ReadFile(file);
  for (size_t i = 0; i < sound.size(); ++i) {
    Write(file, Flipped(sound, 8 * i + i % 8));
    ExpectError(Store::Open(Options()).status(), StatusCode::kDataLoss, file);
  }
  Write(file, sound);
  TF_HPS_ASSERT_OK(OpenAndReadAll());
}

// LevelDB takes a record whose length is too large for one that was being written, and drops it.
TEST_F(StoreDamageTest, FlippedBitsOfLevelDbsManifestsAreFound) {
  const std::vector<std::string> files = Files("MANIFEST-");
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) {
    const std::string sound = *ReadFile(file);
    for (size_t i = rng_() % 4; i < sound.size(); i += 4) {
      Write(file, Flipped(sound, 8 * i + rng_() % 8));
      ExpectError(Store::Open(Options()).status(), StatusCode::kDataLoss, file);
    }
    Write(file, sound);
  }
  TF_HPS_ASSERT_OK(OpenAndReadAll());
}

TEST_F(StoreDamageTest, FlippedBitsOfLevelDbsCurrentAreFound) {
  for (const std::string& file : Files("CURRENT")) {
    const std::string sound = *ReadFile(file);
    for (size_t i = 0; i < sound.size(); ++i) {
      Write(file, Flipped(sound, 8 * i + rng_() % 8));
      ExpectError(Store::Open(Options()).status(), StatusCode::kDataLoss, file);
    }
    Write(file, sound);
  }
  TF_HPS_ASSERT_OK(OpenAndReadAll());
}

TEST_F(StoreDamageTest, FlippedBitsOfTableFilesAreFoundOrHaveNoEffect) {
  const std::vector<std::string> files = Files(".ldb");
  ASSERT_GE(files.size(), 2);
  for (int i = 0; i < 30; ++i) {
    const std::string& file = files[i % files.size()];
    const std::string sound = *ReadFile(file);
    ExpectErrorOrNoEffect(file, Flipped(sound, rng_() % (8 * sound.size())), path());
  }
  EXPECT_GT(errors_, 10);  // some flips hit bloom filters, padding, or the small table
  TF_HPS_ASSERT_OK(OpenAndReadAll());
}

TEST_F(StoreDamageTest, TruncatedAndGrownTableFilesAreFound) {
  for (const std::string& file : Files(".ldb")) {
    const std::string sound = *ReadFile(file);
    ExpectDamageFound(file, sound.substr(0, sound.size() - 1), StatusCode::kDataLoss);
    ExpectDamageFound(file, "", StatusCode::kDataLoss);
    ExpectDamageFound(file, sound + "x", StatusCode::kDataLoss);
  }
}

TEST_F(StoreDamageTest, MissingTableFilesAreFound) {
  for (const std::string& file : Files(".ldb")) {
    fs::rename(file, directory_ / "aside");
    ExpectError(Store::Open(Options()).status(), StatusCode::kNotFound, file);
    fs::rename(directory_ / "aside", file);
  }
  TF_HPS_ASSERT_OK(OpenAndReadAll());
}

TEST_F(StoreDamageTest, AMissingCommitIsFound) {
  fs::rename(commit_, directory_ / "aside");
  ExpectError(Store::Open(Options()).status(), StatusCode::kNotFound, commit_);
  fs::rename(directory_ / "aside", commit_);
  TF_HPS_ASSERT_OK(OpenAndReadAll());
}

TEST_F(StoreDamageTest, TooManyOpenFilesIsAnErrorAndPasses) {
  Open();
  TablePtr table = Attach("t", kDim, kUniform);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto names = *ListDirectory("/proc/self/fd");
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(std::stoi(*std::max_element(
                     names.begin(), names.end(),
                     [](const auto& x, const auto& y) { return std::stoi(x) < std::stoi(y); }))) +
                 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<float> rows(3000 * kDim);
  const std::vector<int64_t> keys = KeyRange(0, 3000);
  absl::Status lookup, step, commit;
  // Fill what descriptors are left between others.
  std::vector<int> descriptors;
  for (int fd; (fd = ::open("/dev/null", O_RDONLY)) >= 0;) descriptors.push_back(fd);
  lookup = table->Lookup(keys, rows.data(), SerialFor);
  step = Step(table.get(), keys, 1);
  commit = store_->Commit().status();
  for (const int fd : descriptors) ::close(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const absl::Status& status : {lookup, step, commit}) {
    ExpectError(status, StatusCode::kResourceExhausted, path());
  }
  const auto same = ExportAll(store_.get(), table.get());
  EXPECT_EQ(same.size(), expected_.size());
  for (const auto& [key, row] : same) ASSERT_EQ(row.weights, expected_[key].weights);
  TF_HPS_ASSERT_OK(store_->Commit().status());
}

// Training that meets a damaged block stops before it changes a row.
TEST_F(StoreDamageTest, AStepThatMeetsADamagedBlockChangesNothing) {
  for (const std::string& file : Files(".ldb")) {
    const std::string sound = *ReadFile(file);
    Write(file, Flipped(sound, 8 * (sound.size() / 3)));
  }
  Open();
  TablePtr table = Attach("t", kDim, kUniform);
  TF_HPS_ASSERT_OK(Put(table.get(), {5000}, 3));
  std::vector<int64_t> keys = KeyRange(0, 3000);
  keys.push_back(5000);
  const absl::Status status = Step(table.get(), keys, 1);
  ExpectError(status, StatusCode::kDataLoss, path());
  EXPECT_EQ(Read(table.get(), {5000}), std::vector<float>(kDim, 3));
  EXPECT_EQ(*table->Size(), 2901);
}

}  // namespace
}  // namespace tf_hps
