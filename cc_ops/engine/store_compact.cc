// Giving back the room that a store does not need.

#include <set>

#include "cc_ops/engine/parallel.h"
#include "cc_ops/engine/ssd_key.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/store.h"

namespace tf_hps {

absl::Status Store::Compact() {
  {
    // Rows that were written after it would make garbage of those on SSD again.
    ExclusivePass pass(&context_->gate);
    TF_HPS_RETURN_IF_ERROR(CheckOpen());
    TF_HPS_RETURN_IF_ERROR(FlushTables(SerialFor));
  }
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  std::set<uint32_t> ids;
  for (const auto& [name, table] : tables_) {
    table->AssertGateShared();
    ids.insert(table->id());
  }
  TF_HPS_RETURN_IF_ERROR(context_->ssd->DropOtherTables(ids));
  return context_->ssd->Compact();
}

absl::Status SsdTier::DropOtherTables(const std::set<uint32_t>& keep) {
  std::set<uint32_t> garbage;
  for (const auto& instance : instances_) {
    TF_HPS_ASSIGN_OR_RETURN(const auto cursor, instance->NewCursor());
    SsdInstance::Cursor& it = *cursor;
    it->SeekToFirst();
    while (it->Valid()) {
      uint32_t id;
      int64_t key;
      if (!ParseSsdKey({it->key().data(), it->key().size()}, &id, &key)) {
        return absl::DataLossError(instance->directory() +
                                   " holds an entry whose key is of another length than a row's");
      }
      if (keep.count(id) == 0) garbage.insert(id);
      if (id == UINT32_MAX) break;
      it->Seek(EncodeSsdKey(id + 1, INT64_MIN));
    }
    TF_HPS_RETURN_IF_ERROR(it.status());
  }
  for (const uint32_t id : garbage) TF_HPS_RETURN_IF_ERROR(DropTable(id));
  return absl::OkStatus();
}

absl::Status SsdTier::Compact() {
  for (const auto& instance : instances_) TF_HPS_RETURN_IF_ERROR(instance->Compact());
  return absl::OkStatus();
}

}  // namespace tf_hps
