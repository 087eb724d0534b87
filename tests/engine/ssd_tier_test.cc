#include "cc_ops/engine/ssd_tier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "cc_ops/engine/key_hash.h"
#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

using Model = std::map<int64_t, std::string>;

const std::vector<int64_t> kExtremes = {INT64_MIN, INT64_MIN + 1, -256,          -2,       -1, 0, 1,
                                        255,       256,           INT64_MAX - 1, INT64_MAX};

class SsdTierTest : public testing::Test {
 protected:
  SsdTierTest() {
    options_.instances = 4;
    options_.write_buffer_bytes = 16 << 10;
  }

  void Open() { tier_ = OpenAt(directory_ / "tier"); }

  std::unique_ptr<SsdTier> OpenAt(const std::string& path) {
    auto tier = SsdTier::Open(path, options_);
    EXPECT_TRUE(tier.ok()) << tier.status();
    return tier.ok() ? *std::move(tier) : nullptr;
  }

  int InstanceOf(int64_t key) const {
    return static_cast<int>(PartitionOf(HashKey(key), static_cast<uint32_t>(options_.instances)));
  }

  void Put(uint32_t table, const Model& rows) {
    std::vector<SsdTier::Batch> batches(static_cast<size_t>(options_.instances));
    for (const auto& [key, row] : rows) batches[InstanceOf(key)].Put(table, key, row);
    for (int i = 0; i < options_.instances; ++i) TF_HPS_ASSERT_OK(tier_->Write(i, &batches[i]));
  }

  absl::Status Get(SsdTier* tier, uint32_t table, const std::vector<int64_t>& keys, Model* rows) {
    std::vector<std::vector<int64_t>> by_instance(static_cast<size_t>(options_.instances));
    for (const int64_t key : keys) by_instance[InstanceOf(key)].push_back(key);
    for (int i = 0; i < options_.instances; ++i) {
      const auto found = [&](int64_t j, absl::string_view row) {
        (*rows)[by_instance[i][j]] = std::string(row);
        return absl::OkStatus();
      };
      const absl::Status status = tier->Get(i, table, by_instance[i], found);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ScanAll(SsdTier* tier, uint32_t table, Model* rows) {
    auto scan = tier->NewScan(table);
    if (!scan.ok()) return scan.status();
    for (; (*scan)->Valid(); (*scan)->Next()) {
      EXPECT_TRUE(rows->empty() || rows->rbegin()->first < (*scan)->key()) << "must ascend";
      rows->emplace((*scan)->key(), std::string((*scan)->row()));
    }
    return (*scan)->status();
  }

  Model Scanned(SsdTier* tier, uint32_t table) {
    Model rows;
    const absl::Status status = ScanAll(tier, table, &rows);
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }

  // Puts the tier's present files below another directory, as a commit does.
  void CopyTo(const std::string& target) {
    TF_HPS_ASSERT_OK(RemoveTree(target));
    for (int i = 0; i < options_.instances; ++i) {
      TF_HPS_ASSERT_OK(CreateDirectories(SsdTier::InstanceDirectory(target, i)));
    }
    TF_HPS_ASSERT_OK(tier_->VisitFiles([&](const SsdTier::File& file) {
      visited_.insert(absl::StrCat(file.instance, "/", file.name));
      std::this_thread::sleep_for(pause_);  // for compactions to go on
      const std::string from =
          JoinPath(SsdTier::InstanceDirectory(directory_ / "tier", file.instance), file.name);
      const std::string to = JoinPath(SsdTier::InstanceDirectory(target, file.instance), file.name);
      return file.immutable ? LinkOrCopyFile(from, to, file.bytes) : CopyFile(from, to, file.bytes);
    }));
  }

  // All table files of a closed tier.
  std::vector<std::string> TableFiles() {
    std::vector<std::string> paths;
    for (int i = 0; i < options_.instances; ++i) {
      const std::string instance = SsdTier::InstanceDirectory(directory_ / "tier", i);
      const std::vector<std::string> names = *ListDirectory(instance);
      for (const std::string& name : names) {
        if (absl::EndsWith(name, ".ldb")) paths.push_back(JoinPath(instance, name));
      }
    }
    return paths;
  }

  Model RandomRows(int n, size_t row_bytes) {
    Model rows;
    while (static_cast<int>(rows.size()) < n) {
      rows[static_cast<int64_t>(rng_())] = std::string(row_bytes, static_cast<char>(rng_()));
    }
    return rows;
  }

  static std::vector<int64_t> KeysOf(const Model& rows) {
    std::vector<int64_t> keys;
    for (const auto& [key, row] : rows) keys.push_back(key);
    return keys;
  }

  TestDirectory directory_;
  SsdOptions options_;
  std::unique_ptr<SsdTier> tier_;
  std::set<std::string> visited_;
  std::chrono::microseconds pause_{0};
  std::mt19937_64 rng_{5};
};

TEST_F(SsdTierTest, EntryKeysSortAsTheirKeys) {
  std::string last;
  for (const uint32_t table : {0u, 1u, 255u, 256u, UINT32_MAX}) {
    for (const int64_t key : kExtremes) {
      const std::string entry = EncodeSsdKey(table, key);
      EXPECT_EQ(entry.size(), 12);
      EXPECT_LT(last, entry);
      last = entry;
    }
  }
}

TEST_F(SsdTierTest, GetFindsWhatWasWrittenAndNothingElse) {
  Open();
  Model rows;
  for (const int64_t key : kExtremes) rows[key] = absl::StrCat("row ", key);
  Put(7, rows);
  std::vector<int64_t> asked = kExtremes;
  asked.push_back(12345);
  Model found;
  TF_HPS_ASSERT_OK(Get(tier_.get(), 7, asked, &found));
  EXPECT_EQ(found, rows);
  found.clear();
  TF_HPS_ASSERT_OK(Get(tier_.get(), 8, asked, &found));
  EXPECT_TRUE(found.empty());
}

TEST_F(SsdTierTest, ScansEachTableInOrderOverAllInstances) {
  Open();
  std::map<uint32_t, Model> tables;
  for (const uint32_t table : {1u, 2u, 3u, UINT32_MAX}) {
    tables[table] = RandomRows(100, 20);
    for (const int64_t key : kExtremes) tables[table][key] = absl::StrCat(table, " ", key);
    Put(table, tables[table]);
  }
  std::set<int> instances;
  for (const auto& [key, row] : tables[1]) instances.insert(InstanceOf(key));
  ASSERT_EQ(instances.size(), 4);
  for (const auto& [table, rows] : tables) EXPECT_EQ(Scanned(tier_.get(), table), rows);
  EXPECT_TRUE(Scanned(tier_.get(), 4).empty());
}

TEST_F(SsdTierTest, AScanSeesNoLaterChange) {
  Open();
  const Model rows = RandomRows(50, 20);
  Put(1, rows);
  const auto scan = *tier_->NewScan(1);
  Model later = RandomRows(50, 20);
  for (const auto& [key, row] : rows) later[key] = "changed";
  Put(1, later);
  TF_HPS_ASSERT_OK(tier_->DropTable(1));
  Model seen;
  for (; scan->Valid(); scan->Next()) seen[scan->key()] = std::string(scan->row());
  TF_HPS_ASSERT_OK(scan->status());
  EXPECT_EQ(seen, rows);
}

TEST_F(SsdTierTest, RemovedRowsAreGone) {
  Open();
  Put(1, {{INT64_MIN, "a"}, {5, "b"}});
  SsdTier::Batch removals;
  removals.Remove(1, INT64_MIN);
  TF_HPS_ASSERT_OK(tier_->Write(InstanceOf(INT64_MIN), &removals));
  EXPECT_EQ(Scanned(tier_.get(), 1), (Model{{5, "b"}}));
}

TEST_F(SsdTierTest, DropsOneTableWhole) {
  Open();
  std::map<uint32_t, Model> tables;
  for (const uint32_t table : {1u, 2u, 3u}) {
    tables[table] = RandomRows(20000, 1);
    for (const int64_t key : kExtremes) tables[table][key] = "x";
    Put(table, tables[table]);
  }
  TF_HPS_ASSERT_OK(tier_->DropTable(2));
  EXPECT_EQ(Scanned(tier_.get(), 1), tables[1]);
  EXPECT_TRUE(Scanned(tier_.get(), 2).empty());
  EXPECT_EQ(Scanned(tier_.get(), 3), tables[3]);
}

TEST_F(SsdTierTest, VisitedFilesHoldWhatWasInMemoryToo) {
  Open();
  const Model rows = RandomRows(10, 20);
  Put(1, rows);
  CopyTo(directory_ / "copy");
  Put(1, RandomRows(10, 20));
  EXPECT_EQ(Scanned(OpenAt(directory_ / "copy").get(), 1), rows);
}

TEST_F(SsdTierTest, VisitedFilesAreWholeWhileCompactionsRun) {
  Open();
  pause_ = std::chrono::microseconds(500);
  Model rows;
  for (int round = 0; round < 15; ++round) {
    const Model more = RandomRows(1000, 100);
    for (const auto& [key, row] : more) rows[key] = row;
    Put(1, more);
    CopyTo(directory_ / "copy");
    if (round % 5 == 4) ASSERT_EQ(Scanned(OpenAt(directory_ / "copy").get(), 1), rows);
  }
  // Files that were copied have been compacted away since.
  std::set<std::string> gone;
  for (const std::string& name : visited_) {
    const size_t slash = name.find('/');
    const int instance = std::stoi(name.substr(0, slash));
    if (!PathExists(JoinPath(SsdTier::InstanceDirectory(directory_ / "tier", instance),
                             name.substr(slash + 1)))) {
      gone.insert(name);
    }
  }
  EXPECT_GT(gone.size(), 20);
}

TEST_F(SsdTierTest, AnErrorOfTheVisitorComesBackAndEndsTheVisit) {
  Open();
  Put(1, RandomRows(10, 20));
  int visits = 0;
  const absl::Status status = tier_->VisitFiles([&](const SsdTier::File&) {
    ++visits;
    return absl::ResourceExhaustedError("full");
  });
  EXPECT_EQ(status.message(), "full");
  EXPECT_EQ(visits, 1);
  CopyTo(directory_ / "copy");  // works again
}

TEST_F(SsdTierTest, EveryDamagedBlockIsDataLossThatNamesTheInstance) {
  Open();
  const Model rows = RandomRows(2000, 100);
  Put(1, rows);
  CopyTo(directory_ / "copy");  // flushes
  tier_.reset();
  const std::vector<std::string> files = TableFiles();
  ASSERT_GE(files.size(), 4);
  const std::string& victim = files[rng_() % files.size()];
  std::string data = *ReadFile(victim);
  data[data.size() / 3] = static_cast<char>(data[data.size() / 3] ^ 0x10);
  std::ofstream(victim) << data;
  Open();
  for (int how = 0; how < 2; ++how) {
    Model found;
    const absl::Status status =
        how == 0 ? Get(tier_.get(), 1, KeysOf(rows), &found) : ScanAll(tier_.get(), 1, &found);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), victim.substr(0, victim.rfind('/')))) << status;
    EXPECT_LT(found.size(), rows.size());
    for (const auto& [key, row] : found) EXPECT_EQ(row, rows.at(key));
  }
}

TEST_F(SsdTierTest, ATableFileThatGoesAwayIsAnErrorAndNoAbsentRow) {
  Open();
  const Model rows = RandomRows(2000, 100);
  Put(1, rows);
  CopyTo(directory_ / "copy");
  tier_.reset();
  Open();
  for (const std::string& file : TableFiles()) TF_HPS_ASSERT_OK(RemoveTree(file));
  Model found;
  const absl::Status status = Get(tier_.get(), 1, KeysOf(rows), &found);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), directory_ / "tier")) << status;
  EXPECT_FALSE(ScanAll(tier_.get(), 1, &found).ok());
}

TEST_F(SsdTierTest, AMissingTableFileIsFoundAtOpen) {
  Open();
  Put(1, RandomRows(2000, 100));
  CopyTo(directory_ / "copy");
  tier_.reset();
  const std::string victim = TableFiles().back();
  TF_HPS_ASSERT_OK(RemoveTree(victim));
  const absl::Status status = SsdTier::Open(directory_ / "tier", options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), victim)) << status;
}

TEST_F(SsdTierTest, ATruncatedTableFileIsAnError) {
  Open();
  const Model rows = RandomRows(2000, 100);
  Put(1, rows);
  CopyTo(directory_ / "copy");
  tier_.reset();
  for (const std::string& path : TableFiles()) {
    const std::string data = *ReadFile(path);
    std::ofstream(path) << data.substr(0, data.size() / 2);
  }
  Open();
  Model found;
  const absl::Status status = Get(tier_.get(), 1, KeysOf(rows), &found);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(found.empty());
}

TEST_F(SsdTierTest, OpeningWhereAFileLiesNamesIt) {
  std::ofstream(directory_ / "tier") << "a file";
  const absl::Status status = SsdTier::Open(directory_ / "tier", options_).status();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), directory_ / "tier")) << status;
}

TEST_F(SsdTierTest, CountsBytesReadAndWritten) {
  Open();
  const Model rows = RandomRows(2000, 100);
  Put(1, rows);
  CopyTo(directory_ / "copy");
  EXPECT_GT(tier_->bytes_written(), 2000 * 112);
  const int64_t before = tier_->bytes_read();
  Model found;
  TF_HPS_ASSERT_OK(Get(tier_.get(), 1, KeysOf(rows), &found));
  EXPECT_GT(tier_->bytes_read(), before + 2000 * 112);
}

// The store cancels exports when it closes; one may be going away by itself just then.
TEST_F(SsdTierTest, AScanMayEndWhileTheTierDoes) {
  for (int i = 0; i < 20; ++i) {
    Open();
    Put(1, RandomRows(100, 100));
    auto scan = *tier_->NewScan(1);
    std::thread other([&] { scan.reset(); });
    tier_.reset();
    other.join();
  }
}

}  // namespace
}  // namespace tf_hps
