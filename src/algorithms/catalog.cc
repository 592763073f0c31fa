// The one table of algorithms: recording, shape and claim of each.
#include "algorithms/catalog.h"

#include <array>

#include "algorithms/by_core.h"
#include "algorithms/circulant.h"
#include "algorithms/claims.h"
#include "algorithms/direct.h"
#include "algorithms/double_tree.h"
#include "algorithms/doubling.h"
#include "algorithms/halving.h"
#include "algorithms/hierarchical.h"
#include "algorithms/knomial.h"
#include "algorithms/ring.h"
#include "algorithms/scan.h"
#include "algorithms/tree.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

// An algorithm's template with its verbs read as data.
template <auto algorithm>
void recorded(Recorder& recorder, const Group& group) {
  algorithm(recorder, group);
}

constexpr std::array<Algorithm, 47> table = {{
    {"one_shot", Collective::all_reduce, false, recorded<all_reduce_one_shot<Recorder>>, whole_with_scratch,
     one_shot_claim,
     "Everybody sends its whole input to everybody and adds all in the order of ranks. The fewest rounds (one): best "
     "for small messages among few ranks.",
     "The direct (\"one-phase\") exchange; folklore.", Rounds::one},
    {"recursive_doubling", Collective::all_reduce, false, recorded<all_reduce_doubling<Recorder>>, whole,
     doubling_claim,
     "Partners at distance 1, 2, 4, … exchange their sums; ranks beyond a power of two hand over to a partner first. "
     "Best for small messages among many ranks.",
     "Thakur, Rabenseifner, Gropp, \"Optimization of Collective Communication Operations in MPICH\", IJHPCA 2005."},
    {"tree", Collective::all_reduce, false, recorded<all_reduce_tree<Recorder>>, whole, all_reduce_tree_claim,
     "Adds up a binomial tree to rank 0 and spreads down it. The fewest messages in all, 2 (n - 1): best for small "
     "messages where ranks share few cores.",
     "Thakur, Rabenseifner, Gropp, IJHPCA 2005; the tree: Johnsson, Ho, IEEE Trans. Computers 1989."},
    {"by_core", Collective::all_reduce, false, recorded<all_reduce_by_core<Recorder>>, chunk_per_core_with_scratch,
     by_core_claim,
     "The ranks on each core hand their inputs to the first of them, which adds; these run two-shot across cores, and each sends "
     "its sum to everybody. Of a core one rank works for all: best where several ranks share each.",
     "Leaders of clusters, here of cores: Kielmann, Hofman, Bal, Plaat, Bhoedjang, \"MagPIe: MPI's collective communication operations "
     "for clustered wide area systems\", PPoPP 1999.", Rounds::none, false, true},
    {"two_shot", Collective::all_reduce, false, recorded<all_reduce_two_shot<Recorder>>, chunk_per_rank_with_scratch,
     two_shot_claim,
     "Rank i adds chunk i of everybody in the order of ranks and sends the sum to everybody. Two rounds and the least "
     "bytes: best for large messages where all ranks reach each other equally well.",
     "Reduce-scatter and all-gather: Rabenseifner, ICCS 2004; both phases direct.", Rounds::none, true},
    {"ring", Collective::all_reduce, false, recorded<all_reduce_ring<Recorder>>, chunk_per_rank, ring_claim,
     "n chunks go round a ring twice: once adding, once spreading. The least bytes, and each rank talks to two "
     "neighbours only: best for large messages on links that cross traffic would slow.",
     "Patarasuk, Yuan, \"Bandwidth optimal all-reduce algorithms for clusters of workstations\", JPDC 2009.",
     Rounds::none, true},
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
    {"halving_doubling", Collective::all_reduce, false, recorded<all_reduce_halving<Recorder>>, chunk_per_member,
     all_reduce_halving_claim,
     "Partners at distance 1, 2, 4, … exchange halves of what they still have to add, then double the results "
     "backwards; ranks beyond a power of two hand over to their neighbour first. Few rounds and, among powers of "
     "two, the least bytes, in the order of ranks: best for middle sizes among many ranks.",
     "Rabenseifner, \"Optimization of collective reduction operations\", ICCS 2004."},
    {"circulant", Collective::all_reduce, false, recorded<all_reduce_circulant<Recorder>>, runs_of_chunks_with_scratch,
     all_reduce_circulant_claim,
     "A reduce_scatter and an all_gather at the distances of n halved again and again. Twice the fewest rounds "
     "for a block each way and the least bytes, for any n: best for middle sizes among many ranks.",
     "Träff, \"Optimal, non-pipelined reduce-scatter and allreduce algorithms\", 2024.", Rounds::none, true},
    {"direct", Collective::broadcast, false, recorded<broadcast_direct<Recorder>>, whole, direct_claim,
     "The root sends to everybody. One round: best for small messages among few ranks.", "Folklore.", Rounds::one},
    {"binomial", Collective::broadcast, false, recorded<broadcast_knomial<2, Recorder>>, whole,
     broadcast_knomial_claim<2>,
     "Whoever has the message sends it on to ranks at distance n/2, n/4, … . Best for small messages among many ranks.",
     "Johnsson, Ho, \"Optimum broadcasting and personalized communication in hypercubes\", IEEE Trans. Computers "
     "1989.", Rounds::one_partner},
    {"chain", Collective::broadcast, true, recorded<broadcast_chain<Recorder>>, chunk_per_pipeline_place, chain_claim,
     "From the root to its neighbour and on, chunk by chunk, all links busy at once. Each rank sends everything once: "
     "best for large messages.",
     "The pipelined linear broadcast: Träff, Ripke, \"Optimal broadcast for fully connected processor-node networks\", "
     "JPDC 2008.", Rounds::none, true},
    {"double_tree", Collective::broadcast, true, recorded<broadcast_double_tree<Recorder>>, chunk_per_pipeline_place,
     broadcast_double_tree_claim,
     "Two binary trees, each for half of the chunks, an inner node of one being a leaf of the other. Each rank sends "
     "about everything once in logarithmic height: best for middle and large sizes on many ranks.",
     "Sanders, Speck, Träff, Parallel Computing 2009."},
    {"knomial_4", Collective::broadcast, false, recorded<broadcast_knomial<4, Recorder>>, whole,
     broadcast_knomial_claim<4>,
     "As binomial, but whoever has the message sends it to three ranks on each level: half the levels. Best for small "
     "messages where a flight takes longer than a few sends.",
     "K-nomial trees: Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 1997."},
    {"hierarchical", Collective::broadcast, true, recorded<broadcast_hierarchical<Recorder>>, chunk_per_pipeline_place,
     broadcast_hierarchical_claim,
     "Down a binomial tree of hosts, chunk by chunk, and on each host to all its ranks. Each byte crosses to each host "
     "once: best where links inside a host are faster than those between.",
     "Karonis et al., \"Exploiting hierarchy in parallel computer networks\", IPDPS 2000."},
    {"direct", Collective::reduce, false, recorded<reduce_direct<Recorder>>, whole_with_scratch, reduce_direct_claim,
     "Everybody sends to the root, which adds all in one pass, in the order of ranks. One round: best for small "
     "messages among few ranks.",
     "Folklore.", Rounds::one, true},
    {"binomial", Collective::reduce, false, recorded<reduce_knomial<2, Recorder>>, whole_with_scratch,
     reduce_knomial_claim<2>,
     "Neighbouring groups of 1, 2, 4, … ranks join their sums, in the order of ranks whatever the root. Best for small "
     "messages among many ranks.",
     "Thakur, Rabenseifner, Gropp, IJHPCA 2005; the tree: Johnsson, Ho, IEEE Trans. Computers 1989.",
     Rounds::one_partner, true},
    {"knomial_4", Collective::reduce, false, recorded<reduce_knomial<4, Recorder>>, whole_with_two_scratch,
     reduce_knomial_claim<4>,
     "Four neighbouring groups of 1, 4, 16, … ranks join their sums in one pass, in the order of ranks whatever "
     "the root: half the levels of binomial. Best for small messages among many ranks.",
     "K-nomial trees: Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 1997.", Rounds::none, true},
    {"hierarchical", Collective::reduce, false, recorded<reduce_hierarchical<Recorder>>, whole_with_two_scratch,
     reduce_hierarchical_claim,
     "Each host adds its ranks' inputs in one pass; the hosts' sums go up a binomial tree. Each host sends once: "
     "best where links inside a host are faster than those between.",
     "Karonis et al., IPDPS 2000.", Rounds::none, true},
    {"by_core", Collective::reduce, false, recorded<reduce_by_core<Recorder>>, whole_with_two_scratch,
     reduce_by_core_claim,
     "The ranks on each core hand their inputs to the first of them, or to the root, which adds; the cores' sums go up a binomial "
     "tree. Of a core one rank works for all: best where several ranks share each.",
     "Leaders of clusters, here of cores: Kielmann et al., PPoPP 1999.", Rounds::none, false, true},
    {"chain", Collective::reduce, true, recorded<reduce_chain<Recorder>>, pipeline_with_scratch, chain_claim,
     "From the root's right neighbour round to the root, chunk by chunk, all links busy at once. Each rank sends "
     "everything once: best for large messages.",
     "The pipelined linear broadcast, backwards: Träff, Ripke, JPDC 2008.", Rounds::none, true},
    {"direct", Collective::all_gather, false,
     recorded<static_cast<void (*)(Recorder&, const Group&)>(all_gather_direct<Recorder>)>, blocks, other_blocks_claim,
     "Everybody sends its block to everybody. One round and the least bytes: best where all ranks reach each other "
     "equally well.",
     "Folklore.", Rounds::one, true},
    {"ring", Collective::all_gather, false, recorded<all_gather_ring<Recorder>>, blocks, ring_turn_claim,
     "Every block goes round the ring. The least bytes, and each rank talks to two neighbours only: best for large "
     "blocks on links that cross traffic would slow.",
     "Patarasuk, Yuan, JPDC 2009.", Rounds::none, true},
    {"bruck", Collective::all_gather, false, recorded<all_gather_bruck<Recorder>>, runs_of_blocks, bruck_claim,
     "At distances 1, 2, 4, … every rank passes on all that it has. The fewest messages and the least bytes: best for "
     "small blocks among many ranks.",
     "Bruck, Ho, Kipnis, Upfal, Weathersby, \"Efficient algorithms for all-to-all communications in multiport "
     "message-passing systems\", IEEE TPDS 1997.", Rounds::one_partner, true},
    {"circulant", Collective::all_gather, false, recorded<all_gather_circulant<Recorder>>, runs_of_blocks,
     all_gather_circulant_claim,
     "As bruck, at the distances of n halved again and again, so that messages are alike: the same rounds and bytes.",
     "Träff, \"Optimal, non-pipelined reduce-scatter and allreduce algorithms\", 2024.", Rounds::one_partner, true},
    {"hierarchical", Collective::all_gather, false, recorded<all_gather_hierarchical<Recorder>>, blocks,
     all_gather_hierarchical_claim,
     "Each block crosses once to each other host, whose ranks take turns to receive and hand on inside. Two "
     "rounds: best where links inside a host are faster than those between.",
     "Träff, Rougier, EuroMPI 2014."},
    {"direct", Collective::reduce_scatter, false,
     recorded<static_cast<void (*)(Recorder&, const Group&)>(reduce_scatter_direct<Recorder>)>, blocks_with_scratch,
     reduce_scatter_direct_claim,
     "Rank i adds block i of everybody in one pass, in the order of ranks. One round and the least bytes: best where "
     "all ranks reach each other equally well.",
     "Folklore.", Rounds::one, true},
    {"ring", Collective::reduce_scatter, false, recorded<reduce_scatter_ring<Recorder>>, blocks_with_scratch,
     ring_turn_claim,
     "Sums go round the ring, each rank adding its own. The least bytes, and each rank talks to two neighbours only: "
     "best for large blocks on links that cross traffic would slow.",
     "Patarasuk, Yuan, JPDC 2009.", Rounds::none, true},
    {"circulant", Collective::reduce_scatter, false, recorded<reduce_scatter_circulant<Recorder>>,
     runs_of_blocks_with_scratch, reduce_scatter_circulant_claim,
     "At the distances of n halved again and again, every rank hands on half of its sums. The fewest messages and the "
     "least bytes for any n: best for small blocks among many ranks.",
     "Träff, \"Optimal, non-pipelined reduce-scatter and allreduce algorithms\", 2024.", Rounds::one_partner, true},
    {"halving", Collective::reduce_scatter, false, recorded<reduce_scatter_halving<Recorder>>,
     runs_of_blocks_with_scratch, reduce_scatter_halving_claim,
     "Partners at half the distance each time exchange the half of the blocks that the other still has to add; "
     "ranks beyond a power of two hand over to their neighbour first. Best for small blocks among a power of two "
     "of ranks.",
     "Thakur, Rabenseifner, Gropp, IJHPCA 2005."},
    {"direct", Collective::gather, false, recorded<gather_direct<Recorder>>, blocks, own_block_claim,
     "Everybody sends its block to the root. One round and the least bytes: best for large blocks, or few ranks.",
     "Folklore.", Rounds::one, true},
    {"binomial", Collective::gather, false, recorded<gather_knomial<2, Recorder>>, runs_of_blocks_with_scratch,
     gather_knomial_claim<2>,
     "Blocks gather up a binomial tree, a subtree's as one message. Best for small blocks among many ranks.",
     "Thakur, Rabenseifner, Gropp, IJHPCA 2005.", Rounds::one_partner},
    {"knomial_4", Collective::gather, false, recorded<gather_knomial<4, Recorder>>, runs_of_blocks_with_scratch,
     gather_knomial_claim<4>,
     "As binomial, with three subtrees on each level: half the levels. Best for small blocks among many ranks.",
     "K-nomial trees: Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 1997."},
    {"direct", Collective::scatter, false, recorded<scatter_direct<Recorder>>, blocks, other_blocks_claim,
     "The root sends everybody its block. One round and the least bytes: best for large blocks, or few ranks.",
     "Folklore.", Rounds::one, true},
    {"binomial", Collective::scatter, false, recorded<scatter_knomial<2, Recorder>>, runs_of_blocks_with_scratch,
     scatter_knomial_claim<2>,
     "Blocks go down a binomial tree, a subtree's as one message. Best for small blocks among many ranks.",
     "Thakur, Rabenseifner, Gropp, IJHPCA 2005.", Rounds::one_partner, true},
    {"knomial_4", Collective::scatter, false, recorded<scatter_knomial<4, Recorder>>, runs_of_blocks_with_scratch,
     scatter_knomial_claim<4>,
     "As binomial, with three subtrees on each level: half the levels. Best for small blocks among many ranks.",
     "K-nomial trees: Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 1997.", Rounds::none, true},
    {"direct", Collective::all_to_all, false, recorded<all_to_all_direct<Recorder>>, blocks, other_blocks_claim,
     "Everybody sends everybody its block, all at once. One round and the least bytes: best for small blocks, or few "
     "ranks.",
     "Folklore.", Rounds::one, true},
    {"pairwise", Collective::all_to_all, false, recorded<all_to_all_pairwise<Recorder>>, blocks, other_blocks_claim,
     "A round robin: in each of n - 1 rounds (n, where n is odd) ranks exchange in pairs: one partner at a time. Best for "
     "large blocks on links that many senders at once would choke.",
     "Thakur, Rabenseifner, Gropp, IJHPCA 2005; the pairs of a tournament, for any n: Kirkman, 1847.", Rounds::none, true},
    {"bruck", Collective::all_to_all, false, recorded<all_to_all_bruck<Recorder>>, runs_of_blocks_with_two_scratch,
     all_to_all_bruck_claim,
     "A block travels by the powers of two that its distance is the sum of, together with all that have that "
     "power. The fewest rounds, each with half of the blocks: best for very small blocks among many ranks.",
     "Bruck, Ho, Kipnis, Upfal, Weathersby, \"Efficient algorithms for all-to-all communications in multiport "
     "message-passing systems\", IEEE TPDS 1997.", Rounds::one_partner},
    {"direct", Collective::scan, false, recorded<scan_direct<Recorder>>, whole_with_scratch, scan_direct_claim,
     "Everybody sends its input to all higher ranks, which add what comes in one pass. One round: best for small "
     "messages among few ranks.",
     "Folklore.", Rounds::one},
    {"recursive_doubling", Collective::scan, false, recorded<scan_doubling<Recorder>>, whole, scan_doubling_claim,
     "At distances 1, 2, 4, … every rank hands up its sum, which covers twice as many ranks after each round. Best for "
     "small messages among many ranks.",
     "Hillis, Steele, \"Data parallel algorithms\", CACM 1986; Kogge, Stone, IEEE Trans. Computers 1973.",
     Rounds::one_partner},
    {"chain", Collective::scan, true, recorded<scan_chain<Recorder>>, chunk_per_pipeline_place, scan_chain_claim,
     "From rank to rank, chunk by chunk, each adding its own, all links busy at once. Each rank sends everything once: "
     "best for large messages.",
     "The pipelined linear scan: Sanders, Träff, \"Parallel prefix (scan) algorithms for MPI\", EuroPVM/MPI 2006.",
     Rounds::none, true},
    {"direct", Collective::exscan, false, recorded<exscan_direct<Recorder>>, whole, scan_direct_claim,
     "Everybody sends its input to all higher ranks, which add what comes in one pass. One round: best for small "
     "messages among few ranks.",
     "Folklore.", Rounds::one},
    {"recursive_doubling", Collective::exscan, false, recorded<exscan_doubling<Recorder>>, whole,
     exscan_doubling_claim,
     "Inputs move up by one rank; then sums go up at distances 1, 2, 4, … . One addition a round and one shift: "
     "best for middle sizes among many ranks.",
     "Hillis, Steele, CACM 1986, on inputs shifted by one."},
    {"doubling_123", Collective::exscan, false, recorded<exscan_123<Recorder>>, whole_with_two_scratch,
     exscan_123_claim,
     "At distances 1, 2, 3, and then doubled: three inputs are there after two rounds. Fewer rounds than a shift and a "
     "scan: best for small messages among many ranks.",
     "Träff, \"Improved algorithms for the exclusive prefix sums\" (123-doubling), 2025."},
    {"chain", Collective::exscan, true, recorded<exscan_chain<Recorder>>, pipeline_with_two_scratch, scan_chain_claim,
     "From rank to rank, chunk by chunk: what comes in is the result, and with the rank's own added it goes on. "
     "Each rank sends everything once: best for large messages.",
     "The pipelined linear scan: Sanders, Träff, EuroPVM/MPI 2006.", Rounds::none, true},
}};

}  // namespace

std::span<const Algorithm> catalog() { return table; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  collective = served_as(collective);
  for (const Algorithm& row : table)
    if (row.collective == collective && row.name == name) return &row;
  return nullptr;
}

std::string algorithm_names(Collective collective) {
  std::string names;
  for (const Algorithm& row : table)
    if (row.collective == served_as(collective)) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace tutti
