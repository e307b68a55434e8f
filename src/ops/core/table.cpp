// The op table: all families in one array, with two ways in (name, node kind). Built once, at first
// use; constant afterwards, so any thread reads it without a lock.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/families.h"
#include "ops/host/host.h"

namespace tp::ops {
namespace {

struct Table {
  std::vector<Family> families;
  // Row i has kind i, so each is found from the other by position: no search by name.
  std::vector<const Row*> rows;
  std::vector<ir::OpKind> kinds;
  struct Block {
    const Row* begin;
    const Row* end;
    size_t first;
  };
  std::vector<Block> blocks;  // the families' arrays by address
  std::unordered_map<std::string_view, const Row*> by_name;

  Table() {
    families = {elementwise_unary(),
                elementwise_binary(),
                elementwise_ternary(),
                activation(),
                compare(),
                reduction(),
                reduction_index(),
                softmax(),
                matmul(),
                grouped_mm(),
                loss(),
                distance(),
                linalg(),  //
                conv(),
                pool(),
                norm(),
                upsample(),
                embedding(),
                ctc(),
                fft(),
                special_bessel(),
                special_erf(),
                special_gamma(),
                special_polynomial(),  //
                view(),
                shape(),
                index(),
                sort(),
                scan(),
                creation(),
                random(),
                amp(),
                optim()};
    for (Family f : families) add(f);
    std::sort(blocks.begin(), blocks.end(),
              [](const Block& a, const Block& b) { return a.begin < b.begin; });
  }

  void add(Family f) {
    if (f.empty()) return;
    blocks.push_back({f.data(), f.data() + f.size(), rows.size()});
    for (const Row& r : f) {
      check(by_name.emplace(r.name, &r).second, cat("op ", r.name, " has one row"));
      rows.push_back(&r);
      kinds.push_back(ir::make_kind(r.name));
    }
  }
};

const Table& the_table() {
  static const Table* t = new Table;  // never destroyed: nodes point at its kinds
  return *t;
}

}  // namespace

std::span<const Family> table() { return the_table().families; }

const Row* find_row(std::string_view name) {
  const Table& t = the_table();
  auto it = t.by_name.find(name);
  return it == t.by_name.end() ? nullptr : it->second;
}

const ir::OpKind& kind_of(const Row& row) {
  static const Table& t = the_table();
  auto it = std::upper_bound(t.blocks.begin(), t.blocks.end(), &row,
                             [](const Row* r, const Table::Block& b) { return r < b.end; });
  if (it == t.blocks.end() || &row < it->begin) {
    const ir::OpKind* host = host_kind_of(row);
    check(host != nullptr, "a row belongs to a family, or is a host op's");
    return *host;
  }
  return t.kinds[it->first + static_cast<size_t>(&row - it->begin)];
}

const Row* row_of(const ir::OpKind& kind) {
  static const Table& t = the_table();
  const ir::OpKind *first = t.kinds.data(), *last = first + t.kinds.size();
  return &kind >= first && &kind < last ? t.rows[static_cast<size_t>(&kind - first)]
                                        : host_row_of(kind);
}

}  // namespace tp::ops
