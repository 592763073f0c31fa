// The one table of algorithms: recording, shape and claim of each.
#include "algorithms/catalog.h"

#include <algorithm>
#include <array>
#include <bit>

#include "algorithms/direct.h"
#include "algorithms/double_tree.h"
#include "algorithms/doubling.h"
#include "algorithms/hierarchical.h"
#include "algorithms/ring.h"
#include "algorithms/tree.h"

namespace tutti {
namespace {

Shape whole(const Group&) { return {1, 1, 0, 1}; }
Shape whole_with_scratch(const Group&) { return {1, 1, 1, 1}; }
Shape chunk_per_rank(const Group& g) { return {uint32_t(g.n), uint32_t(g.n), 0, 1}; }
Shape chunk_per_rank_with_scratch(const Group& g) { return {uint32_t(g.n), uint32_t(g.n), uint32_t(g.n), 1}; }
Shape chunk_per_pipeline_place(const Group& g) { return {uint32_t(g.pipeline), uint32_t(g.pipeline), 0, 1}; }

Shape hierarchical_shape(const Group& g) {
  const Hosts hosts(g);
  const int chunks = hosts.shares() * hosts.count();
  int shares_max = 1;  // that one rank of several on a host owns
  for (int h = 0; h < hosts.count(); ++h)
    for (int p = 0; hosts.size(h) > 1 && p < hosts.size(h); ++p)
      shares_max = std::max(shares_max, hosts.first_share(h, p + 1) - hosts.first_share(h, p));
  const int message = hosts.shares() > 1 ? shares_max * hosts.count() : 1;
  return {uint32_t(chunks), uint32_t(chunks), uint32_t(chunks), uint32_t(message)};
}

int log2_down(int n) { return int(std::bit_width(unsigned(n))) - 1; }
int log2_up(int n) { return int(std::bit_width(unsigned(n - 1))); }

Claim ring_claim(const Group& g) { return {2 * (g.n - 1), 2.0 * (g.n - 1) / g.n, 1}; }
Claim one_shot_claim(const Group& g) { return {g.n > 1, double(g.n - 1), 1}; }
Claim two_shot_claim(const Group& g) { return {g.n > 1 ? 2 : 0, 2.0 * (g.n - 1) / g.n, 1}; }
// Handing over costs a message on the way in; the way out is on the longest chain too where a rank that took over from
// a partner is the last to hear of another such rank, its complement.
Claim doubling_claim(const Group& g) {
  const int power = int(std::bit_floor(unsigned(g.n))), extra = g.n - power;
  return {log2_down(g.n) + (extra > 0) + (extra > power / 2), double(log2_down(g.n) + (extra > 0)), 1};
}
Claim all_reduce_tree_claim(const Group& g) { return {2 * log2_down(g.n), double(log2_up(g.n)), 1}; }
Claim binomial_claim(const Group& g) { return {log2_down(g.n), double(log2_up(g.n)), 1}; }
Claim chain_claim(const Group& g) { return {g.n - 1, g.n > 1 ? 1.0 : 0.0, 1}; }
Claim direct_claim(const Group& g) { return {g.n > 1, double(g.n - 1), 1}; }

// Chunks that the busiest place sends, over all chunks.
double double_tree_bytes(const Group& g, bool up) {
  int most = 0;
  for (int place = 0; place < g.n; ++place) {
    int sent = 0;
    for (int tree = 0; tree < 2; ++tree) {
      const TreeNode node = double_tree_node(place, g.n, tree);
      const int messages = (up && node.parent >= 0) + (node.children[0] >= 0) + (node.children[1] >= 0);
      sent += messages * (tree == 0 ? (g.pipeline + 1) / 2 : g.pipeline / 2);
    }
    most = std::max(most, sent);
  }
  return double(most) / g.pipeline;
}
Claim all_reduce_double_tree_claim(const Group& g) {
  return {2 * double_tree_height(g.n), double_tree_bytes(g, true), g.n > 2 && g.pipeline > 1 ? 2 : 1};
}
Claim broadcast_double_tree_claim(const Group& g) { return {double_tree_height(g.n), double_tree_bytes(g, false), 1}; }

Claim hierarchical_claim(const Group& g) {
  const Hosts hosts(g);
  const int n_hosts = hosts.count(), shares = hosts.shares();
  double most = 0;
  for (int r = 0; r < g.n; ++r) {
    const int h = hosts.host(r), p = hosts.place(r), others = hosts.size(h) - 1;
    const int owned = hosts.first_share(h, p + 1) - hosts.first_share(h, p);
    const double in_host = others > 0 ? shares - owned + owned * others : 0;
    most = std::max(most, (in_host + owned * 2.0 * (n_hosts - 1) / n_hosts) / shares);
  }
  return {(shares > 1 ? 2 : 0) + (n_hosts > 1 ? 2 : 0), most, 1};
}

// An algorithm's template with its verbs read as data.
template <auto algorithm>
void recorded(Recorder& recorder, const Group& group) {
  algorithm(recorder, group);
}

constexpr std::array<Algorithm, 11> table = {{
    {"one_shot", Collective::all_reduce, false, recorded<all_reduce_one_shot<Recorder>>, whole_with_scratch,
     one_shot_claim,
     "Everybody sends its whole input to everybody and adds all in the order of ranks. The fewest rounds (one): best "
     "for small messages among few ranks.",
     "The direct (\"one-phase\") exchange; folklore."},
    {"recursive_doubling", Collective::all_reduce, false, recorded<all_reduce_doubling<Recorder>>, whole,
     doubling_claim,
     "Partners at distance 1, 2, 4, … exchange their sums; ranks beyond a power of two hand over to a partner first. "
     "Best for small messages among many ranks.",
     "Thakur, Rabenseifner, Gropp, \"Optimization of Collective Communication Operations in MPICH\", IJHPCA 2005."},
    {"tree", Collective::all_reduce, false, recorded<all_reduce_tree<Recorder>>, whole, all_reduce_tree_claim,
     "Adds up a binomial tree to rank 0 and spreads down it. The fewest messages in all, 2 (n - 1): best for small "
     "messages where ranks share few cores.",
     "Thakur, Rabenseifner, Gropp, IJHPCA 2005; the tree: Johnsson, Ho, IEEE Trans. Computers 1989."},
    {"two_shot", Collective::all_reduce, false, recorded<all_reduce_two_shot<Recorder>>, chunk_per_rank_with_scratch,
     two_shot_claim,
     "Rank i adds chunk i of everybody in the order of ranks and sends the sum to everybody. Two rounds and the least "
     "bytes: best for large messages where all ranks reach each other equally well.",
     "Reduce-scatter and all-gather: Rabenseifner, ICCS 2004; both phases direct."},
    {"ring", Collective::all_reduce, false, recorded<all_reduce_ring<Recorder>>, chunk_per_rank, ring_claim,
     "n chunks go round a ring twice: once adding, once spreading. The least bytes, and each rank talks to two "
     "neighbours only: best for large messages on links that cross traffic would slow.",
     "Patarasuk, Yuan, \"Bandwidth optimal all-reduce algorithms for clusters of workstations\", JPDC 2009."},
    {"double_tree", Collective::all_reduce, true, recorded<all_reduce_double_tree<Recorder>>, chunk_per_pipeline_place,
     all_reduce_double_tree_claim,
     "Two binary trees, each for half of the chunks, an inner node of one being a leaf of the other; chunks follow "
     "each "
     "other up and down. Near the least bytes in logarithmic height: best for middle and large sizes on many ranks.",
     "Sanders, Speck, Träff, \"Two-tree algorithms for full bandwidth broadcast, reduction and scan\", Parallel "
     "Computing 2009."},
    {"hierarchical", Collective::all_reduce, false, recorded<all_reduce_hierarchical<Recorder>>, hierarchical_shape,
     hierarchical_claim,
     "Adds inside each host, runs two-shot across hosts on each share of the data, spreads inside the host. Each byte "
     "crosses between hosts once each way: best where links inside a host are faster than those between.",
     "Träff, Rougier, \"MPI collectives and datatypes for hierarchical all-to-all communication\", EuroMPI 2014; "
     "BlueConnect: Cho et al., MLSys 2019."},
    {"direct", Collective::broadcast, false, recorded<broadcast_direct<Recorder>>, whole, direct_claim,
     "The root sends to everybody. One round: best for small messages among few ranks.", "Folklore."},
    {"binomial", Collective::broadcast, false, recorded<broadcast_binomial<Recorder>>, whole, binomial_claim,
     "Whoever has the message sends it on to ranks at distance n/2, n/4, … . Best for small messages among many ranks.",
     "Johnsson, Ho, \"Optimum broadcasting and personalized communication in hypercubes\", IEEE Trans. Computers "
     "1989."},
    {"chain", Collective::broadcast, true, recorded<broadcast_chain<Recorder>>, chunk_per_pipeline_place, chain_claim,
     "From the root to its neighbour and on, chunk by chunk, all links busy at once. Each rank sends everything once: "
     "best for large messages.",
     "The pipelined linear broadcast: Träff, Ripke, \"Optimal broadcast for fully connected processor-node networks\", "
     "JPDC 2008."},
    {"double_tree", Collective::broadcast, true, recorded<broadcast_double_tree<Recorder>>, chunk_per_pipeline_place,
     broadcast_double_tree_claim,
     "Two binary trees, each for half of the chunks, an inner node of one being a leaf of the other. Each rank sends "
     "about everything once in logarithmic height: best for middle and large sizes on many ranks.",
     "Sanders, Speck, Träff, Parallel Computing 2009."},
}};

}  // namespace

std::span<const Algorithm> catalog() { return table; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  if (collective == Collective::barrier) collective = Collective::all_reduce;
  for (const Algorithm& row : table)
    if (row.collective == collective && row.name == name) return &row;
  return nullptr;
}

std::string_view algorithm_names(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
    case Collective::barrier: return "one_shot, recursive_doubling, tree, two_shot, ring, double_tree, hierarchical";
    case Collective::broadcast: return "direct, binomial, chain, double_tree";
    default: return "";
  }
}

}  // namespace tutti
