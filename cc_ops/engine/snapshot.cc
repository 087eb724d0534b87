#include "cc_ops/engine/snapshot.h"

#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/stable_hash.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {
namespace {

constexpr absl::string_view kTitle = "tf_hps snapshot 1";

std::string Quoted(absl::string_view text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

// One line: a word, then name=value fields, a value being quoted or without blanks.
class Line {
 public:
  static absl::StatusOr<Line> Parse(absl::string_view text) {
    Line line;
    const size_t word_end = text.find(' ');
    line.word_ = std::string(text.substr(0, word_end));
    while (!text.empty() && text.find(' ') != absl::string_view::npos) {
      text.remove_prefix(text.find(' ') + 1);
      TF_HPS_RETURN_IF_ERROR(line.ParseField(&text));
    }
    return line;
  }

  const std::string& word() const { return word_; }

  bool Has(absl::string_view name) const { return fields_.count(std::string(name)) > 0; }

  absl::Status Get(absl::string_view name, std::string* value) const {
    const auto it = fields_.find(std::string(name));
    if (it == fields_.end()) return absl::DataLossError(absl::StrCat("no field ", name));
    *value = it->second;
    return absl::OkStatus();
  }

  template <typename Int>
  absl::Status Get(absl::string_view name, Int* value) const {
    std::string text;
    TF_HPS_RETURN_IF_ERROR(Get(name, &text));
    if (absl::SimpleAtoi(text, value)) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("field ", name, " is not a number: ", text));
  }

 private:
  // Takes one field off the front of *text, up to the blank after it.
  absl::Status ParseField(absl::string_view* text) {
    const size_t equals = text->find('=');
    if (equals == absl::string_view::npos) return absl::DataLossError("a field without a value");
    const std::string name(text->substr(0, equals));
    text->remove_prefix(equals + 1);
    if (text->empty() || text->front() != '"') {
      const size_t end = std::min(text->find(' '), text->size());
      fields_[name] = std::string(text->substr(0, end));
      text->remove_prefix(end);
      return absl::OkStatus();
    }
    size_t end = 1;
    while (end < text->size() && (*text)[end] != '"') end += (*text)[end] == '\\' ? 2 : 1;
    if (end >= text->size() || !absl::CUnescape(text->substr(1, end - 1), &fields_[name])) {
      return absl::DataLossError(absl::StrCat("field ", name, " is badly quoted"));
    }
    text->remove_prefix(end + 1);
    return absl::OkStatus();
  }

  std::string word_;
  std::map<std::string, std::string> fields_;
};

std::string TableLine(const Snapshot::Table& table) {
  const TableState& s = table.state;
  return absl::StrCat("table id=", s.id, " name=", Quoted(s.name), " alias=", Quoted(table.alias),
                      " dim=", s.dim, " dtype=float32 initializer=", Quoted(s.initializer),
                      " seed=", s.seed, " salt=", Quoted(s.salt),
                      " optimizer=", Quoted(s.optimizer), " state_epoch=", s.state_epoch,
                      " step=", s.step, " rows=", s.rows, "\n");
}

absl::Status ParseTable(const Line& line, Snapshot::Table* table) {
  TableState& s = table->state;
  std::string dtype;
  TF_HPS_RETURN_IF_ERROR(line.Get("id", &s.id));
  TF_HPS_RETURN_IF_ERROR(line.Get("name", &s.name));
  TF_HPS_RETURN_IF_ERROR(line.Get("alias", &table->alias));
  TF_HPS_RETURN_IF_ERROR(line.Get("dim", &s.dim));
  TF_HPS_RETURN_IF_ERROR(line.Get("dtype", &dtype));
  TF_HPS_RETURN_IF_ERROR(line.Get("initializer", &s.initializer));
  TF_HPS_RETURN_IF_ERROR(line.Get("seed", &s.seed));
  TF_HPS_RETURN_IF_ERROR(line.Get("salt", &s.salt));
  TF_HPS_RETURN_IF_ERROR(line.Get("optimizer", &s.optimizer));
  TF_HPS_RETURN_IF_ERROR(line.Get("state_epoch", &s.state_epoch));
  TF_HPS_RETURN_IF_ERROR(line.Get("step", &s.step));
  TF_HPS_RETURN_IF_ERROR(line.Get("rows", &s.rows));
  if (dtype != "float32") return absl::DataLossError(absl::StrCat("unknown dtype ", dtype));
  return absl::OkStatus();
}

absl::Status ParseFile(const Line& line, SsdTier::File* file) {
  int immutable = 0;
  TF_HPS_RETURN_IF_ERROR(line.Get("instance", &file->instance));
  TF_HPS_RETURN_IF_ERROR(line.Get("name", &file->name));
  TF_HPS_RETURN_IF_ERROR(line.Get("bytes", &file->bytes));
  TF_HPS_RETURN_IF_ERROR(line.Get("immutable", &immutable));
  file->immutable = immutable != 0;
  if (file->immutable) return absl::OkStatus();
  std::string checksum;
  TF_HPS_RETURN_IF_ERROR(line.Get("checksum", &checksum));
  if (absl::SimpleHexAtoi(checksum, &file->checksum)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("field checksum is not a number: ", checksum));
}

absl::Status ParseLine(absl::string_view text, Snapshot* snapshot) {
  TF_HPS_ASSIGN_OR_RETURN(const Line line, Line::Parse(text));
  if (line.word() == "store") {
    TF_HPS_RETURN_IF_ERROR(line.Get("instances", &snapshot->instances));
    TF_HPS_RETURN_IF_ERROR(line.Get("next_table_id", &snapshot->next_table_id));
    TF_HPS_RETURN_IF_ERROR(line.Get("dense_step", &snapshot->dense_step));
    return line.Has("keep_commits") ? line.Get("keep_commits", &snapshot->keep_commits)
                                    : absl::OkStatus();
  }
  if (line.word() == "table") return ParseTable(line, &snapshot->tables.emplace_back());
  if (line.word() == "file") return ParseFile(line, &snapshot->files.emplace_back());
  return absl::DataLossError(absl::StrCat("unknown line ", text));
}

std::string ChecksumLine(absl::string_view body) {
  return absl::StrCat("checksum ", absl::Hex(StableHash64(body), absl::kZeroPad16), "\n");
}

}  // namespace

const Snapshot::Table* Snapshot::FindAlias(absl::string_view alias) const {
  for (const Table& table : tables) {
    if (table.alias == alias) return &table;
  }
  return nullptr;
}

absl::Status Snapshot::RestoreFiles(const std::string& from, const std::string& to) const {
  for (int i = 0; i < instances; ++i) {
    TF_HPS_RETURN_IF_ERROR(CreateDirectories(SsdTier::InstanceDirectory(to, i)));
  }
  for (const SsdTier::File& file : files) {
    TF_HPS_RETURN_IF_ERROR(
        SsdTier::RestoreFile(file, SsdTier::FilePath(from, file), SsdTier::FilePath(to, file)));
  }
  return absl::OkStatus();
}

std::string Snapshot::ToText() const {
  std::string text =
      absl::StrCat(kTitle, "\nstore instances=", instances, " next_table_id=", next_table_id,
                   " dense_step=", dense_step,
                   keep_commits > 0 ? absl::StrCat(" keep_commits=", keep_commits) : "", "\n");
  for (const Table& table : tables) absl::StrAppend(&text, TableLine(table));
  for (const SsdTier::File& file : files) {
    absl::StrAppend(&text, "file instance=", file.instance, " name=", Quoted(file.name),
                    " bytes=", file.bytes, " immutable=", file.immutable ? 1 : 0);
    if (!file.immutable) {
      absl::StrAppend(&text, " checksum=", absl::Hex(file.checksum, absl::kZeroPad16));
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, ChecksumLine(text));
  return text;
}

absl::StatusOr<Snapshot> Snapshot::Read(const std::string& path) {
  TF_HPS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return Parse(text, path);
}

absl::StatusOr<Snapshot> Snapshot::Parse(absl::string_view text, absl::string_view path) {
  const auto damaged = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: ", why));
  };
  const size_t checksum = text.rfind("checksum ");
  if (checksum == absl::string_view::npos) return damaged("it has no checksum");
  const absl::string_view body = text.substr(0, checksum);
  if (text.substr(checksum) != ChecksumLine(body)) return damaged("its checksum does not fit");
  std::vector<absl::string_view> lines =
      absl::StrSplit(absl::StripSuffix(body, "\n"), absl::ByChar('\n'));
  if (lines[0] != kTitle) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " begins with \"", absl::CEscape(lines[0]), "\", expected \"", kTitle,
                     "\": another version of tf_hps wrote it"));
  }
  Snapshot snapshot;
  for (size_t i = 1; i < lines.size(); ++i) {
    const absl::Status status = ParseLine(lines[i], &snapshot);
    if (!status.ok()) return damaged(status.message());
  }
  if (snapshot.instances < 1) return damaged("it names no LevelDB instance");
  return snapshot;
}

}  // namespace tf_hps
