#include "cc_ops/engine/row_check.h"

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/saved_tables.h"
#include "cc_ops/engine/ssd_key.h"

namespace tf_hps {

RowCheck::RowCheck(const Snapshot& snapshot) : snapshot_(snapshot) {
  for (const Snapshot::Table& table : snapshot.tables) {
    const RowLayout without_state{table.state.dim, 0};
    const RowLayout layout = LayoutOf(table.state).value_or(without_state);
    tables_[table.state.id] = {&table, layout, RowBuffer(layout, 1)};
  }
}

void RowCheck::BeginInstance(int instance) {
  instance_ = instance;
  last_entry_.clear();
  reported_.clear();
}

std::string RowCheck::Once(const std::string& kind, const std::string& text) {
  return reported_.insert(kind).second ? absl::StrCat(text, " (the first of such rows)") : "";
}

std::string RowCheck::Check(absl::string_view entry, absl::string_view row) {
  ++rows_;
  uint32_t id;
  int64_t key;
  if (!ParseSsdKey(entry, &id, &key)) {
    return Once("length",
                absl::StrCat("a row's key has ", entry.size(), " bytes, expected ", kSsdKeyBytes));
  }
  const bool ascends = last_entry_.empty() || entry > last_entry_;
  last_entry_.assign(entry.data(), entry.size());
  const auto it = tables_.find(id);
  ++(it == tables_.end() ? unknown_[id] : it->second.rows);
  if (!ascends) {
    return Once("order", absl::StrCat("key ", key, " of table id ", id, " does not ascend"));
  }
  const uint32_t home = PartitionOf(HashKey(key), static_cast<uint32_t>(snapshot_.instances));
  if (static_cast<int>(home) != instance_) {
    return Once("home", absl::StrCat("key ", key, " of table id ", id, " lies in instance ",
                                     instance_, ", expected ", home));
  }
  return it == tables_.end() ? "" : Decode(it->second, key, row);
}

std::string RowCheck::Decode(Table& table, int64_t key, absl::string_view row) {
  const TableState& state = table.saved->state;
  bool fresh_state;
  const absl::Status status =
      DecodeRow(table.layout, state.state_epoch, row, table.buffer[0], &fresh_state);
  if (status.ok()) return "";
  return Once(absl::StrCat("row of ", state.id),
              absl::StrCat("table \"", state.name, "\", key ", key, ": ", status.message()));
}

std::vector<RowCheck::Problem> RowCheck::CheckCounts() const {
  std::vector<Problem> problems;
  for (const auto& [id, table] : tables_) {
    const TableState& state = table.saved->state;
    if (table.rows == state.rows) continue;
    problems.push_back({absl::StrCat("says that table \"", state.name, "\" has ", state.rows,
                                     " rows, and there are ", table.rows),
                        true});
  }
  for (const auto& [id, rows] : unknown_) {
    if (id < snapshot_.next_table_id) {
      problems.push_back({absl::StrCat("has no table of id ", id, " any more, of which there are ",
                                       rows, " rows: they take room until `tf-hps compact`"),
                          false});
    } else {
      problems.push_back({absl::StrCat("has no table of id ", id, " yet, of which there are ", rows,
                                       " rows: a new table would get them"),
                          true});
    }
  }
  return problems;
}

}  // namespace tf_hps
