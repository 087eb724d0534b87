// Tables in and out of the files beside a TensorFlow checkpoint.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <random>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "cc_ops/engine/row.h"
#include "cc_ops/engine/snapshot.h"
#include "cc_ops/engine/ssd_tier.h"
#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using Rows = std::map<int64_t, ExportedRow>;

constexpr char kAdagrad[] = "adagrad(initial_accumulator_value=0.1)";
constexpr char kMomentum[] = "momentum(momentum=0.9,nesterov=1)";
constexpr int kDim = 5;

class CheckpointTest : public StoreFixture {
 protected:
  void SetUp() override {
    Open(20000);
    user_ = Attach("user", kDim, kUniform);
    item_ = Attach("item", kDim, kUniform);
    Train(user_, 0, 1000, kAdagrad, {0.1f, 1e-7f});
    Train(item_, 500, 900, kMomentum, {0.1f, 0.9f});
    ASSERT_GT(StatOf("tables/user/dram/evictions"), 0);
  }

  void Train(const TablePtr& table, int64_t begin, int64_t end, const std::string& optimizer,
             const std::vector<float>& hyperparameters) {
    TF_HPS_ASSERT_OK(Step(table.get(), KeyRange(begin, end), 0.5f, optimizer, hyperparameters));
    TF_HPS_ASSERT_OK(
        Step(table.get(), KeyRange(begin, end - 100), -0.1f, optimizer, hyperparameters));
  }

  Rows RowsOf(const TablePtr& table) { return ExportAll(store_.get(), table.get()); }
  static Rows RowsIn(Store* store, const TablePtr& table) { return ExportAll(store, table.get()); }

  std::string prefix() const { return directory_ / "checkpoints/ckpt-1"; }

  absl::Status Save(const std::string& id = "abcde") {
    return store_->Save(prefix(), id, {{"layer/user", user_}, {"layer/item", item_}});
  }
  absl::Status Restore(const std::string& id = "abcde") {
    return store_->Restore(prefix(), id, {{"layer/user", user_}, {"layer/item", item_}});
  }

  std::string File(const std::string& number, const std::string& id = "abcde") const {
    return prefix() + ".data-h" + number + "-of-" + id;
  }
  std::vector<std::string> Files() {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(directory_ / "checkpoints")) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  TablePtr user_, item_;
};

TEST_F(CheckpointTest, BringsTablesBackInTheSameStore) {
  const Rows user = RowsOf(user_), item = RowsOf(item_);
  TF_HPS_ASSERT_OK(Save());
  Train(user_, 200, 1500, kAdagrad, {0.1f, 1e-7f});
  TF_HPS_ASSERT_OK(user_->Remove(KeyRange(0, 100), SerialFor));
  TF_HPS_ASSERT_OK(Step(item_.get(), {1}, 1));  // another optimizer, too
  TF_HPS_ASSERT_OK(Restore());
  EXPECT_EQ(RowsOf(user_), user);
  EXPECT_EQ(RowsOf(item_), item);
  EXPECT_EQ(*user_->Size(), 1000);
}

TEST_F(CheckpointTest, IsTheSameAfterMoreThanOneRestore) {
  const Rows user = RowsOf(user_);
  TF_HPS_ASSERT_OK(Save());
  for (int i = 0; i < 3; ++i) {
    Train(user_, 0, 200, kAdagrad, {0.1f, 1e-7f});
    TF_HPS_ASSERT_OK(Restore());
    EXPECT_EQ(RowsOf(user_), user);
  }
}

// Momentum moves untouched rows: the table's step has to come back with them.
TEST_F(CheckpointTest, TrainingGoesOnBitForBit) {
  TF_HPS_ASSERT_OK(Save());
  const auto more = [&] {
    Train(user_, 100, 400, kAdagrad, {0.1f, 1e-7f});
    Train(item_, 300, 600, kMomentum, {0.1f, 0.9f});
  };
  more();
  const Rows user = RowsOf(user_), item = RowsOf(item_);
  TF_HPS_ASSERT_OK(Restore());
  more();
  EXPECT_EQ(RowsOf(user_), user);
  EXPECT_EQ(RowsOf(item_), item);
}

TEST_F(CheckpointTest, ARestoredStateIsCommittedLikeAnyOther) {
  const Rows user = RowsOf(user_);
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(Put(user_.get(), KeyRange(0, 2000), 9));
  Commit();
  TF_HPS_ASSERT_OK(Restore());
  Commit();
  Reopen();
  EXPECT_EQ(RowsOf(Attach("user", kDim, kUniform)), user);
}

TEST_F(CheckpointTest, UnseenKeysReadAsInTheSavedTable) {
  TF_HPS_ASSERT_OK(Save());
  const std::vector<float> unseen = Read(user_.get(), {123456});
  TablePtr other = *store_->Attach({"other", kDim, kZeros, 9, ""});
  TF_HPS_ASSERT_OK(store_->Restore(prefix(), "abcde", {{"layer/user", other}}));
  EXPECT_EQ(Read(other.get(), {123456}), unseen);
  EXPECT_EQ(other->name(), "other");
}

TEST_F(CheckpointTest, GoesIntoAnotherStoreUnderOtherNames) {
  const Rows user = RowsOf(user_), item = RowsOf(item_);
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(store_->Close(false));
  TF_HPS_ASSERT_OK(RemoveTree(path()));
  auto store = Store::Open(StoreOptions());
  TF_HPS_ASSERT_OK(store.status());
  // In the other order, after a table that takes the first id.
  TF_HPS_ASSERT_OK((*store)->Attach({"x", 1, kZeros, 0, ""}).status());
  TablePtr i = *(*store)->Attach({"i", kDim, kZeros, 0, ""});
  TablePtr u = *(*store)->Attach({"u", kDim, kZeros, 0, ""});
  TF_HPS_ASSERT_OK((*store)->Restore(prefix(), "abcde", {{"layer/item", i}, {"layer/user", u}}));
  EXPECT_EQ(RowsIn(store->get(), u), user);
  EXPECT_EQ(RowsIn(store->get(), i), item);
}

TEST_F(CheckpointTest, OneTableOfSeveralIsRestoredAlone) {
  const Rows user = RowsOf(user_);
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(Put(user_.get(), {1}, 9));
  TF_HPS_ASSERT_OK(Put(item_.get(), {1}, 9));
  const Rows item = RowsOf(item_);
  TF_HPS_ASSERT_OK(store_->Restore(prefix(), "abcde", {{"layer/user", user_}}));
  EXPECT_EQ(RowsOf(user_), user);
  EXPECT_EQ(RowsOf(item_), item);
}

TEST_F(CheckpointTest, OneTableOfSeveralIsSavedAlone) {
  const Rows user = RowsOf(user_);
  TF_HPS_ASSERT_OK(store_->Save(prefix(), "abcde", {{"layer/user", user_}}));
  const auto snapshot = Snapshot::Parse(*ReadFile(File("0000")), "manifest");
  TF_HPS_ASSERT_OK(snapshot.status());
  ASSERT_EQ(snapshot->tables.size(), 1);
  EXPECT_EQ(snapshot->tables[0].state.rows, 1000);
  TF_HPS_ASSERT_OK(Put(user_.get(), {1}, 9));
  TF_HPS_ASSERT_OK(store_->Restore(prefix(), "abcde", {{"layer/user", user_}}));
  EXPECT_EQ(RowsOf(user_), user);
  ExpectError(Restore(), StatusCode::kNotFound, "layer/item");
}

TEST_F(CheckpointTest, ATableWithoutRowsIsSavedToo) {
  TablePtr empty = Attach("empty", 1);
  TF_HPS_ASSERT_OK(store_->Save(prefix(), "abcde", {{"e", empty}}));
  TF_HPS_ASSERT_OK(Put(empty.get(), {1}, 1));
  TF_HPS_ASSERT_OK(store_->Restore(prefix(), "abcde", {{"e", empty}}));
  EXPECT_EQ(*empty->Size(), 0);
  EXPECT_EQ(Read(empty.get(), {1}), std::vector<float>{0});
}

TEST_F(CheckpointTest, FilesAreNamedAsTensorFlowDeletesThem) {
  TF_HPS_ASSERT_OK(Save());
  const std::vector<std::string> files = Files();
  ASSERT_GT(files.size(), 2);
  EXPECT_EQ(files[0], File("0000"));
  EXPECT_EQ(files[1], File("0001"));
  for (const std::string& file : files) {
    EXPECT_EQ(file.size(), File("0000").size());
    EXPECT_EQ(file.find(prefix() + ".data-h"), 0) << file;
  }
}

TEST_F(CheckpointTest, TableFilesAreLinksOnOneFileSystem) {
  TF_HPS_ASSERT_OK(Save());
  nlink_t links = 0;
  for (const std::string& file : Files()) {
    struct stat info;
    ASSERT_EQ(::stat(file.c_str(), &info), 0);
    links = std::max(links, info.st_nlink);
  }
  EXPECT_GT(links, 1);
}

TEST_F(CheckpointTest, GoesToAnotherFileSystemAndBack) {
  const std::string other = *MakeTemporaryDirectory();
  const auto remove = absl::MakeCleanup([&] { RemoveTree(other).IgnoreError(); });
  struct stat here, there;
  ASSERT_EQ(::stat(path().c_str(), &here), 0);
  ASSERT_EQ(::stat(other.c_str(), &there), 0);
  if (here.st_dev == there.st_dev) GTEST_SKIP() << "there is no other file system";
  const Rows user = RowsOf(user_);
  TF_HPS_ASSERT_OK(store_->Save(other + "/ckpt", "abcde", {{"u", user_}, {"i", item_}}));
  TF_HPS_ASSERT_OK(Put(user_.get(), KeyRange(0, 2000), 9));
  TF_HPS_ASSERT_OK(store_->Restore(other + "/ckpt", "abcde", {{"u", user_}, {"i", item_}}));
  EXPECT_EQ(RowsOf(user_), user);
}

// A checkpoint shares files with the store.
TEST_F(CheckpointTest, IsNotTouchedByWhatTheStoreDoesLater) {
  const Rows user = RowsOf(user_);
  TF_HPS_ASSERT_OK(Save());
  std::map<std::string, std::string> before;
  for (const std::string& file : Files()) before[file] = *ReadFile(file);
  for (int i = 0; i < 30; ++i) {
    TF_HPS_ASSERT_OK(Put(user_.get(), KeyRange(0, 2000), 9));
    Commit();
  }
  TF_HPS_ASSERT_OK(store_->Close(true));
  TF_HPS_ASSERT_OK(RemoveTree(path()));
  for (const auto& [file, data] : before) EXPECT_EQ(*ReadFile(file), data) << file;
  Open();
  user_ = Attach("user", kDim, kUniform);
  TF_HPS_ASSERT_OK(store_->Restore(prefix(), "abcde", {{"layer/user", user_}}));
  EXPECT_EQ(RowsOf(user_), user);
}

TEST_F(CheckpointTest, SavesUnderOnePrefixDoNotMix) {
  const Rows first = RowsOf(user_);
  TF_HPS_ASSERT_OK(Save("aaaaa"));
  TF_HPS_ASSERT_OK(Put(user_.get(), KeyRange(0, 50), 9));
  const Rows second = RowsOf(user_);
  TF_HPS_ASSERT_OK(Save("bbbbb"));
  TF_HPS_ASSERT_OK(Restore("aaaaa"));
  EXPECT_EQ(RowsOf(user_), first);
  TF_HPS_ASSERT_OK(Restore("bbbbb"));
  EXPECT_EQ(RowsOf(user_), second);
}

TEST_F(CheckpointTest, WhatIsMissingIsNamedAndChangesNothing) {
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(Put(user_.get(), {1}, 9));
  const Rows user = RowsOf(user_), item = RowsOf(item_);
  ExpectError(Restore("zzzzz"), StatusCode::kNotFound, File("0000", "zzzzz"));
  ExpectError(store_->Restore(prefix(), "abcde", {{"layer/user", user_}, {"layer/none", item_}}),
              StatusCode::kNotFound, "layer/none");
  EXPECT_EQ(RowsOf(user_), user);
  EXPECT_EQ(RowsOf(item_), item);
}

TEST_F(CheckpointTest, AnotherDimIsNamedAndChangesNothing) {
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(Put(user_.get(), {1}, 9));
  TablePtr wide = Attach("wide", kDim + 1);
  TF_HPS_ASSERT_OK(Put(wide.get(), {1}, 9));
  const Rows user = RowsOf(user_);
  const absl::Status status =
      store_->Restore(prefix(), "abcde", {{"layer/user", user_}, {"layer/item", wide}});
  ExpectError(status, StatusCode::kInvalidArgument, absl::StrCat("dim ", kDim));
  ExpectError(status, StatusCode::kInvalidArgument, absl::StrCat("dim ", kDim + 1));
  ExpectError(status, StatusCode::kInvalidArgument, prefix());
  EXPECT_EQ(RowsOf(user_), user);
  EXPECT_EQ(RowsOf(wide).size(), 1);
}

TEST_F(CheckpointTest, EveryFileThatIsMissingOrCutOffIsFoundAndChangesNothing) {
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(Put(user_.get(), {1}, 9));
  const Rows user = RowsOf(user_), item = RowsOf(item_);
  for (const std::string& file : Files()) {
    const std::string sound = *ReadFile(file);
    TF_HPS_ASSERT_OK(RemoveTree(file));  // it may be a link to one of the store's
    ExpectError(Restore(), StatusCode::kNotFound, file);
    std::ofstream(file) << sound.substr(0, sound.size() - 1);
    ExpectError(Restore(), StatusCode::kDataLoss, file);
    std::ofstream(file) << sound;
    EXPECT_EQ(RowsOf(user_), user) << file;
    EXPECT_EQ(RowsOf(item_), item) << file;
  }
  TF_HPS_ASSERT_OK(Restore());
}

// Blocks of table files are checked when they are read: by the restore if it copies rows, else by
// whoever reads the rows.
TEST_F(CheckpointTest, EveryFileWithAFlippedBitIsFoundBeforeARowOfItIsSeen) {
  TF_HPS_ASSERT_OK(Save());
  const Rows user = RowsOf(user_), item = RowsOf(item_);
  std::mt19937_64 rng(4);
  for (const std::string& file : Files()) {
    const std::string sound = *ReadFile(file);
    TF_HPS_ASSERT_OK(RemoveTree(file));
    std::string flipped = sound;
    flipped[sound.size() / 3] = static_cast<char>(flipped[sound.size() / 3] ^ (1 << rng() % 8));
    std::ofstream(file) << flipped;
    absl::Status status = Restore();
    for (const TablePtr& table : {user_, item_}) {
      std::vector<float> rows(1000 * kDim);
      if (status.ok()) status = table->Lookup(KeyRange(0, 1000), rows.data(), SerialFor);
    }
    ExpectError(status, StatusCode::kDataLoss, directory_.path());
    TF_HPS_ASSERT_OK(RemoveTree(file));
    std::ofstream(file) << sound;
    TF_HPS_ASSERT_OK(Restore());
    EXPECT_EQ(RowsOf(user_), user) << file;
    EXPECT_EQ(RowsOf(item_), item) << file;
  }
}

TEST_F(CheckpointTest, RestoresLeaveNothingElseInTheStore) {
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(store_->Save(prefix(), "fghij", {{"layer/user", user_}}));
  TF_HPS_ASSERT_OK(Restore());
  TF_HPS_ASSERT_OK(store_->Restore(prefix(), "fghij", {{"layer/user", user_}}));
  TF_HPS_ASSERT_OK(RemoveTree(Files().back()));
  EXPECT_FALSE(store_->Restore(prefix(), "fghij", {{"layer/user", user_}}).ok());
  EXPECT_EQ(ListDirectory(path() + "/live")->size(), 1);
}

// The rows of the tables that were not asked for do not stay in the store.
TEST_F(CheckpointTest, ATableOfACheckpointOfSeveralTakesOnlyItsRoom) {
  TF_HPS_ASSERT_OK(Put(item_.get(), KeyRange(0, 5000), 9));
  const Rows user = RowsOf(user_);
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(store_->Close(false));
  TF_HPS_ASSERT_OK(RemoveTree(path()));
  Open();
  user_ = Attach("user", kDim, kUniform);
  TF_HPS_ASSERT_OK(store_->Restore(prefix(), "abcde", {{"layer/user", user_}}));
  Commit();
  TF_HPS_ASSERT_OK(store_->Close(false));
  SsdOptions options;
  const auto manifest = Snapshot::Parse(*ReadFile(path() + "/commits/000001/MANIFEST"), "m");
  options.instances = manifest->instances;
  const auto tier = SsdTier::Open(path() + "/commits/000001", options);
  TF_HPS_ASSERT_OK(tier.status());
  int64_t rows = 0;
  for (uint32_t table = 0; table < 10; ++table) {
    for (const auto scan = *(*tier)->NewScan(table); scan->Valid(); scan->Next()) ++rows;
  }
  EXPECT_EQ(rows, static_cast<int64_t>(user.size()));
}

TEST_F(CheckpointTest, AFailedSaveLeavesNoFiles) {
  TF_HPS_ASSERT_OK(CreateDirectories(File("0003") + "/in the way"));
  EXPECT_FALSE(Save().ok());
  for (const std::string& file : Files()) EXPECT_EQ(file, File("0003"));
  std::ofstream(directory_ / "file") << "";
  const absl::Status status = store_->Save(directory_ / "file/ckpt", "abcde", {{"u", user_}});
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), directory_ / "file")) << status;
  TF_HPS_ASSERT_OK(Save("fghij"));
}

TEST_F(CheckpointTest, AnIdThatIsTakenIsRefusedAndTheSaveThereStays) {
  const Rows user = RowsOf(user_);
  TF_HPS_ASSERT_OK(Save());
  TF_HPS_ASSERT_OK(Put(user_.get(), {1}, 9));
  ExpectError(Save(), StatusCode::kAlreadyExists, File("0000"));
  TF_HPS_ASSERT_OK(Restore());
  EXPECT_EQ(RowsOf(user_), user);
}

TEST_F(CheckpointTest, TheSameTableOrNameTwiceIsRefused) {
  ExpectError(store_->Save(prefix(), "abcde", {{"a", user_}, {"b", user_}}),
              StatusCode::kInvalidArgument, "\"user\"");
  ExpectError(store_->Save(prefix(), "abcde", {{"a", user_}, {"a", item_}}),
              StatusCode::kInvalidArgument, "\"a\"");
  TF_HPS_ASSERT_OK(Save());
  ExpectError(store_->Restore(prefix(), "abcde", {{"layer/user", user_}, {"layer/user", item_}}),
              StatusCode::kInvalidArgument, "\"layer/user\"");
}

// A tier of eight instances, written by hand: where a row lies follows from its key.
class OtherInstancesTest : public StoreFixture, public testing::WithParamInterface<int> {
 protected:
  static constexpr int64_t kRows = 2000;

  // Writes rows with value 3 and a checkpoint or commit of them; returns what describes it.
  Snapshot Make(const std::function<std::string(const SsdTier::File&, int64_t)>& path_of) {
    SsdOptions options;
    options.instances = GetParam();
    auto tier = SsdTier::Open(directory_ / "tier", options);
    EXPECT_TRUE(tier.ok()) << tier.status();
    const RowLayout layout{2, 0};
    SsdTier::Writer writer(tier->get());
    RowBuffer rows(layout, 1);
    rows[0].weights[0] = rows[0].weights[1] = 3;
    std::string encoded;
    EncodeRow(layout, 0, rows[0], &encoded);
    for (int64_t key = 0; key < kRows; ++key) EXPECT_TRUE(writer.Put(7, key, encoded).ok());
    EXPECT_TRUE(writer.Finish().ok());
    Snapshot snapshot;
    snapshot.instances = GetParam();
    snapshot.next_table_id = 8;
    snapshot.tables.push_back({"t", {}});
    TableState& state = snapshot.tables[0].state;
    state.name = state.salt = "t";
    state.dim = 2;
    state.initializer = kZeros;
    state.id = 7;
    state.rows = kRows;
    const absl::Status status = (*tier)->VisitFiles([&](const SsdTier::File& file) {
      snapshot.files.push_back(file);
      const std::string from =
          JoinPath(SsdTier::InstanceDirectory(directory_ / "tier", file.instance), file.name);
      const std::string to = path_of(file, static_cast<int64_t>(snapshot.files.size()));
      EXPECT_TRUE(CreateDirectories(fs::path(to).parent_path()).ok());
      return SsdTier::SaveFile(file, from, to);
    });
    EXPECT_TRUE(status.ok()) << status;
    return snapshot;
  }
};

TEST_P(OtherInstancesTest, ACheckpointIsRestored) {
  const Snapshot snapshot = Make([&](const SsdTier::File&, int64_t number) {
    const std::string digits = "0123456789abcdefghijklmnopqrstuvwxyz";
    return absl::StrFormat("%s/c.data-h00%c%c-of-abcde", directory_.path(), digits[number / 36],
                           digits[number % 36]);
  });
  std::ofstream(directory_ / "c.data-h0000-of-abcde") << snapshot.ToText();
  Open(5000);
  TablePtr table = Attach("t", 2);
  TF_HPS_ASSERT_OK(store_->Restore(directory_ / "c", "abcde", {{"t", table}}));
  EXPECT_EQ(Values(table), Expected(KeyRange(0, kRows), 3));
  EXPECT_EQ(Read(table.get(), KeyRange(0, kRows)), std::vector<float>(2 * kRows, 3));
}

TEST_P(OtherInstancesTest, AStoreIsOpened) {
  Open();
  Commit();
  store_.reset();
  const std::string commit = path() + "/commits/000001";
  TF_HPS_ASSERT_OK(RemoveTree(commit));
  const Snapshot snapshot = Make([&](const SsdTier::File& file, int64_t) {
    return JoinPath(SsdTier::InstanceDirectory(commit, file.instance), file.name);
  });
  std::ofstream(commit + "/MANIFEST") << snapshot.ToText();
  Open(5000);
  TablePtr table = Attach("t", 2);
  EXPECT_EQ(Read(table.get(), KeyRange(0, kRows)), std::vector<float>(2 * kRows, 3));
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(1000, kRows), 4));
  Commit();
  Reopen();
  table = Attach("t", 2);
  EXPECT_EQ(Read(table.get(), {999, 1000}), (std::vector<float>{3, 3, 4, 4}));
  EXPECT_EQ(Values(table).size(), kRows);
}

INSTANTIATE_TEST_SUITE_P(Instances, OtherInstancesTest, testing::Values(1, 2, 4, 8, 64));

}  // namespace
}  // namespace tf_hps
