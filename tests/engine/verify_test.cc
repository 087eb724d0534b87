// What the verifier finds: each kind of damage, with the file's name, and nothing in a sound store.

#include "cc_ops/engine/verify.h"

#include <filesystem>
#include <fstream>

#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/ssd_tier.h"
#include "cc_ops/engine/table_file.h"
#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

namespace fs = std::filesystem;

void Write(const std::string& path, const std::string& data) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << data;
}

std::string Flipped(std::string data, size_t bit) {
  data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
  return data;
}

class VerifyTest : public StoreFixture {
 protected:
  void SetUp() override {
    Open();
    TF_HPS_ASSERT_OK(Put(Attach("t").get(), KeyRange(-1000, 2000), 1));
    TablePtr u = Attach("u", 8, kUniform);
    TF_HPS_ASSERT_OK(Put(u.get(), KeyRange(0, 500), 2));
    TF_HPS_ASSERT_OK(Step(u.get(), KeyRange(0, 700), 1, "adam(amsgrad=0)", {1, 0.9, 0.99, 1, 1}));
    Commit();
    TF_HPS_ASSERT_OK(store_->Close(false));
    commit_ = path() + "/commits/000001";
  }

  // All that is found, and that the store is as it was.
  std::vector<Finding> Verify(const std::string& path, const std::string& save_id = "") {
    std::vector<Finding> found;
    Verifier verifier(path, save_id);
    while (verifier.Next()) {
      EXPECT_LE(verifier.progress(), 1);
      for (Finding& finding : verifier.TakeFindings()) found.push_back(std::move(finding));
    }
    for (Finding& finding : verifier.TakeFindings()) found.push_back(std::move(finding));
    rows_ = verifier.rows();
    return found;
  }
  std::vector<Finding> Verify() { return Verify(path()); }

  void ExpectNothing(const std::vector<Finding>& found) {
    for (const Finding& finding : found) ADD_FAILURE() << finding.path << ": " << finding.text;
  }

  // That there is damage, and all of it in `file`.
  void ExpectDamage(const std::vector<Finding>& found, const std::string& file,
                    const std::string& text = "") {
    EXPECT_FALSE(found.empty()) << file;
    for (const Finding& finding : found) {
      EXPECT_TRUE(finding.damage);
      EXPECT_EQ(finding.path, file) << finding.text;
      EXPECT_TRUE(absl::StrContains(finding.text, text)) << finding.text;
    }
  }

  // With `data` in it the file is found, and nothing else; it is mended afterwards.
  void ExpectFound(const std::string& file, const std::string& data) {
    const std::string sound = *ReadFile(file);
    Write(file, data);
    ExpectDamage(Verify(), file);
    Write(file, sound);
  }

  std::vector<std::string> Files(const std::string& text) {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(commit_)) {
      const std::string file = entry.path().string();
      if (entry.is_regular_file() && absl::StrContains(file.substr(commit_.size()), text)) {
        files.push_back(file);
      }
    }
    return files;
  }

  // Rewrites the commit's manifest, checksum and all.
  template <typename Edit>
  void EditManifest(Edit edit) {
    const std::string manifest = commit_ + "/MANIFEST";
    auto snapshot = Snapshot::Parse(*ReadFile(manifest), manifest);
    ASSERT_TRUE(snapshot.ok());
    edit(&*snapshot);
    Write(manifest, snapshot->ToText());
  }

  // Writes entries to an instance of the commit behind the store's back.
  void WriteBehind(int instance, const std::vector<std::pair<std::string, std::string>>& entries) {
    const std::string directory = SsdTier::InstanceDirectory(commit_, instance);
    {
      leveldb::Options options;
      options.compression = leveldb::kNoCompression;
      leveldb::DB* opened = nullptr;
      const leveldb::Status status = leveldb::DB::Open(options, directory, &opened);
      ASSERT_TRUE(status.ok()) << status.ToString();
      const std::unique_ptr<leveldb::DB> db(opened);
      for (const auto& [key, value] : entries) {
        ASSERT_TRUE(db->Put(leveldb::WriteOptions(), key, value).ok());
      }
      db->CompactRange(nullptr, nullptr);
    }
    // As a commit takes files, for LevelDB may go on to compact until it is closed.
    SsdOptions options;
    options.instances = static_cast<int>(instances());
    const std::string linked = directory_ / "linked";
    for (int i = 0; i < options.instances; ++i) {
      TF_HPS_ASSERT_OK(CreateDirectories(SsdTier::InstanceDirectory(linked, i)));
    }
    std::vector<SsdTier::File> files;
    {
      auto tier = SsdTier::Open(commit_, options);
      ASSERT_TRUE(tier.ok()) << tier.status();
      TF_HPS_ASSERT_OK((*tier)->VisitFiles([&](const SsdTier::File& file) {
        files.push_back(file);
        return SsdTier::SaveFile(file, SsdTier::FilePath(commit_, file),
                                 SsdTier::FilePath(linked, file));
      }));
    }
    fs::rename(commit_ + "/MANIFEST", linked + "/MANIFEST");
    fs::remove_all(commit_);
    fs::rename(linked, commit_);
    EditManifest([&](Snapshot* snapshot) { snapshot->files = files; });
  }

  int64_t instances() { return Snapshot::Parse(*ReadFile(commit_ + "/MANIFEST"), "")->instances; }

  std::string commit_;
  int64_t rows_ = 0;
};

TEST_F(VerifyTest, ASoundStoreHasNoFindings) {
  ExpectNothing(Verify());
  EXPECT_EQ(rows_, 3700);
}

TEST_F(VerifyTest, AStoreWithoutACommitIsSound) {
  const std::string fresh = directory_ / "fresh";
  ASSERT_TRUE(Store::Open({fresh, 64 << 10}).ok());
  ExpectNothing(Verify(fresh));
}

TEST_F(VerifyTest, AStoreInUseIsSoundAndStaysAsItIs) {
  Open();
  TF_HPS_ASSERT_OK(Put(Attach("t").get(), KeyRange(0, 50), 5));
  ExpectNothing(Verify());
  Commit();
  EXPECT_EQ(Values(Attach("t"))[7], 5);
  commit_ = path() + "/commits/000002";
  ExpectNothing(Verify());
}

TEST_F(VerifyTest, ItGoesOnWhenTheCommitIsRemovedMeanwhile) {
  Open();
  Verifier verifier(path(), "");
  ASSERT_TRUE(verifier.Next());
  TF_HPS_ASSERT_OK(Put(Attach("t").get(), KeyRange(0, 50), 5));
  Commit();
  ASSERT_FALSE(fs::exists(commit_));
  while (verifier.Next()) continue;
  ExpectNothing(verifier.TakeFindings());
  EXPECT_EQ(verifier.rows(), 3700);
}

// Every bit of the footer, every byte of the end, where the indexes are, and many of the rows.
TEST_F(VerifyTest, FlippedBytesOfATableFileAreFound) {
  for (const std::string& file : Files(".ldb")) {
    const std::string sound = *ReadFile(file);
    ASSERT_TRUE(TableFileDamage(sound).empty()) << file;
    for (size_t i = 0; i < sound.size(); i += i + 1000 < sound.size() ? 23 : 1) {
      ASSERT_FALSE(TableFileDamage(Flipped(sound, 8 * i + i % 8)).empty())
          << file << ", byte " << i;
    }
    for (size_t bit = 8 * (sound.size() - 48); bit < 8 * sound.size(); ++bit) {
      ASSERT_FALSE(TableFileDamage(Flipped(sound, bit)).empty()) << file << ", bit " << bit;
    }
    ExpectFound(file, Flipped(sound, 4 * sound.size()));
  }
}

TEST_F(VerifyTest, FlippedTruncatedGrownAndEmptyFilesAreNamed) {
  std::vector<std::string> files = Files("");
  ASSERT_GE(files.size(), 4);
  files.push_back(path() + "/CURRENT");
  files.push_back(path() + "/FORMAT");
  for (const std::string& file : files) {
    const std::string sound = *ReadFile(file);
    ExpectFound(file, Flipped(sound, 8 * (sound.size() / 2) + 1));
    ExpectFound(file, sound.substr(0, sound.size() - 1));
    ExpectFound(file, sound + "garbage");
    ExpectFound(file, "");
  }
  ExpectNothing(Verify());
}

TEST_F(VerifyTest, MissingFilesAreNamed) {
  std::vector<std::string> files = Files("");
  files.push_back(path() + "/CURRENT");
  files.push_back(path() + "/FORMAT");
  for (const std::string& file : files) {
    fs::rename(file, directory_ / "aside");
    ExpectDamage(Verify(), file);
    fs::rename(directory_ / "aside", file);
  }
  ExpectNothing(Verify());
}

TEST_F(VerifyTest, AllDamageIsReported) {
  const std::vector<std::string> files = Files("");
  std::set<std::string> damaged;
  for (const std::string& file : files) {
    if (absl::EndsWith(file, "000001/MANIFEST")) continue;
    Write(file, "");
    damaged.insert(file);
  }
  Write(path() + "/CURRENT", "");
  damaged.insert(path() + "/CURRENT");
  std::set<std::string> found;
  for (const Finding& finding : Verify()) found.insert(finding.path);
  EXPECT_EQ(found, damaged);
}

TEST_F(VerifyTest, AForeignFileInACommitIsNamed) {
  Write(commit_ + "/ssd-0/000999.ldb", "x");
  ExpectDamage(Verify(), commit_ + "/ssd-0/000999.ldb", "is not among the files");
}

TEST_F(VerifyTest, WhatAKilledProcessLeavesIsANote) {
  Write(path() + "/CURRENT.tmp", "");
  TF_HPS_ASSERT_OK(CreateDirectories(path() + "/commits/000002"));
  const std::vector<Finding> found = Verify();
  ASSERT_EQ(found.size(), 2);
  for (const Finding& finding : found) EXPECT_FALSE(finding.damage) << finding.text;
}

TEST_F(VerifyTest, AWrongRowCountIsFound) {
  EditManifest([](Snapshot* snapshot) { snapshot->tables[0].state.rows += 1; });
  ExpectDamage(Verify(), commit_ + "/MANIFEST", "\"t\" has 3001 rows, and there are 3000");
}

TEST_F(VerifyTest, RowsOfADroppedTableAreANoteAndThoseOfAFutureOneDamage) {
  WriteBehind(0, {{EncodeSsdKey(1, 0), ""}});
  EditManifest([](Snapshot* snapshot) {
    snapshot->tables.erase(snapshot->tables.begin());
    snapshot->tables[0].alias = "u";
  });
  const std::vector<Finding> found = Verify();
  ASSERT_GE(found.size(), 1);
  EXPECT_FALSE(found.back().damage) << found.back().text;
  EXPECT_TRUE(absl::StrContains(found.back().text, "no table of id 1 any more"));
  EditManifest([](Snapshot* snapshot) { snapshot->next_table_id = 1; });
  EXPECT_TRUE(Verify().back().damage);
}

TEST_F(VerifyTest, RowsOfAnotherSizeAreFound) {
  const uint32_t home = PartitionOf(HashKey(5), static_cast<uint32_t>(instances()));
  WriteBehind(static_cast<int>(home), {{EncodeSsdKey(1, 5), "short"}});
  ExpectDamage(Verify(), SsdTier::InstanceDirectory(commit_, static_cast<int>(home)),
               "table \"t\", key 5: a stored row has 5 bytes");
}

TEST_F(VerifyTest, KeysOfAnotherLengthAreFound) {
  WriteBehind(0, {{"key", "row"}});
  ExpectDamage(Verify(), commit_ + "/ssd-0", "a row's key has 3 bytes");
}

TEST_F(VerifyTest, RowsInAnotherInstanceThanTheirHashSaysAreFound) {
  if (instances() < 2) GTEST_SKIP() << "this machine's stores have one instance";
  const uint32_t home = PartitionOf(HashKey(5000), static_cast<uint32_t>(instances()));
  const int other = home == 0 ? 1 : 0;
  WriteBehind(other, {{EncodeSsdKey(1, 5000), std::string(32, '\0')}});
  EditManifest([](Snapshot* snapshot) { snapshot->tables[0].state.rows += 1; });
  ExpectDamage(Verify(), SsdTier::InstanceDirectory(commit_, other), "key 5000 of table id 1");
}

TEST_F(VerifyTest, DamagedCheckpointsAreFoundFileByFile) {
  Open();
  TablePtr t = Attach("t");
  const std::string prefix = directory_ / "ckpt-1";
  TF_HPS_ASSERT_OK(store_->Save(prefix, "abcde", {{"alias", t}}));
  ExpectNothing(Verify(prefix, "abcde"));
  EXPECT_EQ(rows_, 3000);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(directory_.path())) {
    const std::string file = entry.path().string();
    if (!absl::StrContains(file, ".data-h")) continue;
    const std::string sound = *ReadFile(file);
    Write(file, Flipped(sound, 4 * sound.size()));
    ExpectDamage(Verify(prefix, "abcde"), file);
    fs::remove(file);
    ExpectDamage(Verify(prefix, "abcde"), file);
    Write(file, sound);
    ++files;
  }
  EXPECT_GE(files, 4);
  Write(prefix + ".data-h00zz-of-abcde", "");
  ExpectDamage(Verify(prefix, "abcde"), prefix + ".data-h00zz-of-abcde");
}

TEST_F(VerifyTest, CompactionRemovesGarbageAndNothingElse) {
  OpenWith(Options());
  TablePtr t = Attach("t");
  for (int i = 0; i < 5; ++i) {
    TF_HPS_ASSERT_OK(Put(t.get(), KeyRange(-1000, 2000), static_cast<float>(i)));
    Commit();
  }
  const auto before = Values(t);
  TablePtr u = Attach("u", 8, kUniform);
  TF_HPS_ASSERT_OK(store_->Drop(u.get()));
  Commit();
  const auto bytes = [&] {
    int64_t sum = 0;
    const SavedTables saved = *ReadSavedTables(path(), "");
    for (const SsdTier::File& file : saved.snapshot.files) sum += file.bytes;
    return sum;
  };
  const int64_t with_garbage = bytes();
  TF_HPS_ASSERT_OK(store_->Compact());
  Commit();
  EXPECT_LT(bytes(), with_garbage);
  EXPECT_LT(bytes(), 3000 * 52);
  EXPECT_EQ(Values(t), before);
  ExpectNothing(Verify());
}

}  // namespace
}  // namespace tf_hps
