// What a store remembers of a table besides its rows.

#ifndef TF_HPS_CC_OPS_ENGINE_TABLE_STATE_H_
#define TF_HPS_CC_OPS_ENGINE_TABLE_STATE_H_

#include <cstdint>
#include <string>

namespace tf_hps {

struct TableState {
  std::string name;
  int dim = 0;
  std::string initializer;  // canonical spec
  int64_t seed = 0;
  std::string salt;          // initial rows are a function of (seed, salt, key)
  std::string optimizer;     // canonical spec; "": none yet
  uint32_t id = 0;           // prefix of its entries on SSD
  uint32_t state_epoch = 0;  // grows when another optimizer makes the rows' state void
  uint32_t step = 0;         // optimizer steps so far
  int64_t rows = 0;          // on SSD
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_TABLE_STATE_H_
