// Opening, committing and closing a store, and its tables.

#include "cc_ops/engine/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

using absl::StatusCode;

class StoreTest : public StoreFixture {
 protected:
  std::vector<std::string> Commits() { return *ListDirectory(path() + "/commits"); }

  // Inode by path of the commit's table files.
  std::map<std::string, ino_t> TableFiles(const std::string& commit) {
    std::map<std::string, ino_t> inodes;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(path() + "/commits/" + commit)) {
      struct stat info;
      if (entry.path().extension() != ".ldb") continue;
      EXPECT_EQ(::stat(entry.path().c_str(), &info), 0);
      inodes[entry.path().lexically_relative(path() + "/commits/" + commit)] = info.st_ino;
    }
    return inodes;
  }
};

TEST_F(StoreTest, ReopensAtItsLastCommit) {
  Open();
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(-500, 500), 1));
  Commit();
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 2000), 2));
  TF_HPS_ASSERT_OK(table->Remove(KeyRange(-500, 0), SerialFor));
  Attach("later");
  Reopen();
  EXPECT_EQ(store_->Tables().size(), 1);
  EXPECT_EQ(Values(Attach("t")), Expected(KeyRange(-500, 500), 1));
}

TEST_F(StoreTest, AStoreWithoutACommitReopensEmpty) {
  Open();
  TF_HPS_ASSERT_OK(Put(Attach("t").get(), {1}, 1));
  Reopen();
  EXPECT_TRUE(store_->Tables().empty());
}

TEST_F(StoreTest, CloseCommitsWhenAsked) {
  for (const bool commit : {true, false}) {
    Open();
    TF_HPS_ASSERT_OK(Put(Attach("t").get(), {1}, commit ? 1 : 2));
    TF_HPS_ASSERT_OK(store_->Close(commit));
    Open();
    EXPECT_EQ(Values(Attach("t")), Expected({1}, 1));
  }
}

TEST_F(StoreTest, CommitsCountUpAndOnlyTheLastStays) {
  Open();
  EXPECT_EQ(StatOf("store/commit"), 0);
  for (int64_t n = 1; n <= 3; ++n) {
    EXPECT_EQ(*store_->Commit(), n);
    EXPECT_EQ(Commits(), std::vector<std::string>{absl::StrCat("00000", n)});
  }
  Reopen();
  EXPECT_EQ(StatOf("store/commit"), 3);
  EXPECT_EQ(*store_->Commit(), 4);
}

TEST_F(StoreTest, ACommitLinksTheFilesThatDidNotChange) {
  Open();
  TablePtr table = Attach("t", 64);
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 5000), 1));
  Commit();
  const auto before = TableFiles("000001");
  ASSERT_FALSE(before.empty());
  TF_HPS_ASSERT_OK(Put(table.get(), {1}, 2));
  Commit();
  const auto after = TableFiles("000002");
  size_t same = 0;
  for (const auto& [name, inode] : before) same += after.count(name) && after.at(name) == inode;
  EXPECT_GT(same, 0);
}

TEST_F(StoreTest, ACommitThatDiedHalfwayIsNoHindrance) {
  Open();
  TF_HPS_ASSERT_OK(Put(Attach("t").get(), {1}, 1));
  Commit();
  store_.reset();
  TF_HPS_ASSERT_OK(CreateDirectories(path() + "/commits/000002/ssd-0"));
  std::ofstream(path() + "/commits/000002/ssd-0/CURRENT") << "rubbish";
  std::ofstream(path() + "/CURRENT.tmp") << "rubb";
  Open();
  TablePtr table = Attach("t");
  EXPECT_EQ(Values(table), Expected({1}, 1));
  TF_HPS_ASSERT_OK(Put(table.get(), {2}, 1));
  EXPECT_EQ(*store_->Commit(), 2);
  Reopen();
  EXPECT_EQ(Values(Attach("t")), Expected({1, 2}, 1));
}

TEST_F(StoreTest, WhatWasLeftOfOtherCommitsIsRemoved) {
  Open();
  Commit();
  Commit();
  store_.reset();
  TF_HPS_ASSERT_OK(CreateDirectories(path() + "/commits/000001"));  // killed before removing it
  TF_HPS_ASSERT_OK(CreateDirectories(path() + "/commits/000003"));  // killed before publishing it
  Open();
  EXPECT_FALSE(PathExists(path() + "/commits/000003"));
  Commit();
  EXPECT_EQ(Commits(), std::vector<std::string>{"000003"});
}

TEST_F(StoreTest, KeepsAsManyCommitsAsAskedAndOpensAtEach) {
  StoreOptions options = Options();
  options.keep_commits = 3;
  OpenWith(options);
  TablePtr table = Attach("t");
  for (int n = 1; n <= 5; ++n) {
    TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 100 * n), static_cast<float>(n)));
    Commit();
  }
  EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{3, 4, 5}));
  for (int n = 3; n <= 5; ++n) {
    options.commit = n;
    OpenWith(options);
    EXPECT_EQ(Values(Attach("t")), Expected(KeyRange(0, 100 * n), static_cast<float>(n)));
  }
  options.commit = 2;
  store_.reset();
  ExpectError(Store::Open(options).status(), StatusCode::kNotFound,
              "no commit 2 (any more), it has commits 3, 4 and 5");
}

TEST_F(StoreTest, TheCommitAfterOneThatWasOpenedAtIsAfterTheLast) {
  StoreOptions options = Options();
  options.keep_commits = 3;
  OpenWith(options);
  for (int n = 1; n <= 3; ++n) {
    TF_HPS_ASSERT_OK(Put(Attach("t").get(), {1}, static_cast<float>(n)));
    Commit();
  }
  options.commit = 1;
  OpenWith(options);
  EXPECT_EQ(*store_->Commit(), 4);
  EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{2, 3, 4}));
  Reopen();
  EXPECT_EQ(Values(Attach("t")), Expected({1}, 1));
}

// A tool that looks at a store does not know how many commits its owner keeps.
TEST_F(StoreTest, OpeningLosesNoCommit) {
  StoreOptions options = Options();
  options.keep_commits = 3;
  OpenWith(options);
  for (int n = 1; n <= 3; ++n) Commit();
  options.keep_commits = 1;
  OpenWith(options);
  EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{1, 2, 3}));
  Commit();
  EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{4}));
}

TEST_F(StoreTest, RemembersHowManyCommitsItKeeps) {
  StoreOptions options = Options();
  options.keep_commits = 2;
  OpenWith(options);
  Commit();
  for (int n = 0; n < 3; ++n) {
    Reopen();  // says nothing of commits
    Commit();
  }
  EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{3, 4}));
  options.keep_commits = 3;
  OpenWith(options);
  Commit();
  Reopen();
  Commit();
  EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{4, 5, 6}));
}

TEST_F(StoreTest, ClosingCommitsWhatHasChangedAndNothingElse) {
  Open();
  TF_HPS_ASSERT_OK(store_->Close(/*commit=*/true));
  Open();
  EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{}));
  int64_t commits = 0;
  const std::vector<std::pair<std::string, std::function<void(const TablePtr&)>>> changes = {
      {"a new table", [](const TablePtr&) {}},
      {"an upsert",
       [](const TablePtr& t) {
         TF_HPS_ASSERT_OK(Put(t.get(), {1, 2}, 3));
       }},
      {"a new row",
       [](const TablePtr& t) {
         float row[4];
         TF_HPS_ASSERT_OK(t->LookupOrCreate({3}, row, SerialFor));
       }},
      {"an update",
       [](const TablePtr& t) {
         const int64_t key = 1;
         const float gradient[4] = {1, 1, 1, 1};
         const TieredTable::Gradients gradients[] = {{t.get(), {&key, 1}, gradient}};
         TF_HPS_ASSERT_OK(TieredTable::ApplyGradients(gradients, *OptimizerSpec::Parse("sgd"),
                                                      {0.1f}, TieredTable::NonFinite::kError,
                                                      SerialFor));
       }},
      {"a removal", [](const TablePtr& t) { TF_HPS_ASSERT_OK(t->Remove({2}, SerialFor)); }},
      {"a drop", [this](const TablePtr& t) { TF_HPS_ASSERT_OK(store_->Drop(t.get())); }},
  };
  for (const auto& [what, change] : changes) {
    change(Attach("t"));
    TF_HPS_ASSERT_OK(store_->Close(/*commit=*/true));
    Reopen();
    EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{++commits})) << what;
    if (what == "a drop") break;
    const TablePtr table = Attach("t");
    float rows[8];
    bool there[2];
    TF_HPS_ASSERT_OK(table->Lookup({1, 77}, rows, SerialFor));
    TF_HPS_ASSERT_OK(table->Contains({1, 77}, there, SerialFor));
    TF_HPS_ASSERT_OK(store_->Export(table.get()).status());
    TF_HPS_ASSERT_OK(store_->Close(/*commit=*/true));
    Reopen();
    EXPECT_EQ(store_->Commits(), (std::vector<int64_t>{commits})) << "looking, after " << what;
  }
}

TEST_F(StoreTest, LookingAtAnOlderCommitDoesNotMakeItTheLast) {
  StoreOptions options = Options();
  options.keep_commits = 2;
  OpenWith(options);
  for (int n = 1; n <= 2; ++n) {
    TF_HPS_ASSERT_OK(Put(Attach("t").get(), {1}, static_cast<float>(n)));
    Commit();
  }
  options.commit = 1;
  OpenWith(options);
  EXPECT_EQ(Values(Attach("t")), Expected({1}, 1));
  TF_HPS_ASSERT_OK(store_->Close(/*commit=*/true));
  Reopen();
  EXPECT_EQ(Values(Attach("t")), Expected({1}, 2));
}

TEST_F(StoreTest, ACommitThatFailedIsMadeUpForByTheNextClose) {
  Open();
  TF_HPS_ASSERT_OK(Put(Attach("t").get(), {1}, 1));
  std::ofstream(path() + "/commits") << "in the way";
  EXPECT_FALSE(store_->Commit().ok());
  TF_HPS_ASSERT_OK(RemoveTree(path() + "/commits"));
  TF_HPS_ASSERT_OK(store_->Close(/*commit=*/true));
  Reopen();
  EXPECT_EQ(Values(Attach("t")), Expected({1}, 1));
}

TEST_F(StoreTest, AFailedCommitLeavesTheStoreOpenAndCanBeTriedAgain) {
  Open();
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 100), 1));
  std::ofstream(path() + "/commits") << "in the way";
  ExpectError(store_->Commit().status(), StatusCode::kNotFound, path() + "/commits");
  EXPECT_FALSE(store_->Close(/*commit=*/true).ok());
  EXPECT_EQ(Values(table), Expected(KeyRange(0, 100), 1));
  TF_HPS_ASSERT_OK(RemoveTree(path() + "/commits"));
  Commit();
  Reopen();
  EXPECT_EQ(Values(Attach("t")), Expected(KeyRange(0, 100), 1));
}

TEST_F(StoreTest, ClosingTwiceIsFine) {
  Open();
  TF_HPS_ASSERT_OK(store_->Close(true));
  TF_HPS_ASSERT_OK(store_->Close(true));
  TF_HPS_ASSERT_OK(store_->Close(false));
}

TEST_F(StoreTest, AClosedStoreHasNoLiveFiles) {
  Open();
  TF_HPS_ASSERT_OK(Put(Attach("t").get(), {1}, 1));
  EXPECT_TRUE(PathExists(path() + "/live"));
  TF_HPS_ASSERT_OK(store_->Close(true));
  EXPECT_FALSE(PathExists(path() + "/live"));
}

TEST_F(StoreTest, OperationsAfterCloseFail) {
  Open();
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(store_->Close(true));
  std::vector<float> row(4);
  bool present;
  const std::vector<int64_t> keys = {1};
  for (const absl::Status& status :
       {table->Lookup(keys, row.data(), SerialFor),
        table->LookupOrCreate(keys, row.data(), SerialFor), Put(table.get(), keys, 1),
        Step(table.get(), keys, 1), table->Remove(keys, SerialFor),
        table->Contains(keys, &present, SerialFor), store_->Commit().status(),
        store_->Attach({"t", 4, kZeros, 0, ""}).status(), store_->Export(table.get()).status(),
        store_->Drop(table.get()), store_->Save(directory_ / "c", "abcde", {{"t", table}}),
        store_->Restore(directory_ / "c", "abcde", {{"t", table}})}) {
    ExpectError(status, StatusCode::kFailedPrecondition, path());
    ExpectError(status, StatusCode::kFailedPrecondition, "closed");
  }
  EXPECT_TRUE(store_->Tables().empty());
  store_->Stats();
}

TEST_F(StoreTest, ATableOutlivesItsStore) {
  Open();
  TablePtr table = Attach("t");
  store_.reset();
  ExpectError(Put(table.get(), {1}, 1), StatusCode::kFailedPrecondition, "closed");
}

TEST_F(StoreTest, IsOpenOnceInThisProcess) {
  Open();
  ExpectError(Store::Open(Options()).status(), StatusCode::kFailedPrecondition, path());
  ExpectError(Store::Open(Options()).status(), StatusCode::kFailedPrecondition,
              absl::StrCat("process ", ::getpid()));
  TF_HPS_ASSERT_OK(store_->Close(false));
  Open();
}

TEST_F(StoreTest, IsOpenOnceUnderAnotherNameToo) {
  Open();
  ASSERT_EQ(::symlink(path().c_str(), (directory_ / "link").c_str()), 0);
  StoreOptions options = Options();
  options.path = directory_ / "link/../link/";
  ExpectError(Store::Open(options).status(), StatusCode::kFailedPrecondition, "open already");
}

TEST_F(StoreTest, IsOpenInOneProcess) {
  Open();
  TF_HPS_ASSERT_OK(Put(Attach("t").get(), {1}, 1));
  Commit();
  const pid_t child = ::fork();
  if (child == 0) {
    const absl::Status status = Store::Open(Options()).status();
    const bool right = absl::IsFailedPrecondition(status) &&
                       absl::StrContains(status.message(), absl::StrCat("process ", ::getppid()));
    ::_exit(right ? 0 : 1);
  }
  int exit_status = 0;
  ASSERT_EQ(::waitpid(child, &exit_status, 0), child);
  EXPECT_TRUE(WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == 0);
  EXPECT_EQ(Values(Attach("t")), Expected({1}, 1));  // and nothing was done to it
}

// One store closes while others wait to open it.
TEST_F(StoreTest, WhoOpensAtTheMomentOfAnothersCloseFindsAllRows) {
  Open();
  TF_HPS_ASSERT_OK(Put(Attach("t").get(), KeyRange(0, 100), 1));
  TF_HPS_ASSERT_OK(store_->Close(true));
  std::atomic<int> opened{0};
  const auto work = [&] {
    while (opened < 40) {
      auto store = Store::Open(Options());
      if (!store.ok()) {
        ExpectError(store.status(), StatusCode::kFailedPrecondition, "open already");
        continue;
      }
      ++opened;
      auto table = (*store)->Attach({"t", 4, kZeros, 0, ""});
      TF_HPS_ASSERT_OK(table.status());
      EXPECT_EQ(ExportAll(store->get(), table->get()).size(), 100);
      TF_HPS_ASSERT_OK((*store)->Close(false));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(StoreTest, ForeignDirectoriesAreRefusedAndLeftAlone) {
  for (const char* name : {"precious.txt", "live", "commits", ".hidden"}) {
    TF_HPS_ASSERT_OK(CreateDirectories(path() + "/" + name));
    const absl::Status status = Store::Open(Options()).status();
    ExpectError(status, StatusCode::kFailedPrecondition, path());
    ExpectError(status, StatusCode::kFailedPrecondition, "neither empty nor a tf_hps store");
    EXPECT_EQ(*ListDirectory(path()), std::vector<std::string>{name});
    TF_HPS_ASSERT_OK(RemoveTree(path()));
  }
}

TEST_F(StoreTest, AnEmptyDirectoryBecomesAStore) {
  TF_HPS_ASSERT_OK(CreateDirectories(path()));
  Open();
  EXPECT_EQ(*ReadFile(path() + "/FORMAT"), "tf_hps store 1\n");
}

TEST_F(StoreTest, AStoreThatDiedWhileItWasMadeIsMadeAnew) {
  for (const std::set<std::string>& left : {std::set<std::string>{"LOCK"},
                                            {"LOCK", "CURRENT.tmp"},
                                            {"LOCK", "CURRENT", "FORMAT.tmp"}}) {
    TF_HPS_ASSERT_OK(CreateDirectories(path()));
    for (const std::string& name : left) std::ofstream(path() + "/" + name) << "";
    Open();
    Commit();
    store_.reset();
    TF_HPS_ASSERT_OK(RemoveTree(path()));
  }
}

TEST_F(StoreTest, PathsThatCannotBeWrittenAreNamed) {
  std::ofstream(directory_ / "file") << "";
  for (const std::string& bad :
       {directory_ / "file", directory_ / "file/store", std::string("/proc/tf_hps_store")}) {
    StoreOptions options;
    options.path = bad;
    const absl::Status status = Store::Open(options).status();
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_TRUE(absl::StrContains(status.message(), bad)) << status;
  }
}

TEST_F(StoreTest, BadOptionsAreNamed) {
  StoreOptions options = Options(-1);
  ExpectError(Store::Open(options).status(), StatusCode::kInvalidArgument, "got -1");
  options = Options();
  options.eviction = "fifo";
  ExpectError(Store::Open(options).status(), StatusCode::kInvalidArgument, "\"fifo\"");
  EXPECT_FALSE(PathExists(path()));
}

TEST_F(StoreTest, ATemporaryStoreGoesAwayWhenClosed) {
  std::string path;
  {
    auto store = Store::Open(StoreOptions());
    TF_HPS_ASSERT_OK(store.status());
    path = (*store)->path();
    TF_HPS_ASSERT_OK((*store)->Commit().status());
    EXPECT_TRUE(PathExists(path));
  }
  EXPECT_FALSE(PathExists(path));
}

TEST_F(StoreTest, AttachingAgainGivesTheSameTable) {
  Open();
  EXPECT_EQ(Attach("t"), Attach("t"));
  EXPECT_EQ(*store_->Attach({"u", 4, kZeros, 0, ""}), *store_->Attach({"u", 4, kZeros, 0, "u"}));
  EXPECT_EQ(*store_->Attach({"v", 4, "constant(value=0.0)", 0, ""}),
            *store_->Attach({"v", 4, "constant(value=0)", 0, ""}));
}

TEST_F(StoreTest, AttachingWithAnotherLayoutNamesBoth) {
  Open();
  TF_HPS_ASSERT_OK(store_->Attach({"t", 4, kUniform, 7, "s"}).status());
  Commit();
  for (int reopened = 0; reopened < 2; ++reopened) {
    for (const TableOptions& other : {TableOptions{"t", 5, kUniform, 7, "s"},
                                      {"t", 4, kZeros, 7, "s"},
                                      {"t", 4, kUniform, 8, "s"},
                                      {"t", 4, kUniform, 7, "t"}}) {
      const absl::Status status = store_->Attach(other).status();
      ExpectError(status, StatusCode::kInvalidArgument,
                  absl::StrCat("dim=4 initializer=", kUniform, " seed=7"));
      ExpectError(status, StatusCode::kInvalidArgument,
                  absl::StrCat("dim=", other.dim, " initializer=", other.initializer,
                               " seed=", other.seed));
    }
    TF_HPS_ASSERT_OK(store_->Attach({"t", 4, kUniform, 7, "s"}).status());
    TF_HPS_ASSERT_OK(store_->Attach({"t", 4, kUniform, 7, ""}).status());
    EXPECT_EQ(store_->Tables().size(), 1);
    Reopen();
  }
}

TEST_F(StoreTest, BadTablesAreRefused) {
  Open();
  for (const int dim : {0, -1, (1 << 20) + 1}) {
    ExpectError(store_->Attach({"t", dim, kZeros, 0, ""}).status(), StatusCode::kInvalidArgument,
                absl::StrCat("got ", dim));
  }
  ExpectError(store_->Attach({"", 4, kZeros, 0, ""}).status(), StatusCode::kInvalidArgument,
              "name");
  ExpectError(store_->Attach({"t", 4, "glorot", 0, ""}).status(), StatusCode::kInvalidArgument,
              "glorot");
  EXPECT_TRUE(store_->Tables().empty());
}

TEST_F(StoreTest, TheLargestDimIsNoExceptionInAnyTier) {
  Open(10000);
  TablePtr table = Attach("t", 1 << 20);
  TF_HPS_ASSERT_OK(Step(table.get(), {1, 2, 3}, -1, "adam(amsgrad=1)", {1, 0.5f, 0.5f, 0, 1}));
  EXPECT_EQ(StatOf("tables/t/ssd/rows"), 3);
  Commit();
  Reopen();
  EXPECT_EQ(Values(Attach("t", 1 << 20)), Expected({1, 2, 3}, 1));
}

TEST_F(StoreTest, OddTableNamesSurviveACommit) {
  const std::string names[] = {"a/b c",    "new\nline",  "quote\" \\", std::string("nul\0!", 5),
                               "../../up", "checksum 00"};
  Open();
  float value = 0;
  for (const std::string& name : names) TF_HPS_ASSERT_OK(Put(Attach(name).get(), {1}, ++value));
  Commit();
  Reopen();
  value = 0;
  for (const std::string& name : names) {
    EXPECT_EQ(Values(Attach(name)), Expected({1}, ++value));
  }
}

TEST_F(StoreTest, InitialRowsFollowTheSaltNotTheName) {
  Open();
  const auto row = [&](const std::string& name, int64_t seed, const std::string& salt) {
    return Read(store_->Attach({name, 4, kUniform, seed, salt})->get(), {5});
  };
  const std::vector<float> a = row("a", 0, "");
  EXPECT_EQ(row("b", 0, "a"), a);
  EXPECT_NE(row("c", 0, ""), a);
  EXPECT_NE(row("d", 1, "a"), a);
}

TEST_F(StoreTest, ADroppedTableIsGoneWithItsRows) {
  Open();
  TablePtr kept = Attach("kept"), dropped = Attach("dropped");
  TF_HPS_ASSERT_OK(Put(kept.get(), KeyRange(0, 500), 1));
  TF_HPS_ASSERT_OK(Put(dropped.get(), KeyRange(0, 5000), 2));
  Commit();
  TF_HPS_ASSERT_OK(store_->Drop(dropped.get()));
  ExpectError(Put(dropped.get(), {1}, 1), StatusCode::kFailedPrecondition, "dropped");
  ExpectError(store_->Drop(dropped.get()), StatusCode::kNotFound, "\"dropped\"");
  EXPECT_FALSE(store_->Export(dropped.get()).ok());
  Commit();
  Reopen();
  EXPECT_EQ(store_->Tables().size(), 1);
  EXPECT_EQ(Values(Attach("kept")), Expected(KeyRange(0, 500), 1));
  EXPECT_TRUE(Values(Attach("dropped")).empty());
}

TEST_F(StoreTest, ATableMadeAfterADropStartsAfresh) {
  Open();
  TablePtr old = Attach("t", 4, kUniform);
  const std::vector<float> initial = Read(old.get(), {3});
  TF_HPS_ASSERT_OK(Put(old.get(), KeyRange(0, 5000), 2));
  TF_HPS_ASSERT_OK(store_->Drop(old.get()));
  TablePtr anew = Attach("t", 4, kUniform);
  EXPECT_NE(anew, old);
  EXPECT_EQ(Read(anew.get(), {3}), initial);
  EXPECT_EQ(*anew->Size(), 0);
  // Another layout is possible now.
  TF_HPS_ASSERT_OK(store_->Drop(anew.get()));
  EXPECT_NE(Attach("t", 9), nullptr);
}

TEST_F(StoreTest, TablesOfAnotherStoreAreRefused) {
  Open();
  auto other = Store::Open(StoreOptions());
  TF_HPS_ASSERT_OK(other.status());
  TablePtr table = *(*other)->Attach({"t", 4, kZeros, 0, ""});
  Attach("t");
  EXPECT_FALSE(store_->Drop(table.get()).ok());
  EXPECT_FALSE(store_->Export(table.get()).ok());
  EXPECT_FALSE(store_->Save(directory_ / "c", "abcde", {{"t", table}}).ok());
  EXPECT_FALSE(store_->Restore(directory_ / "c", "abcde", {{"t", table}}).ok());
  TF_HPS_ASSERT_OK(Put(table.get(), {1}, 1));
}

TEST_F(StoreTest, StatsCountWhatHappened) {
  Open(20000);
  TablePtr table = Attach("a/b");
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 1000), 1));
  Read(table.get(), KeyRange(0, 1000));
  EXPECT_EQ(StatOf("tables/a/b/rows"), 1000);
  EXPECT_EQ(StatOf("tables/a/b/dram/inserts"), 1000);
  EXPECT_EQ(StatOf("tables/a/b/dram/rows") + StatOf("tables/a/b/dram/evictions"), 1000);
  EXPECT_EQ(StatOf("tables/a/b/ssd/rows"), StatOf("tables/a/b/dram/evictions"));
  EXPECT_EQ(StatOf("tables/a/b/dram/hits"), StatOf("tables/a/b/dram/rows"));
  EXPECT_EQ(StatOf("tables/a/b/ssd/hits"), StatOf("tables/a/b/dram/evictions"));
  EXPECT_GT(StatOf("tables/a/b/dram/evictions"), 0);
  EXPECT_EQ(StatOf("store/dram_budget_bytes"), 20000);
  Commit();
  EXPECT_GT(StatOf("store/bytes_written"), 1000 * 16);
  EXPECT_GT(StatOf("store/seconds/commit"), 0);
}

}  // namespace
}  // namespace tf_hps
