#include "cc_ops/engine/snapshot.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cc_ops/engine/stable_hash.h"

namespace tf_hps {
namespace {

constexpr char kPath[] = "/store/commits/000001/MANIFEST";

Snapshot::Table MakeTable(const std::string& name, uint32_t id) {
  TableState state;
  state.name = name;
  state.dim = 16;
  state.initializer = "uniform(minval=-0.05,maxval=0.05)";
  state.seed = INT64_MIN;
  state.salt = absl::StrCat("salt of ", name);
  state.optimizer = id % 2 ? "adagrad(initial_accumulator_value=0.1)" : "";
  state.id = id;
  state.state_epoch = 3;
  state.step = UINT32_MAX;
  state.rows = int64_t{1} << 40;
  return {absl::StrCat("alias of ", name), state};
}

Snapshot MakeSnapshot() {
  Snapshot snapshot;
  snapshot.instances = 4;
  snapshot.next_table_id = UINT32_MAX;
  snapshot.dense_step = INT64_MAX;
  snapshot.tables = {MakeTable("user", 1), MakeTable("item", 2)};
  snapshot.files.resize(2);
  snapshot.files[0].instance = 3;
  snapshot.files[0].name = "000012.ldb";
  snapshot.files[0].bytes = int64_t{1} << 33;
  snapshot.files[0].immutable = true;
  snapshot.files[1].instance = 0;
  snapshot.files[1].name = "MANIFEST-000011";
  snapshot.files[1].bytes = 50;
  snapshot.files[1].immutable = false;
  snapshot.files[1].checksum = 0x0123456789abcdef;
  return snapshot;
}

// The text with a checksum that fits it.
std::string Sealed(const std::string& body) {
  return absl::StrCat(body, "checksum ", absl::Hex(StableHash64(body), absl::kZeroPad16), "\n");
}

std::string BodyOf(const Snapshot& snapshot) {
  const std::string text = snapshot.ToText();
  return text.substr(0, text.rfind("checksum "));
}

void ExpectSame(const Snapshot::Table& x, const Snapshot::Table& y) {
  EXPECT_EQ(x.alias, y.alias);
  EXPECT_EQ(x.state.name, y.state.name);
  EXPECT_EQ(x.state.dim, y.state.dim);
  EXPECT_EQ(x.state.initializer, y.state.initializer);
  EXPECT_EQ(x.state.seed, y.state.seed);
  EXPECT_EQ(x.state.salt, y.state.salt);
  EXPECT_EQ(x.state.optimizer, y.state.optimizer);
  EXPECT_EQ(x.state.id, y.state.id);
  EXPECT_EQ(x.state.state_epoch, y.state.state_epoch);
  EXPECT_EQ(x.state.step, y.state.step);
  EXPECT_EQ(x.state.rows, y.state.rows);
}

void ExpectDataLoss(const std::string& text, const std::string& why) {
  const absl::Status status = Snapshot::Parse(text, kPath).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status << "\n" << text;
  EXPECT_NE(status.message().find(kPath), std::string::npos) << status;
  EXPECT_NE(status.message().find(why), std::string::npos) << status;
}

TEST(SnapshotTest, RoundTrip) {
  const Snapshot snapshot = MakeSnapshot();
  const auto back = Snapshot::Parse(snapshot.ToText(), kPath);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->instances, 4);
  EXPECT_EQ(back->next_table_id, UINT32_MAX);
  EXPECT_EQ(back->dense_step, INT64_MAX);
  ASSERT_EQ(back->tables.size(), 2);
  for (int i = 0; i < 2; ++i) ExpectSame(back->tables[i], snapshot.tables[i]);
  ASSERT_EQ(back->files.size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(back->files[i].instance, snapshot.files[i].instance);
    EXPECT_EQ(back->files[i].name, snapshot.files[i].name);
    EXPECT_EQ(back->files[i].bytes, snapshot.files[i].bytes);
    EXPECT_EQ(back->files[i].immutable, snapshot.files[i].immutable);
    EXPECT_EQ(back->files[i].checksum, snapshot.files[i].checksum);
  }
}

TEST(SnapshotTest, RoundTripOfOddNames) {
  Snapshot snapshot;
  snapshot.instances = 1;
  const std::string names[] = {std::string("nul \0 inside", 12),
                               "new\nline",
                               "quote\"d",
                               "back\\slash",
                               "\\",
                               "\"",
                               "",
                               "trailing \\\"",
                               "a=b c=d",
                               " checksum 0000",
                               "checksum 0123456789abcdef\n",
                               "\xff\xfe",
                               "\u8868\u0301",
                               "\r\t",
                               "x\\n",
                               "file instance=0 name=\"y\""};
  for (const std::string& name : names) {
    snapshot.tables.push_back(MakeTable(name, static_cast<uint32_t>(snapshot.tables.size())));
    snapshot.tables.back().alias = name;
    snapshot.tables.back().state.salt = name;
  }
  const auto back = Snapshot::Parse(snapshot.ToText(), kPath);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->tables.size(), snapshot.tables.size());
  for (size_t i = 0; i < snapshot.tables.size(); ++i) {
    ExpectSame(back->tables[i], snapshot.tables[i]);
  }
}

TEST(SnapshotTest, FindsATableByItsAlias) {
  const Snapshot snapshot = MakeSnapshot();
  ASSERT_NE(snapshot.FindAlias("alias of item"), nullptr);
  EXPECT_EQ(snapshot.FindAlias("alias of item")->state.name, "item");
  EXPECT_EQ(snapshot.FindAlias("item"), nullptr);
}

TEST(SnapshotTest, EveryFlippedBitIsFound) {
  const std::string text = MakeSnapshot().ToText();
  for (size_t i = 0; i < 8 * text.size(); ++i) {
    std::string damaged = text;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
    ASSERT_FALSE(Snapshot::Parse(damaged, kPath).ok()) << "bit " << i;
  }
}

TEST(SnapshotTest, EveryTruncationIsFound) {
  const std::string text = MakeSnapshot().ToText();
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_FALSE(Snapshot::Parse(text.substr(0, size), kPath).ok()) << size << " bytes";
  }
}

TEST(SnapshotTest, TextAfterTheChecksumIsFound) {
  const std::string text = MakeSnapshot().ToText();
  ExpectDataLoss(text + " ", "checksum does not fit");
  ExpectDataLoss(text + text, "checksum does not fit");
}

TEST(SnapshotTest, AMissingLineIsFound) {
  ExpectDataLoss("", "no checksum");
  std::string text = MakeSnapshot().ToText();
  const size_t line = text.find("\ntable ") + 1;
  text.erase(line, text.find('\n', line) + 1 - line);
  ExpectDataLoss(text, "checksum does not fit");
}

TEST(SnapshotTest, AnotherVersionIsNamedAsSuch) {
  const std::string body =
      absl::StrReplaceAll(BodyOf(MakeSnapshot()), {{"tf_hps snapshot 1\n", "tf_hps snapshot 7\n"}});
  const absl::Status status = Snapshot::Parse(Sealed(body), kPath).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("tf_hps snapshot 7"), std::string::npos) << status;
  EXPECT_NE(status.message().find(kPath), std::string::npos) << status;
}

// A sound checksum over what ToText never writes: each is refused with its reason.
TEST(SnapshotTest, SealedNonsenseIsRefused) {
  const std::string body = BodyOf(MakeSnapshot());
  const auto with = [&](const std::string& from, const std::string& to) {
    const std::string changed = absl::StrReplaceAll(body, {{from, to}});
    EXPECT_NE(changed, body) << from;
    return Sealed(changed);
  };
  ExpectDataLoss(with("instances=4", "instances=four"), "instances is not a number");
  ExpectDataLoss(with("instances=4", "instances=0"), "no LevelDB instance");
  ExpectDataLoss(with("store instances=4 ", "store "), "no field instances");
  ExpectDataLoss(with("checksum=0123456789abcdef", "checksum=xyz"), "checksum is not a number");
  ExpectDataLoss(with(" checksum=0123456789abcdef", ""), "no field checksum");
  ExpectDataLoss(with(" dim=16", " dim=99999999999"), "dim is not a number");
  ExpectDataLoss(with("dtype=float32", "dtype=float16"), "unknown dtype float16");
  ExpectDataLoss(with("name=\"000012.ldb\"", "name=\"000012.ldb"), "badly quoted");
  ExpectDataLoss(with("name=\"user\"", "name=\"us\\qer\""), "badly quoted");
  ExpectDataLoss(with("\nfile ", "\nfolder "), "unknown line folder");
  ExpectDataLoss(with(" seed=", " "), "seed");
  ExpectDataLoss(Sealed("tf_hps snapshot 1\n"), "no LevelDB instance");
}

}  // namespace
}  // namespace tf_hps
