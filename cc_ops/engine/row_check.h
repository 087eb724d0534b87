// Checks the entries of a snapshot's LevelDB instances one after another.

#ifndef TF_HPS_CC_OPS_ENGINE_ROW_CHECK_H_
#define TF_HPS_CC_OPS_ENGINE_ROW_CHECK_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cc_ops/engine/row.h"
#include "cc_ops/engine/snapshot.h"

namespace tf_hps {

// Not thread-safe. The snapshot must outlive it.
class RowCheck {
 public:
  struct Problem {
    std::string text;
    bool damage;
  };

  explicit RowCheck(const Snapshot& snapshot);

  void BeginInstance(int instance);

  // Takes the next entry of the instance: its key's length, its place, that it ascends and decodes.
  // What is wrong is returned for the first row of each kind only, else "".
  std::string Check(absl::string_view entry, absl::string_view row);

  // At the end: rows that are too many or too few, and those of no table.
  std::vector<Problem> CheckCounts() const;

  int64_t rows() const { return rows_; }

 private:
  struct Table {
    const Snapshot::Table* saved;
    RowLayout layout;
    RowBuffer buffer;  // one row
    int64_t rows = 0;
  };
  std::string Decode(Table& table, int64_t key, absl::string_view row);
  std::string Once(const std::string& kind, const std::string& text);

  const Snapshot& snapshot_;
  std::map<uint32_t, Table> tables_;     // by id
  std::map<uint32_t, int64_t> unknown_;  // rows by id
  std::string last_entry_;
  std::set<std::string> reported_;
  int instance_ = 0;
  int64_t rows_ = 0;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_ROW_CHECK_H_
