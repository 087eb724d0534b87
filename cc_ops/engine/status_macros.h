// Early returns for absl::Status and absl::StatusOr.

#ifndef TF_HPS_CC_OPS_ENGINE_STATUS_MACROS_H_
#define TF_HPS_CC_OPS_ENGINE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TF_HPS_RETURN_IF_ERROR(expr)               \
  do {                                             \
    absl::Status tf_hps_status = (expr);           \
    if (!tf_hps_status.ok()) return tf_hps_status; \
  } while (false)

#define TF_HPS_CONCAT_INNER(a, b) a##b
#define TF_HPS_CONCAT(a, b) TF_HPS_CONCAT_INNER(a, b)

// TF_HPS_ASSIGN_OR_RETURN(auto x, MakeX());
#define TF_HPS_ASSIGN_OR_RETURN(lhs, expr) \
  TF_HPS_ASSIGN_OR_RETURN_IMPL(TF_HPS_CONCAT(tf_hps_or_, __LINE__), lhs, expr)
#define TF_HPS_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return std::move(tmp).status();     \
  lhs = *std::move(tmp)

#endif  // TF_HPS_CC_OPS_ENGINE_STATUS_MACROS_H_
